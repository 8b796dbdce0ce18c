"""The start of a job that fails, without Spark."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException
from tests.unit.streams.small_pipelines import plan_of, stream

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.streams.run import runner
from pyspark_rocketmq.streams.run.dead_letters import DeadLetters
from pyspark_rocketmq.streams.run.job_registry import job_lock, jobs


def need_no_spark(monkeypatch):
    """Let a job start without a session."""
    nothing = contextlib.nullcontext
    monkeypatch.setattr(runner, "get_plan_session", lambda *_: SimpleNamespace())
    monkeypatch.setattr(runner, "Compiler", lambda *_, **__: None)
    monkeypatch.setattr(runner, "_query_settings", lambda _: {})
    for name in ("driver_lock", "_follow", "temporary_settings", "_limit_memory", "_count"):
        monkeypatch.setattr(runner, name, lambda *_: nothing())


def test_a_query_does_not_run_on_without_its_job(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))
    need_no_spark(monkeypatch)
    plan, checkpoint = plan_of(stream()), str(tmp_path / "checkpoints" / "tests.analysis")
    held: list[bool] = []

    def stop() -> None:
        with pytest.raises(RocketMQError, match="already running"):
            job_lock(plan.job, checkpoint, standby=False, clock=runner.SYSTEM_CLOCK).__enter__()
        held.append(True)

    def fail(*_: object) -> None:
        raise OptionError("the topic of dead letters is missing")

    monkeypatch.setattr(runner, "start_sinks", lambda *_: SimpleNamespace(stop=stop))
    monkeypatch.setattr(runner, "start_dead_letters", fail)
    with pytest.raises(OptionError, match="dead letters"):
        runner.start(None, plan)
    assert held == [True]
    assert jobs() == []


def test_a_query_does_not_start_beside_the_driver_before(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))
    need_no_spark(monkeypatch)

    @contextlib.contextmanager
    def refuse(*_):
        raise RocketMQError("it did not end")
        yield

    monkeypatch.setattr(runner, "driver_lock", refuse)
    monkeypatch.setattr(runner, "start_sinks", lambda *_: pytest.fail("started"))
    with pytest.raises(RocketMQError, match="did not end"):
        runner.start(None, plan_of(stream()))


def test_a_process_that_starts_jobs_for_weeks_keeps_the_last_runs_only(monkeypatch, tmp_path):
    """Each query that is kept keeps its plans in the JVM."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))
    monkeypatch.setattr(runner, "_runs", {})
    monkeypatch.setattr(runner, "_KEPT", 3, raising=False)
    monkeypatch.setattr(runner, "atexit", SimpleNamespace(register=lambda _: None))
    need_no_spark(monkeypatch)
    monkeypatch.setattr(runner, "start_dead_letters", lambda *_: None)

    def run(number: int, *, looks: int = 0) -> FakeQuery:
        query = FakeQuery(looks)
        query.runId = f"run {number}"
        monkeypatch.setattr(runner, "start_sinks", lambda *_: query)
        runner.start(None, replace(plan_of(stream()), checkpoint=str(tmp_path / str(number))))
        return query

    going = threading.Event()
    monkeypatch.setattr(runner, "ends_within", lambda *_: going.wait(30))
    first = run(0, looks=2)
    for number in range(1, 10):
        runner.finish(run(number))
    assert list(runner._runs) == ["run 0", "run 6", "run 7", "run 8", "run 9"]
    going.set()
    runner.finish(first)


def test_the_record_of_a_job_has_what_its_state_depends_on():
    assert runner._make_record(plan_of(stream().distinct("k")), "c", None).state == ["distinct k"]


def test_a_frame_has_fields_whose_names_have_dots_and_backquotes(monkeypatch):
    df = SimpleNamespace(select=lambda *names: names)
    flow = SimpleNamespace(columns=("a.b", "c`d"), df=df)
    monkeypatch.setattr(runner, "get_session", lambda _: None)
    monkeypatch.setattr(runner, "Compiler", lambda *_: SimpleNamespace(flow=lambda _: flow, guard=None))
    monkeypatch.setattr(runner, "final_flow", lambda found, *_: found)
    assert runner.final_frame(None, SimpleNamespace(sinks=[None])) == ("`a.b`", "`c``d`")


def test_a_query_that_runs_on_keeps_its_job(monkeypatch, caplog):
    held = contextlib.ExitStack()
    released: list[bool] = []

    class Query:
        looks = 0

        @property
        def isActive(self) -> bool:
            self.looks += 1
            assert not released
            return self.looks < 8

        def awaitTermination(self, _: float) -> bool:
            raise OSError("the folder cannot be read")

    query = Query()
    held.callback(released.append, True)
    monkeypatch.setattr(runner, "_POLL_S", 0.001)
    runner._watch("job", query, None, held)
    assert query.looks >= 8
    assert released == [True]
    assert "job runs on, and is watched again: the folder cannot be read" in caplog.text


class FakeQuery:
    """A query that ends after some looks at it, in success or failure."""

    def __init__(self, looks: int, failure: Exception | None = None) -> None:
        self.looks = looks
        self.failure = failure
        self.stops = 0

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        return self.looks > 0

    def exception(self) -> Exception | None:
        return None if self.looks > 0 else self.failure

    def awaitTermination(self, _: float) -> bool:
        return self.looks <= 0

    def stop(self) -> None:
        self.looks = 0
        self.stops += 1


@pytest.fixture
def watch(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))
    monkeypatch.setattr(runner, "_POLL_S", 0.001)

    def run(query: FakeQuery, letters: DeadLetters) -> None:
        with contextlib.ExitStack() as held:
            held.callback(lambda: released.append((query.looks > 0, letters.query.looks > 0)))
            runner._watch("job", query, letters, held)

    released: list[tuple[bool, bool]] = []
    run.released = released
    return run


@pytest.mark.parametrize(
    ("ends", "failure", "run_on"), [(True, None, True), (False, None, False), (True, ValueError("x"), False)]
)
def test_dead_letters_run_on_where_their_trigger_ends_them(watch, ends, failure, run_on):
    query, letters = FakeQuery(3, failure), FakeQuery(50)
    left: list[int] = []
    letters.stop = lambda: left.append(letters.looks)
    watch(query, DeadLetters(letters, ends=ends))
    assert [looks <= 0 for looks in left] == [run_on]


def test_a_job_whose_dead_letters_cannot_be_sent_is_stopped(watch, caplog):
    query, letters = FakeQuery(50), FakeQuery(0, ValueError("no topic"))
    watch(query, DeadLetters(letters, ends=False))
    assert query.stops == 1
    assert watch.released == [(False, False)]
    assert "job job is stopped, because its dead letters cannot be sent: no topic" in caplog.text


def test_a_stopped_job_does_not_wait_for_its_dead_letters(monkeypatch):
    query, letters = FakeQuery(50), DeadLetters(FakeQuery(50), ends=True)
    query.runId = "run"
    monkeypatch.setitem(runner._runs, "run", runner._Run(query, letters, threading.Thread()))
    runner.stop(query)
    assert query.stops == 1
    assert not letters.ends


def test_whoever_awaits_a_job_is_told_of_its_dead_letters(monkeypatch):
    class Failed(FakeQuery):
        def awaitTermination(self) -> None:
            raise StreamingQueryException("no topic")

    query = SimpleNamespace(runId="run", awaitTermination=lambda: None)
    letters = DeadLetters(Failed(0), ends=True)
    monkeypatch.setitem(runner._runs, "run", runner._Run(query, letters, threading.Thread()))
    with pytest.raises(RocketMQError, match=r"dead letters of the job 'j' cannot be sent.*no topic"):
        runner.await_end(query, SimpleNamespace(job="j"))
