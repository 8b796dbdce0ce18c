"""What the limits make of a backlog, as the stream reader's calls bring it about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.errors import PermissionDeniedError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.features import ReadAllAvailable, ReadMaxRows
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)


class Stream:
    """A running query that takes whatever the reader cuts."""

    def __init__(self, mq: FakeRocketMQ, **options: str) -> None:
        self.mq = mq
        given = {"nameServer": "127.0.0.1:9876", "topic": "orders", "startingOffsets": "earliest"} | options
        self.options = parse_options(SourceOptions, given, where="readStream", environ={})
        self.restart()
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def restart(self) -> None:
        self.reader = RocketMQStreamReader(
            self.options, read_schema(None), connect=lambda _: self.mq, clock=self.mq.clock
        )

    def trigger(self, *, everything: bool = False) -> Mapping[MessageQueue, int]:
        """Return how much of each queue the next batch takes."""
        before, start = self.offset, SourceOffset.from_dict(self.offset)
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        self.offset = self.reader.latestOffset(self.offset, limit)
        if self.offset is before:
            return {}
        end = SourceOffset.from_dict(self.offset)
        begins = {**start.offsets, **end.begin}
        return {queue: until - begins[queue] for queue, until in end.offsets.items() if until > begins[queue]}


def world(**messages: int) -> FakeRocketMQ:
    """Queues a0, a1, b0 with so many messages each, one a second, all queues alike."""
    names = {"a0": A0, "a1": A1, "b0": B0}
    mq = FakeRocketMQ(FakeClock(), [names[name] for name in messages])
    for number in range(max(messages.values())):
        mq.send(*[names[name] for name, count in messages.items() if number < count])
        mq.clock.now_s += 1
    return mq


def test_bytes_are_limited_by_what_messages_weigh_now():
    mq = world(a0=1000, a1=1000)
    mq.sizes = {A0: 100, A1: 900}
    stream = Stream(mq, maxBytesPerTrigger="100000")
    taken = stream.trigger()
    assert 90_000 < taken[A0] * 100 + taken[A1] * 900 <= 100_000
    mq.sizes = {A0: 10_000, A1: 900}
    for _ in range(3):
        taken = stream.trigger()
    assert taken[A0] * 8_000 + taken[A1] * 900 <= 100_000, "half of the old weight is forgotten each time"


def test_one_message_comes_however_small_the_limit():
    mq = world(a0=3)
    mq.sizes = {A0: 5_000_000}
    stream = Stream(mq, maxBytesPerTrigger="1k")
    assert [stream.trigger() for _ in range(4)] == [{A0: 1}, {A0: 1}, {A0: 1}, {}]


def test_few_of_many_queues_are_weighed_each_time_and_all_in_the_end():
    queues = [MessageQueue("orders", "broker-a", number) for number in range(150)]
    mq = FakeRocketMQ(FakeClock(), queues)
    for _ in range(500):
        mq.send()
    weighed: list[set[MessageQueue]] = []
    sizes = mq.message_sizes

    def note(offsets, group, selector):
        weighed.append(set(offsets))
        return sizes(offsets, group, selector)

    mq.message_sizes = note
    stream = Stream(mq, maxBytesPerTrigger="150k")
    for _ in range(3):
        taken = stream.trigger()
        # Those that were never weighed count as their topic's others do: 100 bytes, not 1024.
        assert 150_000 < sum(taken.values()) * 100 <= 153_600
    assert [len(some) for some in weighed] == [64, 64, 64]
    assert set.union(*weighed) == set(queues)


def test_messages_that_cannot_be_weighed_count_as_before():
    mq = world(a0=1000)
    stream = Stream(mq, maxBytesPerTrigger="10000")
    assert stream.trigger() == {A0: 100}
    sizes, mq.message_sizes = mq.message_sizes, lambda *_: mq._ask("fails", [B0], None)
    mq.dead.add("broker-b")
    assert stream.trigger() == {A0: 100}
    mq.message_sizes = sizes
    assert stream.trigger() == {A0: 100}


@pytest.mark.parametrize("ask", ["message_sizes", "message_times"])
def test_a_permission_that_was_revoked_is_no_reason_to_wait(ask: str):
    def refuse(*_: object) -> None:
        raise PermissionDeniedError("the topic is forbidden", code=16)

    mq = skewed()
    stream = Stream(mq, eventTimeAlignment="store", maxOffsetsPerTrigger="40", maxBytesPerTrigger="4k")
    assert stream.trigger()
    setattr(mq, ask, refuse)
    with pytest.raises(PermissionDeniedError):
        stream.trigger()


def test_the_rate_counts_the_time_since_the_last_batch():
    mq = world(a0=1000, b0=7)
    stream = Stream(mq, maxRatePerQueue="10")
    assert stream.trigger() == {A0: 10, B0: 7}, "a second for the first batch"
    mq.clock.now_s += 3
    assert stream.trigger() == {A0: 30}
    mq.clock.now_s += 0.5
    assert stream.trigger() == {A0: 5}
    mq.clock.now_s += 0.001
    assert stream.trigger() == {A0: 1}


def test_idle_time_is_not_saved_up_for_a_burst():
    mq = world(a0=1)
    stream = Stream(mq, maxRatePerQueue="10")
    stream.trigger()
    for _ in range(100):
        mq.clock.now_s += 1
        assert stream.trigger() == {}
    for _ in range(500):
        mq.send(A0)
    assert stream.trigger() == {A0: 10}


def test_a_batch_waits_for_enough_messages_or_long_enough():
    mq = world(a0=4)
    stream = Stream(mq, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    assert stream.trigger() == {}
    assert SourceOffset.from_dict(stream.offset).resolved, "the start is settled meanwhile"
    mq.clock.now_s += 59
    assert stream.trigger() == {}
    mq.clock.now_s += 1
    assert stream.trigger() == {A0: 4}
    for _ in range(12):
        mq.send(A0)
    assert stream.trigger() == {A0: 12}
    mq.send(A0)
    mq.clock.now_s += 59
    assert stream.trigger() == {}
    stream.restart()
    mq.clock.now_s += 59
    assert stream.trigger() == {}, "a restart waits anew"
    mq.clock.now_s += 1
    assert stream.trigger() == {A0: 1}


def test_a_held_batch_hands_back_the_very_start():
    mq = world(a0=4)
    stream = Stream(mq, minOffsetsPerTrigger="10")
    stream.trigger()
    before = stream.offset
    stream.trigger()
    assert stream.offset is before


def test_a_broker_that_was_away_at_the_start_is_read_from_before_anything_was_asked():
    mq = world(a0=3, b0=3)
    mq.dead.add("broker-b")

    def come() -> None:
        mq.send(B0)
        mq.clock.now_s += 60

    mq.after_ends = come
    stream = Stream(mq, startingOffsets="latest")
    assert stream.trigger() == {}
    mq.after_ends = lambda: None
    mq.dead.clear()
    assert stream.trigger() == {B0: len(mq.logs[B0]) - 3}


def test_available_now_and_a_trigger_for_everything_do_not_wait():
    mq = world(a0=4)
    options = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "10"}
    assert Stream(mq, **options).trigger(everything=True) == {A0: 4}
    stream = Stream(mq, **options)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.trigger() == {A0: 4}


def test_limits_hold_together():
    mq = world(a0=1000, a1=1000)
    mq.sizes = {A0: 1000, A1: 1000}
    options = {"maxOffsetsPerTrigger": "100", "maxBytesPerTrigger": "50k", "maxRatePerQueue": "20"}
    assert sum(Stream(mq, **options).trigger().values()) == 40
    assert sum(Stream(mq, **options | {"maxRatePerQueue": "500"}).trigger().values()) == 51
    assert sum(Stream(mq, **options).trigger(everything=True).values()) == 2000


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadMaxRows(10_000_000)),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxOffsetsPerTrigger": "-1"}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "-1", "maxRatePerQueue": "7"}, ReadMaxRows(2**63 - 1)),
        ({"maxOffsetsPerTrigger": "-1", "maxBytesPerTrigger": "7"}, ReadMaxRows(2**63 - 1)),
        ({"maxOffsetsPerTrigger": "-1", "minOffsetsPerTrigger": "7"}, ReadMaxRows(2**63 - 1)),
    ],
)
def test_spark_is_given_a_limit_while_there_is_one(options: dict[str, str], limit: object):
    assert Stream(world(a0=1), **options).reader.getDefaultReadLimit() == limit


# --- event time ---


def skewed() -> FakeRocketMQ:
    """Two queues of the same hour: one with a message a second, one with four."""
    mq = FakeRocketMQ(FakeClock(), [A0, B0])
    for number in range(400):
        mq.send(*([A0, B0] if number % 4 == 0 else [B0]))
        mq.clock.now_s += 0.25
    return mq


def late_messages(mq: FakeRocketMQ, **options: str) -> int:
    """Return how many messages are older than a message of an earlier batch."""
    stream, watermark, late = Stream(mq, maxOffsetsPerTrigger="40", **options), 0, 0
    begins = dict.fromkeys(mq.logs, 0)
    while stream.trigger():
        ends = SourceOffset.from_dict(stream.offset).offsets
        times = [time for queue in mq.logs for time, _ in mq.logs[queue][begins[queue] : ends[queue]]]
        late += sum(time < watermark for time in times)
        watermark = max(watermark, *times)
        begins = dict(ends)
    assert begins == {queue: len(log) for queue, log in mq.logs.items()}
    return late


@pytest.mark.parametrize("by", ["store", "born"])
def test_no_queue_runs_past_the_slowest(by: str):
    assert late_messages(skewed(), eventTimeAlignment=by) == 0


def test_without_alignment_queues_run_apart():
    mq = skewed()
    assert late_messages(mq) > 0
    assert "message_times" not in mq.calls


def test_aligned_queues_that_are_read_to_their_ends_cost_no_look_ups():
    mq = skewed()
    stream = Stream(mq, eventTimeAlignment="store")
    assert sum(stream.trigger().values()) == 500
    assert "message_times" not in mq.calls


def hours_apart() -> FakeRocketMQ:
    """A queue with messages of one hour, and one with those of the next."""
    mq = FakeRocketMQ(FakeClock(), [A0, B0])
    for queue in (A0, B0):
        for _ in range(200):
            mq.send(queue)
            mq.clock.now_s += 1
        mq.clock.now_s += 3_600
    return mq


def test_of_aligned_queues_the_oldest_is_read_where_a_limit_is_below_their_number():
    stream = Stream(hours_apart(), eventTimeAlignment="store", maxOffsetsPerTrigger="1")
    assert [stream.trigger() for _ in range(4)] == [{A0: 1}] * 4


@pytest.mark.parametrize("rate", [{}, {"maxRatePerQueue": "1000"}])
def test_a_queue_that_waits_for_the_oldest_one_takes_none_of_its_limit(rate: dict[str, str]):
    mq = FakeRocketMQ(FakeClock(), [A0, B0])
    for _ in range(200):
        mq.send(A0)
        mq.clock.now_s += 1
    for _ in range(20_000):
        mq.send(B0)
    stream = Stream(mq, eventTimeAlignment="store", maxOffsetsPerTrigger="100", **rate)
    for expected in ({A0: 100}, {A0: 100}, {B0: 100}):
        assert stream.trigger() == expected
        mq.clock.now_s += 1


def test_queues_of_other_density_fill_the_limit_together():
    mq = FakeRocketMQ(FakeClock(), [A0, B0])
    for number in range(10_000):
        mq.send(*([A0, B0] if number < 100 else [B0]))
        mq.clock.now_s += 1
    stream = Stream(mq, eventTimeAlignment="store", maxOffsetsPerTrigger="50")
    assert stream.trigger() == {A0: 25, B0: 25}


def test_aligned_queues_keep_to_a_limit_of_bytes():
    mq = hours_apart()
    mq.sizes = {A0: 4_000, B0: 4_000}
    stream = Stream(mq, eventTimeAlignment="store", maxBytesPerTrigger="160000")
    assert stream.trigger() == {A0: 40}, "the other queue is of the hour after it"


def test_aligned_queues_keep_to_their_rate():
    mq = skewed()
    stream = Stream(mq, eventTimeAlignment="store", maxRatePerQueue="8")
    assert stream.trigger() == {A0: 3, B0: 8}
    mq.clock.now_s += 5
    assert stream.trigger() == {A0: 10, B0: 40}


def test_queues_wait_while_they_cannot_be_aligned():
    mq = skewed()
    stream = Stream(mq, eventTimeAlignment="store", maxOffsetsPerTrigger="40")
    stream.trigger()
    times = mq.message_times
    mq.message_times = lambda *_: mq._ask("fails", [A1], None)
    mq.dead.add(A1.broker_name)
    ask = mq.max_offsets
    mq.max_offsets = lambda queues: {queue: len(mq.logs[queue]) for queue in queues}
    assert stream.trigger() == {}
    mq.message_times, mq.max_offsets = times, ask
    mq.dead.clear()
    assert stream.trigger()


@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxRatePerQueue"])
def test_a_limit_counts_no_expired_messages(limit: str):
    """Else each batch passed over as many as the limit allows, and retention stayed ahead of it."""
    mq = world(a0=100)
    stream = Stream(mq, failOnDataLoss="false", **{limit: "10"})
    assert stream.trigger() == {A0: 10}
    mq.first[A0] = 60
    mq.clock.now_s += 1
    assert stream.trigger() == {A0: 60}, "50 are counted as lost, and 10 are read"
    mq.clock.now_s += 1
    assert stream.trigger() == {A0: 10}


def test_expired_messages_count_where_the_tasks_must_report_them():
    mq = world(a0=100)
    stream = Stream(mq, maxOffsetsPerTrigger="10")
    assert stream.trigger() == {A0: 10}
    mq.first[A0] = 60
    assert stream.trigger() == {A0: 10}
