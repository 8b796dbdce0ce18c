"""The cost of a small micro-batch, split into Spark's part and ours; time to first rows; memory of a task.

Spark's part is measured with a Python source that does nothing and runs the same batches in the same session,
in turn with ours. So do Spark's Kafka source with the same messages, and our source with many queues of one
or two messages each. ``python -m benchmarks.microbatch`` starts everything it needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import RESULTS
from benchmarks.blank_source import BlankSource
from benchmarks.contender import call, python_command
from benchmarks.kafka import Kafka, kafka, spark_arguments, spark_settings
from benchmarks.latency import LOW_LATENCY
from benchmarks.processes import machine_facts, peak_rss, reset_peak_rss
from benchmarks.topics import Bench, Case, bench
from benchmarks.workers.spark import session

ROWS = 100
"""Rows of a small micro-batch, over all queues."""

PHASES = (
    "triggerExecution",
    "latestOffset",
    "getBatch",
    "queryPlanning",
    "addBatch",
    "walCommit",
    "commitOffsets",
)
OWN = ("latestOffset", "getBatch", "addBatch")
"""The phases that call the source: planning the end, planning partitions, and reading."""

MB = 1e6


def main() -> None:
    """Run all measurements and report them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=40, help="of each source and turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--messages", type=int, default=500_000, help="of the topic whose reading fills memory"
    )
    parser.add_argument(
        "--low-latency", action="store_true", help="with the options of the query for low latency"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    options = LOW_LATENCY if args.low_latency else {}
    console = Console(width=140)
    small = Case(messages=ROWS, body_bytes=1024)
    stream = Case(messages=ROWS * args.batches, body_bytes=1024)
    trickle = Case(messages=ROWS * args.batches, body_bytes=1024, queues=64)
    large = Case(messages=args.messages, body_bytes=1024)
    quarter = Case(messages=args.messages // 4, body_bytes=1024)
    with ExitStack() as stack:
        mq = stack.enter_context(bench())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        log = stack.enter_context(kafka(folder, partitions=stream.queues))
        for case in (small, stream, trickle, quarter, large):
            mq.fill(case)
        call(python_command("kafka_copy", mq.name_server, log.servers, stream.topic, *spark_arguments()))
        spark = session(spark_settings())
        try:
            spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "200")
            spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
            spark.dataSource.register(BlankSource)
            results: dict[str, object] = {"facts": machine_facts(), "rows": ROWS}
            results["microbatch"] = microbatches(
                sources(spark, mq, log, stream, trickle), stream.messages, args.turns, args.batches, options
            )
            results["first_rows_s"] = first_rows(spark, mq, small)
            results["memory"] = memory(spark, mq, small, (quarter, large))
        finally:
            spark.stop()
    report(console, results)
    args.results.mkdir(parents=True, exist_ok=True)
    file = args.results / "microbatch.json"
    file.write_text(json.dumps(results, indent=1), encoding="utf-8")
    console.print(f"wrote {file}")


# --- small batches --------------------------------------------------------------------------


def sources(
    spark: SparkSession, mq: Bench, log: Kafka, stream: Case, trickle: Case
) -> dict[str, Callable[[], DataFrame]]:
    """Return the sources with ``ROWS`` rows per batch, by name."""

    def ours(case: Case) -> DataFrame:
        reader = spark.readStream.format("rocketmq").option("nameServer", mq.name_server)
        return reader.options(
            topic=case.topic, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS, columns="body"
        ).load()

    def kafkas() -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", log.servers)
        return (
            reader.options(subscribe=stream.topic, startingOffsets="earliest", maxOffsetsPerTrigger=ROWS)
            .load()
            .select("value")
        )

    blank = spark.readStream.format("blank").options(rows=stream.messages, batchRows=ROWS)
    return {
        "blank": blank.load,
        "rocketmq": lambda: ours(stream),
        f"rocketmq, {trickle.queues} queues": lambda: ours(trickle),
        "kafka": kafkas,
    }


def microbatches(
    sources: Mapping[str, Callable[[], DataFrame]],
    messages: int,
    turns: int,
    batches: int,
    options: Mapping[str, str],
) -> dict[str, object]:
    """Run the sources in turn. Return the milliseconds of each phase of each batch."""
    busy: dict[str, list[Mapping[str, int]]] = {name: [] for name in sources}
    idle: dict[str, list[Mapping[str, int]]] = {name: [] for name in sources}
    for turn in range(turns + 1):
        for name, load in sources.items():
            progress = list(_run(load(), messages, batches, options))
            if turn:  # the first turn is the warm-up
                busy[name] += [each["durationMs"] for each in progress if each["numInputRows"] > 0]
                idle[name] += [each["durationMs"] for each in progress if each["numInputRows"] == 0]
    return {
        name: {
            "busy": busy[name],
            "idle": idle[name],
            "busy_ms": _medians(busy[name]),
            "idle_ms": _medians(idle[name]),
        }
        for name in sources
    }


def _run(
    frame: DataFrame, rows: int, batches: int, options: Mapping[str, str]
) -> Iterator[Mapping[str, object]]:
    """Run a stream to the end of its input, then for a few idle triggers. Yield its progress."""
    with tempfile.TemporaryDirectory(prefix="bench-checkpoint-", ignore_cleanup_errors=True) as checkpoint:
        query = (
            frame.writeStream.format("noop")
            .options(checkpointLocation=checkpoint, **options)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            deadline = time.monotonic() + 30 + batches
            while time.monotonic() < deadline:
                seen = [json.loads(each.json) for each in query.recentProgress]
                if sum(each["numInputRows"] for each in seen) >= rows and seen[-1]["numInputRows"] == 0:
                    break
                time.sleep(0.2)
            time.sleep(3)  # for idle triggers
            yield from (json.loads(each.json) for each in query.recentProgress)
        finally:
            query.stop()


def _medians(durations: list[Mapping[str, int]]) -> dict[str, float]:
    if not durations:
        return {}
    return {phase: statistics.median(each.get(phase, 0) for each in durations) for phase in PHASES}


# --- first rows, memory ---------------------------------------------------------------------


def _read(spark: SparkSession, mq: Bench, case: Case, columns: str = "body") -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", mq.name_server).option("topic", case.topic)
    return reader.option("columns", columns).load()


def first_rows(spark: SparkSession, mq: Bench, case: Case) -> list[float]:
    """Return the seconds from the call of load() to the rows of a small topic, in a warm session."""
    taken = []
    for _ in range(6):
        begin = time.perf_counter()
        rows = _read(spark, mq, case).take(20)
        taken.append(time.perf_counter() - begin)
        assert len(rows) == 20
    return taken[1:]


def memory(spark: SparkSession, mq: Bench, small: Case, cases: tuple[Case, ...]) -> dict[str, object]:
    """Return the memory growth of reading Python processes over an idle one, by topic size."""

    def count(case: Case) -> int:
        row = _read(spark, mq, case, "*").selectExpr("count(*)", "sum(length(body))").first()
        assert row is not None
        return row[0]

    # Both task slots get a worker that has imported everything and read some messages.
    for _ in range(3):
        count(small)
    idle = {pid: psutil.Process(pid).memory_info().rss for pid in _python_workers()}
    answer: dict[str, object] = {"idle_mb": [size / MB for size in idle.values()]}
    for case in cases:
        reset_peak_rss(idle)
        assert count(case) == case.messages
        above = [peak_rss(pid) - size for pid, size in idle.items() if psutil.pid_exists(pid)]
        answer[f"{case.messages} messages: peak above idle, MB"] = max(above) / MB
    return answer


def _python_workers() -> list[int]:
    return [each.pid for each in psutil.Process().children(recursive=True) if "python" in each.name()]


# --- report ---------------------------------------------------------------------------------


def report(console: Console, results: Mapping[str, object]) -> None:
    """Print the results."""
    micro = results["microbatch"]
    assert isinstance(micro, dict)
    for kind, title in (("busy", f"micro-batches of {ROWS} rows"), ("idle", "triggers without new messages")):
        table = Table("source", "batches", *PHASES, title=f"{title}: median ms")
        for name, found in micro.items():
            medians = found[f"{kind}_ms"]
            table.add_row(name, str(len(found[kind])), *(f"{medians.get(phase, 0):.0f}" for phase in PHASES))
        console.print(table)
        ours, blank = micro["rocketmq"][f"{kind}_ms"], micro["blank"][f"{kind}_ms"]
        own = sum(ours.get(phase, 0) - blank.get(phase, 0) for phase in OWN)
        console.print(
            f"our own part, {' + '.join(OWN)} above those of a source that does nothing: {own:.0f} ms"
        )
    first = results["first_rows_s"]
    assert isinstance(first, list)
    console.print(
        f"first rows of a small topic: median {statistics.median(first):.2f} s, slowest {max(first):.2f} s"
    )
    console.print(f"memory of Python processes: {results['memory']}")


if __name__ == "__main__":
    main()
