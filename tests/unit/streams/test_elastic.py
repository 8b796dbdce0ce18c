"""Where the instances of a job meet, and what cannot be elastic; the instances run in tests/spark."""

from __future__ import annotations

import stat
import threading
from unittest.mock import Mock

import pytest

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import CheckpointStrategy, StreamBuilder, WindowStrategy
from pyspark_rocketmq.streams.run import elastic
from pyspark_rocketmq.streams.run.elastic import Instance, Meeting
from pyspark_rocketmq.streams.run.job_registry import job_lock, jobs_home, take_job_lock


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))


def stream():
    return StreamBuilder.dataStream("n", "p").fromRocketmq("t", "g", True, "h:1").toPrint()


def test_the_leader_says_where_and_takes_it_back():
    first, second = Meeting("spark://127.0.0.1:1", "a"), Meeting("spark://127.0.0.1:2", "b")
    assert Meeting.find("n.p") is None
    first.write("n.p")
    assert Meeting.find("n.p") == first
    assert Meeting.find("n.q") is None
    second.write("n.p")
    first.forget("n.p")
    assert Meeting.find("n.p") == second, "what another leader said stays"
    second.forget("n.p")
    assert Meeting.find("n.p") is None


def test_the_secret_is_this_users():
    meeting = Meeting("spark://127.0.0.1:1", "hush")
    meeting.write("n.p")
    (file,) = (jobs_home() / "elastic").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hush" not in repr(meeting)


def test_one_takes_the_lock(tmp_path):
    place = str(tmp_path / "checkpoint")
    first = take_job_lock(place)
    assert first is not None
    with first:
        assert take_job_lock(place) is None
    with job_lock("n.p", place, standby=False, clock=SYSTEM_CLOCK):
        assert take_job_lock(place) is None, "a job that is not elastic has it too"


def test_a_checkpoint_elsewhere_is_refused():
    with pytest.raises(PlanError, match="hdfs://h/c cannot hold"):
        stream().with_(CheckpointStrategy.remote("hdfs://h/c")).start(elastic=True)
    with pytest.raises(PlanError, match="standing cluster"):
        Instance("n.p", "s3a://b/c", cores=1, clock=SYSTEM_CLOCK)


def test_what_cannot_be_elastic_is_refused_before_anything_starts():
    with pytest.raises(PlanError, match=r"lowMemory\(\) uses one process"):
        stream().with_(WindowStrategy.lowMemory()).start(elastic=True)
    with pytest.raises(PlanError, match="sources are bounded"):
        StreamBuilder.dataStream("n", "p").fromArray(["x"]).toPrint().start(elastic=2)
    with pytest.raises(PlanError, match="at least one core"):
        stream().start(elastic=-1)


def test_a_worker_that_does_not_start_is_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(elastic, "_RESTART_MS", 1)
    instance = Instance("n.p", str(tmp_path / "checkpoint"), cores=1, clock=SYSTEM_CLOCK)
    instance._worker = Mock(is_running=False)
    running = threading.Event()
    outcomes = iter([OSError("no memory"), OSError("no memory"), None])

    def start(_: Meeting) -> None:
        outcome = next(outcomes)
        if outcome is not None:
            raise outcome
        instance._worker = Mock(is_running=True)
        running.set()

    monkeypatch.setattr(instance, "_start_worker", start)
    with instance._keeping_worker(Meeting("spark://127.0.0.1:1", "a")):
        assert running.wait(10)
