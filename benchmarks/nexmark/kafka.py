"""Nexmark's queries from RocketMQ and from Kafka, in turn, in one Spark session, with the same text.

Events are the same messages in both logs, in as many queues as partitions. Only the method of a table that
loads messages differs: for Kafka it returns Spark's Kafka source. Results go to ``blackhole``, so that the
sources are compared. ``python -m benchmarks.nexmark.kafka`` starts everything it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from unittest import mock

import matplotlib as mpl
from confluent_kafka import Producer as KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import RESULTS
from benchmarks.kafka import kafka, spark_settings
from benchmarks.nexmark.events import events
from benchmarks.nexmark.expected import EXPECTED
from benchmarks.nexmark.run import TOPIC, job_text, use_blackhole
from benchmarks.processes import Meter, machine_facts
from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.sql import execute, tables

mpl.use("Agg")
from matplotlib import pyplot as plt

QUEUES: Final = 4
_BATCH: Final = 500
_PATIENCE_S: Final = 600
_WARM_UP: Final = 3
"""Rounds of the first query before it is measured: Spark's JVM compiles meanwhile. Others have one."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a query: its seconds, and CPU seconds of Spark with its Python processes, and of brokers."""

    query: str
    source: str
    seconds: float
    cpu_s: float
    broker_cpu_s: float


def main() -> None:
    """Run each query from both logs in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2, help="of each query and log, after one to warm up")
    parser.add_argument("--queries", default=",".join(EXPECTED), help="comma list; all by default")
    parser.add_argument("--batch", type=int, default=250_000, help="events of a micro-batch")
    parser.add_argument(
        "--broker-config", action="append", default=[], help="name=value of the settings of RocketMQ's broker"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    console = Console(width=120)
    bodies = [event.body().encode() for event in events(args.events)]
    runs: list[Run] = []
    with ExitStack() as stack:
        limits = dict(pair.partition("=")[::2] for pair in args.broker_config)
        cluster = stack.enter_context(DevCluster(broker_config=limits))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        log = stack.enter_context(kafka(folder, partitions=QUEUES))
        client = stack.enter_context(Client(cluster.name_server))
        fill(client, bodies)
        fill_kafka(log.servers, bodies)
        brokers = {*log.pids(), *(pid for each in (*cluster.brokers,) if (pid := each.pid) is not None)}
        # State of joins and Top-N of a million events does not fit into Spark's default of 1 GiB.
        settings = {"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "8g"}
        spark = session({**settings, **spark_settings()})
        stack.callback(spark.stop)
        load = kafka_loader(log.servers, args.batch)
        try:
            for query in args.queries.split(","):
                text = _text(query, cluster.name_server, args.batch)
                unmeasured = 1 if runs else _WARM_UP
                for turn in range(unmeasured + args.rounds):
                    # The second of a turn profits from what the JVM compiled for the first.
                    for source in ("rocketmq", "kafka")[:: -1 if turn % 2 else 1]:
                        with ExitStack() as patched:
                            if source == "kafka":
                                patched.enter_context(mock.patch.object(tables.Table, "_load", load))
                            run = measure(spark, query, source, text, brokers)
                        if turn >= unmeasured:
                            runs.append(run)
                console.print(_line(query, runs, args.events))
        finally:
            if runs:
                console.print(report(runs, args.events))
                save(args.results, runs, args.events)


def fill(client: Client, bodies: Sequence[bytes]) -> None:
    """Send the events to RocketMQ, in turn over the queues."""
    Admin(client).create_topic(TOPIC, queues=QUEUES)
    producer = Producer(client)
    for number, queue in enumerate(client.write_queues(TOPIC)):
        messages = [OutgoingMessage(TOPIC, body) for body in bodies[number::QUEUES]]
        for start in range(0, len(messages), _BATCH):
            producer.send_batch(messages[start : start + _BATCH], queue)


def fill_kafka(servers: str, bodies: Sequence[bytes]) -> None:
    """Send the events to Kafka, in turn over the partitions."""
    producer = KafkaProducer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    for number, body in enumerate(bodies):
        producer.produce(TOPIC, body, partition=number % QUEUES)
        if number % 100_000 == 0:
            producer.flush(60)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} events were not sent")


def kafka_loader(servers: str, batch: int) -> Callable[..., DataFrame]:
    """Return a method for tables that loads messages from Kafka, with the columns of the other source."""
    columns = {
        "body": "value AS body",
        "topic": "topic",
        "brokerName": "'kafka' AS brokerName",
        "queueId": "partition AS queueId",
        "queueOffset": "offset AS queueOffset",
        "keys": "split(string(key), ' ') AS keys",
    }

    def load(
        self: tables.Table,  # noqa: ARG001 - as the method that it replaces
        spark: SparkSession,
        wanted: Sequence[str],
        *,
        streaming: bool,
        idle: str | None = None,
    ) -> DataFrame:
        assert streaming
        assert idle is None
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        reader = reader.options(subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=batch)
        return reader.load().selectExpr(*(columns[name] for name in wanted))

    return load


def _text(query: str, name_server: str, batch: int) -> str:
    text = use_blackhole(job_text(query)).replace(
        "'connector' = 'rocketmq'", f"'connector' = 'rocketmq', 'nameServer' = '{name_server}'"
    )
    return text.replace("'maxOffsetsPerTrigger' = '2000'", f"'maxOffsetsPerTrigger' = '{batch}'")


def measure(spark: SparkSession, query: str, source: str, text: str, brokers: set[int]) -> Run:
    """Run a query to the end of its input."""
    own = Meter({os.getpid(): "client"})
    logs = Meter(dict.fromkeys(brokers, "broker"))
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        settings = {"trigger": "availableNow"}
        with execute(spark, text, checkpoint_location=checkpoint, settings=settings) as job:
            if not job.await_termination(_PATIENCE_S):
                raise TimeoutError(f"{query} from {source} did not end in {_PATIENCE_S} s")
    seconds = time.perf_counter() - begin
    in_brokers = sum(logs.stop().cpu_s.values())
    return Run(query, source, seconds, sum(own.stop().cpu_s.values()) - in_brokers, in_brokers)


def _median(runs: Sequence[Run], query: str, source: str, figure: str) -> float:
    return statistics.median(
        getattr(run, figure) for run in runs if (run.query, run.source) == (query, source)
    )


def _line(query: str, runs: Sequence[Run], count: int) -> str:
    ours, theirs = (_median(runs, query, source, "seconds") for source in ("rocketmq", "kafka"))
    return f"{query}: {count / ours:,.0f} events/s, {theirs / ours:.2f}x Kafka's"


def report(runs: Sequence[Run], count: int) -> Table:
    """Return the table of medians, with the geometric means of the ratios."""
    table = Table(
        *("query", "events/s", "Kafka's", "ratio", "CPU s/M", "Kafka's", "ratio", "broker CPU s/M", "Kafka's")
    )
    speeds, costs = [], []
    for query in dict.fromkeys(run.query for run in runs):
        ours, theirs = (_median(runs, query, source, "seconds") for source in ("rocketmq", "kafka"))
        cpu, their_cpu, *brokers = (
            _median(runs, query, source, figure)
            for figure in ("cpu_s", "broker_cpu_s")
            for source in ("rocketmq", "kafka")
        )
        speeds.append(theirs / ours)
        costs.append(their_cpu / cpu)
        table.add_row(
            *(query, f"{count / ours:,.0f}", f"{count / theirs:,.0f}", f"{speeds[-1]:.2f}x"),
            *(f"{cpu / count * 1e6:.1f}", f"{their_cpu / count * 1e6:.1f}", f"{costs[-1]:.2f}x"),
            *(f"{each / count * 1e6:.1f}" for each in brokers),
        )
    means = [statistics.geometric_mean(each) for each in (speeds, costs)]
    table.add_row("geometric mean", "", "", f"{means[0]:.2f}x", "", "", f"{means[1]:.2f}x", "", "")
    return table


def save(folder: Path, runs: Sequence[Run], count: int) -> None:
    """Write the runs as JSON, and a plot of the ratios."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {"facts": machine_facts(), "events": count, "runs": [asdict(run) for run in runs]}
    (folder / "nexmark.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    queries = list(dict.fromkeys(run.query for run in runs))
    figure, axes = plt.subplots(figsize=(9, 3.2))
    for offset, name, label, colour in (
        (-0.2, "seconds", "events per second", "#4c78a8"),
        (0.2, "cpu_s", "events per CPU second", "#f58518"),
    ):
        ratios = [
            _median(runs, query, "kafka", name) / _median(runs, query, "rocketmq", name) for query in queries
        ]
        places = [place + offset for place in range(len(queries))]
        axes.bar(places, ratios, width=0.4, color=colour, label=label)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(queries)), queries)
    axes.set_ylabel("RocketMQ / Kafka")
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(folder / "nexmark.svg")
    plt.close(figure)


if __name__ == "__main__":
    main()
