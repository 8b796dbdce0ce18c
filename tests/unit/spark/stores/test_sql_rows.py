"""Statements that insert a row or update it, and the tables of MySQL where that would go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql import types
from sqlalchemy.dialects import mysql, postgresql, sqlite

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.sql_rows import append_to, execute_rows, upsert_into, upsert_statement
from pyspark_rocketmq.spark.stores.table_statement import create_table_statement

DIALECTS = {
    "postgresql": postgresql.dialect(),
    "sqlite": sqlite.dialect(),
    "mysql": mysql.dialect(),
    "mariadb": mysql.dialect(is_mariadb=True),
}


def totals(*more: sa.schema.SchemaItem) -> sa.Table:
    product = sa.Column("product", sa.String(20), primary_key=not more)
    return sa.Table("totals", sa.MetaData(), product, sa.Column("n", sa.Integer), *more)


def row_id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, primary_key=True, autoincrement=True)


@pytest.mark.parametrize(
    ("dialect", "ends"),
    [
        ("postgresql", "ON CONFLICT (product) DO UPDATE SET n = excluded.n"),
        ("sqlite", "ON CONFLICT (product) DO UPDATE SET n = excluded.n"),
        ("mysql", "ON DUPLICATE KEY UPDATE n = VALUES(n)"),
        ("mariadb", "ON DUPLICATE KEY UPDATE n = VALUES(n)"),
    ],
)
def test_a_row_whose_key_is_there_is_updated(dialect, ends):
    statement = upsert_statement(dialect, totals(), ["product"], ["product", "n"])
    assert str(statement.compile(dialect=DIALECTS[dialect])).endswith(ends)


@pytest.mark.parametrize(
    ("dialect", "ends"),
    [
        ("postgresql", "ON CONFLICT (product) DO NOTHING"),
        ("sqlite", "ON CONFLICT (product) DO NOTHING"),
        ("mysql", "ON DUPLICATE KEY UPDATE product = VALUES(product)"),
        ("mariadb", "ON DUPLICATE KEY UPDATE product = VALUES(product)"),
    ],
)
def test_a_row_that_is_a_key_alone_stays_as_it_is(dialect, ends):
    statement = upsert_statement(dialect, totals(), ["product"], ["product"])
    assert str(statement.compile(dialect=DIALECTS[dialect], column_keys=["product"])).endswith(ends)


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_mysql_updates_by_the_key_alone_or_not_at_all(dialect):
    def make(*more):
        return upsert_statement(dialect, totals(*more), ["product"], ["product", "n"])

    def key(**settings):
        return sa.Index("by_product", "product", unique=True, **settings)

    assert make(row_id(), key()) is not None  # the database gives the ids: they never meet
    with pytest.raises(OptionError, match="no primary key or unique index of exactly these"):
        make(row_id())
    with pytest.raises(OptionError, match=r"update the row of any unique key.*other=n"):
        make(row_id(), key(), sa.Index("by_n", "n", unique=True))
    first_letters = key(**{f"{dialect}_length": {"product": 3}})
    with pytest.raises(OptionError, match=r"update the row of any unique key.*other=product"):
        make(row_id(), first_letters)
    with pytest.raises(OptionError, match=r"other=id"):
        upsert_statement(dialect, totals(row_id(), key()), ["product"], ["id", "product", "n"])


def test_what_cannot_be_updated():
    with pytest.raises(OptionError, match="needs the columns of a key"):
        upsert_into("totals", key=[])
    with pytest.raises(OptionError, match="not oracle"):
        upsert_statement("oracle", totals(), ["product"], ["product", "n"])


ROWS = (
    types.StructType()
    .add("product", "string")
    .add("day", "date")
    .add("cents", "long")
    .add("share", "double")
    .add("price", "decimal(10,2)")
    .add("at", "timestamp")
    .add("local", "timestamp_ntz")
    .add("raw", "binary")
    .add("sold", "boolean")
    .add("names", types.ArrayType(types.StringType()))
)


@pytest.fixture
def connection() -> Iterator[sa.Connection]:
    engine = sa.create_engine("sqlite://", poolclass=sa.NullPool)  # which closes what is given back
    with engine.begin() as connection:
        yield connection


def test_a_missing_table_s_error_has_the_statement_that_creates_it(connection):
    batch = SimpleNamespace(schema=ROWS, columns=ROWS.names)
    with pytest.raises(OptionError, match=r"CREATE TABLE totals .*product TEXT"):
        append_to("totals")(connection, batch)
    with pytest.raises(OptionError, match=r"PRIMARY KEY \(product, day\)") as caught:
        upsert_into("totals", key=["product", "day"])(connection, batch)
    statement = re.search(r"CREATE TABLE .* PRIMARY KEY \(.*?\) \)", str(caught.value))
    connection.execute(sa.text(statement[0]))
    found = sa.Table("totals", sa.MetaData(), autoload_with=connection)
    assert found.columns.keys() == ROWS.names
    assert found.primary_key.columns.keys() == ["product", "day"]


@pytest.mark.parametrize(
    ("dialect", "parts"),
    [
        ("postgresql", ["product VARCHAR(255) NOT NULL", "at TIMESTAMP WITH TIME ZONE", "raw BYTEA"]),
        ("mysql", ["product VARCHAR(255) NOT NULL", "at TIMESTAMP(6)", "local DATETIME(6)", "raw BLOB"]),
        ("mariadb", ["cents BIGINT", "share DOUBLE", "price NUMERIC(10, 2)", "names TEXT"]),
    ],
)
def test_the_statement_has_the_database_s_types(dialect, parts):
    statement = create_table_statement(DIALECTS[dialect], "totals", ROWS, key=["product"], schema="shop")
    assert statement.startswith("CREATE TABLE shop.totals (")
    assert [part for part in parts if part not in statement.replace("`", "").replace('"', "")] == []
    assert "PRIMARY KEY (product)" in statement


def test_a_row_without_its_key_is_refused_because_each_batch_would_insert_it_again(connection):
    def write(**columns):
        rows = pa.table(columns)
        schema = types.StructType([types.StructField(name, types.StringType()) for name in columns])
        batch = SimpleNamespace(schema=schema, columns=list(columns), toArrow=lambda: rows)
        for key in ("product", ["product"]):
            upsert_into("totals", key=key)(connection, batch)

    connection.execute(sa.text("CREATE TABLE totals (product TEXT UNIQUE, n TEXT)"))
    with pytest.raises(RocketMQError, match="a row has NULL in column 'product' of the key"):
        write(product=["a", None], n=["1", "2"])
    with pytest.raises(OptionError, match="the rows have no column 'product', by which they are updated"):
        write(n=["1"])
    write(product=["a", "b"], n=["1", None])
    write(product=pa.array([], pa.string()), n=pa.array([], pa.string()))
    assert connection.execute(sa.text("SELECT * FROM totals")).all() == [("a", "1"), ("b", None)]


def test_two_columns_of_one_name_are_refused_because_one_of_them_would_be_lost(connection):
    schema = types.StructType().add("n", "string").add("n", "string")
    rows = pa.table([pa.array(["1"]), pa.array(["2"])], names=["n", "n"])
    batch = SimpleNamespace(schema=schema, columns=["n", "n"], toArrow=lambda: rows)
    connection.execute(sa.text("CREATE TABLE totals (n TEXT)"))
    with pytest.raises(OptionError, match="the rows have two columns 'n': rename one of them"):
        append_to("totals")(connection, batch)


def nested_batch() -> SimpleNamespace:
    schema = (
        types.StructType()
        .add("n", "long")
        .add("names", types.ArrayType(types.StringType()))
        .add("ages", types.MapType(types.StringType(), types.IntegerType()))
    )
    ages = pa.map_(pa.string(), pa.int32())
    columns = [pa.array([1]), pa.array([["a", "b"]]), pa.array([[("a", 3)]], ages)]
    rows = pa.table(columns, names=schema.names)
    return SimpleNamespace(schema=schema, columns=schema.names, toArrow=lambda: rows)


def test_an_array_or_map_in_a_column_of_texts_is_refused_with_what_to_write(connection):
    connection.execute(sa.text("CREATE TABLE texts (n INT, names TEXT, ages JSON)"))
    with pytest.raises(OptionError, match=r"names is array<string>, and TEXT .*: write to_json\(names\)"):
        append_to("texts")(connection, nested_batch())


def test_an_array_or_map_in_a_json_column_is_json(connection):
    connection.execute(sa.text("CREATE TABLE totals (n INT, names JSON, ages JSON)"))
    append_to("totals")(connection, nested_batch())
    found = connection.execute(sa.text("SELECT * FROM totals")).all()
    assert found == [(1, '["a", "b"]', '{"a": 3}')]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([0, 253_402_300_800_000_000], pa.timestamp("us")), "a time outside of the years 1 to 9999"),
        (pa.array([None, -62_135_596_800_000_001], pa.timestamp("us", "UTC")), "a time outside of the years"),
        (pa.array([0, 2_932_897], pa.date32()), "a time outside of the years 1 to 9999"),
        (pa.array([b"a", b"\xff"]).view(pa.string()), r"a text that is not UTF-8: .* make_valid_utf8\(v\)"),
        (pa.MapArray.from_arrays([0, 2], pa.array(["a", "a"]), pa.array([1, 2])), "a map with a key twice"),
    ],
)
def test_a_value_that_drivers_do_not_take_is_an_error_of_its_column(connection, values, message):
    target = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer), sa.Column("v", sa.JSON))
    target.create(connection)
    rows = pa.table({"id": pa.array(range(len(values))), "v": values})
    with pytest.raises(RocketMQError, match=f"column v has {message}") as caught:
        execute_rows(connection, sa.insert(target), target, rows)
    assert "\n" not in str(caught.value)
