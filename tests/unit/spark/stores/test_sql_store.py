"""The tables of the store of offsets in a database."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateTable

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
