"""A model of Spark Streaming, which drives the real plan of a direct stream, and dies."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from tests.simulation.hadoop import HadoopFiles, SparkContextWithFiles
from tests.simulation.history import Row
from tests.simulation.program import Program
from tests.simulation.reading import read_in_tasks
from tests.simulation.scheduler import EPOCH_MS
from tests.simulation.stage import Stage
from tests.simulation.tasks import Survive

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.commits.commit_log import Committed
from pyspark_rocketmq.client.net.host import Outcome
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.dstream.direct.batch_log import BatchLog
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan
from pyspark_rocketmq.dstream.direct.commit import CommitQueue
from pyspark_rocketmq.dstream.direct.committed_rows import (
    BatchRows,
    CommittedRows,
    first_positions,
    require_commit_queues,
)
from pyspark_rocketmq.dstream.pace import pace_of
from pyspark_rocketmq.dstream.ranges import OffsetRanges
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import AtTimestamp, Earliest, MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.group_commits import GroupCommits
from pyspark_rocketmq.offsets.offset_lookup import fetch_start_ends, resolve_offsets
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.offsets.queue_lookup import queues_and_brokers
from pyspark_rocketmq.options import parse_direct_options
from pyspark_rocketmq.options.choices import policy_of_objects
from pyspark_rocketmq.spark.read.partition import read_options

__all__ = ["DirectPlanned", "DirectStream"]

_STREAM: Final = 7
_FOREVER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectPlanned:
    """How a direct stream runs.

    Parameters
    ----------
    interval_s : float
    remember_s : float
        How long Spark may ask for a batch again.
    backpressure : bool
    commits_itself : bool
        The job commits with ``commitAsync``, instead of ``autoCommit``.
    options : dict
    """

    interval_s: float = 1.0
    remember_s: float = 60.0
    backpressure: bool = False
    commits_itself: bool = False
    options: dict[str, str] = field(default_factory=dict)
    clocks_ms: tuple[int, ...] = (0,)
    """How far the clocks of the machines are ahead on which it is started, one after the other."""
    checkpoint_s: float = 0.3
    """How long Spark needs at most to write a checkpoint."""

    @classmethod
    def drawn(cls, chance: random.Random) -> DirectPlanned:
        """Draw one."""
        one_of = chance.choice
        options = {}
        for name, values in {
            "pull.max.speed.per.partition": ("5", "50"),
            "pull.max.batch.size": ("1", "7", "32"),
            "pullsInFlight": ("1", "4"),
        }.items():
            if chance.random() < 0.3:
                options[name] = one_of(values)
        return cls(
            interval_s=one_of((0.5, 1.0, 5.0)),
            remember_s=one_of((2.0, 60.0)),
            backpressure=chance.random() < 0.3,
            commits_itself=chance.random() < 0.5,
            options=options,
        )

    def on_other_machines(self, chance: random.Random) -> DirectPlanned:
        """Return the plan of a stream whose machines' clocks differ, and whose checkpoints take long."""
        clocks_ms = tuple(chance.choice((0, -2_000, -7_000, 3_000)) for _ in range(3))
        return replace(self, clocks_ms=clocks_ms, checkpoint_s=chance.choice((0.3, 3.0, 10.0)))


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """What Spark writes after it generated a batch's jobs, and after it cleared one."""

    time_ms: int
    pickled: bytes
    pending: tuple[int, ...]


class DirectStream:
    """A streaming program that is started again from its checkpoint whenever it ends.

    Facts (JobGenerator, StreamingContext; Spark 4.3): no interval is left out. After a restart, batches that
    the checkpoint has as pending, and those of the time since it was written, are generated again, in their
    order, before others.

    Parameters
    ----------
    stage : Stage
    plan : DirectPlanned
    group, topic : str
    options : mapping of str to str
        The client's, the isolation and the filter.
    chance : random.Random
    start : Earliest or AtTimestamp
    fail_on_data_loss : bool
    """

    def __init__(
        self,
        stage: Stage,
        plan: DirectPlanned,
        group: str,
        topic: str,
        options: Mapping[str, str],
        chance: random.Random,
        *,
        start: Earliest | AtTimestamp,
        fail_on_data_loss: bool,
    ) -> None:
        self._stage = stage
        self._history = stage.history
        self._plan = plan
        self._group = group
        given = {**options, **plan.options, "failOnDataLoss": str(fail_on_data_loss).lower()}
        parsed = parse_direct_options(given)
        self._options = parsed.source_of_stream((topic,), group)
        self._commit_topics = parsed.commit_topics((topic,))
        self._chance = chance
        self._start = start
        self._files = HadoopFiles()
        self._checkpoint: _Checkpoint | None = None
        self._clocks_ms = itertools.cycle(plan.clocks_ms)
        self._positions: Mapping[MessageQueue, int] = {}
        self._done: dict[MessageQueue, int] = {}
        self._finished: dict[MessageQueue, int] = {}
        self._begun: Mapping[MessageQueue, int] = {}
        self.program = Program(
            stage, "stream", self._options.client, chance, run=self._run, failed=self._ended
        )

    # --- as a reader of the life ---

    def start(self) -> None:
        """Begin."""
        self.program.start()

    def jump(self, skew_ms: int) -> None:
        """Set the driver's clock."""
        self.program.jump(skew_ms)

    @property
    def finished(self) -> Mapping[MessageQueue, int]:
        """Where each queue's batches end that no restart runs again."""
        return self._finished

    @property
    def planned(self) -> Mapping[MessageQueue, int]:
        """Where each queue's last planned batch ends."""
        return self._positions

    @property
    def begun(self) -> Mapping[MessageQueue, int]:
        """Where each queue's first batch begins, of those that were there."""
        return self._begun

    def check_commit(self, queue: MessageQueue, offset: int) -> None:
        """Nothing may be committed whose batch is not stored."""
        if not queue.logical and offset > max(0, self._done.get(queue, 0)):
            self._history.ahead.append(f"{queue}: {offset} is committed, {self._done.get(queue)} is stored")

    def _ended(self, failure: RocketMQError) -> None:
        self._history.errors.append(f"{type(failure).__name__}: {failure}")

    # --- a driver ---

    def _run(self) -> None:
        _Driver(self).run()


class _Driver:
    """One run of the program."""

    def __init__(self, stream: DirectStream) -> None:
        self._stream = stream
        self._stage = stream._stage
        self._history = stream._history
        self._settings = stream._plan
        self._options = stream._options
        self._chance = stream._chance
        self._program = stream.program
        self._process = stream.program.driver
        clock, host = self._program.clock, self._program.host
        self._client = PlanningClient(
            self._options.client, clock=clock, random=random.Random(self._chance.random()), host=host
        )
        by = stream._commit_topics
        self._rows = CommittedRows(self._client, by) if by else None
        self._log = BatchLog(SparkContextWithFiles(stream._files), "checkpoints", _STREAM)  # type: ignore[arg-type]
        self._commits = GroupCommits(stream._group, self._client, interval_ms=0, clock=clock, host=host)
        self._commit_queue = CommitQueue(lambda ends: self._client.commit_offsets(stream._group, ends), host)
        self._over: Outcome[None] = Outcome(host)
        self._turn = host.condition()
        self._jobs: deque[tuple[int, OffsetRanges, BatchRows | None]] = deque()
        self._pending: dict[int, None] = {}
        self._finished = dict(stream._finished)
        self._last_ms = 0
        self._newest_ms = 0  # of the times for which this run wrote checkpoints
        self._clock_ms = next(stream._clocks_ms)

    def run(self) -> None:
        """Recover or begin, then generate a batch in each interval."""
        times = self._recover()
        self._program.host.start(self._work, name="jobs")
        self._program.host.start(partial(self._generate_all, times), name="generator")
        self._over.get(_FOREVER_S)

    def _recover(self) -> list[int]:
        kept, now_ms = self._stream._checkpoint, self._now_ms()
        if kept is None:
            self._plan = self._first_plan()
            self._history.batches.clear()  # nothing is known of what a run before did
            self._history.read.clear()
            self._history.came.clear()
            self._stream._done.clear()
            self._stream._finished.clear()
            self._last_ms = now_ms
            return []
        self._history.did["stream recovered from its checkpoint"] += 1
        self._plan = pickle.loads(kept.pickled)
        self._plan.clock = self._program.clock
        self._plan.recover(kept.pending)
        self._last_ms = kept.time_ms
        down = range(kept.time_ms + self._interval_ms, now_ms, self._interval_ms)
        return sorted({*kept.pending, *down})

    def _first_plan(self) -> DirectPlan:
        """As ``createMQPullStream``."""
        client, clock, by = self._client, self._program.clock, self._stream._commit_topics
        started_ms, policy = clock.now_ms(), self._stream._start
        require_commit_queues(client, by)
        wanted, brokers = queues_and_brokers(client, self._options, clock=clock)
        ends = fetch_start_ends(client, wanted)
        positions = resolve_offsets(client, policy, ends, self._options, start_time_ms=started_ms, ends=ends)
        positions, floor = first_positions(client, policy, positions, by, self._stream._group)
        self._stream._begun = positions
        settings = {"spark.streaming.backpressure.enabled": str(self._settings.backpressure).lower()}
        return DirectPlan(
            policy,
            positions,
            started_ms,
            pace_of(settings.get, self._interval_ms),
            brokers=brokers - {queue.broker_name for queue in wanted if queue not in ends},
            clock=clock,
            floor=floor,
        )

    # --- batches ---

    @property
    def _interval_ms(self) -> int:
        return round(self._settings.interval_s * 1000)

    def _now_ms(self) -> int:
        """Return the time of the batch whose interval began last."""
        now_ms = EPOCH_MS + round(self._stage.scheduler.now * 1000) + self._clock_ms
        return now_ms - now_ms % self._interval_ms

    def _generate_all(self, again: list[int]) -> None:
        try:
            for time_ms in again:
                self._generate(time_ms)
            while True:
                while (next_ms := self._last_ms + self._interval_ms) <= self._now_ms():
                    self._generate(next_ms)
                self._stage.scheduler.park(self._settings.interval_s)
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame: `run` raises it
            self._over.fail(error)

    def _generate(self, time_ms: int) -> None:
        plan = self._plan
        if (before := self._log.read(time_ms)) is not None:
            self._history.did["batch of an earlier run"] += 1
            plan.adopt(time_ms, *before)
        remember_ms = round(self._settings.remember_s * 1000)
        ranges = plan.ranges(time_ms, self._client, self._options, remember_ms=remember_ms, rows=self._rows)
        if before is None or before[0] != ranges:
            self._log.write(time_ms, ranges, plan.moved(time_ms))
        self._log.forget(plan.remembered())
        rows = None if self._rows is None else self._rows.split(ranges, plan.floor)
        self._stream._positions = dict(plan.positions)
        self._last_ms = max(self._last_ms, time_ms)
        self._program.step("generated")
        self._pending[time_ms] = None
        with self._turn:
            self._jobs.append((time_ms, ranges, rows))
            self._turn.notify_all()
        self._write_checkpoint(time_ms)

    def _write_checkpoint(self, time_ms: int) -> None:
        """Write it as it is now, somewhat later.

        Spark names the file by the newest time of its own run: while a restart generates batches again, one
        that ends replaces no checkpoint of a later time, in which those still to come are pending.
        """
        self._newest_ms = time_ms = max(self._newest_ms, time_ms)
        checkpoint = _Checkpoint(time_ms, pickle.dumps(self._plan), tuple(self._pending))
        finished = dict(self._finished)

        def write() -> None:
            newest = self._stream._checkpoint
            if not self._process.dead and (newest is None or newest.time_ms <= time_ms):
                self._stream._checkpoint, self._stream._finished = checkpoint, finished

        self._stage.scheduler.after(self._chance.uniform(0.0, self._settings.checkpoint_s), write)

    # --- jobs ---

    def _work(self) -> None:
        try:
            while True:
                with self._turn:
                    while not self._jobs:
                        self._turn.wait()
                    job = self._jobs.popleft()
                self._run_batch(*job)
        except BaseException as error:  # noqa: BLE001 - the thread's outermost frame: `run` raises it
            self._over.fail(error)

    def _run_batch(self, time_ms: int, ranges: OffsetRanges, rows: BatchRows | None) -> None:
        begin_s = self._stage.scheduler.now
        tasks = [(each,) for each in ranges if len(each)] if rows is None else list(rows.parts.values())
        committed = None if rows is None else rows.committed
        parts = read_in_tasks(
            *(self._stage, self._program, self._process),
            lambda client, index, survive: self._read(client, tasks[index], committed, survive),
            len(tasks),
            chance=self._chance,
        )
        self._program.step("read")
        self._store(time_ms, ranges, [row for part in parts for row in part])
        self._program.step("stored")
        if self._settings.commits_itself:
            self._commit_queue.add({each.queue: each.until_offset for each in ranges}, None)
        del self._pending[time_ms]
        self._finished |= {
            each.queue: max(each.until_offset, self._finished.get(each.queue, 0)) for each in ranges
        }
        self._program.step("finished")
        took_ms = round((self._stage.scheduler.now - begin_s) * 1000)
        ends = self._plan.record_finished(time_ms, (time_ms + took_ms, took_ms, 0))
        if ends and not self._settings.commits_itself:
            self._commits.record_finished(ends)
        if ends:
            self._log.write_ends(time_ms, ends)
        self._write_checkpoint(time_ms)

    def _read(
        self, client: Client, wanted: Sequence[OffsetRange], committed: Committed | None, survive: Survive
    ) -> list[Row]:
        """Read the ranges of a partition as a task does."""
        rows = []
        policy = policy_of_objects(self._options.on_corrupt)
        for message in read_messages(
            client, wanted, read_options(self._options), on_corrupt=policy, decided=committed
        ):
            names = (message.topic, message.broker_name, message.queue_id)
            rows.append(self._history.row((*names, message.queue_offset), message.body.rstrip()))
        survive()
        return rows

    def _store(self, time_ms: int, ranges: OffsetRanges, rows: list[Row]) -> None:
        """Store a batch's rows under its time; one that is there stays."""
        history = self._history
        rows.sort(key=lambda row: row.place)
        history.check_decided(rows)
        before = history.batches.get(time_ms)
        if before is None:
            history.batches[time_ms] = rows
            history.read.update(row.place for row in rows)
            history.came.update(row.body for row in rows)
            history.did["batches"] += 1
        else:
            history.did["batch run again after a restart"] += 1
            if not history.same(before, rows):
                history.torn.append(f"batch {time_ms}: {len(before)} rows at first, {len(rows)} then")
        for each in ranges:
            self._stream._done[each.queue] = max(each.until_offset, self._stream._done.get(each.queue, 0))
