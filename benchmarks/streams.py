"""The same pipeline run natively and with functions that force Python: rows per second, and the ratios.

``python -m benchmarks.streams`` needs no broker: rows are lines of a file, so only the pipeline is measured.
``--firing`` streams them, one file per batch. It compares Spark's windows with ``fireMode(2)``, and an
incremental accumulator with one that runs at the end, with many and with few rows per group and batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.arguments import RESULTS
from benchmarks.processes import machine_facts
from benchmarks.workers.spark import session
from pyspark_rocketmq.streams import (
    CheckpointStrategy,
    DataStream,
    StreamBuilder,
    Time,
    TumblingWindow,
    WindowStream,
)


def native(message: str) -> object:
    return json.loads(message)


def forced(message: str) -> object:
    return dict(json.loads(message))  # more than rearranging fields: stays Python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--firing", action="store_true", help="Windows with a state of their own.")
    args = parser.parse_args()
    if args.firing:
        measure_firing(args.rows // 2, args.rounds, args.results)
        return
    spark = session()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = fill(Path(folder), args.rows)
            seconds: dict[str, list[float]] = {"native": [], "python": []}
            for number in range(args.rounds + 1):
                for name, function in (("native", native), ("python", forced)):
                    took = run(pipeline(spark, path, function))
                    if number:  # the first round is the warm-up
                        seconds[name].append(took)
    finally:
        spark.stop()
    rates = {name: args.rows / statistics.median(times) for name, times in seconds.items()}
    result = {
        "facts": machine_facts(),
        "rows": args.rows,
        "seconds": seconds,
        "rows_per_second": rates,
        "ratio": rates["native"] / rates["python"],
    }
    print(
        f"native {rates['native']:,.0f} rows/s, python {rates['python']:,.0f} rows/s: {result['ratio']:.2f}x"
    )
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "streams.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def fill(folder: Path, rows: int) -> str:
    """Write lines of about 150 bytes to four files."""
    for part in range(4):
        with (folder / f"{part}.txt").open("w", encoding="utf-8") as lines:
            for number in range(part, rows, 4):
                record = {
                    "InFlow": str(number % 100),
                    "OutFlow": str(number % 7),
                    "ProjectName": f"p-{number % 50}",
                }
                lines.write(json.dumps({**record, "LogStore": f"s-{number % 50}", "pad": "x" * 50}) + "\n")
    return str(folder)


def pipeline(spark: SparkSession, path: str, function: object) -> DataStream:
    source = StreamBuilder.dataStream("benchmarks", "streams", spark)
    return (
        source.fromFile(path, False)
        .map(function)
        .window(TumblingWindow.of(Time.days(1)))
        .groupBy("ProjectName", "LogStore")
        .sum("InFlow", "InFlow")
        .sum("OutFlow", "OutFlow")
        .count("total")
        .toDataStream()
    )


def run(stream: DataStream) -> float:
    began = time.perf_counter()
    stream.toDF().write.format("noop").mode("append").save()
    return time.perf_counter() - began


# --- windows with a state of their own --------------------------------------------------------

BATCHES = 8
KEYS = {"50 rows": 50, "2.5 rows": 2.5}
"""Rows per group and batch."""


class Total:
    """An accumulator."""

    def __init__(self) -> None:
        self.total = 0

    def addValue(self, value: dict[str, int]) -> None:  # noqa: N802
        self.total += value["n"]

    def result(self, context: object) -> int:  # noqa: ARG002
        return self.total

    def clone(self) -> Total:
        return Total()


WINDOWS = {
    "native": lambda windows: windows.sum("n", "n").count("total"),
    "fireMode(2)": lambda windows: windows.sum("n", "n").count("total").fireMode(2),
    "accumulator at the end": lambda windows: windows.aggregate(Total()),
    "accumulator incremental": lambda windows: windows.aggregate(Total(), incremental=True),
}


def measure_firing(rows: int, rounds: int, results: Path) -> None:
    """Stream the rows through each kind of window in turn."""
    seconds: dict[str, dict[str, list[float]]] = {}
    spark = session()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        for density, each in KEYS.items():
            seconds[density] = {name: [] for name in WINDOWS}
            with tempfile.TemporaryDirectory() as folder:
                fill_batches(Path(folder), rows, int(rows / BATCHES / each))
                for kind in WINDOWS.values() if len(seconds) == 1 else ():
                    stream_once(spark, folder, kind)  # warm-up
                for _ in range(rounds):
                    for name, kind in WINDOWS.items():
                        seconds[density][name].append(stream_once(spark, folder, kind))
            native = statistics.median(seconds[density]["native"])
            for name, times in seconds[density].items():
                took = statistics.median(times)
                print(f"{density} of a group in a batch, {name}: {rows / took:,.0f} rows/s", end=", ")
                print(f"{took / native:.1f} times as long as native", flush=True)
    finally:
        spark.stop()
    results.mkdir(parents=True, exist_ok=True)
    found = {"facts": machine_facts(), "rows": rows, "batches": BATCHES, "seconds": seconds}
    (results / "streams-firing.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def fill_batches(folder: Path, rows: int, keys: int) -> None:
    """Write one file per batch. A window of 4 s ends with every fourth file."""
    for batch in range(BATCHES):
        file = folder / f"{batch}.json"
        with file.open("w", encoding="utf-8") as lines:
            for number in range(rows // BATCHES):
                time_ms = 1_900_000_000_000 + batch * 1000 + number % 1000
                lines.write(json.dumps({"t": time_ms, "k": f"key-{number % keys}", "n": number % 7}) + "\n")
        os.utime(file, (1_600_000_000 + batch, 1_600_000_000 + batch))


def stream_once(spark: SparkSession, folder: str, kind: Callable[[WindowStream], WindowStream]) -> float:
    with tempfile.TemporaryDirectory() as checkpoint:
        source = StreamBuilder.dataStream("benchmarks", "firing", spark)
        files = source.fromFile(folder, tail=True, schema="t long, k string, n long", maxFilesPerTrigger=1)
        windows = kind(files.window(TumblingWindow.of(Time.seconds(4), "t")).groupBy("k")).waterMark(1)
        end = windows.toDataStream().to(lambda df, _: df.write.format("noop").mode("append").save())
        began = time.perf_counter()
        query = end.with_(CheckpointStrategy.local(checkpoint)).asyncStart(availableNow=True)
        assert query is not None
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
