from __future__ import annotations

import ast
import dataclasses
import functools
import re
from pathlib import Path

import pytest
from tests.support.collected import collected_tests

from pyspark_rocketmq.options import (
    ClientOptions,
    DirectOptions,
    JobOptions,
    SinkOptions,
    SourceOptions,
    TableOptions,
    option_reference,
)
from pyspark_rocketmq.options.reference import markdown_reference

ALL = [ClientOptions, SourceOptions, SinkOptions, DirectOptions, TableOptions, JobOptions]
DOCS = Path(__file__).parents[2] / "docs"


def test_the_document_is_up_to_date():
    assert (DOCS / "options.md").read_text(encoding="utf-8") == markdown_reference(), (
        "run `make docs-options`"
    )


@pytest.mark.parametrize("cls", ALL)
def test_every_option_is_in_it_once(cls):
    lines = markdown_reference().splitlines()
    for row in option_reference(cls):
        assert len([line for line in lines if line.startswith(f"| `{row.name}` |")]) == 1, row.name
    for key in cls.COMPATIBILITY:
        assert any(line.startswith(f"- `{key}`: ") for line in lines), key


def test_tables_have_four_columns():
    rows = [line for line in markdown_reference().splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}


def test_the_pages_name_no_option_that_is_not_there():
    known = {
        spelling
        for cls in (SourceOptions, SinkOptions, DirectOptions)
        for row in option_reference(cls)
        for spelling in (row.name, *row.aliases)
    }
    text = (DOCS / "source.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z]+[A-Z][A-Za-z]*)=", text))
    assert named
    assert named <= known, named - known


SOURCES = Path(__file__).parents[2] / "src" / "pyspark_rocketmq"


def attributes(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


@functools.cache  # of all sources
def used_names() -> frozenset[str]:
    """Return the attributes that code outside `options` uses, and what they use within it in turn."""
    within: dict[str, set[str]] = {}
    used: set[str] = set()
    for file in SOURCES.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if file.parent.name != "options":
            used |= attributes(tree)
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
                within.setdefault(node.name, set()).update(attributes(node))
    while more := {name for known in used & within.keys() for name in within[known]} - used:
        used |= more
    return frozenset(used)


@pytest.mark.parametrize("cls", ALL)
def test_no_option_does_nothing(cls):
    used = used_names()
    assert "no_such_option" not in used
    idle = [
        field.name
        for field in dataclasses.fields(cls)
        # What holds other options is read while parsing, as a profile is.
        if field.name not in {*used, "profile"}
        and not any(getattr(o, "holds", ()) for o in field.metadata.values())
    ]
    assert not idle, f"declared and used nowhere: {idle}"


def test_every_test_that_the_list_of_defects_names_is_there():
    root = DOCS.parent
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (DOCS / "defects.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for path, test in named:
        tests = collected_tests(root / path)
        assert test in tests if test else tests, f"{path}::{test}"
