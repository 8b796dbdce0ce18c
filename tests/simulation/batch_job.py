"""A program that reads the whole topic with the real batch reader, again and again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tests.simulation.history import Place, Row
from tests.simulation.program import Program
from tests.simulation.reading import SourceReading
from tests.simulation.stage import Stage

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.committed import CommittedBatchReader

__all__ = ["BatchJob"]

_LAGS: Final = "a master's index lags"
_SHOWN_S: Final = 3.0
"""A message can be read within this time after it is stored."""


class BatchJob:
    """Reads everything that is stored, and compares.

    Parameters
    ----------
    stage : Stage
    options : mapping of str to str
        The source's.
    chance : random.Random
    showing : callable
        Returns the brokers whose masters every name server knows, and which show all that they have.
    homes : callable
        Returns the brokers that have the topic, of which one has the commit topic.
    ranges : callable
        Returns what the brokers have.
    """

    def __init__(
        self,
        stage: Stage,
        options: Mapping[str, str],
        chance: random.Random,
        *,
        showing: Callable[[], frozenset[str]],
        homes: Callable[[], frozenset[str]],
        ranges: Callable[[], Sequence[OffsetRange]],
    ) -> None:
        self._stage = stage
        self._history = stage.history
        given = {**options, "startingOffsets": "earliest", "endingOffsets": "latest"}
        self._options = parse_options(SourceOptions, given, where="read", environ={})
        self._showing, self._homes = showing, homes
        self._ranges = ranges
        self._begins: dict[MessageQueue, int] = {}
        """Where queues began when the job did."""
        self.done = False
        """Whether a job began and ended after everything was well again."""
        self.program = Program(
            stage, "batch", self._options.client, chance, run=self._run, failed=self._failed
        )
        self._reading = SourceReading(stage, self.program, self._options, chance)

    def start(self) -> None:
        """Begin."""
        self.program.start()

    def _failed(self, failure: RocketMQError) -> None:
        """A batch gives up in an outage, or where messages expire before it reads them: it is run again."""
        if not failure.retriable and not self._expired(failure):
            self._history.errors.append(f"batch: {type(failure).__name__}: {failure}")

    def _expired(self, failure: RocketMQError) -> bool:
        """Whether messages have expired since the job began, of the queue that an error names."""
        return failure.facts.get("condition") == "OFFSETS_EXPIRED" and any(
            str(each.queue) == failure.facts.get("queue")
            and each.from_offset > self._begins.get(each.queue, each.from_offset)
            for each in self._ranges()
        )

    def _run(self) -> None:
        if self.done:
            self._stage.scheduler.park(None)
        self._begins = {each.queue: each.from_offset for each in self._ranges()}
        healed, known, stored = self._stage.healed, self._showing(), self._stored()
        lags = self._history.did[_LAGS]
        written = {lane: set(numbers) for lane, numbers in self._history.acknowledged.items()}
        committed = self._options.isolation.committed_only
        reader = (CommittedBatchReader if committed else RocketMQBatchReader)(
            self._options, self._reading.schema, connect=self._reading.connect, clock=self.program.clock
        )
        partitions = reader.partitions()
        known &= self._showing()
        if self._history.did[_LAGS] != lags:
            known = frozenset()
        self.program.step("partitioned")
        parts = self._reading.read(partitions)
        rows = [row for part in parts for row in part]
        if committed:
            self._check_committed(rows, written if known >= self._homes() else {})
        else:
            self._check(rows, {p for p in stored if p[1] in known})
        self._history.did["batch jobs"] += 1
        self.done = healed

    def _stored(self) -> set[Place]:
        """Return the places that a job has to find which begins now."""
        limit_s = self._stage.scheduler.now - _SHOWN_S
        return {place for place, stored_s in self._history.stored_at.items() if stored_s <= limit_s}

    def _check_committed(self, rows: list[Row], written: Mapping[str, Collection[int]]) -> None:
        """Each committed batch is there once and whole, and nothing of others.

        Parameters
        ----------
        written : mapping of str to collection of int
            The rows, by lane, that were committed before the job began.
        """
        wrong = self._history.batch_jobs
        counts = Counter(row.body.decode() for row in rows if row.body.startswith(b"sink"))
        wrong += [f"{body} came {count} times" for body, count in sorted(counts.items()) if count > 1]
        batches = {body.partition(".")[0] for body in counts}
        wrong += [f"{each} is read, and not committed" for each in sorted(batches - self._history.deciding)]
        sent = {body.decode() for body in self._history.sent if body.startswith(b"sink")}
        due = {f"{lane}:{n}" for lane, numbers in written.items() for n in numbers if lane.startswith("sink")}
        due |= {body for body in sent if body.partition(".")[0] in batches}
        wrong += [f"{body} is missing" for body in sorted(due - counts.keys())]

    def _check(self, rows: list[Row], expected: set[Place]) -> None:
        wrong = self._history.batch_jobs
        counts = Counter(row.place for row in rows)
        wrong += [f"{place} came {count} times" for place, count in sorted(counts.items()) if count > 1]
        wrong += [
            f"{row} is not stored so" for row in rows if self._history.stored.get(row.place) != row.body
        ]
        missing = expected - counts.keys() - self._history.expired
        wrong += [f"{place} is missing" for place in sorted(missing)]
