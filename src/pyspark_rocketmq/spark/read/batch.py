"""The batch reader: a fixed set of messages per DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, check_filter, resolve_batch
from pyspark_rocketmq.offsets.queue_lookup import wait_for_queues
from pyspark_rocketmq.options import ClientOptions, SourceOptions
from pyspark_rocketmq.planning.offset_resolution import check_listed
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.read.partition import RangesPartition, plan_partitions, read_partition
from pyspark_rocketmq.spark.read.schema import to_projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RocketMQBatchReader", "resolve_ranges"]


@called_by_spark
class RocketMQBatchReader(DataSourceReader):
    """Plans and reads a batch.

    "latest", "earliest" and relative times are resolved once: when Spark plans the first action on the
    DataFrame. Spark keeps that plan for the DataFrame's lifetime, so count and then collect, or a self-join,
    see the same messages. A new ``load()`` sees new messages.

    Parameters
    ----------
    options : SourceOptions
    schema : StructType
    connect : Callable
        Opens the client for planning; replaced in tests.
    clock : Clock
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        connect: Callable[[ClientOptions], PlanningClient] = PlanningClient,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._projection = to_projection(schema, on_corrupt=options.on_corrupt)
        options.start_policy(streaming=False)  # an error of Spark's first call, not of a task
        self._end = options.end_policy()
        self._connect = connect
        self._clock = clock

    def partitions(self) -> list[RangesPartition]:
        """Resolve both ends of every queue, and split and combine the ranges.

        Raises
        ------
        OptionError
            A start is after its end, or a listed queue does not exist.
        RocketMQError
            A name server or broker does not answer.
        """
        with closing(self._connect(self._options.client)) as client:
            return plan_partitions(self._ranges(client), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in a task's process."""
        return read_partition(partition, self._options, self._projection)

    def _ranges(self, client: PlanningClient) -> tuple[OffsetRange, ...]:
        return resolve_ranges(client, self._options, clock=self._clock)


def resolve_ranges(
    client: PlanningClient, options: SourceOptions, *, clock: Clock
) -> tuple[OffsetRange, ...]:
    """Return what a batch with these options reads now.

    Raises
    ------
    OptionError
        A start is after its end, or a listed queue does not exist.
    DataLossError
        A queue ends before the group's offset, and ``failOnDataLoss`` is set.
    RocketMQError
        A name server or broker does not answer.
    """
    start, end = options.start_policy(streaming=False), options.end_policy()
    moment = clock.now_ms()
    queues = wait_for_queues(client, options, clock=clock, whole=True)
    check_listed(start, queues)
    check_listed(end, queues)
    check_filter(client, queues, options)
    ranges = resolve_batch(client, start, end, queues, options, start_time_ms=moment, clock=clock)
    if options.assign:
        _check_assigned(client, queues)
    return ranges


def _check_assigned(client: PlanningClient, queues: Collection[MessageQueue]) -> None:
    """Check that the topics have the queues: of one that never existed, a broker says that it is empty.

    A queue with messages that the route hides is a loss, about which `failOnDataLoss` decides.
    """
    known = {queue for topic in {queue.topic for queue in queues} for queue in client.read_queues(topic)}
    brokers = {(queue.topic, queue.broker_name) for queue in known}  # a static topic's are others
    absent = [q for q in queues if q not in known and (q.topic, q.broker_name) in brokers]
    ends = client.max_offsets(absent) if absent else {}
    if wrong := [str(queue) for queue in absent if not ends[queue]]:
        there = ", ".join(map(str, sorted(known)))
        raise OptionError(
            f"assign names {', '.join(wrong)}, which the topic does not have; there are {there}",
            option="assign",
        )
