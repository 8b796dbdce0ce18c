from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_rocketmq.options import (
    ClientOptions,
    DirectOptions,
    SinkOptions,
    SourceOptions,
    option_reference,
)
from pyspark_rocketmq.options.reference import markdown_reference

DOCS = Path(__file__).parents[2] / "docs"


def test_the_document_is_up_to_date():
    assert (DOCS / "options.md").read_text(encoding="utf-8") == markdown_reference(), (
        "run `make docs-options`"
    )


@pytest.mark.parametrize("cls", [ClientOptions, SourceOptions, SinkOptions, DirectOptions])
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
