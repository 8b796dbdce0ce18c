"""Jobs of a machine: the lock, what is known of them, the wish to stop."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.stores.file_log import last_batch
from pyspark_rocketmq.streams.run.job_registry import (
    JobRecord,
    checkpoint_of,
    dead_letters_checkpoint,
    find_job,
    job_lock,
    jobs,
    replacing,
    request_stop,
    sources_of,
    take_stop_request,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path))


def test_one_process_runs_a_job():
    checkpoint = checkpoint_of("a.b")
    record = JobRecord("a.b", checkpoint, 1, 2, "steps")
    record.write()
    assert not record.is_running()
    with job_lock("a.b", checkpoint, standby=False, clock=SYSTEM_CLOCK):
        assert find_job("a.b").is_running()
        clock = FakeClock()
        began = clock.monotonic()
        with (
            pytest.raises(RocketMQError, match="already running"),
            job_lock("a.b", checkpoint, standby=False, clock=clock),
        ):
            pass
        assert clock.monotonic() - began >= 3, "an earlier run is given a moment to let go"
    assert [found.job for found in jobs()] == ["a.b"]
    assert not find_job("a.b").is_running()
    with pytest.raises(OptionError, match=r"no job 'x'.*a\.b"):
        find_job("x")


def test_jobs_whose_names_differ_in_one_character_do_not_share_a_checkpoint():
    names = ["订单.x", "用户.x", "a b.x", "a/b.x", "a_b.x"]
    assert len({checkpoint_of(name) for name in names}) == len(names)
    assert checkpoint_of("a_b.x").endswith("/a_b.x")
    for name in names:
        JobRecord(name, checkpoint_of(name), 1, 2, "").write()
    assert sorted(found.job for found in jobs()) == sorted(names)
    assert find_job("订单.x").checkpoint == checkpoint_of("订单.x")


def test_a_record_is_replaced_as_a_whole(tmp_path):
    JobRecord("a.b", "c", 1, 2, "steps").write()
    file = tmp_path / "jobs" / "a.b.json"
    with file.open(encoding="utf-8") as reader:  # what another process has opened stays whole
        JobRecord("a.b", "c", 3, 4, "other steps").write()
        assert JobRecord(**json.load(reader)).pid == 1
    assert find_job("a.b").pid == 3
    assert list(file.parent.iterdir()) == [file]


def test_a_record_of_a_later_release_is_read(tmp_path):
    JobRecord("a.b", "c", 1, 2, "steps").write()
    file = tmp_path / "jobs" / "a.b.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"news": 1}), encoding="utf-8")
    assert find_job("a.b") == JobRecord("a.b", "c", 1, 2, "steps")


def test_the_checkpoint_of_dead_letters_is_no_other_jobs():
    """Of two jobs with one checkpoint, each would take the other's offsets for its own."""
    place = dead_letters_checkpoint(checkpoint_of("x"))
    assert place.startswith(f"{checkpoint_of('x')}/"), "which no other job has"
    assert place not in {checkpoint_of(f"x{between}dead-letters") for between in "-./"}
    assert dead_letters_checkpoint("hdfs://host/x/") == dead_letters_checkpoint("hdfs://host/x")


def test_the_last_batch_of_a_checkpoint_and_its_sources(tmp_path):
    assert (last_batch(str(tmp_path)), sources_of(str(tmp_path))) == (-1, None)
    (tmp_path / "offsets").mkdir()
    for number, sources in ((9, 1), (10, 2)):
        (tmp_path / "offsets" / str(number)).write_text("v1\n{}" + "\n{}" * sources)
    (tmp_path / "offsets" / "11.tmp").touch()
    assert (last_batch(f"file://{tmp_path}"), sources_of(f"file://{tmp_path}")) == (10, 2)
    assert (last_batch("hdfs://host/x"), sources_of("hdfs://host/x")) == (None, None)


def test_the_checkpoint_of_another_pipeline_is_refused(tmp_path):
    def record(sources, stateful):
        return JobRecord("a.b", str(tmp_path / "c"), 1, 2, "", sources, stateful)

    record(["orders,more"], ["Windowed"]).write()
    record(["other"], []).check_pipeline()  # nothing has begun
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "0").touch()
    record(["orders"], ["Windowed"]).check_pipeline()
    JobRecord("a.b", str(tmp_path / "d"), 1, 2, "", ["other"]).check_pipeline()  # it has its own
    for sources, stateful in ((["other"], ["Windowed"]), (["orders"], []), (["orders", "o"], ["Windowed"])):
        with pytest.raises(RocketMQError, match=r"another pipeline ran as the job 'a\.b'"):
            record(sources, stateful).check_pipeline()
    JobRecord("a.b", str(tmp_path / "c"), 1, 2, "").write()  # of an earlier release
    record(["other"], []).check_pipeline()


def test_state_is_not_taken_for_that_of_something_else(tmp_path):
    """Spark compares types only: a maximum would continue from the minimum."""
    record = partial(JobRecord, "a.b", str(tmp_path / "c"), 1, 2, "", ["orders"], ["Windowed", "TopN"])
    record(["by k: min(v)", "top"]).write()
    record(["by k: max(v)", "top"]).check_pipeline()  # nothing has begun
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "0").touch()
    record(["by k: min(v)", "top"]).check_pipeline()
    with pytest.raises(RocketMQError, match=r"that of 'by k: min\(v\)', and would be taken for .*max\(v\)'"):
        record(["by k: max(v)", "top"]).check_pipeline()
    record().write()  # of an earlier release
    record(["by k: max(v)", "top"]).check_pipeline()


def test_fields_of_other_types_are_not_taken_for_those_in_the_state(tmp_path):
    """A group of another type would be null in the results of the windows that are open."""
    record = partial(JobRecord, "a.b", str(tmp_path / "c"), 1, 2, "", ["orders"], ["Windowed"], ["by k"])
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "0").touch()
    record().write()  # of an earlier release
    record(["string, bigint"]).check_pipeline()
    record(["string, bigint"]).write()
    record(["string, bigint"]).check_pipeline()
    with pytest.raises(RocketMQError, match=r"other types now .*types=bigint, bigint"):
        record(["bigint, bigint"]).check_pipeline()


def test_the_checkpoint_of_another_job_is_refused(tmp_path):
    """It would begin where the other one has ended, and never have the messages before."""
    record = partial(JobRecord, checkpoint=str(tmp_path / "c"), pid=1, explanation="", sources=["orders"])
    record("first", started_ms=1).write()
    record("second", started_ms=2).check_pipeline()  # nothing has begun
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "offsets" / "0").touch()
    record("first", started_ms=3).check_pipeline()
    for spelling in (f"{tmp_path}/c", f"{tmp_path}/c/", f"{tmp_path}/c/../c", f"file://{tmp_path}/c"):
        with pytest.raises(RocketMQError, match=r"is that of the job 'first', so the job 'second' would"):
            record("second", checkpoint=spelling, started_ms=2).check_pipeline()
    record("second", started_ms=4).write()  # the folder was emptied, and has begun again
    record("second", started_ms=5).check_pipeline()


def test_a_standby_waits_for_the_lock():
    checkpoint = checkpoint_of("a")
    first = job_lock("a", checkpoint, standby=False, clock=SYSTEM_CLOCK)
    first.__enter__()

    clock = FakeClock()
    clock.on_sleep = lambda: first.__exit__(None, None, None)
    with job_lock("a", checkpoint, standby=True, clock=clock):
        assert JobRecord("a", checkpoint, 1, 2, "").is_running()


def test_a_wish_to_stop_is_granted_once():
    JobRecord("a", "/x", 1, 2, "").write()
    assert not take_stop_request("a")
    request_stop("a")
    assert take_stop_request("a")
    assert not take_stop_request("a")


def test_a_file_that_cannot_be_written_is_named_and_leaves_no_part(tmp_path):
    file, told = tmp_path / "jobs" / "orders.json", "cannot be written: .*No space.*file=.*orders.json"

    def write():
        with replacing(file) as new:
            new.write_text("{")
            Path("/dev/full").write_text("}")

    with pytest.raises(RocketMQError, match=told):
        write()
    assert list(file.parent.iterdir()) == []
