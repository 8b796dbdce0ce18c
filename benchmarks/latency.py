"""The latency from the producer's send call to ``foreachBatch`` in the driver's Python.

A producer sends single messages at a steady rate, with the time in each body. A query on the same machine, so
with the same clock, computes the difference. ``python -m benchmarks.latency`` starts everything it needs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import RESULTS
from benchmarks.processes import machine_facts
from benchmarks.topics import Bench, bench
from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer, SendPipeline
from pyspark_rocketmq.client.send.message_encoding import encode_many

WARM_UP_S = 10.0
_TICK_S = 0.005
_BODY = "{:>20}" + "." * 80


def main() -> None:
    """Measure each rate in turn and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="100,10000", help="messages a second")
    parser.add_argument("--seconds", type=float, default=30, help="of each rate, after the warm-up")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    console = Console(width=120)
    found: dict[str, object] = {"facts": machine_facts()}
    table = Table(
        "messages/s", "seen", "batches", "p50 ms", "p99 ms", "max ms", title="from send to foreachBatch"
    )
    with bench() as mq:
        spark = session()
        try:
            for rate in map(int, args.rates.split(",")):
                figures = measure(spark, mq, rate, args.seconds)
                found[f"{rate} messages/s"] = figures
                table.add_row(f"{rate:,}", *(f"{value:,.0f}" for value in figures.values()))
        finally:
            spark.stop()
    console.print(table)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "latency.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def measure(spark: SparkSession, mq: Bench, rate: int, seconds: float) -> Mapping[str, float]:
    """Return the latencies of the messages sent after the warm-up."""
    topic = f"bench-latency-{rate}"
    with Client(mq.name_server) as client:
        Admin(client).create_topic(topic, queues=4)
        ages: list[np.ndarray] = []
        arrived = [0]
        began = time.time()

        def take(rows: DataFrame, _: int) -> None:
            sent = rows.toArrow().column("sent").to_numpy()
            seen_ms = time.time() * 1000
            arrived[0] += len(sent)
            ages.append((seen_ms - sent)[sent >= (began + WARM_UP_S) * 1000])

        frame = (
            spark.readStream.format("rocketmq")
            .option("nameServer", mq.name_server)
            .option("topic", topic)
            .option("startingOffsets", "earliest")
            .option("columns", "body")
            .load()
            .selectExpr("CAST(trim(substring(string(body), 1, 20)) AS bigint) AS sent")
        )
        with tempfile.TemporaryDirectory(
            prefix="bench-checkpoint-", ignore_cleanup_errors=True
        ) as checkpoint:
            query = (
                frame.writeStream.foreachBatch(take)
                .option("checkpointLocation", checkpoint)
                .trigger(processingTime="0 seconds")
                .start()
            )
            try:
                sent = send(client, topic, rate, WARM_UP_S + seconds)
                deadline = time.monotonic() + 60
                while (error := query.exception()) is None and arrived[0] < sent:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"{arrived[0]} of {sent} messages arrived")
                    time.sleep(0.1)
                if error is not None:
                    raise error
            finally:
                query.stop()
    age = np.concatenate(ages)
    return {
        "seen": len(age),
        "batches": sum(len(each) > 0 for each in ages),
        "p50_ms": float(np.percentile(age, 50)),
        "p99_ms": float(np.percentile(age, 99)),
        "max_ms": float(age.max()),
    }


def send(client: Client, topic: str, rate: int, seconds: float) -> int:
    """Send at a steady rate, every few milliseconds the messages due. Return their number."""
    producer = Producer(client)
    tick = threading.Event()
    count, begin = 0, time.monotonic()
    with SendPipeline(producer, max_in_flight=64) as pipeline:
        while (passed := time.monotonic() - begin) < seconds:
            due = int(passed * rate) - count
            if due:
                body = _BODY.format(int(time.time() * 1000)).encode()
                messages = [OutgoingMessage(topic, body)] * due
                outcomes = pipeline.submit(encode_many(messages, producer.ids))
                count += due
                if failed := [each.error for each in outcomes if each.error is not None]:
                    raise failed[0]
            tick.wait(_TICK_S)
        for outcome in pipeline.flush():
            if outcome.error is not None:
                raise outcome.error
    return count


if __name__ == "__main__":
    main()
