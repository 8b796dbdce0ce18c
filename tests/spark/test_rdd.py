from __future__ import annotations

import pickle

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, TaskContext
from pyspark.errors import PythonException
from tests.spark.conftest import same_messages

from pyspark_rocketmq.client import Admin
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.dstream import (
    HasOffsetRanges,
    LocationStrategies,
    RocketMQUtils,
    TopicQueueId,
    explain_missing_ranges,
)
from pyspark_rocketmq.errors import NoOffsetRangesError, OptionError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange
from pyspark_rocketmq.spark.features import FEATURES

TASK_ERROR = PythonException if FEATURES.has("4.2") else Py4JJavaError


@pytest.fixture
def rdd_of(spark, mq):
    """``rdd_of(ranges, ...)``: an RDD of the shared broker."""

    def make(ranges, *args, options=None, **keywords):
        given = {"nameServer": mq.name_server, **(options or {})}
        return RocketMQUtils.createRDD(spark.sparkContext, "rdd-test", ranges, given, *args, **keywords)

    return make


@pytest.fixture
def whole(send):
    """``whole(topic)``: the ranges of everything in a topic."""
    return lambda topic: [OffsetRange(queue, 0, end) for queue, end in send.ends(topic).items()]


def row(message: Message):
    return (message.broker_name, message.queue_id, message.queue_offset, message.body.decode())


def test_an_rdd_is_the_messages_of_its_ranges_in_the_order_of_each_queue(rdd_of, whole, send, topic, client):
    name = topic(queues=4)
    expected = send(name, 400)
    ranges = whole(name)
    rdd = rdd_of(ranges)
    assert isinstance(rdd, HasOffsetRanges)
    assert rdd.offsetRanges == tuple(ranges)
    assert rdd.getNumPartitions() == 4
    parts = rdd.glom().collect()
    for part, wanted in zip(parts, ranges, strict=True):
        assert [m.queue_offset for m in part] == list(range(wanted.until_offset))
    same_messages([row(m) for part in parts for m in part], expected)
    one = read_messages(client, ranges[:1], ReadOptions(consumer_group="rdd-test"))
    assert parts[0] == list(one), "a field of the messages got lost on the way"


def test_a_message_handler_runs_in_the_reader(rdd_of, whole, send, topic):
    name = topic(queues=2)
    send(name, 10)
    pairs = rdd_of(whole(name), messageHandler=RocketMQUtils.keyValue)
    assert dict(pairs.collect()) == {f"k{n}": f"{name} {n}".encode() for n in range(10)}
    assert sorted(pairs.mapValues(len).keys().collect()) == sorted(f"k{n}" for n in range(10))


def test_ranges_by_topic_and_queue_id_as_rocketmq_spark_has_them(rdd_of, whole, send, topic):
    name = topic(queues=2)
    send(name, 10)
    by_id = {TopicQueueId(name, r.queue_id): [r] for r in whole(name)}
    rdd = rdd_of(by_id)
    assert rdd.offsetRanges.toDict() == by_id
    ranges = rdd.offsetRanges

    def look_up(messages):
        mine = ranges[TaskContext.get().partitionId()]
        found = list(messages)
        assert {(m.topic, m.queue_id) for m in found} == {(mine.topic, mine.queue_id)}
        yield ranges.get(TopicQueueId(mine.topic, mine.queue_id)) == (mine,), len(found) == len(mine)

    assert rdd.mapPartitions(look_up).collect() == [(True, True)] * 2
    rdd.foreachPartition(look_up)
    with pytest.raises(OptionError, match="filed under another queue"):
        rdd_of({TopicQueueId(name, 1): by_id[TopicQueueId(name, 0)]})


def test_the_look_up_of_rocketmq_spark_s_readme_is_refused_where_it_names_another_queue(
    rdd_of, whole, send, topic
):
    name = topic(queues=2)
    send(name, 4)
    first, second = whole(name)
    rdd = rdd_of([OffsetRange(first.queue, 1, 1), second])  # queue 0 has no news
    ranges = rdd.offsetRanges

    def look_up(messages):
        yield ranges.get(TopicQueueId(name, TaskContext.get().partitionId()))

    for partitions in (rdd, rdd.recordBatches()):
        with pytest.raises(TASK_ERROR, match="a partition's number is no queue id"):
            partitions.mapPartitions(look_up).collect()
    same = rdd_of([first, second])
    ranges = same.offsetRanges
    assert same.mapPartitions(look_up).collect() == [(first,), (second,)]


def test_empty_ranges_have_no_task(rdd_of, whole, send, topic):
    name = topic(queues=3)
    send(name, 6)
    first, second, third = whole(name)
    rdd = rdd_of([OffsetRange(first.queue, 1, 1), second, OffsetRange(third.queue, 1, 2)])
    assert rdd.getNumPartitions() == 2
    assert [r.queue for r in rdd.offsetRanges] == [second.queue, third.queue, first.queue]
    assert [m.queue_offset for m in rdd.collect()] == [0, 1, 1]
    nothing = rdd_of([OffsetRange(first.queue, 1, 1)])
    assert nothing.getNumPartitions() == 0
    assert nothing.collect() == []
    assert nothing.count() == 0
    assert nothing.isEmpty()


def test_counts_without_reading_where_that_is_exact(rdd_of, whole, send, topic):
    name = topic(queues=2)
    send(name, 10, tags="a")
    send(name, 6, tags="b")
    ranges = whole(name)

    def never(_):
        raise AssertionError("the messages were read")

    assert rdd_of(ranges, messageHandler=never).count() == 16
    assert rdd_of(ranges, options={"tags": "b"}).count() == 6
    beyond = [OffsetRange(r.queue, r.from_offset, r.until_offset + 5) for r in ranges]
    assert rdd_of(beyond, options={"failOnDataLoss": "false"}).count() == 16


def test_record_batches_and_a_dataframe_hold_the_same(rdd_of, whole, send, topic, spark):
    name = topic(queues=2)
    expected = send(name, 50)
    rdd = rdd_of(whole(name))
    batches = rdd.recordBatches(["brokerName", "queueId", "queueOffset", "body"], bodyAs="string").collect()
    same_messages([tuple(r.values()) for batch in batches for r in batch.to_pylist()], expected)
    df = rdd.toDF(spark).selectExpr("brokerName", "queueId", "queueOffset", "string(body)")
    same_messages([tuple(r) for r in df.collect()], expected)
    some = rdd_of([OffsetRange(r.queue, 3, 5) for r in whole(name)])
    assert some.toDF(spark, columns="queueOffset").distinct().count() == 2
    empty = rdd_of([OffsetRange(whole(name)[0].queue, 2, 2)])
    assert empty.toDF(spark).collect() == []
    with pytest.raises(OptionError, match="one range of a queue"):
        rdd_of([whole(name)[0], whole(name)[0]]).toDF(spark)


def test_fixed_locations_reach_spark(rdd_of, whole, send, topic):
    name = topic(queues=2)
    send(name, 4)
    first, second = whole(name)
    fixed = LocationStrategies.PreferFixed({first.queue: "host-a", TopicQueueId(name, 1): "host-b"})
    base = rdd_of([first, second], fixed).prev._jrdd.rdd()
    places = [base.preferredLocations(part).mkString() for part in base.partitions()]
    assert places == ["host-a", "host-b"]
    anywhere = rdd_of([first], LocationStrategies.PreferConsistent()).prev._jrdd.rdd()
    assert [anywhere.preferredLocations(part).size() for part in anywhere.partitions()] == [0]


def test_ranges_are_gone_after_another_step_and_the_error_says_why(rdd_of, whole, send, topic, monkeypatch):
    monkeypatch.setattr(RDD, "offsetRanges", None, raising=False)  # removed again at the end
    explain_missing_ranges()
    name = topic(queues=1)
    send(name, 2)
    rdd = rdd_of(whole(name))
    for later in (rdd.map(row), rdd.repartition(2), rdd.union(rdd)):
        with pytest.raises(NoOffsetRangesError, match="in the first transform or foreachRDD"):
            _ = later.offsetRanges
        assert not hasattr(later, "offsetRanges")


def test_lost_messages_fail_the_rdd_unless_told_otherwise(rdd_of, whole, send, topic, client):
    name = topic(queues=1)
    send(name, 5)
    ranges = whole(name)
    Admin(client).delete_topic(name)
    with pytest.raises(TASK_ERROR, match="QUEUE_LOST"):
        rdd_of(ranges).collect()
    assert rdd_of(ranges, options={"failOnDataLoss": "false"}).collect() == []


def test_wrong_arguments_are_told(rdd_of):
    empty = OffsetRange(MessageQueue("t", "b", 0), 0, 0)
    with pytest.raises(OptionError, match=r"unknown option pull\.max\.speed: did you mean pull"):
        rdd_of([empty], options={"pull.max.speed": 1})
    with pytest.raises(OptionError, match="at least one offset range"):
        rdd_of([])
    with pytest.raises(OptionError, match="0 <= from_offset <= until_offset"):
        OffsetRange.create("t", 0, "b", 5, 4)
    assert pickle.loads(pickle.dumps(OffsetRange.create("t", 0, "b", 1, 4))).until_offset == 4
