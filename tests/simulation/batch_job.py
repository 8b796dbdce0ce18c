"""A program that reads the whole topic with the real batch reader, again and again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.history import Place, Row
from tests.simulation.program import Program
from tests.simulation.stage import Stage
from tests.simulation.tasks import Survive, TaskSet

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.partition import RangesPartition, read_ranges
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection

__all__ = ["BatchJob"]

_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "body")
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
    registered : callable
        Returns the brokers whose masters every name server knows.
    """

    def __init__(
        self,
        stage: Stage,
        options: Mapping[str, str],
        chance: random.Random,
        *,
        registered: Callable[[], frozenset[str]],
    ) -> None:
        self._stage = stage
        self._history = stage.history
        given = {**options, "startingOffsets": "earliest", "endingOffsets": "latest"}
        self._options = parse_options(SourceOptions, given, where="read", environ={})
        self._schema = read_schema(_COLUMNS)
        self._projection = to_projection(self._schema)
        self._chance = chance
        self._registered = registered
        self.done = False
        """Whether a job began and ended after everything was well again."""
        self.program = Program(
            stage, "batch", self._options.client, chance, run=self._run, failed=self._failed
        )

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
        healed, known, stored = self._stage.healed, self._registered(), self._stored()
        clock, host = self.program.clock, self.program.host
        reader = RocketMQBatchReader(
            self._options,
            self._schema,
            connect=lambda options: PlanningClient(
                options, clock=clock, random=random.Random(self._chance.random()), host=host
            ),
            clock=clock,
        )
        partitions = reader.partitions()
        known &= self._registered()
        self.program.step("partitioned")
        parts = TaskSet[list[Row]](
            self._stage,
            self.program.driver,
            self.program.executors,
            lambda client, index, survive: self._read(client, partitions[index], survive),
            len(partitions),
            chance=self._chance,
            compare=self._compare,
            failed=lambda _: None,
        ).run()
        self._check([row for part in parts for row in part], {p for p in stored if p[1] in known})
        self._history.did["batch jobs"] += 1
        self.done = healed

    def _stored(self) -> set[Place]:
        """Return the places that a job has to find which begins now."""
        limit_s = self._stage.scheduler.now - _SHOWN_S
        return {place for place, stored_s in self._history.stored_at.items() if stored_s <= limit_s}

    def _read(self, client: Client, partition: RangesPartition, survive: Survive) -> list[Row]:
        rows: list[Row] = []
        for batch in read_ranges(client, partition.value, self._options, self._projection):
            columns = [batch.column(name).to_pylist() for name in _COLUMNS]
            rows += [
                self._history.row(values[:4], values[4].rstrip()) for values in zip(*columns, strict=True)
            ]
            survive()
        return rows

    def _compare(self, index: int, first: list[Row], second: list[Row]) -> None:
        if first != second and self._history.still_there(first) != self._history.still_there(second):
            self._history.torn.append(f"partition {index} of a batch has other rows at a second attempt")

    def _check(self, rows: list[Row], expected: set[Place]) -> None:
        wrong = self._history.batch_jobs
        counts = Counter(row.place for row in rows)
        wrong += [f"{place} came {count} times" for place, count in sorted(counts.items()) if count > 1]
        wrong += [
            f"{row} is not stored so" for row in rows if self._history.stored.get(row.place) != row.body
        ]
        missing = expected - counts.keys() - self._history.expired
        wrong += [f"{place} is missing" for place in sorted(missing)]
