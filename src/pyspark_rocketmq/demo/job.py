"""The Spark job of the demo, as a user writes it."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, lit, unix_millis, window
from pyspark.sql.functions import sum as sum_of

from pyspark_rocketmq.spark.features import FEATURES

__all__ = ["read_orders", "revenue"]

ORDER: Final = "orderId STRING, orderTime TIMESTAMP, product STRING, quantity INT, priceCents INT"


def read_orders(spark: SparkSession, name_server: str, topic: str, *, most: int) -> DataFrame:
    """Read the bodies of a topic's messages as a stream, at most ``most`` per micro-batch (Spark 4.2)."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", most if FEATURES.has("4.2") else -1)
        .option("columns", "body")
        .option("bodyAs", "string")
        .load()
    )


def revenue(messages: DataFrame) -> DataFrame:
    """Sum orders and revenue by product and quarter of an hour. Drop orders more than 10 minutes late."""
    return (
        messages.select(from_json("body", ORDER).alias("order"))
        .select("order.*")
        .withWatermark("orderTime", "10 minutes")
        .groupBy(window("orderTime", "15 minutes"), "product")
        .agg(
            count(lit(1)).alias("orders"),
            sum_of(col("quantity") * col("priceCents")).alias("cents"),
        )
        .select(unix_millis("window.start").alias("windowStart"), "product", "orders", "cents")
    )
