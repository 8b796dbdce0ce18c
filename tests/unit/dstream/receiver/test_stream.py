"""Which blocks a stream of receivers keeps, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from pyspark_rocketmq.dstream.pace import pace_of
from pyspark_rocketmq.dstream.receiver import stream
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.planning.rate import RateEstimate

REMEMBER_MS = 2000


class Info:
    """Spark's report of a batch that has ended."""

    def __init__(self, time_ms: int) -> None:
        self._time_ms = time_ms

    def batchInfo(self) -> Info:
        return self

    def batchTime(self) -> SimpleNamespace:
        return SimpleNamespace(milliseconds=lambda: self._time_ms)

    def processingEndTime(self) -> int:
        return self._time_ms

    def processingDelay(self) -> int:
        return 1

    def schedulingDelay(self) -> int:
        return 0


class Store:
    """Blocks that are remembered by the times of their batches."""

    forgotten_before = 0
    waiting = 0

    def batch(self, time_ms: int, joined: Iterable[int], *, allocate: bool) -> SimpleNamespace:
        taken, self.waiting = (self.waiting, 0) if allocate else (0, self.waiting)
        return SimpleNamespace(messages=taken, blocks=1, times=[*joined, time_ms])

    def forget(self, before_ms: int) -> None:
        self.forgotten_before = before_ms


class World:
    """A stream whose outputs run at some times only, and which was perhaps recovered."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, slide_ms: int = 1000, recovered_ms: int = 0
    ) -> None:
        self.remember_ms, self.unfinished, self.has_error = REMEMBER_MS, list[int](), False
        for name, fake in {
            "ReceivedRDD": lambda stored, _: SimpleNamespace(received=stored.messages, times=stored.times),
            "reading_of": lambda _: None,
            "keep_live": lambda _: None,
            "report_input": lambda *_, **__: None,
            "remember_ms": lambda *_: self.remember_ms,
            "unfinished_times": lambda _: self.unfinished,
            "has_reported_error": lambda *_: self.has_error,
            "failures": lambda _: [],
            "has_job": lambda _sc, _outputs, time_ms: time_ms % slide_ms == 0,
            "is_done": lambda _context, time_ms: time_ms < recovered_ms,
        }.items():
            monkeypatch.setattr(stream, name, fake)
        self.store = Store()
        run = self.run = object.__new__(stream._Run)
        run._sc = run._context = run._outputs = run._log_directory = None
        run._server = SimpleNamespace(failure=None)
        receiver = SimpleNamespace(parsed=lambda: None)
        run._maker = SimpleNamespace(receiver=receiver, stream_id=0, estimate=RateEstimate(), joined={})
        run._pace = pace_of(lambda _: None, 1000)
        run._store, run._made, run._finished, run.receivers = self.store, {}, set(), 1
        run._failed = set()

    def finish(self, time_ms: int) -> int:
        """End a batch; return before which time no block is kept."""
        self.run.onBatchCompleted(Info(time_ms))
        return self.store.forgotten_before


def test_blocks_are_kept_until_every_batch_before_is_done(monkeypatch: pytest.MonkeyPatch):
    world = World(monkeypatch)
    for time_ms in (1000, 2000, 3000):
        world.run.batch(time_ms)
    assert world.finish(2000) == 0
    assert world.finish(1000) == 2000 - REMEMBER_MS
    assert world.finish(3000) == 3000 - REMEMBER_MS


def test_blocks_of_batches_without_an_output_of_their_own_are_dropped_with_the_window(
    monkeypatch: pytest.MonkeyPatch,
):
    """Of windows that slide by three batches, Spark runs a job at every third time only."""
    world = World(monkeypatch, slide_ms=3000)
    for time_ms in range(1000, 10_000, 1000):
        world.run.batch(time_ms)
    assert world.finish(3000) == 5000 - REMEMBER_MS
    assert world.finish(9000) == 5000 - REMEMBER_MS
    assert world.finish(6000) == 9000 - REMEMBER_MS
    assert sorted(world.run._made) == [7000, 8000, 9000]


def test_a_recovered_stream_drops_the_older_blocks_of_its_windows(monkeypatch: pytest.MonkeyPatch):
    """Spark asks for them once more, and runs no batch at their times."""
    world = World(monkeypatch, recovered_ms=3000)
    for time_ms in (1000, 2000, 3000, 4000, 5000):
        world.run.batch(time_ms)
    world.finish(3000)
    world.finish(4000)
    assert world.finish(5000) == 5000 - REMEMBER_MS


def test_blocks_that_arrive_during_a_recovery_are_part_of_a_batch_that_runs(monkeypatch: pytest.MonkeyPatch):
    """Spark asks for the batches of a window that were done before: their outputs do not run again."""
    world = World(monkeypatch, recovered_ms=3000)
    world.run.batch(1000)
    world.store.waiting = 5
    assert [world.run.batch(time_ms).received for time_ms in (2000, 3000, 4000)] == [0, 5, 0]


def test_blocks_of_a_batch_that_was_never_run_are_part_of_the_next_one(monkeypatch: pytest.MonkeyPatch):
    """Spark goes on with the next batch when it could not generate the jobs of one."""
    world = World(monkeypatch)
    world.remember_ms, world.unfinished = 1000, [1000, 2000]
    run, joined = world.run, world.run._maker.joined
    run.batch(1000)
    assert run.batch(2000).times == [2000], "the batch before runs"
    world.unfinished = []
    assert run.batch(3000).times == [3000], "Spark has told of no error: there was no job"
    world.has_error = True
    assert run.batch(4000).times == [3000, 4000]
    assert run.batch(5000).times == [3000, 4000, 5000]
    world.finish(5000)
    assert run.batch(6000).times == [6000]
    assert joined == {5000: (3000, 4000)}, "a checkpoint needs it, to run the batch again"
    run._failed.add(6000)
    assert run.batch(7000).times == [7000], "one that failed was run"
    world.remember_ms = 3000
    assert run.batch(8000).times == [8000], "a window has the blocks"
    world.remember_ms = 1000
    for time_ms in (1000, 2000, 6000, 7000, 8000):
        world.finish(time_ms)
    assert joined == {}


class Former:
    """A stream of another StreamingContext, or of the same one."""

    def __init__(self, *, stopped: bool, ends: bool = True) -> None:
        self.stopped, self.ends, self.waited = stopped, ends, False

    def wait_closed(self, timeout_s: float) -> bool:
        del timeout_s
        self.waited = True
        return self.ends


def test_a_stream_waits_for_every_receiver_of_the_context_before(monkeypatch: pytest.MonkeyPatch):
    """They hold cores until they end, whatever the ids of the streams are."""
    runs = {0: Former(stopped=False), 1: Former(stopped=True), 2: Former(stopped=True)}
    monkeypatch.setattr(stream, "_RUNS", runs)
    stream._wait_for_former()
    assert [run.waited for run in runs.values()] == [False, True, True]
    runs[2].ends = False
    with pytest.raises(RocketMQError, match=r"do not end.*stream=2"):
        stream._wait_for_former()
