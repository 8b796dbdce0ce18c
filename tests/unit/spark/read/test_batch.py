from __future__ import annotations

import pytest
from pyspark.sql.datasource import InputPartition
from tests.support.clocks import FakeClock
from tests.unit.spark.fake_rocketmq import FakeRocketMQ

from pyspark_rocketmq.errors import DataLossError, OptionError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.schema import read_schema

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def world() -> FakeRocketMQ:
    mq = FakeRocketMQ(FakeClock(), [A0, A1])
    for _ in range(10):
        mq.send()
        mq.clock.now_s += 1
    mq.first[A1] = 4
    return mq


def planned(mq: FakeRocketMQ, **options: str) -> list[tuple[OffsetRange, ...]]:
    where = {} if "assign" in options else {"topic": "orders"}
    parsed = parse_options(
        SourceOptions, {"nameServer": "127.0.0.1:9876"} | where | options, where="read", environ={}
    )
    reader = RocketMQBatchReader(parsed, read_schema(None), connect=lambda _: mq, clock=mq.clock)
    return [partition.value for partition in reader.partitions()]


def test_reads_from_earliest_to_latest():
    assert planned(world()) == [(OffsetRange(A0, 0, 10), OffsetRange(A1, 4, 10))]


def test_a_queue_that_the_topic_never_had_is_an_error():
    """A broker says that it is empty, and the batch had no rows of it, without a word."""
    mq, a2 = world(), MessageQueue("orders", "broker-a", 2)
    mq.logs[a2] = []
    mq.unreadable = {a2}
    assert planned(mq, assign='{"orders": {"broker-a": [1]}}') == [(OffsetRange(A1, 4, 10),)]
    with pytest.raises(OptionError, match="assign names orders@broker-a:2, which the topic does not have"):
        planned(mq, assign='{"orders": {"broker-a": [1, 2]}}')
    mq.send(a2)  # it had messages: whether they are lost is not decided here
    assert len(planned(mq, assign='{"orders": {"broker-a": [1, 2]}}')) == 1


def test_waits_for_every_broker_that_had_queues():
    """What is not in the plan is not read later."""
    mq = world()
    planned(mq)
    assert mq.whole


def test_closes_its_connections():
    mq = world()
    planned(mq)
    with pytest.raises(TopicNotFoundError):
        planned(mq, topic="order")
    assert mq.calls.count("close") == 2


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({"startingOffsets": "last:3"}, (OffsetRange(A0, 7, 10), OffsetRange(A1, 7, 10))),
        ({"startingTimestamp": "-2500ms"}, (OffsetRange(A0, 8, 10), OffsetRange(A1, 8, 10))),
        ({"endingTimestamp": "-2500ms"}, (OffsetRange(A0, 0, 8), OffsetRange(A1, 4, 8))),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": 6}}}', "startingOffsetsDefault": "earliest"},
            (OffsetRange(A0, 6, 10), OffsetRange(A1, 4, 10)),
        ),
        ({"endingOffsets": '{"orders": {"broker-a": {"0": 6, "1": -1}}}'},
         (OffsetRange(A0, 0, 6), OffsetRange(A1, 4, 10))),
        ({"endingOffsets": '{"orders": {"broker-a": {"0": 6}}}', "endingOffsetsDefault": "latest"},
         (OffsetRange(A0, 0, 6), OffsetRange(A1, 4, 10))),
        ({"endingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": 1767225603000, "1": 1767225608000}}}'},
         (OffsetRange(A0, 0, 3), OffsetRange(A1, 4, 8))),
        ({"endingOffsetsByTimestamp": '{"orders": 1767225606000}'},
         (OffsetRange(A0, 0, 6), OffsetRange(A1, 4, 6))),
        ({"assign": '{"orders": {"broker-a": [1]}}'}, (OffsetRange(A1, 4, 10),)),
    ],
)  # fmt: skip
def test_ends_of_all_forms(options: dict[str, str], ranges: tuple[OffsetRange, ...]):
    assert planned(world(), **options) == [ranges]


def test_messages_that_come_while_planning_do_not_put_the_start_behind_the_end():
    mq = world()
    ask = mq.max_offsets

    def ask_while_sending(queues):
        found = ask(queues)
        mq.send(A0, A0, A0, A1)
        return found

    mq.max_offsets = ask_while_sending
    assert planned(mq, startingOffsets="last:1") == [(OffsetRange(A0, 9, 10), OffsetRange(A1, 9, 10))]


def test_a_time_before_now_counts_from_the_call_though_brokers_are_waited_for():
    mq = world()
    look_up = mq.look_up

    def look_up_slowly(topics, *, whole=False):
        look_up(topics, whole=whole)
        mq.clock.now_s += 5

    mq.look_up = look_up_slowly
    assert planned(mq, startingTimestamp="-2500ms") == [(OffsetRange(A0, 8, 10), OffsetRange(A1, 8, 10))]


@pytest.mark.parametrize("end", [{}, {"endingTimestamp": "2026-01-01T02:00:00Z"}])
@pytest.mark.parametrize("start", ["-3s", "2026-01-01T01:00:00Z"], ids=["before", "beyond"])
def test_a_start_by_time_at_the_tip_of_a_queue_that_is_written(start: str, end: dict[str, str]):
    """A time beyond the last message means the end of the queue, which moves while the batch is planned."""
    mq = world()
    answer = mq._ask

    def send_after_each_question(call, queues, found):
        answers = answer(call, queues, found)
        mq.send(A0, A0, A1)
        return answers

    mq._ask = send_after_each_question
    (ranges,) = planned(mq, startingTimestamp=start, **end)
    assert {offsets.queue for offsets in ranges} == {A0, A1}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": 6}}}'},
            "no offset is given for orders@broker-a:1",
        ),
        ({"endingOffsets": '{"orders": {"broker-x": {"0": 6}}}'}, "orders@broker-x:0.*do not exist"),
        (
            {"startingOffsets": '{"orders": {"broker-a": {"0": 11, "1": -2}}}'},
            "after its end: orders@broker-a:0 from 11 to 10",
        ),
        ({"maxOffsetsPerTrigger": "5"}, None),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], text: str | None):
    if text is None:
        with pytest.warns(UserWarning, match="maxOffsetsPerTrigger"):
            planned(world(), **options)
        return
    with pytest.raises(OptionError, match=text):
        planned(world(), **options)


GROUP = {"startingOffsets": "group", "consumerGroup": "g"}


def test_a_groups_offset_beyond_the_end_is_data_loss():
    """The topic was created again, or its log was truncated: the options are right."""
    mq = world()
    mq.committed = {A0: 11, A1: 6}
    with pytest.raises(DataLossError, match="everything up to 11 was read") as failure:
        planned(mq, **GROUP)
    assert (failure.value.condition, failure.value.facts["queue"]) == ("OFFSET_WENT_BACK", str(A0))
    assert planned(mq, **GROUP, failOnDataLoss="false") == [(OffsetRange(A1, 6, 10),)]


def test_a_broker_that_builds_its_index_anew_is_given_time():
    mq = world()
    mq.committed = {A0: 12, A1: 6}
    mq.clock.on_sleep = lambda: mq.send(A0) if len(mq.logs[A0]) < 12 else None
    (ranges,) = planned(mq, **GROUP)
    assert ranges == (OffsetRange(A1, 6, 10),)


def test_an_end_before_the_groups_offset_makes_no_sense():
    mq = world()
    mq.committed = {A0: 8, A1: 6}
    with pytest.raises(OptionError, match="after its end: orders@broker-a:0 from 8 to 5"):
        planned(mq, **GROUP, endingOffsets='{"orders": {"broker-a": {"0": 5, "1": -1}}}')


def test_the_partition_that_spark_makes_up_for_none_has_no_rows():
    parsed = parse_options(
        SourceOptions, {"nameServer": "127.0.0.1:9876", "topic": "orders"}, where="read", environ={}
    )
    assert list(RocketMQBatchReader(parsed, read_schema(None)).read(InputPartition(None))) == []


def test_a_filter_that_brokers_cannot_parse_is_refused_at_planning():
    mq = world()
    with pytest.raises(OptionError, match="does not parse"):
        planned(mq, sqlFilter="amount >")
    assert "max_offsets" not in mq.calls


def test_a_filter_is_checked_at_each_broker_once():
    mq = world()
    assert planned(mq, sqlFilter="amount > 1") == planned(mq, sqlFilter="amount > 1")
    assert mq.checked == {"broker-a"}
