"""Tables of databases: what is checked before a query starts, and what a batch leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType
from sqlalchemy.dialects import mysql

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.database_table import DatabaseTable, _local_times

ROWS = StructType([StructField("id", IntegerType()), StructField("name", StringType())])


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        for columns in ("keyed (id INT PRIMARY KEY, name TEXT)", "loose (id INT, name TEXT)"):
            connection.execute(sa.text(f"CREATE TABLE {columns}"))
        connection.execute(sa.text("CREATE TABLE one (id INT UNIQUE, name TEXT)"))
        connection.execute(sa.text("CREATE TABLE pair (id INT, name TEXT, PRIMARY KEY (name, id))"))
    return url


def test_a_table_with_the_key_takes_rows(url):
    DatabaseTable(url, "keyed", None, ("id",)).check(ROWS)
    DatabaseTable(url, "one", None, ("id",)).check(ROWS)
    DatabaseTable(url, "pair", None, ("id", "name")).check(ROWS)
    DatabaseTable(url, "loose", None, ()).check(ROWS)


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        ("absent", ("id",), "CREATE TABLE absent"),
        ("loose", ("id",), "has no primary key or unique index of exactly"),
        ("keyed", ("name",), "unique index of exactly"),
        ("pair", ("id",), "unique index of exactly"),
    ],
)
def test_a_table_that_cannot_be_updated_is_refused(url, name, key, reason):
    with pytest.raises(OptionError, match=reason):
        DatabaseTable(url, name, None, key).check(ROWS)


def test_a_column_that_is_not_there_is_named(url):
    with pytest.raises(OptionError, match="table keyed has no column 'size'; it has id, name"):
        DatabaseTable(url, "keyed", None, ()).check(StructType([StructField("size", IntegerType())]))


def test_a_database_that_cannot_be_reached_is_an_error_in_one_line(tmp_path):
    absent = DatabaseTable(f"sqlite:///{tmp_path}/no/folder.db", "t", None, ())
    with pytest.raises(RocketMQError, match="the database does not answer: unable to open") as raised:
        absent.check(ROWS)
    assert "\n" not in str(raised.value)
    with pytest.raises(OptionError, match="its driver in Python: pip install"):
        DatabaseTable("oracle+oracledb://h/d", "t", None, ()).check(ROWS)
    assert "hunter2" not in repr(DatabaseTable("postgresql+psycopg://u:hunter2@h/d", "t", None, ()))


def test_times_without_a_zone_get_the_sessions_time():
    times = StructType([StructField(name, TimestampType()) for name in ("a", "b")])
    zoned, plain = sa.TIMESTAMP(timezone=True), sa.TIMESTAMP()
    postgres = sa.Table("t", sa.MetaData(), sa.Column("a", zoned), sa.Column("b", plain))
    assert _local_times("postgresql", postgres, times) == ["b"]
    mariadb = sa.Table(
        "t", sa.MetaData(), sa.Column("a", mysql.TIMESTAMP()), sa.Column("b", mysql.DATETIME())
    )
    assert _local_times("mariadb", mariadb, times) == ["b"]
