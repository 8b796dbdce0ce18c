"""``CREATE TABLE … LIKE``: what a table gets from another one of the job."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import CreateTable, SparkStatement

SOURCE = (
    "CREATE TABLE u (id BIGINT, n BIGINT, c AS id + 1, k STRING METADATA FROM 'keys', ts TIMESTAMP(3), "
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED) "
    "WITH ('connector' = 'rocketmq', 'topic' = 'u', 'nameServer' = 'a:1');\n"
)


def like(text: str) -> CreateTable:
    found = parse_statements(SOURCE + text)[-1]
    assert isinstance(found, CreateTable)
    return found


def names(table: CreateTable) -> list[str]:
    return [column.name.text for column in table.columns]


def options(table: CreateTable) -> dict[str, str]:
    return {option.name: option.value for option in table.options}


def test_without_options_everything_is_included_and_options_are_overwritten():
    table = like("CREATE TABLE t (x INT) WITH ('topic' = 't', 'retries' = '3') LIKE u")
    assert names(table) == ["id", "n", "c", "k", "ts", "x"]
    assert (table.watermark.delay, [name.text for name in table.primary_key]) == ("5 SECOND", ["id"])
    assert options(table) == {"connector": "rocketmq", "nameServer": "a:1", "topic": "t", "retries": "3"}
    assert (table.flink, table.connector, table.name.text) == (True, "rocketmq", "t")


@pytest.mark.parametrize(
    ("clause", "columns", "watermark", "key", "given"),
    [
        ("EXCLUDING ALL", ["id", "n", "ts"], False, False, {"connector": "print"}),
        (
            "EXCLUDING ALL INCLUDING GENERATED",
            ["id", "n", "c", "ts"],
            False,
            False,
            {"connector": "print"},
        ),
        (
            "EXCLUDING OPTIONS, EXCLUDING WATERMARKS",
            ["id", "n", "c", "k", "ts"],
            False,
            True,
            {"connector": "print"},
        ),
        (
            "EXCLUDING METADATA EXCLUDING CONSTRAINTS",
            ["id", "n", "c", "ts"],
            True,
            False,
            {"connector": "print", "topic": "u", "nameServer": "a:1"},
        ),
    ],
)
def test_parts_are_excluded(clause, columns, watermark, key, given):
    table = like(f"CREATE TABLE t WITH ('connector' = 'print') LIKE u ({clause})")
    assert names(table) == columns
    assert (table.watermark is not None, bool(table.primary_key)) == (watermark, key)
    assert (options(table), table.connector) == (given, "print")


def test_parts_are_overwritten():
    table = like(
        "CREATE TABLE t (c AS n + 2, WATERMARK FOR ts AS ts) LIKE u "
        "(OVERWRITING GENERATED OVERWRITING WATERMARKS)"
    )
    assert names(table) == ["id", "n", "c", "k", "ts"]
    assert table.columns[2].expression.text == "n + 2"
    assert table.watermark.delay == "0 seconds"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("CREATE TABLE t (n INT) LIKE u", "line 2, column 17: u declares the column 'n', too"),
        (
            "CREATE TABLE t (c AS 1) LIKE u",
            "line 2, column 17: u declares the column 'c', too: LIKE u (OVERWRITING GENERATED) uses this one",
        ),
        (
            "CREATE TABLE t (PRIMARY KEY (n) NOT ENFORCED) LIKE u",
            "column 30: u declares a primary key, too: LIKE u (EXCLUDING CONSTRAINTS) uses this one",
        ),
        (
            "CREATE TABLE t (WATERMARK FOR ts AS ts) LIKE u",
            "column 31: u declares a watermark, too: LIKE u (OVERWRITING WATERMARKS) uses this one",
        ),
        (
            "CREATE TABLE t WITH ('topic' = 'x') LIKE u (INCLUDING ALL)",
            "column 22: u declares the option 'topic', too: LIKE u (OVERWRITING OPTIONS) uses this one",
        ),
        ("CREATE TABLE t LIKE u WITH ('topic' = 'x')", "column 23: LIKE is the last clause: WITH (…) comes"),
        ("CREATE TABLE t LIKE u (SOME ALL)", "expected INCLUDING, EXCLUDING or OVERWRITING, found 'SOME'"),
        ("CREATE TABLE t LIKE u (EXCLUDING X)", "expected ALL, CONSTRAINTS, DISTRIBUTION, GENERATED"),
        ("CREATE TABLE t LIKE u (EXCLUDING CONSTRAINTS) x", "LIKE is the last clause"),
        ("CREATE TABLE t WITH ('connector' = 'print') LIKE v", "LIKE v: the job declares no such table"),
        (
            "CREATE TABLE t (a INT) DISTRIBUTED BY (a) INTO 4 BUCKETS WITH ('connector' = 'print')",
            "column 24: rows are distributed by their keys: declare PRIMARY KEY, or keyColumns",
        ),
    ],
)
def test_errors_say_what_is_declared_twice(text, error):
    with pytest.raises(SqlError) as raised:
        parse_statements(SOURCE + text)
    assert error in str(raised.value)


def test_a_table_that_is_not_the_jobs_is_sparks():
    *_, statement = parse_statements(SOURCE + "DROP TABLE u; CREATE TABLE t LIKE u")
    assert isinstance(statement, SparkStatement)
    *_, statement = parse_statements(SOURCE + "CREATE TABLE t LIKE default_catalog.default_database.u")
    assert isinstance(statement, CreateTable)


def test_an_earlier_text_of_a_shell_has_declared_the_table():
    (source,) = parse_statements(SOURCE)
    (table,) = parse_statements("CREATE TABLE t LIKE u", {"u": source})
    assert isinstance(table, CreateTable)
    assert names(table) == names(source)


def test_the_first_of_two_tables_that_if_not_exists_keeps_is_meant():
    text = SOURCE + "CREATE TABLE IF NOT EXISTS u (z INT) WITH ('connector' = 'print'); CREATE TABLE t LIKE u"
    assert names(parse_statements(text)[-1]) == ["id", "n", "c", "k", "ts"]


def test_a_check_knows_the_columns():
    job = SOURCE + "CREATE TABLE t WITH ('connector' = 'print') LIKE u (EXCLUDING ALL);\n"
    batch = "SET 'runtimeMode' = 'batch';"
    assert check_job(job + batch + "INSERT INTO t (id) SELECT id FROM u") == 4
    with pytest.raises(SqlError, match="t has no column 'k'"):
        check_job(job + batch + "INSERT INTO t (k) SELECT k FROM u")
