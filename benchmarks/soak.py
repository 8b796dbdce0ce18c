"""Check for growth: a steady stream of messages through Spark for minutes, with its resource usage.

``python -m benchmarks.soak --minutes 10`` starts a RocketMQ and runs one query that writes to it and one that
reads from it. Every second it samples the memory, open files and threads of the driver's Python, the JVM and
the workers, and the batches' duration. Each must stay flat: its median over the last quarter of the run is
compared with that over the second quarter. Prints a table, writes a plot and the samples. The exit status is
not 0 if a figure grew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.workers.spark import session
from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.devcluster import DevCluster

RESULTS = Path(__file__).parent / "results"
TOPIC = "soak"
_MIB = 1 << 20
_WARM_UP_TIMEOUT_S = 180
_SETTLE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The allowed growth of a figure from a run's second quarter to its last: a share plus a constant."""

    share: float
    more: float


LIMITS = {
    "driver MiB": Limit(share=0.05, more=8),
    "driver files": Limit(share=0, more=4),
    "driver threads": Limit(share=0, more=4),
    "JVM MiB": Limit(share=0.15, more=64),
    "JVM files": Limit(share=0.02, more=8),
    "JVM threads": Limit(share=0.05, more=8),
    "workers MiB": Limit(share=0.05, more=16),
    "workers files": Limit(share=0, more=4),
    "workers threads": Limit(share=0, more=4),
    "writing ms": Limit(share=0.25, more=100),
    "reading ms": Limit(share=0.25, more=100),
}
"""Limits for medians, because heaps fill until the collector runs."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: seconds since the start, and each available figure."""

    at_s: float
    figures: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """The result of a run."""

    samples: Sequence[Sample]
    written: int
    read: int

    def series(self, name: str) -> list[tuple[float, float]]:
        """Return a figure over time."""
        return [(each.at_s, each.figures[name]) for each in self.samples if name in each.figures]

    def quarters(self, name: str) -> tuple[float, float]:
        """Return a figure's medians over the second and the last quarter of the run."""
        end = self.samples[-1].at_s
        parts = ((0.25, 0.5), (0.75, 1.0))
        second, last = (
            [value for at, value in self.series(name) if low * end <= at <= high * end] for low, high in parts
        )
        return statistics.median(second), statistics.median(last)

    def grown(self, limits: dict[str, Limit]) -> dict[str, tuple[float, float]]:
        """Return the figures that grew by more than their limits."""
        found = {}
        for name, limit in limits.items():
            second, last = self.quarters(name)
            if last > second * (1 + limit.share) + limit.more:
                found[name] = second, last
        return found


def soak(
    spark: SparkSession,
    name_server: str,
    folder: Path,
    *,
    seconds: float,
    rate: int,
    batches: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Soaked:
    """Write and read ``rate`` messages per second, and sample once a second.

    Runs for this many seconds; on a busy machine up to ten times as long, until enough batches were read.
    """
    with Client(name_server) as client:
        Admin(client).create_topic(TOPIC, queues=4)
    samples: list[Sample] = []
    written: dict[int, int] = {}
    read: dict[int, int] = {}
    with Client(name_server) as client, queries(spark, name_server, folder, rate) as (writer, reader):
        warm_up = time.monotonic() + _WARM_UP_TIMEOUT_S
        while not of_batches("reading ms", reader, read):
            assert time.monotonic() < warm_up, "no message was read"
            time.sleep(0.1)
        begin = time.monotonic()
        first = len(read)
        while (at_s := time.monotonic() - begin) < seconds or (
            len(read) - first < batches and at_s < 10 * seconds
        ):
            figures = of_processes()
            figures |= of_batches("writing ms", writer, written) | of_batches("reading ms", reader, read)
            samples.append(Sample(at_s, figures))
            if len(samples) % 30 == 0:
                say(f"{at_s:5.0f} s  {sum(read.values()):,} messages read")
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begin - at_s)))
        writer.stop()
        stored, settled = -1, time.monotonic() + _SETTLE_TIMEOUT_S
        # The tasks of a stopped query may still send some messages.
        while stored != sum(read.values()) and time.monotonic() < settled:
            reader.processAllAvailable()
            of_batches("reading ms", reader, read)
            stored = sum(client.max_offsets(client.read_queues(TOPIC)).values())
    return Soaked(samples=samples, written=stored, read=sum(read.values()))


@contextmanager
def queries(
    spark: SparkSession, name_server: str, folder: Path, rate: int
) -> Iterator[tuple[StreamingQuery, StreamingQuery]]:
    """Run a query that writes and one that reads."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", rate).load()
    with ExitStack() as stack:
        writer = (
            rows.selectExpr("concat(cast(value AS string), repeat('.', 500)) AS body", "'t' AS tags")
            .writeStream.format("rocketmq")
            .options(nameServer=name_server, topic=TOPIC)
            .option("checkpointLocation", str(folder / "writer"))
            .trigger(processingTime="1 second")
            .start()
        )
        stack.callback(writer.stop)
        reader = (
            spark.readStream.format("rocketmq")
            .options(nameServer=name_server, topic=TOPIC, startingOffsets="earliest", consumerGroup="soak")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / "reader"))
            .trigger(processingTime="1 second")
            .start()
        )
        stack.callback(reader.stop)
        yield writer, reader


def of_processes() -> dict[str, float]:
    """Return memory, open files and threads of this process, the JVM, and Spark's Python processes.

    Memory is the sum per kind. Files and threads are those of the process with the most, because workers
    start and end.
    """
    here = psutil.Process()
    kinds: dict[str, list[psutil.Process]] = {"driver": [here], "JVM": [], "workers": []}
    for process in here.children(recursive=True):
        try:
            command = process.cmdline()
            if "org.apache.spark.deploy.SparkSubmit" in command:
                kinds["JVM"].append(process)
            elif "pyspark.daemon" in command:
                kinds["workers"].append(process)
        except psutil.NoSuchProcess:  # the process has ended
            continue
    figures: dict[str, float] = {}
    for kind, processes in kinds.items():
        looks = [look for process in processes if (look := _look(process)) is not None]
        for number, unit in enumerate(("MiB", "files", "threads")):
            values = [look[number] for look in looks]
            figures[f"{kind} {unit}"] = sum(values) if unit == "MiB" else max(values, default=0)
    return figures


def _look(process: psutil.Process) -> tuple[float, int, int] | None:
    try:
        with process.oneshot():
            # Private memory only: forked workers share most of their memory.
            own = process.memory_full_info().uss / _MIB
            return own, process.num_fds(), process.num_threads()
    except psutil.NoSuchProcess:
        return None


def of_batches(name: str, query: StreamingQuery, seen: dict[int, int]) -> dict[str, float]:
    """Return the longest batch that ended since the last sample. ``seen`` counts the batches' rows."""
    error = query.exception()
    if error is not None:
        raise error
    new = [one for one in query.recentProgress if one.batchId not in seen and one.numInputRows]
    seen |= {one.batchId: one.numInputRows for one in new}
    return {name: max(one.batchDuration for one in new)} if new else {}


def plot(found: Soaked, file: Path) -> None:
    """Plot every figure over time."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra, which the tests' twin does without

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, panels = plt.subplots(2, 2, figsize=(12, 8), constrained_layout=True)
    titles = {"MiB": "memory, MiB", "files": "open files", "threads": "threads", "ms": "batch duration, ms"}
    for panel, (unit, title) in zip(panels.flat, titles.items(), strict=True):
        for name in LIMITS:
            kind, _, of_unit = name.rpartition(" ")
            if of_unit == unit:
                panel.plot(*zip(*found.series(name), strict=True), label=kind, linewidth=1)
        panel.set_title(title)
        panel.set_xlabel("s")
        panel.set_ylim(bottom=0)
        panel.legend()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    """Parse the arguments, run, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=5_000, help="messages a second")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    with ExitStack() as stack:
        cluster = stack.enter_context(DevCluster())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        spark = session({})
        stack.callback(spark.stop)
        found = soak(spark, cluster.name_server, folder, seconds=args.minutes * 60, rate=args.rate, say=print)
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "soak.json").write_text(json.dumps(asdict(found)), encoding="utf-8")
    plot(found, args.results / "soak.png")
    print(f"{found.written:,} messages written, {found.read:,} read")
    grown = found.grown(LIMITS)
    for name in LIMITS:
        second, last = found.quarters(name)
        print(f"{name:<16}{second:>10.1f} -> {last:>8.1f}  {'GREW' if name in grown else 'flat'}")
    print(f"wrote {args.results / 'soak.png'}")
    sys.exit(1 if grown or found.written != found.read else 0)


if __name__ == "__main__":
    main()
