"""The tables of the store of offsets in a database."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql.types import StringType, StructField, StructType
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.database_connection import database_errors, open_engine
from pyspark_rocketmq.spark.stores.sql_rows import append_to
from pyspark_rocketmq.spark.stores.sql_store import _BATCHES, _OFFSETS, SqlOffsetStore


@pytest.mark.parametrize("table", [_OFFSETS, _BATCHES])
def test_names_that_differ_by_case_are_two_keys_in_mysql_and_mariadb(table):
    for dialect in (mysql.dialect(), mysql.dialect(is_mariadb=True)):
        text = str(CreateTable(table).compile(dialect=dialect))
        assert text.count("COLLATE utf8mb4_bin") == text.count("VARCHAR")
    for other in (postgresql.dialect(), sqlite.dialect()):
        assert "COLLATE" not in str(CreateTable(table).compile(dialect=other))


@pytest.mark.parametrize("url", ["postgresql://u:hidden@h/d", "postgresql://h/d?user=u&password=hidden"])
def test_a_store_is_shown_without_the_password(url):
    shown = repr(SqlOffsetStore(url, job="j"))
    assert "@h/d" in shown or "//h/d" in shown
    assert "hidden" not in shown


@pytest.fixture
def results(tmp_path: Path) -> Iterator[SqlOffsetStore]:
    store = SqlOffsetStore(f"sqlite:///{tmp_path / 'results.db'}", job="orders")
    with store.transaction() as transaction:
        transaction.handle.execute(sa.text("CREATE TABLE bodies (body TEXT NOT NULL UNIQUE, day DATE)"))
    yield store
    store.close()


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"body": ["b-secret", "b-secret"]}, "UNIQUE constraint failed: bodies.body"),
        ({"body": ["b-secret", None]}, "NOT NULL constraint failed: bodies.body"),
        ({"body": ["b-secret"], "day": ["b-secret"]}, "SQLite Date type only accepts Python date objects"),
    ],
)
def test_what_the_database_refuses_is_said_without_the_rows(results, columns, told):
    batch = pa.table(columns)
    schema = StructType([StructField(name, StringType()) for name in columns])
    rows = SimpleNamespace(schema=schema, columns=list(columns), toArrow=lambda: batch)
    with pytest.raises(RocketMQError) as caught, results.transaction() as transaction:
        append_to("bodies")(transaction.handle, rows)
    assert re.search(rf"refuses a statement: {told}.*; .*rolled back.*job=orders", str(caught.value))
    assert "b-secret" not in "".join(traceback.format_exception(caught.value))
    with results.transaction() as transaction:
        assert transaction.handle.scalar(sa.text("SELECT count(*) FROM bodies")) == 0


@pytest.mark.parametrize(("query", "limit_s"), [("", 60), ("?timeout=7", 7)])
def test_a_batch_waits_for_that_of_another_job_in_a_file_of_sqlite(tmp_path, query, limit_s):
    engine = open_engine(f"sqlite:///{tmp_path / 'results.db'}{query}")
    with engine.connect() as connection:
        assert connection.scalar(sa.text("PRAGMA busy_timeout")) == limit_s * 1000


@pytest.mark.parametrize("query", ["", "?keepalives_idle=5"])
@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_a_statement_does_not_wait_hours_for_a_host_that_is_gone(driver, query):
    engine, given = open_engine(f"{driver}://127.0.0.1:1/d{query}"), {}

    @sa.event.listens_for(engine, "do_connect")
    def note(_dialect, _record, _arguments, parameters):
        given.update(parameters)

    with pytest.raises(sa.exc.OperationalError):  # libpq knows the parameters: another one is named
        engine.connect()
    probes = int(given["keepalives_interval"]) * int(given["keepalives_count"])
    assert int(given["keepalives_idle"]) + probes == (65 if query else 120)
    assert given["tcp_user_timeout"] == 120_000  # keepalive is not used while data is being sent


def test_a_row_in_the_next_lines_of_postgresql_s_error_is_not_shown():
    said = Exception('null value in column "n"\nDETAIL:  Failing row contains (b-secret).')
    error = sa.exc.IntegrityError("INSERT", {}, said)
    url = sa.make_url("postgresql://u:p@h/d")
    with pytest.raises(RocketMQError) as caught, database_errors(url, advice="do this"):
        raise error
    assert 'refuses a statement: null value in column "n"; do this' in str(caught.value)
    assert "b-secret" not in "".join(traceback.format_exception(caught.value))


def test_a_column_that_the_table_does_not_have_is_named(results):
    schema = StructType([StructField("size", StringType())])
    rows = SimpleNamespace(schema=schema, columns=["size"])
    told = "table bodies has no column 'size'; it has body, day"
    with pytest.raises(OptionError, match=told), results.transaction() as transaction:
        append_to("bodies")(transaction.handle, rows)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql+psycopg://u:b-secret@127.0.0.1:1/d", "does not answer: connection"),
        ("mysql+pymysql://u:b-secret@127.0.0.1:1/d?unknown=x", "does not answer: .*argument 'unknown'"),
        ("unknown://u:b-secret@h/d", "no such database: .*unknown"),
        ("oracle://u:b-secret@h/d", "needs its driver in Python: pip install oracledb"),
        ("sqlite:////no/folder.db", "does not answer: unable to open database file"),
    ],
)
def test_a_database_that_cannot_be_reached_is_said_without_its_password(url, told):
    with pytest.raises(RocketMQError, match=told) as caught:
        SqlOffsetStore(url, job="orders").starting_offsets()
    assert "b-secret" not in "".join(traceback.format_exception(caught.value))
