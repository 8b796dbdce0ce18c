"""Tables of Flink's connectors besides RocketMQ's, as declared."""

from __future__ import annotations

import re

import pytest

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.options import CompatibilityWarning
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.flink.connectors import ConnectorTable
from pyspark_rocketmq.sql.parse import parse_statements

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
