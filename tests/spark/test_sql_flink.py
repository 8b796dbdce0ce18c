"""rocketmq-flink's code-level API on a real broker: its guide's example, start policies and properties."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from tests.support.patient import PATIENCE_MS, patient_producer
from tests.support.topics import TopicFactory, fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.sql.flink import (
    DefaultTopicSelector,
    KeyValueDeserializationSchema,
    KeyValueSerializationSchema,
    OffsetResetStrategy,
    RocketMQConfig,
    RocketMQSink,
    RocketMQSourceFunction,
    SimpleKeyValueDeserializationSchema,
    SimpleKeyValueSerializationSchema,
    SimpleStringDeserializationSchema,
    SimpleTopicSelector,
    SimpleTupleDeserializationSchema,
    TopicSelector,
)

Source = Callable[..., RocketMQSourceFunction]


@pytest.fixture
def source(mq: DevCluster, group: str) -> Source:
    """``source(topic, schema)``: a source with the guide's properties."""

    def make(
        topic: str, schema: KeyValueDeserializationSchema | None = None, **props: str
    ) -> RocketMQSourceFunction:
        given = {
            RocketMQConfig.NAME_SERVER_ADDR: mq.name_server,
            RocketMQConfig.CONSUMER_GROUP: group,
            RocketMQConfig.CONSUMER_TOPIC: topic,
        }
        return RocketMQSourceFunction(schema or SimpleStringDeserializationSchema(), given | props)

    return make


@pytest.fixture
def send(client: Client) -> Callable[..., None]:
    """Send numbered messages to each queue of a topic; return when readers see them."""

    def send_numbered(topic: str, count: int, first: int = 0) -> None:
        queues, numbers = client.write_queues(topic), range(first, first + count)
        bodies = [(f"{queue.queue_id}:{number}", f"k{number}") for number in numbers for queue in queues]
        fill(client, topic, [OutgoingMessage(topic, body.encode(), keys=key) for body, key in bodies])

    return send_numbered


def values(rows: DataFrame) -> list[str]:
    return sorted(row.value for row in rows.collect())


def test_the_guides_example_from_source_to_sink(
    spark: SparkSession,
    mq: DevCluster,
    topic: TopicFactory,
    source: Source,
    client: Client,
    read,
    tmp_path: Path,
) -> None:
    first, second = topic(), topic()
    rows = source(first, SimpleKeyValueDeserializationSchema("id", "address"))
    rows.setStartFromGroupOffsets(OffsetResetStrategy.EARLIEST)
    patient_producer(client).send(OutgoingMessage(first, b"No. 1 Main Street Hangzhou Zhejiang", keys="7"))
    eventually(lambda: sum(client.max_offsets(client.read_queues(first)).values()) == 1)
    result = rows.load(spark).select(
        F.lit(second).alias("topic"),
        F.to_json(F.struct("id", F.element_at(F.split("address", r"\s+"), -1).alias("province"))).alias(
            "body"
        ),
    )
    props = {RocketMQConfig.NAME_SERVER_ADDR: mq.name_server, "sendTimeoutMs": str(PATIENCE_MS)}
    sink = RocketMQSink(props).withBatchFlushOnCheckpoint(True)
    query = (
        sink.writeStream(result)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    eventually(lambda: sum(client.max_offsets(client.read_queues(second)).values()) == 1)
    assert [row.body for row in read(second, bodyAs="string").collect()] == [
        '{"id":"7","province":"Zhejiang"}'
    ]


def test_the_five_start_policies(
    spark: SparkSession, topic: TopicFactory, source: Source, client: Client, send, group: str
) -> None:
    name = topic(queues=2)
    send(name, 2)
    moment = int(time.time() * 1000) + 1
    eventually(lambda: time.time() * 1000 > moment + 1)
    send(name, 2, first=2)
    everything = [f"{queue}:{number}" for queue in (0, 1) for number in range(4)]
    assert values(source(name).setStartFromEarliest().read(spark)) == everything
    late = source(name).setStartFromTimeStamp(moment)
    assert values(late.read(spark)) == ["0:2", "0:3", "1:2", "1:3"]
    nothing = source(name).setStartFromGroupOffsets(OffsetResetStrategy.LATEST)
    assert values(nothing.read(spark)) == []
    again = source(name).setStartFromGroupOffsets(OffsetResetStrategy.EARLIEST)
    assert values(again.read(spark)) == everything
    one, other = client.read_queues(name)
    client.commit_offsets(group, {one: 1})
    committed = [f"{one.queue_id}:{number}" for number in (1, 2, 3)]
    assert values(nothing.read(spark)) == committed
    # Queues that are not listed start at the group's offset.
    some = source(name).setStartFromSpecificOffsets({other: 3})
    assert values(some.read(spark)) == sorted([*committed, f"{other.queue_id}:3"])


def test_starting_at_the_latest_offsets_reads_what_comes_later(
    spark: SparkSession, topic: TopicFactory, source: Source, send, tmp_path: Path
) -> None:
    name = topic(queues=1)
    send(name, 2)
    seen: list[str] = []
    query = (
        source(name)
        .setStartFromLatest()
        .load(spark)
        .writeStream.foreachBatch(lambda rows, _: seen.extend(values(rows)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        eventually(lambda: query.lastProgress is not None, 60, what="a first look")
        send(name, 1, first=2)
        eventually(lambda: seen == ["0:2"], 60, what="the later message")
    finally:
        query.stop()


class Sizes(KeyValueDeserializationSchema):
    """A schema of a user's own: leaves odd numbers out."""

    def deserializeKeyAndValue(self, key, value):
        return None if value.endswith(b"1") else {"id": key.decode(), "bytes": len(value)}

    def getProducedType(self):
        return "id STRING, bytes INT"


def test_a_schema_of_ones_own_and_tuples(
    spark: SparkSession, topic: TopicFactory, source: Source, send
) -> None:
    name = topic(queues=1)
    send(name, 3)

    class Local(Sizes):
        """Defined in a function, so that workers get it by value."""

        def deserializeKeyAndValue(self, key, value):
            return None if value.endswith(b"1") else (key.decode(), len(value))

    rows = source(name, Local()).setStartFromEarliest().read(spark)
    assert sorted(tuple(row) for row in rows.collect()) == [("k0", 3), ("k2", 3)]
    pairs = source(name, SimpleTupleDeserializationSchema()).setStartFromEarliest().read(spark)
    assert sorted(tuple(row) for row in pairs.collect()) == [("k0", "0:0"), ("k1", "0:1"), ("k2", "0:2")]


def test_selectors_and_schemas_of_ones_own_write_what_the_native_ones_do(
    spark: SparkSession, mq: DevCluster, topic: TopicFactory, read, client: Client
) -> None:
    native, slow, other = topic(), topic(), topic()
    rows = spark.createDataFrame(
        [("1", "a", None, "x"), ("2", "b", other, None), (None, "c", "", "")],
        "key STRING, value STRING, t STRING, g STRING",
    )

    class Schema(KeyValueSerializationSchema):
        def serializeKey(self, row):
            return None if row["key"] is None else row["key"].encode()

        def serializeValue(self, row):
            return row["value"].encode()

    class Selector(TopicSelector):
        def getTopic(self, row):
            return row["t"] or slow

        def getTag(self, row):
            return row["g"] or "none"

    props = {
        RocketMQConfig.NAME_SERVER_ADDR: mq.name_server,
        RocketMQConfig.PRODUCER_GROUP: "p",
        "sendTimeoutMs": str(PATIENCE_MS),
    }
    simple = SimpleTopicSelector("t", native, "g", "none")
    RocketMQSink(SimpleKeyValueSerializationSchema(), simple, props).write(rows).save()
    RocketMQSink(Schema(), Selector(), props).withAsync(True).write(rows).save()
    eventually(lambda: sum(client.max_offsets(client.read_queues(other)).values()) == 2)

    def messages(name: str) -> list[tuple[str, ...]]:
        return sorted((row.body, str(row["keys"]), row.tags) for row in read(name, bodyAs="string").collect())

    assert messages(native) == messages(slow) == [("a", "1", "x"), ("c", "None", "none")]
    assert messages(other) == [("b", "2", "none")] * 2
    RocketMQSink(SimpleKeyValueSerializationSchema(None), DefaultTopicSelector(other, "T"), props).write(
        rows
    ).save()
    eventually(lambda: sum(client.max_offsets(client.read_queues(other)).values()) == 5)
    assert ("c", "None", "T") in messages(other)


def test_python_and_spark_agree_on_the_simple_ones(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("1", "a", "t", ""), (None, "b", None, "g")], "key string, value string, t string, g string"
    )
    schema, selector = SimpleKeyValueSerializationSchema(), SimpleTopicSelector("t", "d", "g", "")
    native = RocketMQSink(schema, selector, {"nameServer": "127.0.0.1:1"}).messages(rows).collect()
    slow = [
        (
            selector.getTopic(row),
            selector.getTag(row) or None,
            None if (key := schema.serializeKey(row)) is None else key.decode(),
            schema.serializeValue(row),
        )
        for row in (row.asDict() for row in rows.collect())
    ]
    assert [(row.topic, row.tags, row["keys"], bytes(row.body)) for row in native] == slow


def test_what_is_wrong_is_said_at_once(source: Source) -> None:
    with pytest.raises(OptionError, match=r"did you mean consumer\.tag"):
        source("t", **{"consumer.tags": "x"})
    with pytest.raises(OptionError, match="RocketMQSink takes"):
        RocketMQSink(SimpleKeyValueSerializationSchema(), {})  # type: ignore[call-overload]
    with pytest.raises(OptionError, match="a row needs columns"):
        SimpleKeyValueDeserializationSchema(None, None)


def test_the_guides_properties_are_all_understood(mq: DevCluster) -> None:
    shared = {"nameserver.address": mq.name_server, "nameserver.poll.interval": 30000}
    consumer = shared | {
        "consumer.group": fresh_name("g"),
        "consumer.topic": "t",
        "consumer.tag": "*",
        "consumer.offset.persist.interval": 5000,
        "consumer.batch.size": 32,
        "consumer.delay.when.message.not.found": 10,
    }
    producer = shared | {"producer.group": "p", "producer.retry.times": 3, "producer.timeout": 3000}
    RocketMQSourceFunction(SimpleStringDeserializationSchema(), consumer)
    RocketMQSink(producer)
    with pytest.warns(UserWarning, match="without effect"):
        RocketMQSourceFunction(
            SimpleStringDeserializationSchema(),
            consumer | {"brokerserver.heartbeat.interval": 30000, "consumer.pull.thread.pool.size": 20},
        )
