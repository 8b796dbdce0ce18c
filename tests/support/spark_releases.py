"""Tests that need a newer Spark than the running one: ``@pytest.mark.since_spark("4.2")``.

They are deselected, and the summary says how many. `make test` runs the newest Spark, and so all of them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

__all__ = ["ignore_known_warnings", "is_for_newer", "select", "sent_by_worker", "summary", "to_controller"]

_WHOLE_MODULE: Final = re.compile(r'^pytestmark = pytest\.mark\.since_spark\("(\d+\.\d+)"\)', re.MULTILINE)
_left_out: Final[list[tuple[str, str]]] = []


@cache
def _running() -> tuple[int, ...]:
    return _numbers(version("pyspark"))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def ignore_known_warnings(config: pytest.Config) -> None:
    """Ignore the sockets that PySpark before 4.2 leaves to the garbage collector after each action."""
    if _running() < (4, 2):
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def is_for_newer(path: Path) -> bool:
    """Whether a whole module needs a newer Spark. Its imports may fail, so it is not imported."""
    if path.suffix != ".py" or not path.name.startswith("test_"):
        return False
    found = _WHOLE_MODULE.search(path.read_text())
    if found is None or _numbers(found[1]) <= _running():
        return False
    left_out = (f"all of {path.name}", found[1])
    if left_out not in _left_out:  # pytest asks again for each file that it is given
        _left_out.append(left_out)
    return True


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that need a newer Spark."""
    newer = []
    for item in items:
        marks = [mark.args[0] for mark in item.iter_markers("since_spark")]
        since = max(marks, key=_numbers, default="0.0")
        if _numbers(since) > _running():
            newer.append(item)
            _left_out.append((item.nodeid, since))
    if newer:
        config.hook.pytest_deselected(items=newer)
        items[:] = [item for item in items if item not in set(newer)]


def to_controller(config: pytest.Config) -> None:
    """In a process of pytest-xdist: tell the main process what was left out."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output["left_out"] = _left_out


def sent_by_worker(output: dict[str, list[tuple[str, str]]]) -> None:
    """Take what one process told. All collect the same tests."""
    _left_out[:] = [(name, since) for name, since in output.get("left_out", _left_out)]


def summary() -> list[str]:
    """Return the lines of the summary: how many tests need which Spark."""
    releases = sorted({since for _, since in _left_out}, key=_numbers)
    counts = {since: sum(each == since for _, each in _left_out) for since in releases}
    modules = [f"{name} (Spark {since})" for name, since in _left_out if name.startswith("all of ")]
    return [
        *(f"{count} deselected: they need Spark {since} or later" for since, count in counts.items()),
        *modules,
    ]
