"""Determines which half messages were committed, by reading their destination queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import MessageQueue, OffsetRange, RangeReport

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["CommittedScan", "read_stored"]


class CommittedScan:
    """Searches the topics for committed half messages.

    A committed message has the unique key of its half message.

    Parameters
    ----------
    client : Client
    halves : pyarrow.Table
    since : Mapping
        The length of each destination queue before the first commit.
    """

    def __init__(self, client: Client, halves: pa.Table, since: Mapping[MessageQueue, int]) -> None:
        self._client = client
        self._halves = halves
        self._wanted = halves["msgId"].combine_chunks()
        self._reached = dict(since)
        self._found: list[pa.Array] = []

    def look(self) -> int:
        """Read the messages stored since the last call; return how many more half messages are committed.

        Raises
        ------
        RocketMQError
            The queues cannot be read.
        """
        ends = self._client.max_offsets(self._reached)
        for queue, start in self._reached.items():
            if ends[queue] < start:
                raise DataLossError(
                    "a queue is shorter than before: which messages of a transaction it has is unknown",
                    condition="OFFSET_WENT_BACK",
                    queue=queue,
                    before=start,
                    now=ends[queue],
                )
        ranges = [
            OffsetRange(queue, start, ends[queue])
            for queue, start in self._reached.items()
            if start < ends[queue]
        ]
        found = 0
        for batch in read_stored(self._client, ranges, ("msgId",)):
            ids = batch.column("msgId").cast(pa.string())
            mine = ids.filter(pc.is_in(ids, value_set=self._wanted))
            found += len(mine)
            self._found.append(mine)
        self._reached.update(ends)
        return found

    def missing(self) -> pa.Table:
        """Return the half messages that are not committed so far."""
        found = pa.chunked_array(self._found, pa.string())
        return self._halves.filter(pc.invert(pc.is_in(self._halves["msgId"], value_set=found)))


def read_stored(
    client: Client, ranges: Sequence[OffsetRange], columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Read ranges in which rows of a transaction may be stored.

    Expired messages are passed over, and count as not stored: a broker deletes the oldest file of its log
    first, so the half or staged message of such a row is gone, too, and cannot be sent again.

    Raises
    ------
    DataLossError
        Messages are not readable for another reason: which rows are stored is not known.
    RocketMQError
        The queues cannot be read.
    """
    options = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=False)
    yield from read_batches(client, ranges, options, DecodeOptions(columns=columns), on_report=_only_expired)


def _only_expired(report: RangeReport) -> None:
    for lost in report.lost:
        if lost.condition != "OFFSETS_EXPIRED":
            raise DataLossError(
                "a queue cannot be read, so it is not known which rows of a transaction are stored. If the "
                "topic's number of read queues was lowered, raise it again until the transaction is complete",
                condition=lost.condition,
                queue=lost.offsets.queue,
                from_offset=lost.offsets.from_offset,
                until_offset=lost.offsets.until_offset,
            )
