"""What a job's streams can do, and what they cannot: Spark plans each query, without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import RocketMQError, SqlError
from pyspark_rocketmq.sql import execute
from pyspark_rocketmq.sql.plan.plan_check import plan_job

TOPIC = "'connector' = 'rocketmq', 'nameServer' = '127.0.0.1:1'"
COLUMNS = "(id BIGINT, n BIGINT, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
TABLES = f"""CREATE TABLE u {COLUMNS} WITH ({TOPIC}, 'topic' = 'u');
CREATE TABLE w LIKE u;
CREATE TABLE p (id BIGINT, n BIGINT) WITH ('connector' = 'print');
"""


def planned(spark: SparkSession, text: str) -> list[bool]:
    """Plan a job whose last statement is in line 4; return which of its queries are streams."""
    found = plan_job(spark, TABLES + text, checkpoint_location="/nowhere")
    return [query.rows.isStreaming for query in found]


def failure(spark: SparkSession, text: str) -> str:
    with pytest.raises(SqlError) as raised:
        planned(spark, text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT id, n FROM u ORDER BY ts", "ORDER BY of a stream is not supported"),
        ("SELECT id, n FROM u ORDER BY n DESC LIMIT 5", "ORDER BY of a stream is not supported"),
        ("SELECT id, n FROM u OFFSET 5", "OFFSET of a stream is not supported"),
        ("SELECT id, n FROM u INTERSECT SELECT id, n FROM w", "INTERSECT of streams is not supported"),
        ("SELECT id, n FROM u EXCEPT SELECT id, n FROM w", "EXCEPT of streams is not supported"),
        ("SELECT id, n FROM u WHERE id IN (SELECT id FROM w)", "cannot read a stream (IN, EXISTS"),
        ("SELECT id, n FROM u WHERE NOT EXISTS (SELECT 1 FROM w WHERE w.id = u.id)", "cannot read a stream"),
        ("SELECT id, (SELECT MAX(n) FROM w) FROM u", "cannot read a stream"),
        (
            "SELECT u.id, w.n FROM u FULL OUTER JOIN w ON u.id = w.id",
            "an outer join of streams needs a b",
        ),
        ("SELECT u.id, w.n FROM u LEFT JOIN w ON u.id = w.id", "an outer join of streams needs a b"),
        ("SELECT id, n FROM u TABLESAMPLE (10 PERCENT)", "TABLESAMPLE of a stream is not supported"),
        ("SELECT id, n FROM u UNION ALL SELECT 1, 2", "cannot be united with rows that are no stream"),
        pytest.param(
            "SELECT id, n FROM u QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY n) = 1",
            "OVER of a stream",
            marks=pytest.mark.since_spark("4.2"),  # Spark's parser has QUALIFY since then
        ),
    ],
)
def test_what_a_stream_cannot_do_is_said_before(spark: SparkSession, query: str, error: str) -> None:
    found = failure(spark, f"INSERT INTO p {query}")
    assert found.startswith("line 4, column ")
    assert error in found


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, n FROM u LIMIT 5",
        "SELECT id, n FROM u UNION ALL SELECT id, n FROM w",
        "SELECT id, COUNT(*) FROM u GROUP BY id HAVING COUNT(*) > 1",
        "WITH a AS (SELECT id, n FROM u), b AS (SELECT id, n FROM a) SELECT * FROM b",
        "SELECT u.id, w.n FROM u JOIN w ON u.id = w.id",
        "SELECT id, n FROM u WHERE ts > LOCALTIMESTAMP",
    ],
)
def test_what_a_stream_can_do(spark: SparkSession, query: str) -> None:
    assert planned(spark, f"INSERT INTO p {query}") == [True]


def test_a_plan_says_what_was_translated(spark: SparkSession) -> None:
    text = "INSERT INTO p SELECT id, HASH_CODE(name) FROM u; INSERT INTO p SELECT id, n FROM u"
    translated, plain = plan_job(spark, TABLES + text, checkpoint_location="/nowhere")
    assert translated.spark_sql.startswith("SELECT id, CAST(AGGREGATE(")
    assert plain.spark_sql == ""


def test_a_table_that_only_writes_is_described(spark: SparkSession) -> None:
    (query,) = plan_job(spark, TABLES + "DESCRIBE p")
    assert [(row[0], row[1]) for row in query.rows.collect()] == [("id", "bigint"), ("n", "bigint")]


def test_a_query_that_fails_says_which_statement_it_is(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text('{"a": 1, "b": "no number"}')
    files = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path / 'in'}'"
    text = f"""CREATE TABLE files (a INT, b STRING) WITH ({files});
CREATE TABLE nowhere (a INT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT a FROM files;
  INSERT INTO nowhere SELECT CAST(b AS INT) FROM files"""
    settings = {"trigger": "availableNow"}
    with (
        execute(spark, text, checkpoint_location=str(tmp_path / "checkpoint"), settings=settings) as job,
        pytest.raises(
            RocketMQError, match=r"^line 4, column 3: query nowhere-2 failed: .*CAST_INVALID_INPUT"
        ),
    ):
        job.await_termination(240)


def test_the_query_that_is_explained_is_flinks(spark: SparkSession) -> None:
    (query,) = plan_job(spark, TABLES + "EXPLAIN SELECT SPLIT_INDEX(name, ',', 0) FROM u")
    assert "StreamingRelation" in query.rows.collect()[0][0]
