"""The latency from the producer's send call to ``foreachBatch`` in the driver's Python.

A producer sends single messages at a steady rate, with the time in each body. A query on the same machine,
so with the same clock, computes the difference. Spark's Kafka source takes its turn in the same session, each
source with Spark's defaults and with the options for low latency. A run ends when everything that was sent
has arrived. ``python -m benchmarks.latency`` starts everything it needs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import Producer as KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import RESULTS
from benchmarks.kafka import kafka, spark_settings
from benchmarks.processes import machine_facts
from benchmarks.topics import bench
from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer, SendPipeline
from pyspark_rocketmq.client.send.message_encoding import encode_many

LOW_LATENCY: Final = {
    "asyncProgressTrackingEnabled": "true",
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",  # for foreachBatch, see docs/performance.md
}
"""Options of the query that shorten a micro-batch."""

QUEUES: Final = 4
_TICK_S: Final = 0.005
_BODY: Final = "{:>20}" + "." * 80


class Log(Protocol):
    """A message log with a source for it."""

    def create(self, topic: str) -> None:
        """Create a topic with `QUEUES` queues."""

    def load(self, spark: SparkSession, topic: str) -> DataFrame:
        """Return a stream with the column ``body``."""

    def send(self, topic: str, rate: int, seconds: float) -> int:
        """Send at a steady rate. Return the number of messages."""


class RocketMQ:
    """Our source."""

    def __init__(self, client: Client, name_server: str) -> None:
        self._client = client
        self._name_server = name_server

    def create(self, topic: str) -> None:
        """Create a topic."""
        Admin(self._client).create_topic(topic, queues=QUEUES)

    def load(self, spark: SparkSession, topic: str) -> DataFrame:
        """Return the bodies."""
        reader = spark.readStream.format("rocketmq").option("nameServer", self._name_server)
        return reader.options(topic=topic, startingOffsets="earliest", columns="body").load()

    def send(self, topic: str, rate: int, seconds: float) -> int:
        """Send with our producer."""
        producer = Producer(self._client)
        with SendPipeline(producer, max_in_flight=64) as pipeline:

            def submit(body: bytes, due: int) -> None:
                messages = [OutgoingMessage(topic, body)] * due
                for outcome in pipeline.submit(encode_many(messages, producer.ids)):
                    if outcome.error is not None:
                        raise outcome.error

            count = steadily(submit, rate, seconds)
            for outcome in pipeline.flush():
                if outcome.error is not None:
                    raise outcome.error
        return count


class Kafka:
    """Spark's Kafka source."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def create(self, topic: str) -> None:
        """Do nothing: the broker creates a topic when it is written."""

    def load(self, spark: SparkSession, topic: str) -> DataFrame:
        """Return the bodies."""
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._servers)
        return reader.options(subscribe=topic, startingOffsets="earliest").load().selectExpr("value AS body")

    def send(self, topic: str, rate: int, seconds: float) -> int:
        """Send with librdkafka, each message at once."""
        settings = {"bootstrap.servers": self._servers, "linger.ms": 0, "partitioner": "random"}
        producer = KafkaProducer(settings)
        failed: list[object] = []

        def delivered(error: object, _: KafkaMessage) -> None:
            if error is not None:
                failed.append(error)

        def submit(body: bytes, due: int) -> None:
            for _ in range(due):
                producer.produce(topic, body, on_delivery=delivered)
            producer.poll(0)

        count = steadily(submit, rate, seconds)
        if (left := producer.flush(30)) or failed:
            raise RuntimeError(f"{left} messages were not sent, {len(failed)} failed: {failed[:1]}")
        return count


def steadily(submit: Callable[[bytes, int], None], rate: int, seconds: float) -> int:
    """Submit every few milliseconds the messages due. Return their number."""
    tick = threading.Event()
    count, begin = 0, time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        due = int(passed * rate) - count
        if due:
            submit(_BODY.format(int(time.time() * 1000)).encode(), due)
            count += due
        tick.wait(_TICK_S)
    return count


def main() -> None:
    """Measure each rate and contender in turn and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="1000,10000", help="messages a second")
    parser.add_argument("--seconds", type=float, default=60, help="of each contender, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=15, help="seconds that are left out")
    parser.add_argument("--contenders", default="rocketmq,rocketmq-fast,kafka,kafka-fast")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    console = Console(width=120)
    found: dict[str, object] = {"facts": machine_facts()}
    table = Table(
        *("messages/s", "contender", "seen", "batches", "p50 ms", "p99 ms", "max ms"),
        title="from send to foreachBatch",
    )
    with ExitStack() as stack:
        mq = stack.enter_context(bench())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        servers = stack.enter_context(kafka(folder, partitions=QUEUES)).servers
        client = stack.enter_context(Client(mq.name_server))
        logs: Mapping[str, Log] = {"rocketmq": RocketMQ(client, mq.name_server), "kafka": Kafka(servers)}
        spark = session(spark_settings())
        stack.callback(spark.stop)
        for rate in map(int, args.rates.split(",")):
            for contender in args.contenders.split(","):
                name, _, fast = contender.partition("-")
                figures = measure(
                    *(spark, logs[name], f"latency-{contender}-{rate}", rate),
                    *(args.warm_up, args.seconds, LOW_LATENCY if fast else {}),
                )
                found[f"{contender}, {rate} messages/s"] = figures
                table.add_row(f"{rate:,}", contender, *(f"{value:,.0f}" for value in figures.values()))
    console.print(table)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "latency.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def measure(
    spark: SparkSession,
    log: Log,
    topic: str,
    rate: int,
    warm_up_s: float,
    seconds: float,
    options: Mapping[str, str],
) -> Mapping[str, float]:
    """Return the latencies of the messages sent after the warm-up."""
    log.create(topic)
    log.send(topic, 1, 1.5)  # one message: the topic exists before the query begins
    ages: list[np.ndarray] = []
    arrived = [0]
    began = time.time()

    def take(rows: DataFrame, _: int) -> None:
        sent = rows.toArrow().column("sent").to_numpy()
        seen_ms = time.time() * 1000
        arrived[0] += len(sent)
        ages.append((seen_ms - sent)[sent >= (began + warm_up_s) * 1000])

    frame = log.load(spark, topic).selectExpr("CAST(trim(substring(string(body), 1, 20)) AS bigint) AS sent")
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-", ignore_cleanup_errors=True) as checkpoint:
        query = (
            frame.writeStream.foreachBatch(take)
            .options(checkpointLocation=checkpoint, **options)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            sent = 1 + log.send(topic, rate, warm_up_s + seconds)
            deadline = time.monotonic() + 60
            while (error := query.exception()) is None and arrived[0] < sent:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{arrived[0]} of {sent} messages arrived")
                time.sleep(0.1)
            if error is not None:
                raise error
        finally:
            query.stop()
    if arrived[0] != sent:
        raise RuntimeError(f"{arrived[0]} of {sent} messages arrived")
    age = np.concatenate(ages)
    return {
        "seen": len(age),
        "batches": sum(len(each) > 0 for each in ages),
        "p50_ms": float(np.percentile(age, 50)),
        "p99_ms": float(np.percentile(age, 99)),
        "max_ms": float(age.max()),
    }


if __name__ == "__main__":
    main()
