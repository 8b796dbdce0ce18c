"""Tables as a stream: which rows a batch has, on SQLite; PostgreSQL is in tests/spark."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.features import ReadAllAvailable, ReadMaxRows
from pyspark_rocketmq.streams.connectors.database_source import TableRange, TablesReader


@pytest.fixture
def clock():
    return FakeClock(100.0)


@pytest.fixture
def run(tmp_path):
    def statements(*texts):
        with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
            for text in texts:
                connection.execute(text)

    statements("CREATE TABLE a_1 (id INTEGER, x TEXT)", "CREATE TABLE other (id INTEGER)")
    return statements


@pytest.fixture
def reader(tmp_path, clock, run):
    options = {"url.password": f"sqlite:///{tmp_path}/t.db", "pattern": "a_.", "idField": "id"}
    return TablesReader({**options, "refreshSeconds": "10"}, clock)


def read(reader, start, end):
    return [
        json.loads(row["row"])
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def test_a_batch_is_a_range_of_ids_of_each_table(reader, run, clock):
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == {}
    clock.now_s += 10
    run(
        "INSERT INTO a_1 VALUES (3, 'c'), (1, 'a')",
        "CREATE TABLE a_2 (id INTEGER)",
        "INSERT INTO a_2 VALUES (7)",
    )
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"a_1": 3, "a_2": 7}
    rows = read(reader, start, end)
    assert rows == read(reader, start, end) == [{"id": 1, "x": "a"}, {"id": 3, "x": "c"}, {"id": 7}]
    assert reader.partitions({"a_1": 1, "a_2": 7}, end) == [TableRange("a_1", 1, 3)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_tables_are_looked_at_now_and_then_and_by_so_many_rows(reader, run, clock):
    run("INSERT INTO a_1 VALUES (1, ''), (2, ''), (3, '')")
    first = reader.latestOffset({}, ReadMaxRows(2))
    assert first == {"a_1": 2}
    second = reader.latestOffset(first, ReadMaxRows(2))
    assert second == {"a_1": 3}, "what is there already does not wait"
    assert reader.latestOffset(second, ReadMaxRows(2)) == second
    run("INSERT INTO a_1 VALUES (4, '')")
    assert reader.latestOffset(second, ReadMaxRows(2)) == second
    clock.now_s += 10
    assert reader.latestOffset(second, ReadMaxRows(2)) == {"a_1": 4}


def test_available_now_ends_at_what_was_there(reader, run, clock):
    run("INSERT INTO a_1 VALUES (1, ''), (2, ''), (5, '')", "CREATE TABLE a_2 (id INTEGER)")
    clock.on_sleep = lambda: run("INSERT INTO a_1 VALUES (4, ''), (6, '')", "INSERT INTO a_2 VALUES (7)")
    reader.prepareForTriggerAvailableNow()
    assert clock.sleeps == [1.0], "for transactions that had begun before"
    first = reader.latestOffset({"a_1": 1}, ReadMaxRows(2))
    assert first == {"a_1": 4}
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == {"a_1": 5} == reader.latestOffset(second, ReadAllAvailable())
    assert reader.latestOffset({"a_1": 8}, ReadAllAvailable()) == {"a_1": 8}


def test_a_smaller_id_that_is_seen_a_moment_later_counts(reader, run, clock):
    run("INSERT INTO a_1 VALUES (5, '')")
    clock.on_sleep = lambda: run("INSERT INTO a_1 VALUES (4, '')")
    end = reader.latestOffset({}, ReadAllAvailable())
    assert clock.sleeps == [1.0]
    assert [row["id"] for row in read(reader, {}, end)] == [4, 5]


@pytest.mark.parametrize("value", ["'b17'", "1.5", "'2030-01-01'"])
def test_an_id_that_is_no_whole_number_is_refused(reader, run, value):
    """Cut off, 1.5 would be 1: the row would never be read."""
    run("CREATE TABLE a_3 (id)", f"INSERT INTO a_3 VALUES ({value})")
    with pytest.raises(OptionError, match="growing whole numbers"):
        reader.latestOffset({}, ReadAllAvailable())


def test_what_is_wrong_is_said_without_the_password(clock):
    options = {"pattern": "a", "idField": "id", "refreshSeconds": "1"}
    away = TablesReader({**options, "url.password": "postgresql+psycopg://u:hidden@127.0.0.1:1/d"}, clock)
    with pytest.raises(RocketMQError, match="does not answer") as raised:
        away.latestOffset({}, ReadAllAvailable())
    assert "hidden" not in str(raised.value)
    with pytest.raises(OptionError, match="not a regular expression"):
        TablesReader({**options, "url.password": "sqlite://", "pattern": "("}, clock)


def test_a_table_without_the_column_of_ids_is_said_so(reader, run):
    run("CREATE TABLE a_4 (x TEXT)")
    told = r"refuses a statement: no such column: id; .* need the column id \(idField\).*t\.db"
    for failing in (
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset({}, ReadAllAvailable()),
        lambda: list(reader.read(TableRange("a_4", None, 1))),
    ):
        with pytest.raises(RocketMQError, match=told):
            failing()


def test_a_table_that_is_dropped_before_its_rows_are_read_is_said(reader, run):
    run("INSERT INTO a_1 VALUES (1, 'a')")
    (part,) = reader.partitions({}, reader.latestOffset({}, ReadAllAvailable()))
    run("DROP TABLE a_1")
    with pytest.raises(RocketMQError, match="refuses a statement: no such table: a_1"):
        list(reader.read(part))
