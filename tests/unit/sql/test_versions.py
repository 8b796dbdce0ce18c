"""``FOR SYSTEM_TIME AS OF`` tables of messages, in batches."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.options.sql import JobOptions
from pyspark_rocketmq.sql.flinksql import JobQueries
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable, Position, Query

TABLES = """
CREATE TABLE orders (id INT, cur STRING, at TIMESTAMP(3), now AS PROCTIME(), WATERMARK FOR at AS at)
  WITH ('connector' = 'rocketmq', 'topic' = 'o');
CREATE TABLE rates (cur STRING, rate INT, since TIMESTAMP(3), PRIMARY KEY (cur) NOT ENFORCED,
  WATERMARK FOR since AS since) WITH ('connector' = 'rocketmq', 'topic' = 'r');
CREATE TABLE log (cur STRING, rate INT, since TIMESTAMP(3)) WITH ('connector' = 'rocketmq', 'topic' = 'l');
CREATE TABLE changes (cur STRING, since TIMESTAMP(3), PRIMARY KEY (cur) NOT ENFORCED,
  WATERMARK FOR since AS since) WITH ('connector' = 'rocketmq', 'topic' = 'c', 'format' = 'canal-json');
CREATE TABLE files (cur STRING) WITH ('connector' = 'filesystem', 'path' = '/f', 'format' = 'csv');
"""


def translated(query: str, mode: str = "batch") -> str:
    queries, options = JobQueries(), parse_options(JobOptions, {"runtimeMode": mode})
    names = []
    for statement in parse_statements(TABLES):
        assert isinstance(statement, CreateTable)
        queries.table(statement, options)
        names.append(statement.name.key)
    words = frozenset(re.findall(r"\w+", query.lower()))
    return queries.query(Query(query, words, Position(1, 1)), names, options).text


def join(table: str, time: str, kind: str = "JOIN", items: str = "o.id") -> str:
    return (
        f"SELECT {items} FROM orders AS o {kind} {table} FOR SYSTEM_TIME AS OF o.{time} AS r ON o.cur = r.cur"
    )


VERSIONS = (
    "(SELECT *, LEAD(`since`) OVER (PARTITION BY `cur` ORDER BY `since` NULLS LAST) AS __until "
    "FROM `rates`) AS r ON o.cur = r.cur"
)


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_a_row_is_joined_with_the_version_that_was_valid(kind):
    found = translated(join("rates", "at", kind))
    during = "o.at >= `r`.`since` AND (r.__until IS NULL OR o.at < r.__until)"
    assert found == f"SELECT o.id FROM orders AS o {kind} {VERSIONS} AND ({during})"


def test_the_time_of_processing_has_the_last_version():
    assert translated(join("rates", "now")).endswith("ON o.cur = r.cur AND r.__until IS NULL")


@pytest.mark.parametrize(
    ("items", "written"),
    [("*", "* EXCEPT (__until)"), ("r.*", "r.* EXCEPT (__until)"), ("o.*, r.rate", "o.*, r.rate")],
)
def test_no_result_has_the_end_of_a_version(items, written):
    assert translated(join("rates", "at", items=items)).startswith(f"SELECT {written} FROM")


def test_files_are_joined_as_they_are():
    assert "SYSTEM_TIME" not in translated(join("files", "now")).upper()


@pytest.mark.parametrize(
    ("query", "mode", "message"),
    [
        (join("log", "at"), "batch", "declare its PRIMARY KEY"),
        (join("changes", "at"), "batch", "A changelog has none"),
        (join("rates", "at", "FULL JOIN"), "batch", "needs JOIN or LEFT JOIN"),
        (
            "SELECT 1 FROM rates FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00'",
            "batch",
            "needs JOIN rates",
        ),
        (join("rates", "at"), "streaming", "not the stream rates"),
    ],
)
def test_what_has_no_versions_is_refused(query, mode, message):
    with pytest.raises(SqlError, match=message):
        translated(query, mode)
