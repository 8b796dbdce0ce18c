"""Offset ranges of RocketMQ as an RDD of messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import SparkContext
from pyspark.core.rdd import PipelinedRDD

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.commits.commit_log import Committed, read_committed
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.shared import shared_client
from pyspark_rocketmq.dstream.arguments import check_frame, check_reading
from pyspark_rocketmq.dstream.jvm import elements_rdd, executors
from pyspark_rocketmq.dstream.ranges import HasOffsetRanges, OffsetRanges, RangesLike, reads_now, to_ranges
from pyspark_rocketmq.dstream.record_batches import HasRecordBatches
from pyspark_rocketmq.dstream.strategies import LocationStrategy
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange
from pyspark_rocketmq.model.nested_offsets import nest
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, check_filter
from pyspark_rocketmq.options import DirectOptions, SourceOptions, parse_direct_options, parse_options
from pyspark_rocketmq.options.choices import CorruptPolicy, policy_of_objects
from pyspark_rocketmq.planning.commits.visible import clip
from pyspark_rocketmq.spark.read.partition import read_options, read_ranges
from pyspark_rocketmq.spark.read.schema import Projection, read_schema
from pyspark_rocketmq.spark.task_client import task_client

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["MessageHandler", "RocketMQRDD", "create_rdd", "key_value"]

MessageHandler = Callable[[Message], Any]

Parts: TypeAlias = Mapping[MessageQueue, Sequence[OffsetRange]]
"""What each partition reads, by queue, instead of the ranges of the RDD."""


def key_value(message: Message) -> tuple[str | None, bytes]:
    """Return a message as (keys, body): a message handler for RDDs of pairs."""
    return message.keys, message.body


@dataclass(frozen=True, slots=True)
class _MessageReader:
    """How a task reads its range. Picklable for Spark."""

    options: SourceOptions
    handler: MessageHandler | None
    committed: Committed | None
    parts: Parts | None = None

    def __call__(self, _: int, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
        found = _begin_reading(ranges, self.parts)
        messages = read_messages(
            task_client(self.options.client),
            found,
            read_options(self.options),
            on_corrupt=policy_of_objects(self.options.on_corrupt),
            check_crc=self.options.check_crc,
            decided=self.committed,
        )
        return messages if self.handler is None else map(self.handler, messages)


@dataclass(frozen=True, slots=True)
class _BatchReader:
    options: SourceOptions
    projection: Projection
    committed: Committed | None
    parts: Parts | None = None

    def __call__(self, _: int, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
        found = _begin_reading(ranges, self.parts)
        return read_ranges(
            task_client(self.options.client), found, self.options, self.projection, committed=self.committed
        )


def _begin_reading(ranges: Iterable[OffsetRange], parts: Parts | None) -> list[OffsetRange]:
    """Return what a task reads for the ranges of its partition."""
    found = list(ranges)
    reads_now(found)
    return found if parts is None else [part for each in found for part in parts[each.queue]]


class RocketMQRDD(PipelinedRDD[OffsetRange, Any], HasOffsetRanges, HasRecordBatches["RocketMQRDD"]):
    """An RDD of the messages of offset ranges: one partition per non-empty range, in offset order.

    Delivery promise: the same ranges return the same messages in the same order, however often a partition is
    computed, while the brokers have them.

    Created by ``RocketMQUtils.createRDD`` and by direct streams.

    Parameters
    ----------
    sc : SparkContext
    ranges : OffsetRanges
    options : SourceOptions
    given : Mapping
        The options as the user set them, for `toDF`.
    location : LocationStrategy
    handler : Callable, optional
        Called with each message in the task.
    reader : Callable, optional
        Replaces the reader of messages.
    placed : Mapping, optional
        Where the queues were read previously.
    committed : Committed, optional
        Which messages of transactional writes are elements; all by default.
    parts : Mapping, optional
        What the partition of each queue reads instead of its range; other queues have no partition.
    """

    def __init__(
        self,
        sc: SparkContext,
        ranges: OffsetRanges,
        options: SourceOptions,
        given: Mapping[str, Any],
        location: LocationStrategy,
        *,
        handler: MessageHandler | None = None,
        reader: _BatchReader | None = None,
        placed: Mapping[MessageQueue, str] | None = None,
        committed: Committed | None = None,
        parts: Parts | None = None,
    ) -> None:
        if parts is not None:  # those with a partition first
            ranges = OffsetRanges(sorted(ranges, key=lambda found: found.queue not in parts))
        full = [found for found in ranges if (len(found) > 0 if parts is None else found.queue in parts)]
        queues = [
            found.queue for found in ranges
        ]  # also those without new messages: they keep their executors
        self.placed = location.locations(queues, executors(sc), placed) if full else dict(placed or {})
        places = [[self.placed[r.queue]] if r.queue in self.placed else [] for r in full]
        super().__init__(
            elements_rdd(sc, full, places), reader or _MessageReader(options, handler, committed, parts)
        )
        self._ranges = ranges
        self._has_messages = reader is None
        self._options = options
        self._given = given
        self._location = location
        self._committed = committed
        self._parts = parts

    @property
    def offsetRanges(self) -> OffsetRanges:
        """The ranges, in the order of the partitions."""
        return self._ranges

    def count(self) -> int:
        """Return the number of elements, computed from the ranges alone if that is exact.

        It is exact if no message is filtered or skipped (``onCorrupt=skip``) and the brokers still have every
        offset; else the messages are read and counted. Compacted topics have gaps that only reading shows:
        use ``mapPartitions`` for them. Of `recordBatches`, it counts the batches.
        """
        whole = self._options.selector.takes_all and self._options.on_corrupt is not CorruptPolicy.SKIP
        exact = whole and self._committed is None and self._has_messages
        if exact and _has_all(shared_client(self._options.client), self._ranges):
            return self._ranges.planned
        return super().count()

    def _read_batches(self, projection: Projection) -> RocketMQRDD:
        return RocketMQRDD(
            *(self.ctx, self._ranges, self._options, self._given, self._location),
            reader=_BatchReader(self._options, projection, self._committed, self._parts),
            placed=self.placed,
            committed=self._committed,
            parts=self._parts,
        )

    def toDF(self, spark: SparkSession, **options: Any) -> DataFrame:  # type: ignore[override]
        """Return the messages of the ranges as a DataFrame of the batch source, which reads them again.

        Parameters
        ----------
        spark : SparkSession
        **options
            Options of the data source, such as ``columns``.

        Raises
        ------
        OptionError
            Two ranges are of the same queue, the RDD has ``isolation=read_committed``, or an option would
            replace the ranges.
        """
        check_frame(options)
        if self._committed is not None:
            raise OptionError(
                "toDF reads the topic again, when other batches may be committed: use spark.read with "
                "isolation=read_committed, or recordBatches",
                option="isolation",
            )
        queues = [found.queue for found in self._ranges]
        if len(set(queues)) < len(queues):
            raise OptionError("a DataFrame reads one range of a queue: make one for each and unite them")
        if not self._ranges.planned:
            topics = ",".join(self._options.topics)
            return spark.createDataFrame([], _schema({**_readable(self._given), "topic": topics, **options}))
        full = [found for found in self._ranges if len(found) > 0]
        begins = nest({found.queue: found.from_offset for found in full})
        ends = nest({found.queue: found.until_offset for found in full})
        assigned = {
            topic: {broker: [int(queue_id) for queue_id in queues] for broker, queues in brokers.items()}
            for topic, brokers in begins.items()
        }
        reader = spark.read.format("rocketmq").options(**_readable(self._given))
        return (
            reader.option("consumerGroup", self._options.group)
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(begins))
            .option("endingOffsets", json.dumps(ends))
            .option("partitionPerQueue", "true")
            .option("failOnDataLoss", str(self._options.fail_on_data_loss).lower())  # may be the stream's
            .options(**options)
            .load()
        )


def create_rdd(  # noqa: PLR0917 - as its arguments come
    sc: SparkContext,
    group: str,
    given_ranges: RangesLike,
    given: Mapping[str, Any],
    location: LocationStrategy,
    handler: MessageHandler | None,
) -> RocketMQRDD:
    """Return the RDD of ``RocketMQUtils.createRDD``, whose errors these are."""
    check_reading(location, handler)
    ranges = to_ranges(given_ranges)
    topics = tuple(sorted({found.topic for found in ranges}))
    if not topics:
        raise OptionError("an RDD needs at least one offset range, an empty one perhaps")
    options = parse_direct_options(given)
    source = options.source(topics, group)
    if source.sql_filter is not None:
        with closing(PlanningClient(source.client)) as client:
            check_filter(client, {found.queue for found in ranges}, source)
    committed = _committed_in(ranges, options) if options.isolation.committed_only else None
    return RocketMQRDD(sc, ranges, source, dict(given), location, handler=handler, committed=committed)


def _committed_in(ranges: OffsetRanges, options: DirectOptions) -> Committed:
    """Return which messages of transactional writes are committed now. Raises as `read_committed`."""
    by = {found.topic: options.isolation.commit_topic_of(found.topic) for found in ranges}
    committed = read_committed(shared_client(options.client), by)
    begins: dict[MessageQueue, int] = {}
    for found in ranges:
        begins[found.queue] = min(found.from_offset, begins.get(found.queue, found.from_offset))
    return replace(committed, ranges=clip(committed.ranges, begins=begins, ends=ranges.ends))


def _schema(options: Mapping[str, Any]) -> StructType:
    """Return the columns that a read with these options has."""
    found = parse_options(SourceOptions, {name.lower(): value for name, value in options.items()})
    return read_schema(
        found.columns, include_properties=found.include_properties, body_as=found.body_as.value
    )


def _readable(given: Mapping[str, Any]) -> dict[str, str]:
    """Omit the options that only streams of RDDs have."""
    speeds = {"pull.max.speed.per.partition", "maxrateperqueue"}
    return {key: str(value) for key, value in given.items() if key.lower() not in speeds}


def _has_all(client: Client, ranges: OffsetRanges) -> bool:
    queues = {found.queue for found in ranges if len(found) > 0}
    mins, maxs = client.min_offsets(queues), client.max_offsets(queues)
    return all(
        mins[r.queue] <= r.from_offset and r.until_offset <= maxs[r.queue] for r in ranges if len(r) > 0
    )
