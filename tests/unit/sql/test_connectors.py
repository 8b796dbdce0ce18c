"""Tables of Flink's connectors besides RocketMQ's, as declared."""

from __future__ import annotations

import re
import traceback

import pytest
from pyspark.errors import PySparkException

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.options import CompatibilityWarning
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.flink import jdbc
from pyspark_rocketmq.sql.flink.connectors import ConnectorTable
from pyspark_rocketmq.sql.flink.jdbc import check_writable, read_database, reading_options
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.statements import Position

FILES = "'connector' = 'filesystem', 'path' = '/f', 'format' = 'csv'"


def declare(options: str, columns: str = "(a INT, d STRING)", more: str = "") -> ConnectorTable:
    (declared,) = parse_statements(f"CREATE TABLE t {columns} {more} WITH ({options})")
    return ConnectorTable.of(declared)


def test_files_have_partitions_and_options_of_their_format():
    table = declare(f"{FILES}, 'csv.field-delimiter' = '|', 'csv.header' = 'true'", more="PARTITIONED BY (d)")
    assert (table.format, dict(table.settings)) == ("csv", {"sep": "|", "header": "true"})
    assert [name.text for name in table.declared.partitions] == ["d"]
    assert declare("'connector' = 'filesystem', 'path' = '/f', 'format' = 'raw'").format == "text"


@pytest.mark.parametrize(
    ("options", "columns", "more", "message"),
    [
        ("'connector' = 'filesystem', 'format' = 'csv'", "(a INT)", "", "needs the option 'path'"),
        ("'connector' = 'filesystem', 'path' = '/f'", "(a INT)", "", "needs the option 'format'"),
        ("'connector' = 'filesystem', 'path' = '/f', 'format' = 'x'", "(a INT)", "", "'x' is not one of csv"),
        (FILES, "(a INT)", "PARTITIONED BY (b)", "'b' is no column of t"),
        (FILES, "(a INT, k STRING METADATA FROM 'keys')", "", "has no metadata columns"),
        (f"{FILES}, 'pth' = '/g'", "(a INT)", "", "unknown option 'pth': did you mean path"),
        (
            "'connector' = 'print', 'path' = '/f'",
            "(a INT)",
            "",
            "unknown option 'path': connector 'print' has",
        ),
        ("'connector' = 'blackhole'", "(a INT)", "PARTITIONED BY (a)", "'blackhole' has no partitions"),
        ("'connector' = 'blackhole'", "", "", "'blackhole' needs columns"),
    ],
)
def test_what_a_connector_cannot_be(options, columns, more, message):
    with pytest.raises(SqlError, match=re.escape(message)):
        declare(options, columns, more)


def test_what_has_no_effect_is_said():
    rolling = "'sink.rolling-policy.rollover-interval' = '1min', 'sink.partition-commit.delay' = '1 min'"
    with pytest.warns(CompatibilityWarning, match="without effect: sink") as found:
        declare(f"{FILES}, {rolling}")
    assert len(found) == 2


def test_files_alone_can_be_read():
    assert declare(FILES).is_readable
    assert not declare("'connector' = 'print'").is_readable


def test_a_job_with_connectors_is_checked():
    files = f"CREATE TABLE f (a INT, d STRING) WITH ({FILES});"
    hole = "CREATE TABLE h (a INT NOT NULL, b INT) WITH ('connector' = 'blackhole');"
    start = "SET 'checkpointLocation' = '/c';"
    assert check_job(f"{start}{files}{hole} INSERT INTO h SELECT a, 1 FROM f") == 4
    with pytest.raises(SqlError, match="h has no column 'x' that can be written"):
        check_job(f"{start}{files}{hole} INSERT INTO h (x) SELECT a FROM f")
    with pytest.raises(SqlError, match="a streaming query needs a checkpoint"):
        check_job(f"{files}{hole} INSERT INTO h SELECT a, 1 FROM f")
    with pytest.raises(SqlError, match="table h already exists"):
        check_job(hole + hole)


# --- databases --------------------------------------------------------------------------------------------

JDBC = "'connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d', 'table-name' = 'shop.totals'"


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ("'connector' = 'jdbc', 'table-name' = 't'", "(a INT)", "needs the option 'url'"),
        ("'connector' = 'jdbc', 'url' = 'jdbc:mysql://h/d'", "(a INT)", "needs the option 'table-name'"),
        (JDBC.replace("jdbc:mysql", "mysql"), "(a INT)", "begins with jdbc:"),
        (JDBC, "(a INT, b ROW<c INT>)", "a database has no type for column 'b': declare a STRING"),
        (JDBC, "(a MAP<STRING, INT>)", "no type for column 'a'"),
        (f"{JDBC}, 'user' = 'me'", "(a INT)", "unknown option 'user': did you mean username"),
        (JDBC, "(a INT, k STRING METADATA FROM 'keys')", "has no metadata columns"),
    ],
)
def test_what_a_table_of_a_database_cannot_be(options, columns, message):
    with pytest.raises(SqlError, match=re.escape(message)):
        declare(options, columns)


def test_a_table_of_a_database_shows_no_secret():
    table = declare(f"{JDBC}, 'username' = 'me', 'password' = 'hunter2'")
    assert table.is_readable
    assert "hunter2" not in repr(table)
    with pytest.warns(CompatibilityWarning, match=r"without effect: lookup.cache \(a micro-batch reads"):
        declare(f"{JDBC}, 'lookup.cache' = 'PARTIAL'")


def test_a_table_of_a_database_is_no_stream():
    database = f"CREATE TABLE d (a INT, d STRING) WITH ({JDBC});"
    hole = "CREATE TABLE h (a INT) WITH ('connector' = 'blackhole');"
    assert check_job(f"{database}{hole} INSERT INTO h SELECT a FROM d; SELECT a FROM d") == 4


def test_which_databases_are_written():
    at = Position(3, 4)
    for url in ("jdbc:mysql://h/d", "jdbc:mariadb://h/d", "jdbc:postgresql://h/d", "jdbc:sqlite:/f"):
        check_writable({"url": url}, at)
    with pytest.raises(SqlError, match="line 3, column 4: jdbc:oracle can be read, but not written"):
        check_writable({"url": "jdbc:oracle:thin:@//h/d"}, at)


def test_mariadb_is_read_with_the_quotes_that_it_has():
    options = {"url": "jdbc:mariadb://db:3306/shop", "table-name": "t", "username": "u"}
    assert reading_options(options) == {
        "url": "jdbc:mysql://db:3306/shop?permitMysqlScheme",
        "dbtable": "t",
        "user": "u",
        "driver": "org.mariadb.jdbc.Driver",
    }
    given = reading_options({"url": "jdbc:mariadb://db/shop?a=b", "driver": "x"})
    assert given == {"url": "jdbc:mysql://db/shop?a=b&permitMysqlScheme", "driver": "x"}
    assert reading_options({"url": "jdbc:mysql://db/shop"}) == {"url": "jdbc:mysql://db/shop"}


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("jdbc:postgresql://h:x/d?user=u&password=planted-4711&ssl=true", {}),
        ("jdbc:mysql://u:planted-4711@h:x/d", {}),
        ("jdbc:mariadb://h/d", {"password": "planted-4711"}),
        ("jdbc:sqlserver://h;Password=planted-4711;encrypt=true", {}),
    ],
)
def test_what_a_driver_says_is_shown_without_the_password(monkeypatch, url, given):
    """Drivers of PostgreSQL and MariaDB repeat a URL that they cannot parse."""

    def refuse(spark, options):
        raise PySparkException(f"Unable to parse URL {url} {options.get('password')}\nmore")

    monkeypatch.setattr(jdbc, "_load", refuse)
    (declared,) = parse_statements(f"CREATE TABLE t (a INT) WITH ({JDBC})")
    with pytest.raises(OptionError, match="Unable to parse URL") as caught:
        read_database(None, declared, {"url": url, "table-name": "t", **given})
    shown = "".join(traceback.format_exception(caught.value))
    assert "planted-4711" not in shown
    assert "***" in str(caught.value)
