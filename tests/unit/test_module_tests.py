"""Every module has tests, and every option is named by one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from tests.support.module_tests import ALL, FAST, ROOT, SOURCE, TESTS, find_tests

from pyspark_rocketmq.options import (
    ClientOptions,
    DirectOptions,
    JobOptions,
    Options,
    ReceiverOptions,
    SinkOptions,
    SourceOptions,
    TableOptions,
    option_reference,
)

_WORD: Final = re.compile(r"(?<![\w.-])\w[\w.-]*")


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    """Parse all files once, in the process that runs these tests."""
    return find_tests(ALL)


@pytest.fixture(scope="module")
def words() -> set[str]:
    """Return the words of all tests but these, and the beginnings of words with dots."""
    texts = (path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path != Path(__file__))
    whole = {word for text in texts for word in _WORD.findall(text)}
    return {
        ".".join(parts[:count])
        for parts in (word.split(".") for word in whole)
        for count in range(1, len(parts) + 1)
    }


def test_every_module_has_tests(table: dict[str, list[str]]) -> None:
    assert table.keys() == {
        str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
    }
    assert [module for module, tests in table.items() if not tests] == []
    assert {test for tests in table.values() for test in tests if not (ROOT / test).is_file()} == set()


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("planning/limit.py", "tests/unit/planning/test_limit.py"),  # its path
        ("planning/split.py", "tests/property/test_planning.py"),  # an import
        ("model/queues.py", "tests/unit/planning/test_limit.py"),  # an import from its package
        ("notebook/plots.py", "tests/network/test_notebook_tables.py"),  # its user's test
        ("cli/job_commands/demo.py", "tests/network/test_cli.py"),  # loaded by its name
        ("__main__.py", "tests/network/test_dashboard.py"),  # run as a program
    ],
)
def test_the_table_says_what_concerns_a_module(table: dict[str, list[str]], module: str, test: str) -> None:
    assert test in table[module]


def test_pure_decisions_have_tests_without_a_socket() -> None:
    fast = find_tests(FAST)
    sockets = f"{TESTS.relative_to(ROOT)}/network/"
    pure = [module for module in fast if module.startswith(("planning/", "record/", "remoting/"))]
    assert [module for module in pure if all(test.startswith(sockets) for test in fast[module])] == []


@pytest.mark.parametrize(
    "cls",
    [ClientOptions, SourceOptions, SinkOptions, DirectOptions, ReceiverOptions, TableOptions, JobOptions],
)
def test_every_option_is_named_by_a_test(words: set[str], cls: type[Options]) -> None:
    assert {row.name for row in option_reference(cls)} - words == set()
