from __future__ import annotations

import time

import pytest
from pyspark.errors import PySparkException
from tests.spark.conftest import same_messages
from tests.support.patient import patient_producer
from tests.support.wait import BUSY

from pyspark_rocketmq.client import Admin, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.spark.read.schema import ALIASES, COLUMN_TYPES, DEFAULT_COLUMNS

ROW = ("brokerName", "queueId", "queueOffset", "string(body)")


def rows(df):
    return [tuple(row) for row in df.selectExpr(*ROW).collect()]


def test_reads_every_message_once(read, send, topic):
    name = topic(queues=4)
    expected = send(name, 1_000)
    same_messages(rows(read(name)), expected)


def test_an_empty_topic_is_an_empty_dataframe(read, topic):
    df = read(topic(queues=2))
    assert df.columns == list(DEFAULT_COLUMNS)
    assert df.collect() == []


def test_every_column_tells_what_the_message_is(read, client, topic):
    name = topic(queues=1)
    producer = patient_producer(client)
    (queue,) = client.write_queues(name)
    for tags, keys in (("a", "k1 k2"), (None, ()), ("b", "k3")):
        message = OutgoingMessage(name, b"\x00body\xff", tags=tags, keys=keys, properties={"n": "1"}, flag=-7)
        producer.send(message, queue)
    df = read(name, columns="*").orderBy("queueOffset")
    messages = list(
        read_messages(client, [OffsetRange(queue, 0, 3)], ReadOptions(consumer_group="TOOLS_CONSUMER"))
    )
    found = df.collect()
    assert len(found) == len(messages) == 3
    for row, message in zip(found, messages, strict=True):
        assert row.asDict() == {
            "topic": name, "brokerName": "broker-a", "queueId": 0, "queueOffset": message.queue_offset,
            "msgId": message.msg_id, "keys": message.keys, "tags": message.tags, "body": b"\x00body\xff",
            "bornTimestamp": row.bornTimestamp, "storeTimestamp": row.storeTimestamp,
            "properties": message.properties, "offsetMsgId": message.offset_msg_id, "flag": -7,
            "sysFlag": message.sys_flag, "bornHost": message.born_host, "storeHost": message.store_host,
            "reconsumeTimes": 0, "preparedTransactionOffset": 0, "bodyCrc": message.body_crc,
            "traceparent": None,
        }  # fmt: skip
    # A session's time zone decides how Python sees a timestamp: compare the moment.
    moments = df.selectExpr("unix_millis(bornTimestamp)", "unix_millis(storeTimestamp)").collect()
    assert [tuple(m) for m in moments] == [(m.born_timestamp, m.store_timestamp) for m in messages]
    assert abs(time.time() * 1000 - messages[0].born_timestamp) < 60_000


def test_columns_and_user_schema_choose(read, send, topic):
    name = topic(queues=1)
    send(name, 3)
    assert read(name, columns="queueOffset,body").columns == ["queueOffset", "body"]
    assert "properties" in read(name, includeProperties=True).columns
    assert read(name, columns="body", bodyAs="string").first().body.startswith(name)
    schema = "offset bigint not null, body string, timestamp timestamp, key string"
    df = read(name, schema=schema)
    assert df.columns == ["offset", "body", "timestamp", "key"]
    first = df.orderBy("offset").first()
    assert (first.offset, first.body, first.key) == (0, f"{name} 0", "k0")


def test_the_long_format_name_reads_too(spark, mq, send, topic):
    name = topic(queues=2)
    expected = send(name, 10)
    df = (
        spark.read.format("org.apache.rocketmq.spark").options(namesrvAddr=mq.name_server, topics=name).load()
    )
    assert df.columns == [*DEFAULT_COLUMNS, *ALIASES]
    same_messages(
        [tuple(r) for r in df.selectExpr("brokerName", "queueId", "offset", "string(body)").collect()],
        expected,
    )
    assert df.where("key != keys or timestamp != storeTimestamp").count() == 0
    everything = spark.read.format("org.apache.rocketmq.spark").options(
        namesrvAddr=mq.name_server, topics=name, columns="*"
    )
    assert everything.load().columns == [*COLUMN_TYPES, *ALIASES]


def test_several_topics_and_a_pattern(read, send, topic, spark, mq):
    one, other = topic(queues=1), topic(queues=2)
    expected = [*send(one, 5), *send(other, 7)]
    same_messages(rows(read(f"{one};{other}")), expected)
    pattern = spark.read.format("rocketmq").options(
        nameServer=mq.name_server, subscribePattern=f"({one}|{other})"
    )
    same_messages(rows(pattern.load()), expected)
    assigned = spark.read.format("rocketmq").options(
        nameServer=mq.name_server, assign=f'{{"{other}": {{"broker-a": [1]}}}}'
    )
    same_messages(
        rows(assigned.load()), [row for row in expected if row[3].startswith(other) and row[1] == 1]
    )


@pytest.mark.since_spark("4.1")
def test_a_dataframe_is_one_set_of_messages(read, send, topic):
    name = topic(queues=2)
    first = send(name, 10)
    df = read(name)
    assert df.count() == 10
    later = send(name, 10)
    same_messages(rows(df), first)
    assert df.join(df.select("msgId"), "msgId").count() == 10
    assert df.join(df.select("msgId"), "msgId", "left_anti").count() == 0
    same_messages(rows(read(name)), [*first, *later])


def test_tags_choose_messages(read, send, topic):
    name = topic(queues=2)
    wanted = send(name, 10, tags="a")
    send(name, 10, tags="b")
    wanted += send(name, 10, tags="c")
    same_messages(rows(read(name, tags="a || c", columns="brokerName,queueId,queueOffset,body")), wanted)


def test_temporary_view_in_sql(spark, mq, send, topic):
    name = topic(queues=2)
    send(name, 12)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW messages USING rocketmq "
        f"OPTIONS (nameServer '{mq.name_server}', topic '{name}')"
    )
    assert spark.sql("SELECT count(*) FROM messages WHERE queueId = 1").first()[0] == 6


def test_a_table_of_sparks_catalog_which_would_lose_its_options_is_refused(spark, mq):
    with pytest.raises(PySparkException, match=r"does not keep the options of a table: .*TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders USING rocketmq OPTIONS (nameServer '{mq.name_server}', topic 't')")


def test_explicit_offsets(read, send, topic):
    name = topic(queues=2)
    expected = send(name, 20)
    start = f'{{"{name}": {{"broker-a": {{"0": 3, "1": -2}}}}}}'
    end = f'{{"{name}": {{"broker-a": {{"0": 7, "1": -1}}}}}}'
    found = rows(read(name, startingOffsets=start, endingOffsets=end))
    same_messages(found, [row for row in expected if row[1] == 1 or 3 <= row[2] < 7])


def test_small_ranges_share_a_task_and_big_ones_are_split_on_request(read, send, topic):
    name = topic(queues=4)
    expected = send(name, 40)
    assert read(name).rdd.getNumPartitions() == 1
    assert read(name, partitionPerQueue=True).rdd.getNumPartitions() == 4
    split = read(name, minPartitions=8)
    assert split.rdd.getNumPartitions() == 8
    same_messages(rows(split), expected)
    for part in split.select("queueId", "queueOffset").rdd.glom().collect():
        by_queue = [[r.queueOffset for r in part if r.queueId == queue] for queue in range(4)]
        assert all(offsets == sorted(offsets) for offsets in by_queue)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingoffset: did you mean startingOffsets"),
        ({"pullBatchSize": "many"}, "option pullBatchSize is malformed"),
        ({"startingOffsets": "{broken"}, "JSON error at line 1"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"columns": "boddy"}, "did you mean 'body'"),
    ],
)
def test_wrong_options_are_told_at_load(read, options, text):
    with pytest.raises(PySparkException, match=text):
        read("any", **options)


def test_what_does_not_exist_is_told(read, send, topic):
    name = topic(queues=1)
    send(name, 1)
    with pytest.raises(PySparkException, match=r"the topic does not exist.*no-such-topic"):
        read("no-such-topic").count()
    with pytest.raises(PySparkException, match=r"broker-a:7.*do not exist"):
        read(name, startingOffsets=f'{{"{name}": {{"broker-a": {{"7": 0}}}}}}').count()
    with pytest.raises(PySparkException, match="a batch would start after its end"):
        read(name, startingOffsets=f'{{"{name}": {{"broker-a": {{"0": 9}}}}}}').count()
    with pytest.raises(PySparkException, match="column 'body' of the schema is int"):
        read(name, schema="body int").count()


def test_an_unreachable_name_server_is_told_in_seconds(spark):
    df = spark.read.format("rocketmq").options(nameServer="127.0.0.1:1", topic="any").load()
    begin = time.monotonic()
    with pytest.raises(PySparkException, match=r"no name server answers: 127\.0\.0\.1:1"):
        df.count()
    assert time.monotonic() - begin < 20 * BUSY


def test_a_broker_is_no_name_server(spark, mq):
    df = spark.read.format("rocketmq").options(nameServer=mq.broker().address, topic="any").load()
    with pytest.raises(PySparkException, match=r"Is this a name server\?"):
        df.count()


@pytest.mark.since_spark("4.1")  # 4.0 plans each action
def test_lost_messages_fail_the_read_unless_told_otherwise(read, send, topic, client):
    name = topic(queues=1)
    send(name, 5)
    strict, lenient = read(name), read(name, failOnDataLoss=False)
    assert strict.count() == lenient.count() == 5  # planned
    Admin(client).delete_topic(name)
    with pytest.raises(PySparkException, match="QUEUE_LOST"):
        strict.collect()
    assert lenient.collect() == []
