"""What ``isolation=read_committed`` costs, with a topic of committed batches: reading it, and planning.

``python -m benchmarks.committed`` starts a broker, and writes the topic. It reads it in turn with and without
isolation, and measures ``latestOffset`` and ``partitions`` in a process without Spark: with a commit topic
that has as many records, and with one that has none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from rich.console import Console

from benchmarks.arguments import add_arguments, plan_of
from benchmarks.contender import Contender, python_command
from benchmarks.harness import run
from benchmarks.processes import machine_facts
from benchmarks.report import Report
from benchmarks.topics import Case, bench
from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.send.readable import wait_until_readable
from pyspark_rocketmq.options import SinkOptions, SourceOptions, parse_options
from pyspark_rocketmq.planning.commits.records import Commit, encode_record
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.committed import CommittedBatchReader, CommittedStreamReader
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.spark.write.write_task import WriteScope, WriteTask

TOPIC = "bench-committed"
SMALL = "bench-transactions"
BODY = pa.schema([("body", pa.string())])
COMMITTED = {"isolation": "read_committed"}


def contenders(name_server: str) -> dict[str, Contender]:
    """Return all contenders, by name."""

    def reading(name: str, worker: str, about: str, *args: str) -> Contender:
        return Contender(name, [python_command(worker, name_server, TOPIC, *args)], about, warm_ups=2)

    isolated = ("--option", "isolation=read_committed")
    every = [
        reading("uncommitted", "spark", "a batch read, body only"),
        reading("committed", "spark", "the same with isolation=read_committed", *isolated),
        reading("stream", "spark_stream", "a stream under AvailableNow, body only, no limit"),
        reading("stream-committed", "spark_stream", "the same with isolation=read_committed", *isolated),
    ]
    return {each.name: each for each in every}


def fill(client: Client, name_server: str, topic: str, *, rows: int, transactions: int, size: int) -> None:
    """Write committed batches to a topic: their messages in one task, then a commit for each part of them."""
    given = {"nameServer": name_server, "topic": topic, "deliveryGuarantee": "transactional"}
    options = parse_options(SinkOptions, given | {"transactionVisibility": "committed"}, environ={})
    layout = sink_layout(from_arrow_schema(BODY), options)
    name = TransactionName("bench")
    batch = pa.RecordBatch.from_pydict({"body": ["x" * size] * min(rows, 10_000)}, schema=BODY)
    task = WriteTask(client, options, layout, WriteScope(job="bench", partition=0, transaction=name))
    ranges = task.run(batch for _ in range(rows // batch.num_rows)).ranges or {}
    (log,) = client.read_queues(f"{topic}-commits")
    first, producer = client.max_offsets([log])[log], Producer(client)
    for number in range(transactions):
        mine = {queue: _part(parts, number, transactions) for queue, parts in ranges.items()}
        commit = Commit(owner=f"{topic}/bench", number=number, since=first + number, ranges=mine)
        producer.send(OutgoingMessage(log.topic, encode_record(commit)), log)
    wait_until_readable(client, {log: first + transactions}, timeout_ms=60_000)


def _part(parts: Sequence[tuple[int, int]], number: int, of: int) -> list[tuple[int, int]]:
    """Return a share of a queue's messages; they are written at once, and so have one range."""
    ((begin, end),) = parts
    size = end - begin
    return [(begin + size * number // of, begin + size * (number + 1) // of)]


# --- planning -----------------------------------------------------------------------------------


def plan(name_server: str, topic: str, rounds: int) -> dict[str, float]:
    """Return the median milliseconds of planning a whole topic, in turn with and without isolation."""
    given = {"nameServer": name_server, "topic": topic}
    streamed = given | {"startingOffsets": "earliest"}
    schema = read_schema(("body",))

    def stream(kind: type[RocketMQStreamReader], **more: str) -> Callable[[], float]:
        options = parse_options(SourceOptions, streamed | more, where="readStream", environ={})

        def measure() -> float:
            reader = kind(options, schema)
            try:
                start = reader.initialOffset()  # connections and routes
                began = time.perf_counter()
                end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
                reader.partitions(start, end)
                return (time.perf_counter() - began) * 1000
            finally:
                reader.stop()

        return measure

    def again(kind: type[RocketMQStreamReader], **more: str) -> Callable[[], float]:
        """A micro-batch after another one, which has read all of it."""
        options = parse_options(SourceOptions, streamed | more, where="readStream", environ={})
        reader = kind(options, schema)
        start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

        def measure() -> float:
            began = time.perf_counter()
            end = reader.latestOffset(json.loads(json.dumps(start)), ReadAllAvailable())
            reader.partitions(start, json.loads(json.dumps(end)))
            return (time.perf_counter() - began) * 1000

        return measure

    def batch(**more: str) -> Callable[[], float]:
        options = parse_options(SourceOptions, given | more, where="read", environ={})
        kind = CommittedBatchReader if more else RocketMQBatchReader

        def measure() -> float:
            began = time.perf_counter()
            kind(options, schema).partitions()
            return (time.perf_counter() - began) * 1000

        return measure

    measured = {
        "first micro-batch": stream(RocketMQStreamReader),
        "first micro-batch, committed": stream(CommittedStreamReader, **COMMITTED),
        "next micro-batch": again(RocketMQStreamReader),
        "next micro-batch, committed": again(CommittedStreamReader, **COMMITTED),
        "batch read": batch(),
        "batch read, committed": batch(**COMMITTED),
    }
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, measure in measured.items():
            found[name].append(measure())
    return {name: round(statistics.median(values), 1) for name, values in found.items()}


def main() -> None:
    """Parse the arguments and run."""
    args = _arguments()
    console = Console(width=150)
    begin = time.monotonic()
    case = Case(messages=args.messages, body_bytes=args.body_bytes, queues=args.queues)

    def say(line: str) -> None:
        console.print(f"{time.monotonic() - begin:5.0f} s  {line}", highlight=False)

    with ExitStack() as stack:
        mq = stack.enter_context(bench())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        with Client(mq.name_server) as client:
            for topic in (TOPIC, SMALL):
                Admin(client).create_topic(topic, queues=case.queues)
                Admin(client).create_topic(f"{topic}-commits", queues=1)
            sizes = {"rows": args.transactions * 10, "transactions": args.transactions, "size": 100}
            fill(client, mq.name_server, SMALL, **sizes)
            say(f"planning {args.transactions} transactions, ms: {plan(mq.name_server, SMALL, args.plans)}")
            fill(
                client,
                mq.name_server,
                TOPIC,
                rows=case.messages,
                transactions=args.reading_transactions,
                size=case.body_bytes,
            )
        say("filled")
        every = contenders(mq.name_server)
        chosen = [every[name] for name in args.contenders.split(",") if name]
        if not chosen:
            return
        results = run(
            chosen,
            plan_of(args, time.monotonic() - begin),
            broker_pids=mq.broker_pids,
            expected=case.messages,
            log_dir=folder,
            say=say,
        )
        facts = {**machine_facts(), **asdict(case), "transactions": args.reading_transactions}
    report = Report(
        f"committed-{case.messages}x{case.body_bytes}-q{case.queues}",
        f"Reading {case.messages:,} messages of {args.reading_transactions} committed batches",
        contenders=chosen,
        results=results,
        facts={**facts, "broker": f"{mq.cluster.version} default limits"},
        baseline=chosen[0].name,
    )
    report.print(console)
    for file in report.write(args.results):
        console.print(f"wrote {file}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, contenders="uncommitted,committed", messages=1_000_000)
    parser.add_argument("--transactions", type=int, default=1_000, help="that are planned")
    parser.add_argument("--reading-transactions", type=int, default=100, help="that are read")
    parser.add_argument("--plans", type=int, default=15, help="how often planning is measured")
    return parser.parse_args()


if __name__ == "__main__":
    main()
