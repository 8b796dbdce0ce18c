from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_rocketmq.options import JobOptions, option_reference
from pyspark_rocketmq.sql.flink import RocketMQConfig
from pyspark_rocketmq.sql.flinksql import FUNCTIONS
from pyspark_rocketmq.sql.metadata import METADATA
from pyspark_rocketmq.sql.parse import parse_statements

ROOT = Path(__file__).parents[3]
FLINK = (ROOT / "docs" / "flink-sql.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))
def test_the_pages_statements_parse(block):
    assert parse_statements(block)


@pytest.mark.parametrize("job", sorted((ROOT / "examples" / "sql").glob("*.sql")), ids=lambda job: job.name)
def test_the_examples_parse(job):
    assert len(parse_statements(job.read_text(encoding="utf-8"))) > 2


def test_the_table_of_metadata_is_complete():
    for key, found in METADATA.items():
        row = next(line for line in PAGE.splitlines() if line.startswith("| ") and f"`{key}`" in line)
        access = {(True, False): "R", (False, True): "W", (True, True): "R/W"}
        assert f"| {access[found.source is not None, found.sink is not None]} |" in row, key


def test_every_setting_and_every_property_is_on_the_page():
    for row in option_reference(JobOptions):
        assert f"| `{row.name}` |" in PAGE
    names = [value for name, value in vars(RocketMQConfig).items() if name.isupper()]
    assert len(names) == 25
    for name in set(names) - {RocketMQConfig.ACCESS_KEY, RocketMQConfig.SECRET_KEY}:
        assert f"`{name}`" in PAGE, name


def test_the_table_of_functions_is_the_translators():
    listed = [line for line in FLINK.partition("## Functions")[2].splitlines() if line.startswith("| `")]
    made = []
    for name, function in FUNCTIONS.items():
        differs, form = (
            text.replace("|", "\\|") for text in (function.differs, function.forms[max(function.forms)])
        )
        made.append(f"| `{name}` | {differs} | `{form}` |")
    assert [line for line in listed if line.count("|") - line.count("\\|") == 4] == made
