"""Dimension tables in a worker: kept for their time, then read anew."""

from __future__ import annotations

import os
import sqlite3
import sys
import traceback
from contextlib import closing

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, PlanError, RocketMQError
from pyspark_rocketmq.spark.stores.database_url import database_url
from pyspark_rocketmq.streams.connectors import dimension
from pyspark_rocketmq.streams.connectors.dimension import DimensionSource, DimensionTable, cached_rows


def test_a_file_is_read_anew_after_its_time(tmp_path):
    file, clock = tmp_path / "t.csv", FakeClock()
    file.write_text("id,city\n1,Rom\n")

    def rows():
        return cached_rows(str(file), None, 60, clock=clock)

    assert rows() == [{"id": "1", "city": "Rom"}]
    file.write_text("id,city\n1,Roma\n2,Wien\n")
    clock.now_s += 59
    assert rows() == [{"id": "1", "city": "Rom"}]
    clock.now_s += 1
    assert rows() == [{"id": "1", "city": "Roma"}, {"id": "2", "city": "Wien"}]


@pytest.mark.parametrize("half", ["", "id,city\n", '{"id": "1"}\n{"id'])
def test_a_file_that_is_rewritten_in_place_is_read_when_it_is_whole(tmp_path, half):
    """Without its rows, a join would leave records out until the table is read again."""
    file = tmp_path / ("t.json" if "{" in half else "t.csv")
    whole = '{"id": "1"}\n{"id": "2"}\n' if "{" in half else "id\n1\n2\n"
    clock = FakeClock(base=SYSTEM_CLOCK, now_s=0)
    writes = iter([half[:9], half, whole])

    def write():
        if (text := next(writes, None)) is not None:
            file.write_text(text)
            now_s = clock.now_ms() / 1000
            os.utime(file, (now_s, now_s))

    clock.on_sleep = write
    write()
    assert cached_rows(str(file), None, 60, clock=clock) == [{"id": "1"}, {"id": "2"}]
    assert 1 <= clock.now_s < 2


def test_a_file_that_is_written_to_all_the_time_is_read_as_it_is(tmp_path):
    file, clock = tmp_path / "t.csv", FakeClock()

    def write():
        file.write_text("id\n1\n")
        os.utime(file, (clock.now_s, clock.now_s))

    clock.on_sleep = write
    write()
    begun = clock.now_s
    assert cached_rows(str(file), None, 60, clock=clock) == [{"id": "1"}]
    assert clock.now_s - begun == pytest.approx(10, abs=0.2)
    with pytest.raises(FileNotFoundError):
        cached_rows(str(tmp_path / "gone.csv"), None, 60, clock=clock)


def test_the_age_of_a_table_counts_from_the_begin_of_its_load(monkeypatch):
    """A row that changes while a large table is loaded is seen after the same time as any other."""
    clock, loads = FakeClock(0), iter([[{"id": 1}], [{"id": 2}]])

    def load_slowly(*_):
        clock.now_s += 50
        return next(loads)

    monkeypatch.setattr(dimension, "_whole_file_rows", load_slowly)

    def rows():
        return cached_rows("slow.csv", None, 60, clock=clock)

    assert rows() == rows() == [{"id": 1}]
    clock.now_s = 60
    assert rows() == [{"id": 2}]


def test_a_table_says_what_is_wrong_with_it(tmp_path):
    (tmp_path / "long.csv").write_text("id,city\n1," + "x" * 200_000 + "\n")
    with pytest.raises(PlanError, match=r"cannot be read: .*long\.csv is no CSV: field larger than"):
        DimensionTable.load(str(tmp_path / "long.csv"), None, 1, "dimJoin#1")
    with pytest.raises(PlanError, match=r"cannot be read.*dimJoin#1"):
        DimensionTable.load(str(tmp_path / "nope.csv"), None, 1, "dimJoin#1")
    (tmp_path / "empty.json").write_text("")
    with pytest.raises(PlanError, match="it needs a first row"):
        DimensionTable.load(str(tmp_path / "empty.json"), None, 1, "dimJoin#1")


def test_a_file_of_a_spreadsheet_may_begin_with_a_mark_and_have_longer_rows(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("id,city\n1,Rom,extra\n2,Wien\n", encoding="utf-8-sig")
    assert DimensionTable.load(str(file), None, 1, "dimJoin#1").columns == ("id", "city")


def test_lines_that_are_no_objects_are_refused(tmp_path):
    (tmp_path / "t.json").write_text('{"id": 1}\n[1]\n')
    with pytest.raises(PlanError, match="has lines that are not JSON objects"):
        DimensionTable.load(str(tmp_path / "t.json"), None, 1, "dimJoin#1")


def test_values_are_texts_as_json_writes_them(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"id": 1, "on": true, "tags": {"a": [null, "é"]}}\n')
    names = ["id", "on", "tags"]
    reader = DimensionSource({"origin.password": str(file), "refresh": "0"}).reader(
        StructType([StructField(name, StringType()) for name in names])
    )
    (found,) = reader.read(reader.partitions()[0])
    assert found.to_pylist() == [{"id": "1", "on": "true", "tags": '{"a": [null, "é"]}'}]


@pytest.fixture
def cities(tmp_path):
    """The URL of a database with a table."""
    with closing(sqlite3.connect(tmp_path / "cities.db")) as database:
        database.execute("CREATE TABLE cities (id INTEGER, city TEXT, mayor TEXT)")
        database.execute("INSERT INTO cities VALUES (1, 'Rom', NULL)")
        database.commit()
    return f"sqlite:///{tmp_path}/cities.db"


@pytest.mark.parametrize(
    ("query", "columns"),
    [("cities", ("id", "city", "mayor")), ("SELECT city, mayor FROM cities", ("city", "mayor"))],
)
def test_a_table_or_query_of_a_database_is_read_as_texts(cities, query, columns):
    table = DimensionTable.load(cities, query, 5, "dimJoin#1")
    assert table == DimensionTable(cities, query, 5, columns)
    schema = StructType([StructField(name, StringType()) for name in columns])
    reader = DimensionSource({"origin.password": cities, "query": query, "refresh": "5"}).reader(schema)
    (found,) = reader.read(reader.partitions()[0])
    row = {"id": "1", "city": "Rom", "mayor": None}
    assert found.to_pylist() == [{name: row[name] for name in columns}]
    assert found.schema.field("mayor").type == pa.string()


def test_a_cached_table_is_as_old_as_its_time(cities):
    schema = StructType([StructField("id", StringType())])
    (always, kept) = (
        DimensionSource({"origin.password": cities, "query": "cities", "refresh": refresh}).reader(schema)
        for refresh in ("0", "3600")
    )
    assert sum(batch.num_rows for batch in always.read(None)) == 1
    with closing(sqlite3.connect(cities.removeprefix("sqlite:///"))) as database:
        database.execute("DELETE FROM cities")
        database.commit()
    assert sum(batch.num_rows for batch in kept.read(None)) == 1
    assert sum(batch.num_rows for batch in always.read(None)) == 0


def test_a_table_that_a_database_does_not_have_is_an_error_of_the_step(cities):
    told = "cannot be read: the database refuses a statement: no such table: rivers; check .*dimJoin#1"
    with pytest.raises(PlanError, match=told):
        DimensionTable.load(cities, "rivers", 5, "dimJoin#1")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT\nid FROM cities",
        "select\tid\tfrom\tcities",
        "SELECT(id)FROM(cities)",
        "\n WITH c AS (SELECT id FROM cities) SELECT id FROM c\n",
        "SELECT id FROM cities WHERE ' :new' <> '50 %s %' AND '\\:a' <> ':a'",
    ],
)
def test_a_query_is_sent_as_it_is(cities, query):
    assert DimensionTable.load(cities, query, 5, "dimJoin#1").columns == ("id",)
    assert cached_rows(cities, query, 5, clock=FakeClock(0)) == [{"id": 1}]


def test_a_driver_gets_no_parameters_for_which_it_would_take_a_percent_sign(cities):
    """Psycopg does, in the statement's text, also of none."""
    passed = []

    def note(_connection, _cursor, _statement, _parameters, context, _many):
        passed.append(not context.no_parameters)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        cached_rows(cities, "SELECT id FROM cities WHERE city LIKE 'R%'", 5, clock=FakeClock(0))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert passed == [False]


@pytest.mark.parametrize(
    "table", ["cities", " cities\n", "main.cities", '"a b"', "[a b]", "`a b`", 'main."a b"']
)
def test_a_name_is_a_table_also_if_its_quotes_have_a_space(cities, table):
    with closing(sqlite3.connect(cities.removeprefix("sqlite:///"))) as database:
        database.execute('CREATE VIEW "a b" AS SELECT * FROM cities')
        database.commit()
    assert DimensionTable.load(cities, table, 5, "dimJoin#1").columns == ("id", "city", "mayor")


def test_a_worker_says_what_is_wrong_with_a_table(cities):
    with pytest.raises(RocketMQError, match=r"refuses a statement: no such table: rivers; .*cities\.db"):
        cached_rows(cities, "rivers", 5, clock=FakeClock(0))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "postgresql+psycopg://u:hidden@127.0.0.1:1/d?application_name=hidden",
            "does not answer: connection",
        ),
        ("postgresql+psycopg://127.0.0.1:1/d?user=u&password=hidden", "does not answer: connection"),
        ("postgresql+psycopg://u:hidden@127.0.0.1:1/d?unknown=x", 'does not answer: .*"unknown"'),
        ("mysql+pymysql://u:hidden@127.0.0.1:1/d?unknown=x", "does not answer: .*argument 'unknown'"),
        ("postgresql+psycopg://u:p@ss:hidden@h:5432/d", "%40 for an @ in the password"),
        ("postgresql+psycopg://u:p@hidden@h:5432/d", "%40 for an @ in the password"),
        ("postgresql+psycopg://u:p@h/hidden@h:5432/d", "%40 for an @ in the password"),
        ("postgresql+psycopg://u:p@/hidden@h:5432/d", "%40 for an @ in the password"),
        ("hidden", "neither JDBC's .* nor SQLAlchemy's"),
        ("unknown://u:hidden@h/d", "no such database: .*unknown"),
        ("oracle://u:hidden@h/d", "needs its driver in Python: pip install oracledb"),
    ],
)
def test_a_database_that_cannot_be_reached_is_said_without_its_password(url, told):
    clock = FakeClock(0)
    with pytest.raises(PlanError, match=f"(?s){told}") as raised:
        DimensionTable.load(url, "cities", 5, "dimJoin#1")
    assert "hidden" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(RocketMQError, match=f"(?s){told}") as raised:
        cached_rows(url, "cities", 5, clock=clock)
    assert clock.now_s == pytest.approx(60 if "connection" in told else 0, abs=1)  # for a restart
    assert "hidden" not in "".join(traceback.format_exception(raised.value))


def test_a_url_that_is_none_is_said_without_its_password():
    for url in ("jdbc:mysql://u:p@ss:hidden@h/d", "jdbc:mysql://u:p@1/hidden@h/d", "jdbc:oracle:hidden"):
        with pytest.raises(OptionError, match="%3A for a :") as raised:
            database_url(url, None, None)
        assert "hidden" not in "".join(traceback.format_exception(raised.value))


def test_databases_need_sqlalchemy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(OptionError, match=r"pip install \"pyspark-rocketmq\[sql\]\""):
        database_url("sqlite://", None, None)


def test_urls_of_jdbc_are_those_of_sqlalchemy():
    assert database_url("jdbc:mysql://h:3306/db", "u", "p@ss") == "mysql+pymysql://u:p%40ss@h:3306/db"
    assert database_url("sqlite:////tmp/x.db", None, None) == "sqlite:////tmp/x.db"
    assert sa.make_url(database_url("sqlite:////tmp/a@b.db", None, None)).database == "/tmp/a@b.db"
    assert database_url("jdbc:mariadb://h/db", "u", None) == "mariadb+pymysql://u@h/db"
    own = "mysql+pymysql://h/db?charset=utf8mb4"
    assert database_url(own, None, None) == own


def test_parameters_of_the_java_driver_are_understood_or_refused():
    usual = "useUnicode=true&characterEncoding=UTF-8&useSSL=false"
    url = f"jdbc:mysql://h/db?{usual}&user=me&password=p%40ss"
    assert database_url(url, None, None) == "mysql+pymysql://me:p%40ss@h/db"
    assert database_url(url, "you", "other") == "mysql+pymysql://you:other@h/db"
    found = database_url("jdbc:postgresql://h/db?user=me&password=x&sslmode=require", None, None)
    assert found == "postgresql+psycopg://me:x@h/db?sslmode=require"
    for wrong in ("useSSL=true", "serverTimezone=Asia/Shanghai"):
        with pytest.raises(OptionError, match="of the Java driver is not supported: remove it"):
            database_url(f"jdbc:mysql://h/db?password=hidden&{wrong}", None, None)
