"""``python -m benchmarks.nexmark`` starts a broker and runs all queries: are they right, and how fast?"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.kafka import kafka, spark_settings
from benchmarks.nexmark.beside_kafka import from_kafka, send_to_kafka, time_query
from benchmarks.nexmark.events import Event, events
from benchmarks.nexmark.expected import EXPECTED
from benchmarks.nexmark.run import Result, job_text, public_job, run_query, send_events
from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Client
from pyspark_rocketmq.devcluster import DevCluster


def main() -> int:
    """Run the queries; return 1 if one is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--queries", default=",".join(EXPECTED), help="comma list; all by default")
    parser.add_argument(
        "--public", type=Path, help="folder with the queries of a checkout of the public Nexmark for Flink"
    )
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="time the queries also with Kafka as their source, and with RocketMQ, without writing",
    )
    args = parser.parse_args()
    made = list(events(args.events))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    console = Console(width=140)
    results, times = [], {}
    spark = session({"spark.sql.session.timeZone": "UTC", **(spark_settings() if args.kafka else {})})
    try:
        with DevCluster() as cluster, Client(cluster.name_server) as client:
            send_events(client, made)
            for query in args.queries.split(","):
                text = public_job(args.public, query) if args.public else job_text(query)
                result = run_query(spark, client, cluster.name_server, query, text, made)
                console.print(_line(result))
                results.append(result)
            if args.kafka:
                times = _beside_kafka(spark, cluster.name_server, made, [result.query for result in results])
    finally:
        spark.stop()
    console.print(_table(results, len(made)))
    if times:
        console.print(_kafka_table(times, len(made)))
    return int(not all(result.right for result in results))


def _beside_kafka(
    spark: SparkSession, name_server: str, made: list[Event], queries: list[str]
) -> dict[str, tuple[float, float]]:
    """Return the seconds of each query, with RocketMQ and with Kafka as its source."""
    times = {}
    with (
        tempfile.TemporaryDirectory(prefix="nexmark-kafka-") as folder,
        kafka(Path(folder), partitions=1) as broker,
    ):
        send_to_kafka(spark, broker.servers, made)

        def both(query: str) -> tuple[float, float]:
            ours = time_query(spark, name_server, query)
            with from_kafka(broker.servers):
                return ours, time_query(spark, name_server, query)

        both(queries[0])  # warm
        for query in queries:
            times[query] = both(query)
            print(f"{query}: {times[query][0]:.1f} s, with Kafka {times[query][1]:.1f} s")
    return times


def _kafka_table(times: dict[str, tuple[float, float]], count: int) -> Table:
    table = Table("query", "RocketMQ, s", "Kafka, s", "RocketMQ, events/s", "Kafka, events/s")
    for query, both in times.items():
        table.add_row(query, *(f"{each:.1f}" for each in both), *(f"{count / each:,.0f}" for each in both))
    ours, theirs = (sum(each[at] for each in times.values()) for at in (0, 1))
    table.add_row("all", f"{ours:.1f}", f"{theirs:.1f}", "", "")
    return table


def _line(result: Result) -> str:
    if result.error is not None:
        return f"{result.query}: {result.error}"
    state = "right" if result.right else f"{result.missing.total()} missing, {result.extra.total()} too many"
    return f"{result.query}: {state}, {result.rows:,} rows, {result.seconds:.1f} s"


def _table(results: list[Result], count: int) -> Table:
    table = Table("query", "right", "rows", "seconds", "events/s")
    for result in results:
        rate = f"{count / result.seconds:,.0f}" if result.seconds else ""
        table.add_row(
            result.query, "yes" if result.right else "no", f"{result.rows:,}", f"{result.seconds:.1f}", rate
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
