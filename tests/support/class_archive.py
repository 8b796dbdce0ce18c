"""``python -m tests.support.class_archive`` creates the archive of Spark's classes, as `make setup` does."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from tests.support.lean_jvm import ARCHIVE, LEAN, QUIET
from tests.support.wait import eventually

from pyspark_rocketmq.demo.job import read_orders, revenue
from pyspark_rocketmq.demo.orders import orders
from pyspark_rocketmq.demo.stream import RevenueStream
from pyspark_rocketmq.testing import MockBroker


def create_archive() -> None:
    """Run a short job of every kind of query, and keep the classes that its JVM has loaded."""
    draft = ARCHIVE.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*LEAN, f"-XX:ArchiveClassesAtExit={draft}", *QUIET])
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {"spark.ui.port": "0", "spark.sql.shuffle.partitions": "1", "spark.log.level": "ERROR"}
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    rows = spark.range(100).selectExpr("id % 7 AS key", "timestamp_seconds(id) AS at")
    rows.groupBy("key").count().collect()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rows.txt").write_text("one row")
        query = (
            spark.readStream.text(folder)
            .selectExpr("value", "current_timestamp() AS at")
            .withWatermark("at", "1 second")
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(lambda batch, _: batch.collect())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        _count_orders(spark, Path(folder))
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.proc.stdin.close()  # at the end of its input the JVM ends, and writes the archive
    code = gateway.proc.wait(timeout=600)
    assert code == 0, f"the JVM ended with {code}: an archive that is cut off would crash every other JVM"
    draft.rename(ARCHIVE)


def _count_orders(spark: SparkSession, folder: Path) -> None:
    """Run the job of the demo: a source in Python, bodies of JSON, windows, Python for each batch."""
    with MockBroker({"orders": 1}) as mq:
        for order in orders(10, start_ms=0):
            mq.send(order.to_message("orders"))
        frame = revenue(read_orders(spark, mq.name_server, "orders", most=10))
        with RevenueStream(frame, folder / "checkpoint") as stream:
            eventually(lambda: stream.totals, what="the first result")


if __name__ == "__main__":
    create_archive()
