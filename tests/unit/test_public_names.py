"""The public names: a golden list, so that a name appears or goes on purpose only, and its documentation."""

from __future__ import annotations

import inspect
import re
import typing
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "public_names.txt"
NAMES = GOLDEN.read_text(encoding="utf-8").split()
PACKAGES = (
    *("", "client", "devcluster", "dstream", "errors", "notebook"),
    *("spark", "sql", "sql.flink", "streams", "testing"),
)


def module_of(package: str) -> typing.Any:
    return import_module(f"pyspark_rocketmq.{package}".rstrip("."))


def test_the_public_names_are_those_of_the_golden_list():
    found = [
        f"{module.__name__}.{name}" for module in map(module_of, PACKAGES) for name in sorted(module.__all__)
    ]
    assert found == NAMES


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_resolves_and_is_listed(package):
    module = module_of(package)
    for name in module.__all__:
        assert not inspect.ismodule(getattr(module, name)), name
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = module.Nonsense


def test_every_public_class_and_function_is_on_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    shown = set(re.findall(r"^- \[`([\w.]+)`\]", pages, re.MULTILINE))
    shown |= {f"pyspark_rocketmq.errors.{name}" for name in re.findall(r"^### (\w+)$", pages, re.MULTILINE)}
    missing = []
    for name in NAMES:
        package, _, short = name.rpartition(".")
        value = getattr(import_module(package), short)
        home = getattr(value, "__module__", "")
        if package.endswith(".errors") or not home.startswith("pyspark_rocketmq"):
            continue  # errors have a page of their own; values and PySpark's names have none
        if not {package, home, f"{home}.{value.__qualname__}"} & shown:
            missing.append(f"{home}.{value.__qualname__}")
    assert missing == []
