"""The start of a job that fails, without Spark."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from tests.unit.streams.small_pipelines import stream

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.streams.run import runner
from pyspark_rocketmq.streams.run.job_registry import job_lock, jobs
from pyspark_rocketmq.streams.run.launcher import PlanRecorder, launching_with


def test_a_query_does_not_run_on_without_its_job(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))
    recorder = PlanRecorder()
    with launching_with(recorder):
        stream().toPrint().start()
    plan, checkpoint = recorder.plans[0], str(tmp_path / "checkpoints" / "tests.analysis")
    held: list[bool] = []

    def stop() -> None:
        with pytest.raises(RocketMQError, match="already running"):
            job_lock(plan.job, checkpoint, standby=False, clock=runner.SYSTEM_CLOCK).__enter__()
        held.append(True)

    def fail(*_: object) -> None:
        raise OptionError("the topic of dead letters is missing")

    nothing = contextlib.nullcontext
    monkeypatch.setattr(runner, "get_plan_session", lambda *_: SimpleNamespace())
    monkeypatch.setattr(runner, "Compiler", lambda *_, **__: None)
    monkeypatch.setattr(runner, "_query_settings", lambda _: {})
    for name in ("_follow", "temporary_settings", "_limit_memory", "_count"):
        monkeypatch.setattr(runner, name, lambda *_: nothing())
    monkeypatch.setattr(runner, "start_sinks", lambda *_: SimpleNamespace(stop=stop))
    monkeypatch.setattr(runner, "_start_dead_letters", fail)
    with pytest.raises(OptionError, match="dead letters"):
        runner.start(None, plan)
    assert held == [True]
    assert jobs() == []


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
