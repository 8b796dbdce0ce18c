"""The first five minutes: write a topic, read it as a table, and follow it as a stream.

    pyspark-rocketmq cluster start
    python examples/quickstart.py 127.0.0.1:9876

The documentation includes parts of this file.
"""

from __future__ import annotations

import sys

# --8<-- [start:session]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


def start_spark() -> SparkSession:
    """Start Spark. The source needs no registration."""
    return SparkSession.builder.master("local[2]").appName("quickstart").getOrCreate()


# --8<-- [end:session]


# --8<-- [start:write]
def write(spark: SparkSession, name_server: str, topic: str) -> None:
    """Send three orders. The topic is created if it does not exist."""
    orders = spark.createDataFrame(
        [
            ("order-1", "new", '{"product": "tent", "cents": 24900}'),
            ("order-2", "new", '{"product": "lamp", "cents": 1990}'),
            ("order-3", "paid", '{"product": "tent", "cents": 24900}'),
        ],
        "keys STRING, tags STRING, body STRING",
    )
    (
        orders.write.format("rocketmq")
        .options(nameServer=name_server, topic=topic, createTopic=True, topicQueues=4)
        .mode("append")
        .save()
    )


# --8<-- [end:write]


# --8<-- [start:read]
def read(spark: SparkSession, name_server: str, topic: str) -> DataFrame:
    """Read all current messages of the topic."""
    messages = spark.read.format("rocketmq").options(nameServer=name_server, topic=topic).load()
    return messages.selectExpr("queueId", "queueOffset", "keys", "tags", "string(body)")


# --8<-- [end:read]


# --8<-- [start:stream]
def follow(spark: SparkSession, name_server: str, topic: str, checkpoint: str) -> StreamingQuery:
    """Sum revenue by product while the query runs. After a restart it continues where it stopped."""
    return (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=topic, startingOffsets="earliest", consumerGroup="revenue")
        .load()
        .selectExpr("from_json(string(body), 'product STRING, cents LONG') AS o")
        .groupBy("o.product")
        .sum("o.cents")
        .withColumnRenamed("sum(cents)", "cents")
        .writeStream.format("memory")
        .queryName("revenue")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .start()
    )


# --8<-- [end:stream]


def main(name_server: str) -> None:
    """Run every step once."""
    spark = start_spark()
    write(spark, name_server, "quickstart")
    read(spark, name_server, "quickstart").show()
    query = follow(spark, name_server, "quickstart", "/tmp/quickstart-revenue")
    query.processAllAvailable()
    spark.table("revenue").show()
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
