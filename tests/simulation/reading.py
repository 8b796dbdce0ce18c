"""The tasks that read a batch: of a query, a batch job, or a direct stream."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation.damage import body_of
from tests.simulation.history import Row
from tests.simulation.program import Program
from tests.simulation.scheduler import Process
from tests.simulation.stage import Stage
from tests.simulation.tasks import Survive, TaskSet

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.options import ClientOptions, SourceOptions
from pyspark_rocketmq.spark.read.aligned_column import AlignedColumn
from pyspark_rocketmq.spark.read.partition import RangesPartition, UnmarkedPartition, read_ranges
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection

__all__ = ["SourceReading", "read_in_tasks"]

_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "body")


def read_in_tasks(
    stage: Stage,
    program: Program,
    driver: Process,
    read: Callable[[Client, int, Survive], list[Row]],
    count: int,
    *,
    chance: random.Random,
) -> list[list[Row]]:
    """Return the rows of each partition. Two attempts of a task that find other rows are recorded."""

    def compare(index: int, first: list[Row], second: list[Row]) -> None:
        if not stage.history.same(first, second):
            stage.history.torn.append(f"partition {index} has other rows at a second attempt")

    return TaskSet[list[Row]](
        *(stage, driver, program.executors, read, count),
        chance=chance,
        compare=compare,
        failed=lambda _: None,
    ).run()


class SourceReading:
    """What the programs of a data source's readers share.

    Parameters
    ----------
    stage : Stage
    program : Program
    options : SourceOptions
    chance : random.Random
    """

    def __init__(self, stage: Stage, program: Program, options: SourceOptions, chance: random.Random) -> None:
        self._stage = stage
        self._program = program
        self._options = options
        self._chance = chance
        columns = read_schema(_COLUMNS)
        self._projection = to_projection(columns)
        self.schema = AlignedColumn.add_to(columns) if options.include_aligned_timestamp else columns

    def connect(self, options: ClientOptions) -> PlanningClient:
        """Return a client of the driver."""
        return PlanningClient(
            options,
            clock=self._program.clock,
            random=random.Random(self._chance.random()),
            host=self._program.host,
        )

    def read(self, partitions: Sequence[RangesPartition]) -> list[list[Row]]:
        """Read partitions in tasks."""
        return read_in_tasks(
            *(self._stage, self._program, self._program.driver),
            lambda client, index, survive: self._read(client, partitions[index], survive),
            len(partitions),
            chance=self._chance,
        )

    def _read(self, client: Client, partition: RangesPartition, survive: Survive) -> list[Row]:
        rows: list[Row] = []
        committed = partition.committed if isinstance(partition, UnmarkedPartition) else None
        for batch in read_ranges(
            client, partition.value, self._options, self._projection, committed=committed
        ):
            columns = [batch.column(name).to_pylist() for name in _COLUMNS]
            rows += [
                self._stage.history.row(values[:4], body_of(values[4]))
                for values in zip(*columns, strict=True)
            ]
            survive()
        return rows
