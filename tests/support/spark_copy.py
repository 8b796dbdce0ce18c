"""A stream that reads and writes while servers die: Spark's part in the faults of a real cluster."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, MessageQueue, OffsetRange
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions

_END_TIMEOUT_S = 180
_INDEX_TIMEOUT_S = 30


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
        queues = client.max_offsets(client.read_queues(self.source))
        ends = {f"{queue.broker_name}|{queue.queue_id}": end for queue, end in queues.items()}
        found: dict[str, set[int]] = defaultdict(set)
        looked: dict[MessageQueue, int] = {}
        in_order: dict[tuple[MessageQueue, str], _Ascent] = defaultdict(_Ascent)

        def missing() -> int:
            return sum(end - len(found[origin]) for origin, end in ends.items())

        def complete() -> bool:
            for queue, end in client.max_offsets(client.read_queues(self.target)).items():
                for body in _bodies(client, OffsetRange(queue, looked.get(queue, 0), end)):
                    origin, _, text = body.rpartition("|")
                    self.figures.copied += 1
                    self.figures.repeated += int(text) in found[origin]
                    self.figures.disordered += in_order[queue, origin].falls(int(text))
                    found[origin].add(int(text))
                looked[queue] = end
            return missing() == 0

        with contextlib.suppress(AssertionError):
            # A broker acknowledges a message a moment before its queue has it, a long one when it is busy.
            eventually(complete, _INDEX_TIMEOUT_S)
        self.figures.lost = missing()


@dataclass
class _Ascent:
    """Offsets of a queue in the order in which they lie in one of the target."""

    seen: set[int] = field(default_factory=set)
    highest: int = -1

    def falls(self, number: int) -> bool:
        """Whether a number that comes for the first time is below one before it."""
        if number in self.seen:
            return False
        self.seen.add(number)
        below = number < self.highest
        self.highest = max(self.highest, number)
        return below


def _bodies(client: Client, offsets: OffsetRange) -> list[str]:
    read = read_batches(
        client,
        [offsets],
        ReadOptions(consumer_group="chaos"),
        DecodeOptions(columns=("body",), body_as="string"),
    )
    return [body for batch in read for body in batch.column("body").to_pylist()]
