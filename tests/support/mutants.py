"""Mutation tests: change the code of a module at one place, run the tests that concern it, see them fail.

``make mutants MODULES="planning offsets/reachable"`` runs mutmut with one module after the other, each with
its own tests only (``tests.support.module_tests``). Results are kept in ``.mutants``: a run that was stopped
continues, changed functions are tested again, and survivors too when a test of theirs has changed. Survivors
that no test can find are in ``equivalent_mutants.toml``, with the reason.

mutmut does not mutate decorated functions and the bodies of classes and modules. A mutant of what runs only
when a module is imported, as the declarations of headers, survives: it is switched on later. This driver
excludes ``raise`` statements and log entries, and does not count changed sentences: golden files hold them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.support.module_tests import FAST, ROOT, find_tests

WORK: Final = ROOT / ".mutants"
EQUIVALENT: Final = Path(__file__).with_name("equivalent_mutants.toml")

DEFAULT: Final = (
    *("planning", "offsets", "record", "remoting", "client/read", "client/send", "client/groups"),
    *("spark/read", "spark/write", "streams/compile/aggregat", "streams/compile/window", "sql/dialect"),
)
"""Where the mistakes would be silent."""

_SETTINGS: Final = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/pyspark_rocketmq/{module}"]
do_not_mutate_patterns = ['^\\s*(raise |_LOG\\.)']
pytest_add_cli_args = [
  "--hypothesis-seed=1", "--hypothesis-profile=mutants", "-p", "no:cacheprovider", "--durations=0",
  "-m", "not large", "--tb=native",
]
pytest_add_cli_args_test_selection = {tests}
timeout_multiplier = 5.0
timeout_constant = 3.0
also_copy = {also}
use_git_change_detection = false
track_dependencies = false
"""

_ALSO: Final = ("docs", "examples", "benchmarks", "CONTRIBUTING.md")
"""What tests read beside the code."""


@dataclass(frozen=True)
class Survivor:
    """A mutant that no test noticed: the lines that it replaces, and its own."""

    name: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"  {self.name.rpartition('.')[2]}\n    - {self.was}\n    + {self.now}"


@dataclass(frozen=True)
class Result:
    """What became of the mutants of a module."""

    module: str
    counts: Counter[str]
    survivors: list[Survivor]
    equivalent: int
    finished: bool = True

    def __str__(self) -> str:
        killed = self.counts["killed"] + self.counts["timeout"]
        checked = self.counts.total() - self.counts["not checked"]
        rest = f", {self.counts['not checked']} not run" if self.counts["not checked"] else ""
        return (
            f"{self.module}: {checked} mutants, {killed} killed, {len(self.survivors)} survived, "
            f"{self.equivalent} equivalent or text, {self.counts['no tests']} without a fast test{rest}"
        )


def select(wanted: list[str]) -> dict[str, list[list[str]]]:
    """Return the modules below these folders, or with these names, and their tests, the fast ones first.

    A list is run only for what survived the lists before it.
    """
    own, of_users = (_without_outer(find_tests(FAST, of_users=users)) for users in (False, True))
    found = {
        module: _stages(module, own[module], of_users[module])
        for module in own
        if any(module.startswith(name.removesuffix(".py")) for name in wanted)
    }
    if missing := [name for name in wanted if not any(module.startswith(name) for module in found)]:
        raise SystemExit(f"no module of src/pyspark_rocketmq begins with {missing}")
    return found


def _without_outer(tests: dict[str, list[str]]) -> dict[str, list[str]]:
    """Leave out tests that build the wheel, run make or start Spark: mutmut's copy has no more than files."""
    outer = {
        name for names in tests.values() for name in names if _NEEDS_MORE.search((ROOT / name).read_text())
    }
    return {module: [name for name in names if name not in outer] for module, names in tests.items()}


_NEEDS_MORE: Final = re.compile(r'tests\.support\.(wheel|lean_jvm)\b|"make"')


def _stages(module: str, own: list[str], of_users: list[str]) -> list[list[str]]:
    """Return the unit tests of the module's package, or those named like it; then with more and more others.

    They are properties, those of its users, the other tests of its users, and all. Unit tests that are in no
    folder are of every package.
    """
    unit = ("tests/unit/test_", f"tests/unit/{module.partition('/')[0]}/")
    pure = (*unit, "tests/property/", "tests/golden/")
    named = [test for test in own if Path(test).stem == f"test_{Path(module).stem}"]
    near = [test for test in own if test.startswith(pure)] or named or own
    first = [test for test in near if test.startswith(unit)]
    users = {*near, *(test for test in of_users if test.startswith(pure))}
    more = {*near, *(test for test in of_users if not test.startswith("tests/network/"))}
    stages = [first, near, sorted(users), sorted(more), sorted({*more, *own})]
    return [stage for at, stage in enumerate(stages) if stage and stage not in stages[:at]]


def run(module: str, tests: list[str], *, deadline_s: float) -> Result:
    """Run a module's mutants that have no result yet, until the deadline."""
    place = WORK / module.removesuffix(".py").replace("/", ".")
    place.mkdir(parents=True, exist_ok=True)
    for name in ("src", "tests", *_ALSO):
        link = place / name
        if not link.is_symlink():
            link.symlink_to(ROOT / name)
    settings = _SETTINGS.format(module=module, tests=json.dumps(tests), also=json.dumps(_ALSO))
    (place / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings, encoding="utf-8")
    finished, stage = place / "finished", _digest(tests)
    source = _digest([f"src/pyspark_rocketmq/{module}"])
    stages = finished.read_text().split() if finished.is_file() else []
    if stages[:1] != [source]:
        stages = [source]
    running, this = place / "running", f"{source} {stage}"
    if stage in stages and not _read(place, module).counts["not checked"]:
        return _read(place, module)
    if stage not in stages and not (running.is_file() and running.read_text() == this):
        _forget_survivors(place, module)
    finished.write_text("\n".join(stages))
    running.write_text(this)
    code = _mutmut(place, deadline_s)
    result = _read(place, module)
    if code == 0 and not result.counts["not checked"]:
        finished.write_text("\n".join([*stages, stage]))
    elif code > 0 and _UNCOVERED not in (place / "log").read_text(errors="replace"):
        print(f"{module}: mutmut ended with {code}, see {place / 'log'}", file=sys.stderr)
        return replace(result, finished=False)
    return result


_UNCOVERED: Final = "could not find any test case for any mutant"
"""What mutmut says of tests that run none of a module's code: the next tests are run."""


def _mutmut(place: Path, deadline_s: float) -> int:
    with (place / "log").open("w") as log:
        process = subprocess.Popen(
            [shutil.which("mutmut") or "mutmut", "run", "--max-children", "1"],
            cwd=place,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=max(1.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return -1
        finally:
            with suppress(ProcessLookupError):  # its child may be a mutant that never ends
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _digest(files: list[str]) -> str:
    contents = (file.encode() + (ROOT / file).read_bytes() for file in files)
    return hashlib.sha256(b"".join(contents)).hexdigest()


def _meta(place: Path, module: str) -> Path:
    return place / "mutants" / "src" / "pyspark_rocketmq" / f"{module}.meta"


def _forget_survivors(place: Path, module: str) -> None:
    """Let everything be tested again that was not killed, with other tests.

    What ended by a timeout counts as killed: it would wait as often as there are lists of tests.
    """
    (place / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    if (meta := _meta(place, module)).is_file():
        data = json.loads(meta.read_text())
        codes = data["exit_code_by_key"]
        data["exit_code_by_key"] = {
            name: code if _outcome(code) in ("killed", "timeout") else None for name, code in codes.items()
        }
        meta.write_text(json.dumps(data))


_OUTCOMES: Final = {None: "not checked", 0: "survived", 33: "no tests", 5: "no tests"}
_TIMEOUTS: Final = {36, 24, -24, 152, 255}


def _outcome(code: int | None) -> str:
    """Return what an exit code of pytest says; one that is not listed is a failure, or a crash."""
    return "timeout" if code in _TIMEOUTS else _OUTCOMES.get(code, "killed")


def _read(place: Path, module: str) -> Result:
    meta = _meta(place, module)
    codes = json.loads(meta.read_text())["exit_code_by_key"] if meta.is_file() else {}
    counts = Counter(_outcome(code) for code in codes.values())
    survivors = _show(place, module, [name for name, code in codes.items() if _outcome(code) == "survived"])
    known = _equivalent(module)
    left = [
        survivor
        for survivor in survivors
        if (survivor.was, survivor.now) not in known and not _is_text(survivor.was, survivor.now)
    ]
    return Result(module, counts, left, len(survivors) - len(left))


def _equivalent(module: str) -> set[tuple[str, str]]:
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    return {(entry["was"], entry["now"]) for entry in listed.get(module, [])}


def _is_text(was: str, now: str) -> bool:
    """Return whether only sentences differ, which are for people, or types of casts, which are for mypy."""
    was, now = (_CAST.sub("cast(", text) for text in (was, now))
    sentences, others = _LITERAL.findall(was), _LITERAL.findall(now)
    if _LITERAL.sub("", was) != _LITERAL.sub("", now) or len(sentences) != len(others):
        return False
    return all(" " in one for one, other in zip(sentences, others, strict=True) if one != other)


_LITERAL: Final = re.compile(r'"[^"]*"')
_CAST: Final = re.compile(r'\bcast\(("[^"]*"|None), ')


def _show(place: Path, module: str, names: list[str]) -> list[Survivor]:
    if not names:
        return []
    shown = subprocess.run(
        [sys.executable, "-c", _PRINT_DIFFS, f"src/pyspark_rocketmq/{module}", *names],
        cwd=place, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = []
    for name, diff in zip(names, json.loads(shown), strict=True):
        lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
        was, now = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
        found.append(Survivor(name, was, now))
    return found


_PRINT_DIFFS: Final = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps([get_diff_for_mutant(name, path=sys.argv[1]) for name in sys.argv[2:]]))
"""


def main() -> None:
    """Run, print each module's result and survivors, and fail if there are any, or mutmut failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="folders or modules below src/pyspark_rocketmq")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after this time")
    parser.add_argument("--show", action="store_true", help="print the results so far; run nothing")
    arguments = parser.parse_args()
    deadline_s = time.monotonic() + arguments.minutes * 60
    total, survived, finished = Counter[str](), 0, True
    for module, stages in select(arguments.modules or list(DEFAULT)).items():
        place = WORK / module.removesuffix(".py").replace("/", ".")
        if arguments.show or time.monotonic() >= deadline_s:
            result = _read(place, module)
        else:
            for tests in stages:
                result = run(module, tests, deadline_s=deadline_s)
                finished = finished and result.finished
                if not result.survivors and not result.counts["no tests"] + result.counts["not checked"]:
                    break
        if not result.counts:
            continue
        total += result.counts
        survived += len(result.survivors)
        print(result, *result.survivors, sep="\n", flush=True)
    print(f"{total.total()} mutants: {dict(total)}; {survived} survivors are not known as equivalent")
    sys.exit(1 if survived or not finished else 0)


if __name__ == "__main__":
    main()
