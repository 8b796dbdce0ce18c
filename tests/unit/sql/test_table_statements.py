"""Statements that would change or describe a table of the job: an error that says what to write instead."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.flinksql import JobQueries
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.settings import Settings

TABLES = (
    "CREATE TABLE u (id BIGINT, name STRING) WITH ('connector' = 'rocketmq', 'topic' = 'u', 'nameServer' = "
    "'a:1'); CREATE TABLE p (id BIGINT) WITH ('connector' = 'print');\n"
)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "ALTER TABLE u ADD (x INT)",
            "ALTER TABLE u: its definition is in the job: DROP TABLE u, then CREATE",
        ),
        ("ALTER VIEW `u` RENAME TO v", "ALTER VIEW u: its definition is in the job"),
        ("ALTER TABLE default_database.u SET ('a' = 'b')", "ALTER TABLE u: its definition"),
        ("REPLACE TABLE u AS SELECT 1", "REPLACE TABLE u: its definition is in the job"),
        ("DELETE FROM u WHERE id = 1", "DELETE FROM u: its rows are messages, which are not changed: INSERT"),
        ("UPDATE u SET id = 1", "UPDATE u: its rows are messages"),
        ("MERGE INTO u USING w ON u.id = w.id WHEN MATCHED THEN DELETE", "MERGE INTO u: its rows are mess"),
        ("TRUNCATE  TABLE\n u", "TRUNCATE TABLE u: messages stay in a topic until its retention time"),
        ("ANALYZE TABLE u COMPUTE STATISTICS", "ANALYZE TABLE u: a topic has no statistics"),
        ("SHOW CREATE TABLE p", "SHOW CREATE TABLE p: its definition is in the job, in line 1"),
        ("SHOW PARTITIONS u", "SHOW PARTITIONS u: it has no partitions"),
        ("MSCK REPAIR TABLE u", "MSCK REPAIR TABLE u: it has no partitions"),
        ("CACHE TABLE u", "CACHE TABLE u: it is read again by each query"),
        ("EXPLAIN INSERT INTO p SELECT id FROM u", "EXPLAIN of an INSERT into a table of the job is not"),
        (
            "CREATE TABLE t AS SELECT * FROM u",
            "CREATE TABLE … AS reads u as a stream: create the table, then",
        ),
    ],
)
def test_a_table_of_the_job_is_not_changed(text, error):
    with pytest.raises(SqlError, match=r"^line 2, column 1: ") as raised:
        check_job(TABLES + text)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE of_spark ADD COLUMN u INT",
        "DELETE FROM of_spark WHERE u = 1",
        "UPDATE of_spark SET id = u",
        "SHOW CREATE TABLE of_spark",
        "SET 'runtimeMode' = 'batch'; CREATE TABLE t AS SELECT * FROM u",
        "DESCRIBE u",
        "EXPLAIN SELECT id FROM u",
    ],
)
def test_other_tables_are_sparks(text):
    assert check_job(TABLES + text) > 2


def test_what_only_writes_is_not_read():
    with pytest.raises(SqlError, match="line 2, column 35: p has the connector 'print', which only writes"):
        check_job(TABLES + "INSERT INTO u (id) SELECT id FROM p", checkpoint_location="/c")


def test_the_query_of_an_explain_is_translated():
    queries, options = JobQueries(), Settings().options
    *tables, statement = parse_statements(TABLES + "EXPLAIN EXTENDED SELECT SPLIT_INDEX(name, ',', 0) FROM u")
    for table in tables:
        queries.table(table, options)
    found = queries.query(statement.whole, {"u", "p"}, options)
    assert found.text.strip().startswith("SELECT GET(SPLIT(")
    plain = parse_statements("EXPLAIN SELECT id FROM u")[0]
    assert queries.query(plain.whole, {"u"}, options).text == "        SELECT id FROM u"
