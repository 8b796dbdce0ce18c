"""A topic of JSON orders to a Delta or Iceberg table, exactly once, with compaction and schema evolution.

    NAMESRV_ADDR=127.0.0.1:9876 python examples/lakehouse/orders_to_table.py delta /lake orders

Needs Spark 4.1 and the JARs that it names, which Spark fetches from Maven Central. Run it again to read what
came since. A run that dies is repeated by the next one: the source plans the same batch, and a table that has
it already skips it.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "id BIGINT, product STRING, amount DOUBLE"
"""What a body has. A run with more columns adds them to the table; older rows have NULL there."""

PACKAGES = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
SMALL_FILES = 2
"""A table that has more files than this is compacted after a run."""


def create_session(kind: str, lake: str) -> SparkSession:
    """Return a session with the catalog ``lake`` (Iceberg), or with Delta's own."""
    settings = {"spark.jars.packages": PACKAGES[kind], "spark.ui.enabled": "false"}
    if kind == "delta":
        settings |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    else:
        settings |= {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": lake,
            # A streaming query has its own session. This one would show the table without its commits.
            "spark.sql.catalog.lake.cache-enabled": "false",
        }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def table_name(kind: str, lake: str, table: str) -> str:
    """Return the table's name in SQL."""
    return f"delta.`{lake}/{table}`" if kind == "delta" else f"lake.shop.{table}"


def read_orders(spark: SparkSession, topic: str, schema: str) -> DataFrame:
    """Return the orders of a topic, as a stream, with their position."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .option("nameServer", os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))
        .load()
    )
    order = F.from_json(F.col("body").cast("string"), schema)
    position = ("brokerName", "queueId", "queueOffset")
    return messages.select(order.alias("order"), *position).select("order.*", *position)


def create_or_widen(spark: SparkSession, kind: str, name: str, orders: DataFrame) -> None:
    """Create the table, or add the columns that it lacks."""
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in orders.schema)
    if kind == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING {kind}")
    known = set(spark.table(name).columns)
    for field in orders.schema:
        if field.name not in known:
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({field.name} {field.dataType.simpleString()})")


def in_order(spark: SparkSession, name: str, orders: DataFrame) -> DataFrame:
    """Return the orders with the table's columns in its order, as Iceberg requires."""
    known = set(orders.columns)
    return orders.select(
        *(
            F.col(field.name) if field.name in known else F.lit(None).cast(field.dataType).alias(field.name)
            for field in spark.table(name).schema
        )
    )


def append(kind: str, lake: str, table: str, orders: DataFrame) -> None:
    """Append what the topic has now. Both tables remember the query's batch and skip one that they have."""
    writer = orders.writeStream.format(kind).outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{lake}/_checkpoints/{table}")
    if kind == "delta":
        query = writer.start(f"{lake}/{table}")
    else:
        query = writer.toTable(table_name(kind, lake, table))
    query.awaitTermination()


def count_files(spark: SparkSession, kind: str, name: str) -> int:
    """Return the number of the table's data files."""
    if kind == "delta":
        return int(spark.sql(f"DESCRIBE DETAIL {name}").select("numFiles").collect()[0][0])
    return spark.table(f"{name}.files").count()


def compact(spark: SparkSession, kind: str, table: str, name: str) -> None:
    """Rewrite small files as large ones. Readers see the same rows meanwhile."""
    if kind == "delta":
        spark.sql(f"OPTIMIZE {name}")
    else:
        options = "options => map('min-input-files', '2')"
        spark.sql(f"CALL lake.system.rewrite_data_files(table => 'shop.{table}', {options})")


def main(kind: str, lake: str, topic: str, schema: str = SCHEMA) -> None:
    """Read what is new, and compact the table if it has many files."""
    spark = create_session(kind, lake)
    name = table_name(kind, lake, topic)
    orders = read_orders(spark, topic, schema)
    create_or_widen(spark, kind, name, orders)
    append(kind, lake, topic, in_order(spark, name, orders))
    before = count_files(spark, kind, name)
    if before > SMALL_FILES:
        compact(spark, kind, topic, name)
    rows = spark.table(name)
    print(f"{rows.count()} orders, {before} files, {count_files(spark, kind, name)} after compaction")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
