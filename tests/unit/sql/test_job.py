"""How a job ends, and what becomes of bad records when a statement fails or is entered again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from tests.support.fakes import StoppedLater

from pyspark_rocketmq.errors import OptionError, RocketMQError, SqlError
from pyspark_rocketmq.options import OutputMode, RuntimeMode
from pyspark_rocketmq.sql.check import check_job
from pyspark_rocketmq.sql.job import SqlJob
from pyspark_rocketmq.sql.plan.bad_records import Part
from pyspark_rocketmq.sql.plan.planner import Write
from pyspark_rocketmq.sql.plan.targets import DeadLettersTarget
from pyspark_rocketmq.sql.tables import Table

ORDERS = (
    "CREATE TABLE orders (a INT) WITH ('connector' = 'rocketmq', 'topic' = 'orders', 'nameServer' = 'h:1', "
    "'badRecords' = 'dead-letter', 'badRecordsTopic' = 'bad');"
)
COPIES = "CREATE TABLE copies (a INT) WITH ('connector' = 'blackhole');"
INSERT = "INSERT INTO copies SELECT a FROM orders;"


class Started:
    """A query that runs until it is stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False


class Stream:
    """Rows of a stream, and what writes them."""

    isStreaming = True  # noqa: N815 - PySpark's name
    columns = ("a",)
    name = ""

    @property
    def writeStream(self) -> Stream:
        return self

    def queryName(self, name: str) -> Stream:
        self.name = name
        return self

    def outputMode(self, *_: object, **__: object) -> Stream:
        return self

    option = trigger = createOrReplaceTempView = outputMode  # noqa: N815 - PySpark's names


class Target:
    """Where rows go, or why they cannot."""

    missing: str | None = None

    def start(self, writer: Stream, *_: object) -> Started:
        if self.missing:
            raise OptionError(f"topic {self.missing} does not exist")
        return Started(writer.name)


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Target:
    target = Target()
    monkeypatch.setattr(Table, "dead_letters", lambda *_, **__: Stream())
    monkeypatch.setattr(DeadLettersTarget, "start", lambda _, *given: target.start(*given))
    return target


@pytest.fixture
def job(letters: Target, monkeypatch: pytest.MonkeyPatch) -> SqlJob:
    def nothing(*_: object) -> None:
        """Do nothing."""

    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=nothing, set=nothing, unset=nothing))
    job = SqlJob(spark, "", {"checkpointLocation": "/c"})
    rows: Any = Stream()
    monkeypatch.setattr(job._planner, "insert", lambda _: Write(rows, Target(), "copies", OutputMode.APPEND))
    job.run_text(ORDERS, pytest.fail)
    return job


def names(job: SqlJob) -> list[str]:
    return [query.name for query in job.queries if query.isActive]


def test_a_query_whose_bad_records_would_be_lost_does_not_run(job: SqlJob, letters: Target) -> None:
    letters.missing = "bad"
    with pytest.raises(SqlError, match="topic bad does not exist"):
        job.run_text(INSERT, pytest.fail)
    assert job.queries == []
    letters.missing = None
    job.run_text(INSERT, pytest.fail)
    assert names(job) == ["copies", "orders-bad-records"], "the names, and so the checkpoints, of the first"


def test_a_statement_without_a_checkpoint_takes_no_name(job: SqlJob) -> None:
    with pytest.raises(SqlError, match="needs a checkpoint"):
        job.run_text("RESET 'checkpointLocation';" + INSERT, pytest.fail)
    job.run_text("SET 'checkpointLocation' = '/c';" + INSERT, pytest.fail)
    assert names(job) == ["copies", "orders-bad-records"]


@pytest.mark.parametrize("statements", ["SET 'queryName' = '../q';", "SET 'pipeline.name' = '/q';"])
def test_a_name_outside_the_checkpoints_is_refused_with_its_position(job: SqlJob, statements: str) -> None:
    with pytest.raises(SqlError, match=r"line 1, .*q' cannot be the name of a query"):
        job.run_text(statements + INSERT, pytest.fail)
    with pytest.raises(SqlError, match=r"line 1, .*q' cannot be the name of a query"):
        check_job(ORDERS + "SET 'checkpointLocation' = '/c';" + statements + COPIES + INSERT)
    assert job.queries == []


def test_a_changed_query_is_refused_with_its_position(
    job: SqlJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows: Any = Stream()
    states = [("SUM(V)",), ("COUNT(V)",)]
    monkeypatch.setattr(
        job._planner, "insert", lambda _: Write(rows, Target(), "copies", OutputMode.APPEND, states.pop(0))
    )
    (tmp_path / "copies" / "offsets").mkdir(parents=True)
    job.run_text(f"SET 'checkpointLocation' = '{tmp_path}';" + INSERT, pytest.fail)
    (tmp_path / "copies" / "offsets" / "0").touch()
    job._names.clear()  # as in another process
    with pytest.raises(SqlError, match=r"line 1, column 1: the query copies has changed: .*of 'SUM\(V\)'"):
        job.run_text(INSERT, pytest.fail)


def test_a_query_whose_state_cannot_be_recorded_does_not_run(
    job: SqlJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As with a disk that is full: the statement fails, and whoever runs it has no query to stop."""
    record, started = tmp_path / "copies" / "rocketmq-state.json", Started("copies")

    def start(*_: object) -> Started:
        (record / "a folder").mkdir(parents=True)
        return started

    monkeypatch.setattr(Target, "start", start)
    rows: Any = Stream()
    write = Write(rows, Target(), "copies", OutputMode.APPEND, ("SUM(V)",))
    monkeypatch.setattr(job._planner, "insert", lambda _: write)
    with pytest.raises(SqlError, match=r"line 1, .*the checkpoint cannot be written: .*rocketmq-state\.json"):
        job.run_text(f"SET 'checkpointLocation' = '{tmp_path}';" + INSERT, pytest.fail)
    assert not started.isActive


def test_a_name_is_that_of_the_next_insert_also_of_a_batch(
    job: SqlJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch: Any = SimpleNamespace(isStreaming=False)
    stream: Any = Stream()
    rows = [batch, stream]
    monkeypatch.setattr(
        job._planner, "insert", lambda _: Write(rows.pop(0), Target(), "copies", OutputMode.APPEND)
    )
    monkeypatch.setattr(Target, "write", None, raising=False)
    monkeypatch.setattr("pyspark_rocketmq.sql.job.write_counted", lambda *_: 1)
    monkeypatch.setattr(job._planner, "tables_with_dead_letters", lambda _: [])
    job.run_text("SET 'queryName' = 'nightly';" + INSERT + INSERT, pytest.fail)
    assert names(job) == ["copies"]


def test_bad_records_are_sent_once_while_they_are_and_again_later(job: SqlJob) -> None:
    job.run_text(INSERT + INSERT, pytest.fail)
    assert names(job) == ["copies", "orders-bad-records", "copies-2"]
    for query in job.queries:
        query.stop()
    job.run_text(INSERT, pytest.fail)
    assert names(job) == ["copies-3", "orders-bad-records-2"]
    job.run_text(f"DROP TABLE orders; {ORDERS} {INSERT}", pytest.fail)
    assert names(job) == ["copies-3", "orders-bad-records-2", "copies-4", "orders-bad-records-3"]


def test_batches_and_streams_of_a_job_send_their_own_bad_records(
    job: SqlJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may write what is there, then follow the topic: each reads messages that the other does not."""

    def rows(*, streaming: bool) -> Any:
        return Stream() if streaming else SimpleNamespace(isStreaming=False)

    def insert(_: object) -> Write:
        is_stream = job.options.mode is RuntimeMode.STREAMING
        return Write(rows(streaming=is_stream), Target(), "copies", OutputMode.APPEND)

    parts = [[Part({"assign": "all"}, None)], [], [Part({"assign": "new"}, None)]]
    reads: list[object] = []

    def letters_of(_: object, __: object, *, streaming: bool, read: object) -> Any:
        reads.append(read)
        return rows(streaming=streaming)

    monkeypatch.setattr(Table, "dead_letters", letters_of)
    monkeypatch.setattr(job._sent, "unsent", lambda *_: parts.pop(0))
    monkeypatch.setattr(job._planner, "insert", insert)
    monkeypatch.setattr(Target, "write", None, raising=False)
    monkeypatch.setattr("pyspark_rocketmq.sql.job.write_counted", lambda *_: 1)
    batch, stream = "SET 'runtimeMode' = 'batch';", "SET 'runtimeMode' = 'streaming';"
    job.run_text(batch + INSERT + INSERT + stream + INSERT + INSERT, pytest.fail)
    assert [written.table for written in job.written] == ["copies", "orders-bad-records", "copies"]
    assert names(job) == ["copies", "orders-bad-records", "copies-2"]
    assert reads == [{"assign": "all"}, None], "the first batch, and the stream"
    job.written.clear()
    job.run_text(batch + INSERT, pytest.fail)
    assert [written.table for written in job.written] == ["copies", "orders-bad-records"]
    assert names(job) == ["copies", "orders-bad-records", "copies-2"]
    assert reads[2:] == [{"assign": "new"}], "what came since the first batch"


def test_a_part_whose_bad_records_cannot_be_sent_stays_unsent(
    job: SqlJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = SimpleNamespace(isStreaming=False)
    added: list[Part] = []
    part = Part({}, None)

    missing = ["bad"]

    def write(rows: object, _: object) -> int:
        if rows is letters and missing:
            raise OptionError(f"topic {missing.pop()} does not exist")
        return 1

    letters = SimpleNamespace(isStreaming=False)
    monkeypatch.setattr(Table, "dead_letters", lambda *_, **__: letters)
    monkeypatch.setattr(job._sent, "unsent", lambda *_: [part])
    monkeypatch.setattr(job._sent, "add", lambda _, each: added.append(each))
    monkeypatch.setattr(job._planner, "insert", lambda _: Write(batch, Target(), "copies", OutputMode.APPEND))
    monkeypatch.setattr(Target, "write", None, raising=False)
    monkeypatch.setattr("pyspark_rocketmq.sql.job.write_counted", write)
    with pytest.raises(SqlError, match="topic bad does not exist"):
        job.run_text("SET 'runtimeMode' = 'batch';" + INSERT, pytest.fail)
    assert added == []
    job.run_text(INSERT, pytest.fail)
    assert added == [part]


def test_bad_records_of_a_view_are_sent_when_its_table_is_declared_again(
    job: SqlJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job._planner, "_translated_rows", lambda *_: Stream())
    again = f"DROP TABLE orders; {ORDERS}"
    job.run_text(f"CREATE VIEW v AS SELECT a FROM orders; {again}", pytest.fail)
    job.run_text("INSERT INTO copies SELECT a FROM v;", pytest.fail)
    assert names(job) == ["copies", "orders-bad-records"], "the view still reads the table of before"
    job.run_text(INSERT, pytest.fail)
    assert names(job) == ["copies", "orders-bad-records", "copies-2", "orders-bad-records-2"]


def test_a_connection_that_an_interruption_broke_keeps_no_query_running():
    job = SqlJob(None, "", {})
    job.queries = [StoppedLater(1), StoppedLater(0)]
    with pytest.raises(KeyboardInterrupt), job:
        raise KeyboardInterrupt
    assert all(query.stopped for query in job.queries)


def test_a_jvm_that_is_gone_is_told():
    job = SqlJob(None, "", {})
    job.queries = [StoppedLater(2)]
    with pytest.raises(Py4JNetworkError):
        job.stop()


def test_a_query_that_fails_while_it_is_looked_at_has_failed(job: SqlJob) -> None:
    class FailsAtOnce(Started):
        """A query that fails after its exception was asked for the first time."""

        def exception(self) -> Exception | None:
            failed, self.isActive = not self.isActive, False
            return ValueError("no number") if failed else None

        def awaitTermination(self, _: int) -> bool:
            return not self.isActive

    query: Any = FailsAtOnce("nowhere")
    job.queries.append(query)
    with pytest.raises(RocketMQError, match="query nowhere failed: no number"):
        job.await_termination(30)
