"""A program that reads the whole topic with the real batch reader, again and again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.history import Place, Row
from tests.simulation.program import Program
from tests.simulation.reading import SourceReading
from tests.simulation.stage import Stage

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader

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
    """

    def __init__(
        self,
        stage: Stage,
        options: Mapping[str, str],
        chance: random.Random,
        *,
        showing: Callable[[], frozenset[str]],
    ) -> None:
        self._stage = stage
        self._history = stage.history
        given = {**options, "startingOffsets": "earliest", "endingOffsets": "latest"}
        self._options = parse_options(SourceOptions, given, where="read", environ={})
        self._showing = showing
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
        """A batch gives up in an outage: its user runs it again."""
        if not failure.retriable:
            self._history.errors.append(f"batch: {type(failure).__name__}: {failure}")

    def _run(self) -> None:
        if self.done:
            self._stage.scheduler.park(None)
        healed, known, stored = self._stage.healed, self._showing(), self._stored()
        lags = self._history.did[_LAGS]
        reader = RocketMQBatchReader(
            self._options, self._reading.schema, connect=self._reading.connect, clock=self.program.clock
        )
        partitions = reader.partitions()
        known &= self._showing()
        if self._history.did[_LAGS] != lags:
            known = frozenset()
        self.program.step("partitioned")
        parts = self._reading.read(partitions)
        self._check([row for part in parts for row in part], {p for p in stored if p[1] in known})
        self._history.did["batch jobs"] += 1
        self.done = healed

    def _stored(self) -> set[Place]:
        """Return the places that a job has to find which begins now."""
        limit_s = self._stage.scheduler.now - _SHOWN_S
        return {place for place, stored_s in self._history.stored_at.items() if stored_s <= limit_s}

    def _check(self, rows: list[Row], expected: set[Place]) -> None:
        wrong = self._history.batch_jobs
        counts = Counter(row.place for row in rows)
        wrong += [f"{place} came {count} times" for place, count in sorted(counts.items()) if count > 1]
        wrong += [
            f"{row} is not stored so" for row in rows if self._history.stored.get(row.place) != row.body
        ]
        missing = expected - counts.keys() - self._history.expired
        wrong += [f"{place} is missing" for place in sorted(missing)]
