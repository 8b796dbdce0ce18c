"""The column alignedTimestamp: where it is, what it says, and that a replay says the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.client.read.samples import MessageTimes
from pyspark_rocketmq.errors import FlowControlError, OptionError, PermissionDeniedError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.aligned_column import AlignedColumn, AlignedPartition
from pyspark_rocketmq.spark.read.heartbeat import HeartbeatPartition
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.spark.source import RocketMQDataSource

A0, B0 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)
GIVEN = {
    "nameServer": "127.0.0.1:9876",
    "topic": "orders",
    "startingOffsets": "earliest",
    "eventTimeAlignment": "store",
    "includeAlignedTimestamp": "true",
}


def options(**more: str) -> SourceOptions:
    return parse_options(SourceOptions, GIVEN | more, where="readStream", environ={})


class Query:
    """A reader and its checkpoint."""

    def __init__(self, **more: str) -> None:
        self.mq = FakeRocketMQ(FakeClock(), [A0, B0])
        schema = AlignedColumn.add_to(read_schema(["topic", "storeTimestamp"]))
        self.reader = RocketMQStreamReader(
            options(**more), schema, connect=lambda _: self.mq, clock=self.mq.clock
        )
        self.end: dict[str, Any] = self.reader.initialOffset()

    def batch(self) -> list[AlignedPartition]:
        start, self.end = self.end, self.reader.latestOffset(self.end, self.reader.getDefaultReadLimit())
        planned = self.reader.partitions(start, self.end)
        assert planned == self.reader.partitions(start, SourceOffset.from_dict(self.end).to_dict())
        assert all(isinstance(partition, AlignedPartition) for partition in planned)
        return list(planned)

    def aligned_ms(self) -> int:
        (value,) = {partition.value[1] for partition in self.batch()}
        return value

    def send_after_ends(self) -> None:
        """Have a message arrive a minute before now, when the ends have been asked for."""

        def come() -> None:
            self.mq.send(B0)
            self.mq.clock.now_s += 60

        self.mq.after_ends = come

    def unread_ms(self) -> list[int]:
        """Return when the messages were stored that are yet to be read."""
        ends = SourceOffset.from_dict(self.end).offsets
        return [time_ms for queue, log in self.mq.logs.items() for time_ms, _ in log[ends.get(queue, 0) :]]


def test_it_is_the_store_time_of_the_oldest_unread_message() -> None:
    query = Query(maxOffsetsPerTrigger="2")
    query.mq.send(A0, A0, B0, A0, B0)
    batches = 0
    while unread := query.unread_ms():
        aligned_ms = query.aligned_ms()
        still_unread = query.unread_ms()
        assert aligned_ms == min(still_unread, default=query.mq.clock.now_ms())
        assert still_unread != unread
        batches += 1
    assert batches >= 3


def test_it_is_now_when_everything_is_read_and_stays_while_a_broker_is_away() -> None:
    query = Query()
    query.mq.send()
    query.mq.clock.now_s += 60
    first = query.aligned_ms()
    assert first == query.mq.clock.now_ms()
    query.mq.dead.add("broker-b")
    query.mq.clock.now_s += 60
    query.mq.send(A0)
    assert query.aligned_ms() == first
    query.mq.dead.clear()
    query.mq.send(B0)
    assert query.aligned_ms() == query.mq.clock.now_ms()


def test_it_does_not_pass_messages_that_come_while_the_ends_are_asked_for() -> None:
    query = Query()
    query.mq.send()
    query.send_after_ends()
    aligned_ms = query.aligned_ms()
    assert aligned_ms <= min(query.unread_ms())
    assert query.aligned_ms() > aligned_ms


def test_it_stays_while_a_broker_is_busy_and_a_revoked_permission_ends_the_query() -> None:
    def refuse(error: RocketMQError) -> None:
        def call(*_: object) -> None:
            raise error

        query.mq.message_times = call  # type: ignore[assignment]

    query = Query()
    query.mq.send()
    first = query.aligned_ms()
    query.mq.clock.now_s += 60
    query.mq.send()
    refuse(FlowControlError("too many requests", code=2))
    assert query.aligned_ms() == first
    query.mq.send()
    refuse(PermissionDeniedError("the topic is forbidden", code=16))
    with pytest.raises(PermissionDeniedError):
        query.batch()


def test_it_does_not_pass_messages_that_a_slave_lacks_whose_master_went_away() -> None:
    """It has no message there, which says nothing of the master."""
    query = Query(maxOffsetsPerTrigger="1")
    query.mq.send(A0, B0)
    query.mq.send(A0, B0)
    before = query.aligned_ms()
    times = query.mq.message_times

    def ask_slave(offsets: Mapping[MessageQueue, int], group: str) -> dict[MessageQueue, MessageTimes]:
        return {queue: found for queue, found in times(offsets, group).items() if queue == A0}

    query.mq.message_times = ask_slave
    assert query.aligned_ms() == before
    query.mq.message_times = times
    assert before < query.aligned_ms() <= min(query.unread_ms())


def test_a_run_to_the_end_says_nothing_of_what_came_after_its_begin() -> None:
    query = Query(maxOffsetsPerTrigger="1")
    query.mq.send(A0, B0)
    query.reader.prepareForTriggerAvailableNow()
    began = query.mq.clock.now_ms()
    query.mq.clock.now_s += 60
    assert query.aligned_ms() <= began
    assert query.aligned_ms() == began


def test_a_run_to_the_end_does_not_pass_messages_that_come_while_its_ends_are_asked_for() -> None:
    query = Query()
    query.mq.send()
    query.send_after_ends()
    query.reader.prepareForTriggerAvailableNow()
    assert query.aligned_ms() <= min(query.unread_ms())


def test_a_run_to_the_end_does_not_pass_messages_of_a_broker_that_was_away_when_it_began() -> None:
    query = Query()
    query.mq.send()
    first = query.aligned_ms()
    query.mq.clock.now_s += 60
    query.mq.send(A0, B0)
    query.mq.dead.add("broker-b")
    query.reader.prepareForTriggerAvailableNow()
    query.mq.dead.clear()
    assert query.aligned_ms() == first
    assert query.unread_ms()  # the run reads nothing of it, the next one does
    query.reader.prepareForTriggerAvailableNow()
    began = query.mq.clock.now_ms()
    assert query.aligned_ms() == began


def test_heartbeats_have_it_too() -> None:
    query = Query(heartbeatInterval="1s")
    query.mq.send()
    query.batch()
    query.mq.clock.now_s += 60
    (beat,) = query.batch()
    inner, aligned_ms = beat.value
    assert isinstance(inner, HeartbeatPartition)
    assert aligned_ms == inner.value == query.mq.clock.now_ms()
    (rows,) = query.reader.read(beat)
    assert rows.schema.names == ["topic", "storeTimestamp", "alignedTimestamp"]
    assert rows["alignedTimestamp"].cast(pa.int64()).to_pylist() == [aligned_ms * 1000]


def test_it_comes_last_unless_a_schema_says_where() -> None:
    source = RocketMQDataSource(GIVEN)
    assert source.schema().names[-1] == "alignedTimestamp"
    schema = StructType([source.schema()["alignedTimestamp"], *read_schema(["queueId"]).fields])
    column, rest = AlignedColumn.of(schema, options())
    assert column is not None
    assert rest.names == ["queueId"]
    (batch,) = column.insert(iter([pa.record_batch({"queueId": pa.array([7], pa.int32())})]), 5)
    assert batch.schema.names == ["alignedTimestamp", "queueId"]


def test_it_needs_alignment_and_its_type() -> None:
    kinds = (TimestampType(), LongType())
    of_type = {kind: StructType([StructField("alignedTimestamp", kind)]) for kind in kinds}
    with pytest.raises(OptionError, match="must be timestamp"):
        AlignedColumn.of(of_type[LongType()], options())
    for alignment in ("off", "born"):
        with pytest.raises(OptionError, match="eventTimeAlignment=store"):
            AlignedColumn.of(of_type[TimestampType()], options(eventTimeAlignment=alignment))
