"""The partition that a Spark task reads: offset ranges, and their conversion to rows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.commits.commit_log import Committed
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning.completeness import Account
from pyspark_rocketmq.planning.split import split
from pyspark_rocketmq.spark.read.schema import Projection
from pyspark_rocketmq.spark.task_client import task_client

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "RangesPartition",
    "UnmarkedPartition",
    "plan_partitions",
    "read_options",
    "read_partition",
    "read_ranges",
]

_LOG: Final = logging.getLogger(__name__)


class RangesPartition(InputPartition):
    """Offset ranges that one task reads sequentially.

    Parameters
    ----------
    value : tuple of OffsetRange
    """

    value: tuple[OffsetRange, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangesPartition) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class UnmarkedPartition(RangesPartition):
    """Offset ranges of which the messages of transactional writes are left out.

    Parameters
    ----------
    value : tuple of OffsetRange
    committed : Committed
        Which of them are rows after all.
    """

    def __init__(self, value: tuple[OffsetRange, ...], committed: Committed) -> None:
        super().__init__(value)
        self.committed = committed


def plan_partitions(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[RangesPartition]:
    """Split and combine ranges into partitions: a pure function of ranges and options."""
    return [
        RangesPartition(part)
        for part in split(
            ranges,
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
            partition_per_queue=options.partition_per_queue,
        )
    ]


def read_partition(
    partition: InputPartition, options: SourceOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Read a partition as record batches, over the connections of the task's process.

    Raises
    ------
    DataLossError
        Messages of the partition are lost and ``failOnDataLoss`` is set, or the offsets read do not add up to
        the plan.
    CorruptMessageError
        A record cannot be decoded.
    RocketMQError
        A broker did not answer in time.
    """
    if isinstance(partition, RangesPartition):  # else Spark's stand-in for "no partition at all"
        committed = partition.committed if isinstance(partition, UnmarkedPartition) else None
        client = task_client(options.client)
        yield from read_ranges(client, partition.value, options, projection, committed=committed)


def read_ranges(
    client: Client,
    ranges: Sequence[OffsetRange],
    options: SourceOptions,
    projection: Projection,
    *,
    committed: Committed | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read ranges as record batches and account for every offset. Raises as `read_partition`."""
    account = Account(ranges)
    rows = 0
    for batch in read_batches(
        client,
        ranges,
        read_options(options),
        DecodeOptions(
            columns=projection.columns,
            body_as=projection.body_as,
            on_corrupt=options.on_corrupt.value,
            check_crc=options.check_crc,
            decided=committed,
        ),
        on_report=account.add,
    ):
        rows += batch.num_rows
        yield batch
    account.close(rows)
    _tell(account)


def read_options(options: SourceOptions) -> ReadOptions:
    """Return how a task reads."""
    return ReadOptions(
        consumer_group=options.group,
        selector=options.selector,
        fail_on_data_loss=options.fail_on_data_loss,
        pull_batch_size=options.pull_batch_size,
        pulls_in_flight=options.pulls_in_flight,
        empty_pull_delay_ms=options.empty_pull_delay_ms,
    )


def _tell(account: Account) -> None:
    unusual = any(account.count(part) for part in ("gaps", "lost", "skipped", "nulled"))
    _LOG.log(logging.WARNING if unusual else logging.INFO, "%s", account)
    for report in account.reports:
        for lost in report.lost:
            _LOG.warning("%d messages lost (%s): %s", len(lost.offsets), lost.condition, lost.offsets)
        for corrupt in report.corrupt:
            _LOG.warning("%s, it does not decode: %s", "skipped" if report.skipped else "nulls", corrupt)
