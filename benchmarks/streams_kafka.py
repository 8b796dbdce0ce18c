"""Check a pipeline from Kafka to Kafka through windows, with a real Kafka and Spark's connector.

``python -m benchmarks.streams_kafka`` downloads both (once) and runs for about a minute. The exit status is
not 0 if the sums are wrong. It is here, not in the tests, because of its downloads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.kafka import kafka, spark_settings
from benchmarks.workers.spark import session
from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow

START_MS = 1_900_000_000_000
KEYS = 10


def main() -> None:
    """Run the pipeline, stop it halfway, and compare its sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    args = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="streams-kafka-") as folder:
        os.environ["PYSPARK_ROCKETMQ_STREAMS_HOME"] = folder
        with kafka(Path(folder), partitions=2, heap="256m") as broker:
            print(f"Kafka after {time.monotonic() - begin:.0f} s")
            spark = session(spark_settings())
            print(f"Spark with its connector after {time.monotonic() - begin:.0f} s")
            try:
                found = run(spark, broker.servers, args.rows)
            finally:
                spark.stop()
    expected = {f"k{key}": sum(range(key, args.rows, KEYS)) for key in range(KEYS)}
    right = found == expected
    print(f"{len(found)} sums, {'right' if right else f'wrong: {found}'}, {time.monotonic() - begin:.0f} s")
    sys.exit(not right)


def run(spark: SparkSession, servers: str, rows: int) -> dict[str, float]:
    """Run a pipeline on one half of the rows, then on the other. Return the sums in Kafka."""
    half = rows // 2
    for begin, end in ((0, half), (half, rows)):
        put(spark, servers, [record(n, n * 10_000 // rows) for n in range(begin, end)])
        if end == rows:
            put(spark, servers, [record(0, 60_000, key="z") for _ in range(4)])  # closes the window
        source = StreamBuilder.dataStream("benchmarks", "kafka", spark)
        query = (
            source.fromKafka(servers, "in", "kafka", True)
            .window(TumblingWindow.of(Time.seconds(10), "time"))
            .groupBy("key")
            .sum("value", "total")
            .toDataStream()
            .toKafka(servers, "out")
            .asyncStart(availableNow=True)
        )
        assert query is not None
        query.awaitTermination()
    read = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": servers}, subscribe="out").load()
    results = read.selectExpr("string(key) AS key", "string(value) AS value").collect()
    assert all(json.loads(row.value)["key"] in row.key.split("|") for row in results)
    return {value["key"]: value["total"] for value in (json.loads(row.value) for row in results)}


def record(number: int, at_ms: int, key: str | None = None) -> str:
    """Return a row as JSON."""
    body = {"key": key or f"k{number % KEYS}", "value": number, "time": START_MS + at_ms}
    return json.dumps(body)


def put(spark: SparkSession, servers: str, bodies: list[str]) -> None:
    """Write texts to the topic."""
    df = spark.createDataFrame([(body,) for body in bodies], "value string")
    df.write.format("kafka").options(**{"kafka.bootstrap.servers": servers}, topic="in").save()


if __name__ == "__main__":
    main()
