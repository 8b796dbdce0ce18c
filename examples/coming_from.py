"""The introductory examples of other connectors, written with this package. A test runs each function.

The documentation shows them next to those of rocketmq-spark, rocketmq-flink and RocketMQ Streams.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.streaming import StreamingContext

from pyspark_rocketmq import ConsumerStrategy, OffsetRange, RocketMQUtils, TopicQueueId
from pyspark_rocketmq.spark import from_rocketmq, to_rocketmq


def print_bodies(ssc: StreamingContext, name_server: str, topic: str) -> None:
    stream = RocketMQUtils.createMQPullStream(
        ssc,
        "group",
        topic,
        ConsumerStrategy.earliest,
        autoCommit=True,
        forceSpecial=False,
        failOnDataLoss=False,
        options={"nameServer": name_server},
    )
    stream.map(lambda message: message.body).pprint()


def two_queues(sc: SparkContext, name_server: str, topic: str, until: int) -> list[bytes]:
    ranges = {
        TopicQueueId(topic, 0): [OffsetRange.create(topic, 0, "broker-a", 0, until)],
        TopicQueueId(topic, 1): [OffsetRange.create(topic, 1, "broker-a", 0, until)],
    }
    rdd = RocketMQUtils.createRDD(sc, "group", ranges, {"nameServer": name_server})
    return rdd.map(lambda message: message.body).collect()


def commit_after_output(ssc: StreamingContext, name_server: str, topic: str, group: str, save: Any) -> None:
    stream = RocketMQUtils.createMQPullStream(
        ssc, group, topic, ConsumerStrategy.earliest, autoCommit=False, options={"nameServer": name_server}
    )

    def output(rdd: Any) -> None:
        save(rdd.map(lambda message: message.body).collect())
        stream.commitAsync(rdd.offsetRanges)  # after the output has been stored

    stream.foreachRDD(output)


def sums_by_window(spark: SparkSession, name_server: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=topic, consumerGroup="groupName", startingOffsets="earliest")
        .load()
        .selectExpr("storeTimestamp", "from_json(string(body), 'key STRING, value DOUBLE') AS m")
        .withWatermark("storeTimestamp", "5 seconds")
        .selectExpr("window(storeTimestamp, '10 seconds') AS window", "m.*")
        .groupBy("window", "key")
        .agg({"value": "sum", "*": "count"})
        .withColumnsRenamed({"sum(value)": "sum", "count(1)": "total"})
    )


def provinces(
    spark: SparkSession, name_server: str, source: str, target: str, checkpoint: str
) -> StreamingQuery:
    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=source, consumerGroup="c002")
        .options(startingOffsets="group", groupOffsetReset="earliest")
        .load()
    )
    rows = from_rocketmq(messages, "key-value", schema="id STRING, address STRING")
    found = rows.selectExpr("id", "element_at(split(address, ' +'), -1) AS province")
    return (
        to_rocketmq(found, "json", keys="id")
        .writeStream.format("rocketmq")
        .options(nameServer=name_server, topic=target, checkpointLocation=checkpoint)
        .start()
    )


def source_to_sink(
    spark: SparkSession, name_server: str, source: str, target: str, checkpoint: str
) -> StreamingQuery:
    orders = (
        spark.readStream.format("org.apache.rocketmq.spark")
        .option("namesrvAddr", name_server)
        .option("consumerGroup", "test_group")
        .option("topics", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        orders.select("keys", "body")
        .writeStream.format("org.apache.rocketmq.spark")
        .option("namesrvAddr", name_server)
        .option("producerGroup", "result_group")
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def tables(spark: SparkSession, name_server: str, source: str) -> DataFrame:
    messages = spark.read.format("rocketmq").options(nameServer=name_server, topic=source).load()
    return from_rocketmq(
        messages, "json", schema="user_id BIGINT, item_id BIGINT, behavior STRING", keep=["topic"]
    )


def from_kafka(
    spark: SparkSession, name_server: str, source: str, target: str, checkpoint: str
) -> StreamingQuery:
    values = (
        spark.readStream.format("rocketmq")  # was "kafka"
        .option("nameServer", name_server)  # was kafka.bootstrap.servers
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
        .selectExpr("CAST(keys AS STRING) AS key", "CAST(body AS STRING) AS value")  # was key, value
    )
    return (
        values.selectExpr("key", "upper(value) AS body")  # was value
        .writeStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .start()
    )
