"""A model of Spark's micro-batch engine, which drives the real stream reader and its tasks, and dies."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.alignment import Alignment
from tests.simulation.history import Row, generation_of
from tests.simulation.program import Program
from tests.simulation.reading import SourceReading
from tests.simulation.stage import Stage

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.aligned_column import AlignedPartition
from pyspark_rocketmq.spark.read.committed import CommittedStreamReader
from pyspark_rocketmq.spark.read.partition import RangesPartition
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

__all__ = ["Query"]


@dataclass(slots=True)
class _Checkpoint:
    """What survives: the offset log, the commit log."""

    ends: list[dict[str, Any]] = field(default_factory=list)
    planned_s: list[float] = field(default_factory=list)
    """When each was planned; of runs to the end, when they began."""
    finished: int = 0


class Query:
    """A streaming query that is started again whenever it ends.

    Parameters
    ----------
    stage : Stage
    options : mapping of str to str
        The source's.
    chance : random.Random
    available_now : bool
        Each run reads what is there and ends.
    trigger_s : float
    skew_ms : int
        How far the driver's clock is ahead.
    changes : sequence of mapping of str to str
        Options that replace others when the query is started again: at the first restart, the second, …, and
        from the beginning. A start must mean nothing then, once a batch is planned.
    alignment : Alignment
    """

    def __init__(
        self,
        stage: Stage,
        options: Mapping[str, str],
        chance: random.Random,
        *,
        available_now: bool,
        trigger_s: float,
        skew_ms: int,
        changes: Sequence[Mapping[str, str]] = (),
        alignment: Alignment,
    ) -> None:
        self._stage = stage
        self._history = stage.history
        self._given = dict(options)
        self._runs = itertools.cycle(({}, *changes))
        self._options = self._parse({})
        self._alignment = alignment
        self._chance = chance
        self._available_now = available_now
        self._trigger_s = trigger_s
        self._kept = _Checkpoint()
        self._done: tuple[int, Mapping[MessageQueue, int]] = (0, {})
        self._planned = False
        self.program = Program(
            stage,
            "query",
            self._options.client,
            chance,
            run=self._run,
            failed=self._ended,
            skew_ms=skew_ms,
        )
        self._reading = SourceReading(stage, self.program, self._options, chance)

    def _parse(self, changes: Mapping[str, str]) -> SourceOptions:
        return parse_options(SourceOptions, self._given | changes, where="readStream", environ={})

    def _change_options(self) -> None:
        """Take the options of the next run."""
        changes = dict(next(self._runs))
        if not self._kept.ends:
            for name in ("startingOffsets", "startingTimestamp"):
                changes.pop(name, None)
        if changes:
            self._history.did["query started again with other options"] += 1
            self._stage.note(f"query has the options {changes}")
        self._options = self._parse(changes)
        self._reading = SourceReading(self._stage, self.program, self._options, self._chance)

    def start(self) -> None:
        """Begin."""
        self.program.start()

    def jump(self, skew_ms: int) -> None:
        """Set the driver's clock."""
        self.program.jump(skew_ms)

    @property
    def finished(self) -> Mapping[MessageQueue, int]:
        """Where each queue's finished batches end."""
        number = self._kept.finished
        if self._done[0] != number:
            self._done = number, SourceOffset.from_dict(self._kept.ends[number - 1]).offsets
        return self._done[1]

    @property
    def planned(self) -> Mapping[MessageQueue, int]:
        """Where each queue's last planned batch ends."""
        return SourceOffset.from_dict(self._kept.ends[-1]).offsets if self._kept.ends else {}

    @property
    def begun(self) -> Mapping[MessageQueue, int]:
        """Where each queue's first batch begins."""
        begun: dict[MessageQueue, int] = {}
        for end in self._kept.ends:
            begun = {**SourceOffset.from_dict(end).begin, **begun}
        return begun

    def check_commit(self, queue: MessageQueue, offset: int) -> None:
        """Nothing may be committed to the brokers that is not in the sink.

        After a queue has gone back, the commit of a batch before that may still be on its way.
        """
        done = self.finished.get(queue, 0)
        if offset > max(0, done) and not self._ended_at(queue, offset):
            self._history.ahead.append(f"{queue}: {offset} is committed, {done} is written")

    def _ended_at(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether a finished batch has ended there, in a queue that was created again."""
        again = self._history.generations[queue.topic, queue.broker_name, queue.queue_id]
        ends = self._kept.ends[: self._kept.finished] if again else []
        return any(SourceOffset.from_dict(end).offsets.get(queue) == offset for end in ends)

    def _ended(self, failure: RocketMQError) -> None:
        text = f"{type(failure).__name__}: {failure}"
        self._history.errors.append(text)
        if self._planned and failure.retriable and not self._available_now:
            self._history.died.append(text)

    def _run(self) -> None:
        self._change_options()
        clock, host = self.program.clock, self.program.host
        committed = self._options.isolation.committed_only
        reader = (CommittedStreamReader if committed else RocketMQStreamReader)(
            self._options,
            self._reading.schema,
            connect=self._reading.connect,
            clock=clock,
            host=host,
        )
        limit = reader.getDefaultReadLimit()
        self._planned = False
        began_s = 0.0
        if self._available_now:
            began_s = self._stage.scheduler.now
            reader.prepareForTriggerAvailableNow()
            self.program.step("prepared")
        if len(self._kept.ends) > self._kept.finished:
            self._stage.note(f"batch {self._kept.finished} again")
            self._history.did["batch run again after a restart"] += 1
            self._run_batch(reader)
        while True:
            start = self._kept.ends[-1] if self._kept.ends else _kept(reader.initialOffset())
            planned_s = began_s or self._stage.scheduler.now
            end = _kept(reader.latestOffset(start, limit))
            self._planned = True
            self.program.step("planned")
            if end == start:
                if self._available_now:
                    break
                self._stage.scheduler.park(self._trigger_s)
                continue
            if self._kept.ends:
                reader.commit(self._kept.ends[-1])
                self.program.step("committed")
            self._kept.ends.append(end)
            self._kept.planned_s.append(planned_s)
            self.program.step("logged")
            self._run_batch(reader)
        reader.stop()

    def _run_batch(self, reader: RocketMQStreamReader) -> None:
        number = self._kept.finished
        end = self._kept.ends[number]
        start = self._kept.ends[number - 1] if number else _kept(reader.initialOffset())
        planned = reader.partitions(start, end)
        times_ms = {it.value[1] for it in planned if isinstance(it, AlignedPartition)}
        inner = [it.value[0] if isinstance(it, AlignedPartition) else it for it in planned]
        partitions = [it for it in inner if isinstance(it, RangesPartition)]
        self.program.step("partitioned")
        parts = self._reading.read(partitions)
        for part in parts:
            self._check_order(part)
        rows = sorted((row for part in parts for row in part), key=lambda row: row.place)
        self._history.check_decided(rows)
        self.program.step("read")
        before = self._history.batches.get(number)
        if before is None:
            self._history.batches[number] = rows
            for time_ms in times_ms:
                known = SourceOffset.from_dict(end).offsets
                self._alignment.check(number, time_ms, known, rows, planned_s=self._kept.planned_s[number])
            self._history.read.update(row.place for row in rows)
            self._history.came.update(row.body for row in rows)
        elif not self._history.same(before, rows):
            self._history.torn.append(
                f"batch {number}: {len(before)} rows at first, {len(rows)} when it was read again"
            )
        self._history.did["batches"] += 1
        self.program.step("written")
        self._kept.finished = number + 1
        self.program.step("finished")

    def _check_order(self, rows: list[Row]) -> None:
        """Within a partition, a queue's rows come in their order; partitions have none among themselves.

        Pulls in flight while a topic is created again are answered with messages of before and of after.
        """
        last: dict[tuple[str, str, int, int], int] = {}
        for row in rows:
            topic, broker, queue_id, offset = row.place
            queue = (topic, broker, queue_id, generation_of(row.place))
            if offset <= last.get(queue, -1):
                self._history.disordered.append(f"{row.place} comes after {last[queue]} in a partition")
            last[queue] = offset


def _kept(offset: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))
