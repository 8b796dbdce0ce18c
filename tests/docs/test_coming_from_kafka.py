"""The page for those who come from Kafka says what options, columns and commands say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.cli import every_command

from pyspark_rocketmq.client import PushOptions
from pyspark_rocketmq.options import SinkOptions, SourceOptions, option_reference
from pyspark_rocketmq.spark.read.schema import ALIASES, COLUMN_TYPES, DEFAULT_COLUMNS
from pyspark_rocketmq.spark.write.sink_schema import SINK_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-kafka.md").read_text(encoding="utf-8")
ROWS = [*option_reference(SourceOptions), *option_reference(SinkOptions)]
OPTIONS = {row.name: row for row in ROWS} | {alias: row for row in ROWS for alias in row.aliases}
ELSEWHERE = {
    name.lower(): ours for kind in (SourceOptions, SinkOptions) for name, ours in kind.ELSEWHERE.items()
}


def table(title: str) -> list[list[str]]:
    """Return the rows of the table below a title, as cells."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def is_option(word: str) -> bool:
    return word in OPTIONS


@pytest.mark.parametrize("row", table("Options"), ids=lambda row: row[0])
def test_every_named_option_is_one(row: list[str]) -> None:
    theirs, ours = row
    if "the same" in ours:
        assert [name for name in code(theirs) if not is_option(name)] == []
    elif not ours.startswith("none"):
        assert [name for name in code(ours) if not is_option(name)] == []
    for name in code(theirs):
        if name.lower() in ELSEWHERE:
            assert ELSEWHERE[name.lower()] in code(ours), "what the error for this name says"


def test_every_option_of_kafka_that_an_error_explains_is_on_the_page() -> None:
    named = {name.lower() for row in table("Options") for name in code(row[0])}
    assert {name for name in ELSEWHERE if name.startswith("kafka")} - named == set()


def test_options_without_a_counterpart_are_options_and_in_no_row() -> None:
    text = PAGE.split("no counterpart for ")[1].split("relative times")[0]
    assert code(text)
    assert [name for name in code(text) if not is_option(name)] == []
    assert not set(code(text)) & {name for row in table("Options") for name in code(row[1])}


def test_the_defaults_are_those_of_the_options() -> None:
    assert OPTIONS["maxOffsetsPerTrigger"].default == "10000000"
    assert OPTIONS["startingOffsetsByTimestampStrategy"].default == "latest"
    assert PushOptions().max_reconsume_times == -1, "16 times"
    for name in ("commitIntervalMs", "commitOffsets", "groupOffsetReset", "failOnDataLoss", "columns"):
        assert name in OPTIONS


def test_every_named_column_is_one() -> None:
    known = {*COLUMN_TYPES, *ALIASES, *SINK_COLUMNS, "bodyAs", "includeProperties"}
    names = [name for row in table("Terms and columns") if len(row) > 2 for name in code(row[2])]
    assert len(names) > 10
    assert [name for name in names if name not in known] == []
    assert {"key", "offset"} <= ALIASES.keys()
    assert "keys" in DEFAULT_COLUMNS


def test_every_named_tool_is_a_command() -> None:
    commands = {" ".join(path) for path in every_command()}
    named = [word for row in table("Tools") for word in code(row[1]) if not word.startswith("--")]
    assert len(named) > 12
    assert [name for name in named if name not in commands] == []
    for row in table("Tools"):
        flags = [word.split()[0] for word in code(row[1]) if word.startswith("--")]
        paths = [tuple(word.split()) for word in code(row[1]) if not word.startswith("--")]
        for flag in flags:
            assert any(flag in opts for path in paths for opts in options_of(path)), flag


def options_of(path: tuple[str, ...]) -> list[list[str]]:
    return [param.opts for param in every_command()[path].params]


def test_there_are_five_surprises() -> None:
    section = PAGE.split("## Five surprises")[1].split("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", section, re.MULTILINE) == list("12345")
    words = set(code(section))
    assert {"shardingKey", "keys", "failOnDataLoss=false"} <= words
    assert {"shardingKey", "keys", "body"} <= SINK_COLUMNS.keys()
