"""Which tests concern a module: read from the tests' imports, so that it stays true.

Run ``python -m tests.support.module_tests [FOLDER OR MODULE...]`` for the table. ``make mutants`` uses it.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "pyspark_rocketmq"
SOURCE: Final = ROOT / "src" / PACKAGE
TESTS: Final = ROOT / "tests"
_NAME: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")

FAST: Final = ("unit", "property", "golden", "network")
"""The folders of tests that need neither a broker nor Spark, and mutants run."""

ALL: Final = (*FAST, "fuzz", "simulation", "docs", "contract", "spark", "chaos")


def find_tests(folders: tuple[str, ...], *, of_users: bool = False) -> dict[str, list[str]]:
    """Return the test files that concern each module, as paths below the repository.

    They are those that import it or have its path; else those of the modules that import it; else those
    whose helpers import it. With ``of_users``, all of these are among them, and those of the modules that
    import the latter within its package.
    """
    files = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))
    own: dict[str, set[str]] = {file: set() for file in files}
    helped: dict[str, set[str]] = {file: set() for file in files}
    for path in sorted(path for folder in folders for path in (TESTS / folder).rglob("test_*.py")):
        test = str(path.relative_to(ROOT))
        for file in {_mirrored(path), *_files(_imports(path))} & own.keys():
            own[file].add(test)
        for file in _imported_by_helpers(path) & own.keys():
            helped[file].add(test)
    users: dict[str, set[str]] = {file: set() for file in files}
    for file in files:
        for used in _files(_imports(SOURCE / file)) & users.keys() - {file}:
            users[used].add(file)
    if of_users:
        every = {file: tests | helped[file] for file, tests in own.items()}
        own = {
            file: tests.union(*(every[user] for user in _users_near(users, file)))
            for file, tests in every.items()
        }
    return {
        file: sorted(own[file] or _of_users(users, own, file) or helped[file])
        for file in files
        if not _is_package(file)
    }


def _mirrored(test: Path) -> str:
    inner = test.relative_to(TESTS).parts[1:]
    return str(Path(*inner[:-1], inner[-1].removeprefix("test_")))


def _is_package(file: str) -> bool:
    return Path(file).name == "__init__.py"


def _of_users(users: dict[str, set[str]], own: dict[str, set[str]], file: str) -> set[str]:
    seen, level = {file}, users[file]
    while level and not any(own[user] for user in level):
        seen |= level
        level = {user for current in level for user in users[current]} - seen
    return {test for user in level for test in own[user]}


def _users_near(users: dict[str, set[str]], file: str) -> set[str]:
    package = file.partition("/")[0]
    found, waiting = set[str](), {file}
    while waiting:
        new = set[str]().union(*(users[each] for each in waiting)) - found
        found |= new
        waiting = {each for each in new if each.partition("/")[0] == package}
    return found


def _imported_by_helpers(test: Path) -> set[str]:
    found, waiting, seen = set[str](), [*_helpers(test)], set[Path]()
    while waiting:
        seen.add(helper := waiting.pop())
        found |= _files(_imports(helper))
        waiting += _helpers(helper) - seen
    return found


def _helpers(path: Path) -> set[Path]:
    modules = {module for module, _ in _imports(path) if module.startswith("tests.")}
    return {place for module in modules if (place := ROOT / f"{module.replace('.', '/')}.py").is_file()}


@cache
def _imports(path: Path) -> frozenset[tuple[str, str]]:
    """Return what a file imports, or runs by name, as pairs of a module and a name in it."""
    found = set[tuple[str, str]]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {(module, alias.name) for alias in names}
            case ast.Import(names=names):
                found |= {(alias.name, "") for alias in names}
            case ast.List(elts=[*elements]) if _runs_package(elements):
                found.add((f"{PACKAGE}.__main__", ""))
            case ast.Constant(value=str(text)) if _NAME.fullmatch(text):
                found |= _named(path, text)
            case _:
                pass
    return frozenset(found)


def _runs_package(elements: list[ast.expr]) -> bool:
    values = [element.value for element in elements if isinstance(element, ast.Constant)]
    return ("-m", PACKAGE) in itertools.pairwise(values)


def _named(path: Path, text: str) -> set[tuple[str, str]]:
    """Return a module that is imported or run by its name, such as that of a command."""
    if text.startswith(f"{PACKAGE}."):
        return {(text, "")}
    if not (text.endswith(".py") or _is_package(path.name)) or SOURCE not in path.parents:
        return set()
    package = ".".join(path.parent.relative_to(SOURCE.parent).parts)
    return {(f"{package}.{text.removesuffix('.py')}", "")}


def _files(names: frozenset[tuple[str, str]]) -> set[str]:
    return {found for module, name in names if (found := _defining(module, name))}


@cache
def _defining(module: str, name: str) -> str | None:
    """Return the file that defines a name, which a package may export from a module of its own."""
    first, _, rest = module.partition(".")
    if first != PACKAGE:
        return None
    place = SOURCE.joinpath(*rest.split(".")) if rest else SOURCE
    for file in (place.parent / f"{place.name}.py", place / f"{name}.py", place / name / "__init__.py"):
        if SOURCE in file.parents and file.is_file():
            return str(file.relative_to(SOURCE))
    if not (package := place / "__init__.py").is_file():
        return None
    sources = sorted({source for source, exported in _imports(package) if exported == name})
    found = (_defining(source, name) for source in sources if source != module)
    return next(filter(None, found), str(package.relative_to(SOURCE)))


def main(arguments: list[str]) -> None:
    """Print a line for each module, below the given folders."""
    for module, tests in find_tests(ALL).items():
        if not arguments or any(
            module.removesuffix(".py").startswith(start.rstrip("/")) for start in arguments
        ):
            print(f"{module}: {' '.join(tests) or 'NO TEST'}")


if __name__ == "__main__":
    main(sys.argv[1:])
