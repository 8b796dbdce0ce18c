"""The same pipeline run natively and with its function forced into Python: rows a second, and the ratio.

``python -m benchmarks.streams`` needs no broker: rows are lines of a file, so that the pipeline is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.arguments import RESULTS
from benchmarks.processes import machine_facts
from benchmarks.workers.spark import session
from pyspark_rocketmq.streams import DataStream, StreamBuilder, Time, TumblingWindow


def native(message: str) -> object:
    return json.loads(message)


def forced(message: str) -> object:
    return dict(json.loads(message))  # more than moving fields: stays Python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    spark = session()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = fill(Path(folder), args.rows)
            seconds: dict[str, list[float]] = {"native": [], "python": []}
            for number in range(args.rounds + 1):
                for name, function in (("native", native), ("python", forced)):
                    took = run(pipeline(spark, path, function))
                    if number:  # the first round warms up
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
        .toDataSteam()
    )


def run(stream: DataStream) -> float:
    began = time.perf_counter()
    stream.toDF().write.format("noop").mode("append").save()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
