"""A stream that reads and writes while servers die: Spark's part in the faults of a real cluster."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pyspark_rocketmq.client import Client, DecodeOptions, OffsetRange, ReadOptions, read_batches

_END_TIMEOUT_S = 180


@dataclass
class CopyFigures:
    """What became of a topic's messages in the other one."""

    copied: int = 0
    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    restarts: int = 0

    def __str__(self) -> str:
        return (
            f"rows that Spark copied {self.copied:>12,}\n"
            f"lost                   {self.lost:>12,}\n"
            f"out of order           {self.disordered:>12,}\n"
            f"copied twice (allowed) {self.repeated:>12,}\n"
            f"queries started again  {self.restarts:>12,}"
        )


@dataclass
class SparkCopy:
    """Copies a topic to another one, a queue's rows in order, and starts again when the query fails.

    Parameters
    ----------
    spark : SparkSession
    name_server, source, target : str
    folder : Path
        For the checkpoint.
    """

    spark: SparkSession
    name_server: str
    source: str
    target: str
    folder: Path
    figures: CopyFigures = field(default_factory=CopyFigures)
    _query: StreamingQuery | None = None

    def start(self) -> None:
        """Copy until `finish`."""
        self._query = self._start(available_now=False)

    def go_on(self) -> None:
        """Start the query again if it failed, as its user would."""
        if self._query is not None and not self._query.isActive:
            self.figures.restarts += 1
            assert self.figures.restarts < 5, f"the query fails again and again: {self._query.exception()}"
            self._query = self._start(available_now=False)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def finish(self, client: Client) -> CopyFigures:
        """Copy what is left, and compare both topics."""
        self.stop()
        while True:
            query = self._query = self._start(available_now=True)
            try:
                assert query.awaitTermination(_END_TIMEOUT_S), "the copy does not end"
                break
            except StreamingQueryException:
                self.figures.restarts += 1
                assert self.figures.restarts < 5, "the query fails again and again"
                time.sleep(1)  # as an operator does; the next try has its own deadline
        self._compare(client)
        return self.figures

    def _start(self, *, available_now: bool) -> StreamingQuery:
        rows = (
            self.spark.readStream.format("rocketmq")
            .options(nameServer=self.name_server, topic=self.source, startingOffsets="earliest")
            .options(partitionPerQueue="true", routeRefreshMs="1000")
            .load()
            .selectExpr(
                "concat_ws('|', brokerName, queueId, queueOffset) AS body",
                "concat_ws('|', brokerName, queueId) AS shardingKey",
            )
        )
        return (
            rows.writeStream.format("rocketmq")
            .options(nameServer=self.name_server, topic=self.target, outageTimeout="120s")
            .option("checkpointLocation", str(self.folder))
            .trigger(**({"availableNow": True} if available_now else {"processingTime": "0 seconds"}))
            .start()
        )

    def _compare(self, client: Client) -> None:
        """Account for every offset of the source; within each queue of the target they ascend."""
        found: dict[str, set[int]] = defaultdict(set)
        for queue, end in client.max_offsets(client.read_queues(self.target)).items():
            here: dict[str, set[int]] = defaultdict(set)
            highest: dict[str, int] = defaultdict(lambda: -1)
            for body in _bodies(client, OffsetRange(queue, 0, end)):
                origin, _, text = body.rpartition("|")
                number = int(text)
                self.figures.copied += 1
                self.figures.repeated += number in found[origin]
                if number not in here[origin]:
                    self.figures.disordered += number < highest[origin]
                    highest[origin] = number
                here[origin].add(number)
                found[origin].add(number)
        for queue, end in client.max_offsets(client.read_queues(self.source)).items():
            self.figures.lost += end - len(found[f"{queue.broker_name}|{queue.queue_id}"])


def _bodies(client: Client, offsets: OffsetRange) -> list[str]:
    read = read_batches(
        client,
        [offsets],
        ReadOptions(consumer_group="chaos"),
        DecodeOptions(columns=("body",), body_as="string"),
    )
    return [body for batch in read for body in batch.column("body").to_pylist()]
