"""``FOR SYSTEM_TIME AS OF`` tables of messages and of files."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.options import parse_options
from pyspark_rocketmq.options.sql import JobOptions
from pyspark_rocketmq.sql.flinksql import JobQueries, Translated
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.state.steps import Grouping, Versioned
from pyspark_rocketmq.sql.statements import CreateTable, CreateView, Position, Query

TABLES = """
CREATE TABLE orders (id INT, cur STRING, at TIMESTAMP(3), now AS PROCTIME(), WATERMARK FOR at AS at)
  WITH ('connector' = 'rocketmq', 'topic' = 'o');
CREATE TABLE rates (cur STRING, rate INT, since TIMESTAMP(3), PRIMARY KEY (cur) NOT ENFORCED,
  WATERMARK FOR since AS since) WITH ('connector' = 'rocketmq', 'topic' = 'r');
CREATE TABLE log (cur STRING, rate INT, since TIMESTAMP(3)) WITH ('connector' = 'rocketmq', 'topic' = 'l');
CREATE TABLE changes (cur STRING, since TIMESTAMP(3), PRIMARY KEY (cur) NOT ENFORCED,
  WATERMARK FOR since AS since) WITH ('connector' = 'rocketmq', 'topic' = 'c', 'format' = 'canal-json');
CREATE TABLE rows (cur STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/f', 'table-name' = 'r');
CREATE TABLE files (cur STRING) WITH ('connector' = 'filesystem', 'path' = '/f', 'format' = 'csv');
"""


def made(query: str, mode: str, **settings: str) -> Translated:
    queries, options = JobQueries(), parse_options(JobOptions, {"runtimeMode": mode, **settings})
    names = []
    for statement in parse_statements(TABLES + LATEST):
        match statement:
            case CreateTable():
                queries.table(statement, options)
                names.append(statement.name.key)
            case CreateView():
                queries.view(statement, names, options)
    words = frozenset(re.findall(r"\w+", query.lower()))
    return queries.query(Query(query, words, Position(1, 1)), names, options)


def translated(query: str, mode: str = "batch") -> str:
    return made(query, mode).text


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
    called = join("rates", "at").replace("o.at", "PROCTIME()")
    assert translated(called).endswith("ON o.cur = r.cur AND r.__until IS NULL")


def test_the_time_of_processing_of_another_table_is_none_of_this_one(monkeypatch):
    other = "CREATE TABLE other (at AS PROCTIME()) WITH ('connector' = 'rocketmq', 'topic' = 'x');"
    monkeypatch.setattr(f"{__name__}.TABLES", TABLES + other)
    assert "o.at >= `r`.`since`" in translated(join("rates", "at"))
    assert made(join("rates", "at"), "streaming").steps
    inner = (
        "SELECT 1 FROM (SELECT cur, at AS now, now AS at FROM orders) AS o JOIN rates FOR SYSTEM_TIME AS OF"
    )
    assert "o.now >= `r`.`since`" in translated(f"{inner} o.now AS r ON o.cur = r.cur")
    assert translated(f"{inner} o.at AS r ON o.cur = r.cur").endswith("AND r.__until IS NULL")


@pytest.mark.parametrize(
    ("items", "written"),
    [
        ("*", "* EXCEPT (r.__until)"),
        ("r.*", "r.* EXCEPT (r.__until)"),
        ("R.*, o.*", "R.* EXCEPT (r.__until), o.*"),
        ("o.*, r.rate", "o.*, r.rate"),
        ("*, 1 AS x", "* EXCEPT (r.__until), 1 AS x"),
    ],
)
def test_no_result_has_the_end_of_a_version(items, written):
    assert translated(join("rates", "at", items=items)).startswith(f"SELECT {written} FROM")


def test_the_ends_of_versions_of_two_tables_are_told_apart():
    """Spark has two columns of this name then, and refuses to leave out one that it does not know."""
    twice = join("rates", "at", items="*") + " JOIN rates FOR SYSTEM_TIME AS OF o.at ON o.cur = rates.cur"
    assert translated(twice).startswith("SELECT * EXCEPT (r.__until, rates.__until) FROM orders")


def test_files_are_joined_as_they_are():
    assert translated(join("files", "now")).endswith("JOIN files AS r ON o.cur = r.cur")
    streamed = made(join("files", "now"), "streaming")
    assert streamed.text.endswith("JOIN `__lookup_files` AS r ON o.cur = r.cur")
    assert not streamed.steps


def test_files_with_a_key_and_a_time_have_versions_too(monkeypatch):
    kept = "CREATE TABLE kept (cur STRING, since TIMESTAMP(3), PRIMARY KEY (cur) NOT ENFORCED, WATERMARK FOR "
    files = "since AS since) WITH ('connector' = 'filesystem', 'path' = '/f', 'format' = 'csv');"
    monkeypatch.setattr(f"{__name__}.TABLES", TABLES + kept + files)
    (step,) = made(join("kept", "at"), "streaming").steps
    assert isinstance(step.operation, Versioned)
    looked_up = made(join("kept", "now"), "streaming")
    assert "JOIN `__lookup_kept` AS r" in looked_up.text
    assert not looked_up.steps


def test_a_stream_is_joined_with_versions_in_a_step():
    found = made(join("rates", "at", "LEFT JOIN", "*, 1 AS one") + " WHERE r.rate > 1", "streaming")
    (step,) = found.steps
    assert step.text == "SELECT o.cur AS `__k0`, o.at AS `__o0`, STRUCT(o.*) AS `__c0` FROM orders AS o"
    versions = (
        "SELECT `cur` AS `__k0`, `since` AS `__o0`, '+I' AS `__op`, NULL AS `__position`, STRUCT(*) AS "
        "`__version` FROM `rates`"
    )
    assert step.operation == Versioned(1, versions, ("__c0",), outer=True)
    assert found.text == (
        f"SELECT o.*, r.*, 1 AS one FROM {step.name} LATERAL VIEW INLINE(ARRAY(__c0)) o "
        "LATERAL VIEW INLINE(ARRAY(__version)) r WHERE r.rate > 1"
    )
    more = made(join("rates", "at") + " AND r.rate > o.id", "streaming")
    assert more.text.endswith(" r WHERE r.rate > o.id")
    grouped = made(join("rates", "at", items="o.cur, SUM(r.rate)") + " GROUP BY o.cur", "streaming")
    assert [type(step.operation) for step in grouped.steps] == [Versioned, Grouping]
    with pytest.raises(SqlError, match="leave SET 'outputMode' out"):
        made(join("rates", "at"), "streaming", outputMode="append")


def test_the_versions_of_a_changelog_may_be_deleted():
    (step,) = made(join("changes", "at"), "streaming").steps
    assert isinstance(step.operation, Versioned)
    place = "ARRAY(__change.position.queueOffset, __change.position.index) AS `__position`"
    columns = f"__change.op AS `__op`, {place}, STRUCT(* EXCEPT (__change)) AS `__version`"
    assert columns in step.operation.versions


LATEST = (
    "CREATE VIEW latest AS SELECT cur, rate, since FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur "
    "ORDER BY since DESC) AS n FROM log WHERE rate > 0) AS ranked WHERE n = 1;"
)


def test_a_view_of_the_latest_row_of_each_key_has_versions():
    rows = "(SELECT cur, rate, since FROM (SELECT * FROM log WHERE rate > 0) AS ranked) AS __versions"
    (step,) = made(join("latest", "at"), "streaming").steps
    assert isinstance(step.operation, Versioned)
    assert step.operation.versions == (
        "SELECT `cur` AS `__k0`, `since` AS `__o0`, '+I' AS `__op`, NULL AS `__position`, STRUCT(*) AS "
        f"`__version` FROM {rows}"
    )
    assert f"(PARTITION BY `cur` ORDER BY `since` NULLS LAST) AS __until FROM {rows}" in translated(
        join("latest", "at")
    )


@pytest.mark.parametrize(
    "change",
    [("since DESC", "since"), ("n = 1", "n <= 2"), ("n = 1", "n = 1 AND cur > 'a'"), ("cur, rate", "rate")],
)
def test_other_views_have_no_versions(change, monkeypatch):
    old, new = change
    monkeypatch.setattr(f"{__name__}.LATEST", LATEST.replace(old, new, 1))
    with pytest.raises(SqlError, match="needs the versions of latest"):
        made(join("latest", "at"), "streaming")


@pytest.mark.parametrize(
    ("query", "mode", "message"),
    [
        (join("log", "at"), "batch", "declare its PRIMARY KEY"),
        (join("changes", "at"), "batch", "A changelog has versions only as a stream"),
        (join("rates", "at", "FULL JOIN"), "batch", "needs JOIN or LEFT JOIN"),
        (
            "SELECT 1 FROM rates FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 00:00:00'",
            "batch",
            "needs JOIN rates",
        ),
        (join("log", "at"), "streaming", "declare its PRIMARY KEY"),
        (join("files", "at"), "streaming", "declare its PRIMARY KEY"),
        (join("files", "at"), "batch", "use PROCTIME"),
        (join("rows", "at"), "batch", "use PROCTIME"),
        (join("rows", "at"), "streaming", "use PROCTIME"),
        (join("rates", "at", "FULL JOIN"), "streaming", "needs JOIN or LEFT JOIN"),
        (
            join("rates", "at").replace("orders AS o", "(SELECT * FROM orders)").replace("o.", ""),
            "streaming",
            "joins streams that have a name",
        ),
        (
            join("rates", "since").replace("orders AS o", "changes AS o").replace("o.id", "o.cur"),
            "streaming",
            "a join FOR SYSTEM_TIME AS OF cannot read a changelog",
        ),
        (join("rates", "now"), "streaming", "needs a time of the rows, as in Flink"),
        (
            join("rates", "at").replace("o.at", "PROCTIME()"),
            "streaming",
            "needs a time of the rows, as in Flink",
        ),
        (join("rates", "at", "LEFT SEMI JOIN"), "batch", "needs JOIN or LEFT JOIN"),
        (join("rates", "at", "LEFT ANTI JOIN"), "batch", "needs JOIN or LEFT JOIN"),
        (join("rates", "at", "RIGHT JOIN"), "batch", "needs JOIN or LEFT JOIN"),
        (join("rates", "at").replace("ON o.cur = r.cur", "USING (cur)"), "batch", "needs JOIN rates"),
        (join("rates", "at").replace("cur = r.cur", "id = r.rate"), "streaming", "add r.cur = … to ON"),
        (join("rates", "at", "LEFT JOIN") + " AND r.rate > 1", "streaming", "use WHERE"),
        (join("rates", "at") + " JOIN files AS f ON f.cur = o.cur", "streaming", "is the last join"),
    ],
)
def test_what_has_no_versions_is_refused(query, mode, message):
    with pytest.raises(SqlError, match=message):
        translated(query, mode)
