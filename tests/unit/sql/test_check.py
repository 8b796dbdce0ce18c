"""What ``sql --check`` finds without Spark, and what it leaves to Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.sql.check import check_job

JOBS = Path(__file__).parents[3] / "examples" / "sql"
TABLE = "CREATE TABLE t (a INT) WITH ('connector' = 'rocketmq', 'topic' = 't'{more});\n"


@pytest.fixture(autouse=True)
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that checks need not be the one that runs the job."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def table(more: str = "") -> str:
    return TABLE.format(more=f", {more}" if more else "")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELEC 1", "line 1, column 1: no statement begins with 'SELEC': did you mean SELECT?"),
        ("SELECT 1;\n  SELECT (1", "line 2, column 10: this parenthesis is not closed"),
        ("SELECT 1);", "line 1, column 9: no parenthesis is open here, found ')'"),
        (
            "CREATE VIEW v AS SELCT 1",
            "line 1, column 18: no statement begins with 'SELCT': did you mean SELECT?",
        ),
        ("SET 'triger' = '1'", "line 1, column 1: unknown option triger: did you mean trigger?"),
        ("SET 'trigger' = 'often'", "line 1, column 1: option trigger is malformed: expected availableNow"),
        (table("'nme' = 'x'"), "line 1, column 71: unknown option 'nme'"),
        (
            table("'kafka.bootstrap.servers' = 'x'"),
            "line 1, column 71: unknown option 'kafka.bootstrap.servers': that is Kafka's name",
        ),
        (table("'badRecords' = 'ignore'"), "line 1, column 71: option badRecords is malformed"),
        (
            table("'startingOffsets' = 'begin'") + "INSERT INTO s SELECT a FROM t",
            "line 1, column 71: option startingOffsets is malformed",
        ),
        (
            table("'retries' = 'no'") + "INSERT INTO t VALUES (1)",
            "line 1, column 71: option retries is malformed",
        ),
        (
            table() + "INSERT INTO t (b) VALUES (1)",
            "line 2, column 16: t has no column 'b' that can be written",
        ),
        (table() + "INSERT OVERWRITE t VALUES (1)", "line 2, column 18: a topic cannot be overwritten"),
        (table() + "INSERT INTO s SELECT a FROM t", "line 2, column 1: a streaming query needs a chec"),
        (
            table() + "CREATE VIEW v AS SELECT * FROM t;\nINSERT INTO s SELECT a FROM v",
            "line 3, column 1: a stre",
        ),
        (table() + "SELECT * FROM t", "line 2, column 1: a query without INSERT INTO needs batch mode"),
        (table() + table(), "line 2, column 14: table t already exists, since line 1"),
        (table() + "CREATE VIEW t AS SELECT 1", "line 2, column 13: t already exists"),
    ],
)
def test_a_mistake_is_found_with_its_place(text: str, error: str) -> None:
    with pytest.raises(SqlError) as caught:
        check_job(text)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    "text",
    [
        table() + "SET 'runtimeMode' = 'batch'; SELECT * FROM t",
        table() + "DESCRIBE t; SHOW TABLES; EXPLAIN SELECT * FROM t",
        table() + "SET 'checkpointLocation' = '/c'; INSERT INTO t SELECT a FROM t",
        table() + "INSERT INTO t VALUES (1)",
        table() + "DROP TABLE t;" + table(),
        table("'inferSchema' = 'true'").replace("(a INT) ", "") + "INSERT INTO t (b) VALUES (1)",
        "ADD JAR 'x.jar'; SET spark.sql.shuffle.partitions = 2; RESET spark.sql.shuffle.partitions; RESET",
        "OPTIMIZE delta.`/x`; VACUUM t; RESTORE TABLE t TO VERSION AS OF 1",  # of an extension
        "SELECT a FORM t",  # known to Spark only
        "CREATE TABLE s USING parquet AS SELECT ')' AS b",
    ],
)
def test_what_may_be_right_passes(text: str) -> None:
    assert check_job(text) > 0


def test_settings_of_the_command_are_checked() -> None:
    with pytest.raises(OptionError, match="unknown option triger: did you mean trigger"):
        check_job("SELECT 1", settings={"triger": "1s"})
    job = table() + "INSERT INTO t SELECT a FROM t"
    assert check_job(job, checkpoint_location="/c", settings={"spark.app.name": "x"}) == 2
    assert check_job(table() + "SELECT a FROM t", settings={"runtimeMode": "batch"}) == 2


@pytest.mark.parametrize("job", sorted(JOBS.glob("*.sql")), ids=lambda path: path.stem)
def test_the_examples_pass(job: Path) -> None:
    assert check_job(job.read_text(encoding="utf-8"), checkpoint_location="/c") > 3
