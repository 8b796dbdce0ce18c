"""Heartbeat rows: when they come, that a replay has them too, and what stands in them."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.heartbeat import HeartbeatPartition
from pyspark_rocketmq.spark.read.partition import RangesPartition
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

A0, B0 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 0)


class Stream:
    def __init__(self, mq: FakeRocketMQ, *, schema: StructType | None = None, **options: str) -> None:
        given = {"nameServer": "127.0.0.1:9876", "topic": "orders", "startingOffsets": "earliest"}
        given |= {"heartbeatInterval": "10s"} | options
        parsed = parse_options(SourceOptions, given, where="readStream", environ={})
        self.mq = mq
        self.reader = RocketMQStreamReader(
            parsed, schema or read_schema(parsed.columns), connect=lambda _: mq, clock=mq.clock
        )
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def trigger(self) -> list[object]:
        """Return what the next batch reads: numbers of messages, and heartbeat times."""
        start = self.offset
        self.offset = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        planned = self.reader.partitions(start, self.offset)
        assert planned == self.reader.partitions(start, self.offset), "a replay plans the same"
        return [
            sum(map(len, part.value)) if isinstance(part, RangesPartition) else part.value for part in planned
        ]

    def idle(self, seconds: float) -> list[object]:
        """Look every second, as a query without messages does."""
        found = []
        for _ in range(round(seconds)):
            self.mq.clock.now_s += 1
            found += self.trigger()
        return found


@pytest.fixture
def mq() -> FakeRocketMQ:
    mq = FakeRocketMQ(FakeClock(), [A0, B0])
    mq.send()
    mq.clock.now_s = 1_767_225_600.0
    return mq


def test_heartbeats_come_when_nothing_else_does(mq: FakeRocketMQ):
    stream = Stream(mq)
    begin_ms = mq.clock.now_ms()
    assert stream.trigger() == [2]
    assert stream.idle(9) == []
    assert stream.idle(1) == [begin_ms + 10_000]
    assert stream.idle(25) == [begin_ms + 20_000, begin_ms + 30_000]
    mq.send(A0)
    assert stream.trigger() == [1], "a batch of messages has no heartbeat"
    before = mq.clock.now_ms()
    assert stream.idle(10) == [before + 10_000], "the interval begins anew with each message"


def test_heartbeats_do_not_pass_messages_that_come_while_the_ends_are_asked_for(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.trigger()
    mq.clock.now_s += 10
    before_ms = mq.clock.now_ms()

    def come() -> None:
        mq.send(A0)
        mq.clock.now_s += 60

    mq.after_ends = come
    assert stream.trigger() == [before_ms]


def test_a_restart_has_the_same_heartbeats_and_waits_anew(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.trigger()
    start = stream.offset
    stream.idle(10)
    end = stream.offset
    assert SourceOffset.from_dict(end).heartbeat_at_ms == mq.clock.now_ms()
    again = Stream(mq)
    assert again.reader.partitions(start, end) == [HeartbeatPartition(mq.clock.now_ms())]
    again.offset = end
    assert again.idle(9) == []
    assert len(again.idle(1)) == 1


def test_time_does_not_run_ahead_of_messages_that_wait(mq: FakeRocketMQ):
    stream = Stream(mq, minOffsetsPerTrigger="10")
    assert stream.trigger() == []
    assert stream.idle(60) == []


def test_time_does_not_run_ahead_of_a_broker_that_is_away(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.trigger()
    mq.dead.add("broker-b")
    assert stream.idle(30) == []
    mq.dead.clear()
    assert len(stream.idle(1)) == 1


def test_a_broker_that_never_comes_back_stops_heartbeats_for_a_while_only(
    mq: FakeRocketMQ, caplog: pytest.LogCaptureFixture
):
    stream = Stream(mq, heartbeatPatience="5m")
    stream.trigger()
    mq.hidden.add("broker-b")
    assert stream.idle(299) == []
    assert len(stream.idle(30)) == 3
    assert caplog.text.count("broker broker-b has not answered for 300 s") == 1
    mq.hidden.clear()
    stream.idle(1)
    mq.hidden.add("broker-b")
    assert stream.idle(299) == [], "it is waited for again"


@pytest.mark.parametrize("looks", [0, 1])
def test_a_driver_that_was_frozen_within_a_look_has_not_waited_for_a_broker(mq: FakeRocketMQ, looks: int):
    """The broker may have come back at once: its messages would be late."""
    stream = Stream(mq, heartbeatPatience="5m")
    stream.trigger()
    mq.dead.add("broker-b")

    def freeze() -> None:
        mq.clock.now_s += 600
        mq.after_ends = lambda: None

    stream.idle(looks)
    mq.after_ends = freeze
    assert stream.idle(1) == []
    mq.dead.clear()
    mq.send(B0)
    assert stream.idle(1) == [1]


def test_a_broker_that_is_forgotten_stops_no_heartbeat(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.trigger()
    mq.hidden.add("broker-b")
    assert stream.idle(30) == []
    again = Stream(mq, forgetQueues="@broker-b")
    again.offset = stream.offset
    assert len(again.idle(10)) == 1


def test_a_clock_that_is_set_back_makes_no_heartbeat_go_back(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.trigger()
    (beat,) = stream.idle(10)
    mq.clock.now_ms = lambda: int(mq.clock.now_s * 1000) - 100_000
    assert stream.idle(99) == []
    assert stream.idle(20)[0] > beat


def test_available_now_has_no_heartbeats(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.trigger() == [2]
    assert stream.idle(60) == []


def test_there_are_none_unless_asked_for(mq: FakeRocketMQ):
    stream = Stream(mq)
    stream.reader._options = parse_options(
        SourceOptions, {"nameServer": "127.0.0.1:9876", "topic": "orders", "startingOffsets": "earliest"}
    )
    assert stream.trigger() == [2]
    assert stream.idle(60) == []


def test_a_heartbeat_row_has_times_and_nothing_else(mq: FakeRocketMQ):
    for columns in ("*", "storeTimestamp", "body,bornTimestamp"):
        stream = Stream(mq, columns=columns, bodyAs="string")
        (batch,) = stream.reader.read(HeartbeatPartition(1_767_225_600_123))
        assert isinstance(batch, pa.RecordBatch)
        (row,) = batch.to_pylist()
        moment = datetime.datetime(2026, 1, 1, 0, 0, 0, 123_000, datetime.UTC)
        times = {name: value for name, value in row.items() if value is not None}
        assert times == {name: moment for name in row if name in ("bornTimestamp", "storeTimestamp")}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (StructType().add("body", BinaryType()), "needs storeTimestamp or bornTimestamp"),
        (
            StructType().add("storeTimestamp", TimestampType()).add("topic", StringType(), False),
            "must be nullable .*column=topic",
        ),
    ],
)
def test_columns_must_fit_heartbeats(mq: FakeRocketMQ, schema: StructType, text: str):
    with pytest.raises(OptionError, match=text):
        Stream(mq, schema=schema)


def test_an_interval_of_nothing_is_refused(mq: FakeRocketMQ):
    with pytest.raises(OptionError, match="heartbeats need an interval"):
        Stream(mq, heartbeatInterval="0s")
