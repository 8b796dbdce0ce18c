"""Memory of a small job: RocketMQ Streams' first example on one core, with 20,000 keys, for minutes.

``python -m benchmarks.footprint`` starts a RocketMQ, sends messages, and runs the job with
``WindowStrategy.lowMemory()`` as a separate process. Once a second it sums the memory of the job's processes:
the JVM, the driver's Python and Spark's Python processes, with shared pages counted once (PSS). The broker is
not included. The exit status is not 0 if the job exceeded its limit, if its memory grew, or if its sums are
wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from benchmarks.arguments import RESULTS
from benchmarks.contender import ROOT
from benchmarks.processes import machine_facts
from benchmarks.soak import Sample
from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer
from pyspark_rocketmq.devcluster import DevCluster

KINDS = ("driver", "JVM", "workers")
ALLOWED_MB = {False: 1050, True: 800}
"""The limit of the whole process tree in millions of bytes, by hard limit."""
SETTLED_S = 180
GROWTH = 0.05
"""From the first to the last third of the time after `SETTLED_S`."""
_SLICE_S = 0.25
_START_TIMEOUT_S = 240
_END_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a run: megabytes by kind over time, the messages sent, and those in the results."""

    hard_limit: bool
    keys: int
    rate: int
    samples: Sequence[Sample]
    sent: int
    counted: int
    rows: int

    def totals(self) -> list[tuple[float, float]]:
        """Return the process tree's megabytes over time."""
        return [(each.at_s, sum(each.figures.values())) for each in self.samples]

    @property
    def peak_mb(self) -> float:
        """The process tree's peak."""
        return max(total for _, total in self.totals())

    def settled(self) -> tuple[float, float] | None:
        """Return the medians of the first and the last third of the time after three minutes."""
        later = [total for at_s, total in self.totals() if at_s >= SETTLED_S]
        third = len(later) // 3
        if third < 10:
            return None
        return statistics.median(later[:third]), statistics.median(later[-third:])

    def complaints(self) -> list[str]:
        """Return the failed checks."""
        found = []
        if self.peak_mb > ALLOWED_MB[self.hard_limit]:
            found.append(f"it took {self.peak_mb:.0f} MB, more than {ALLOWED_MB[self.hard_limit]}")
        settled = self.settled()
        if settled is not None and settled[1] > settled[0] * (1 + GROWTH):
            found.append(f"it grew from {settled[0]:.0f} to {settled[1]:.0f} MB")
        if self.sent != self.counted:
            found.append(f"{self.sent} messages were sent, {self.counted} are in the results")
        return found


def run(
    name_server: str,
    folder: Path,
    *,
    topic: str,
    seconds: float,
    keys: int,
    rate: int,
    hard_limit: bool = False,
    to_the_end: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Found:
    """Send messages for this many seconds after the job's first window, and sample once a second.

    With ``to_the_end``, wait for the last window.
    """
    samples: list[Sample] = []
    with (
        Client(name_server) as client,
        job(name_server, topic, folder, hard_limit=hard_limit) as (process, results),
        feeding(client, topic, keys=keys, rate=rate) as feed,
    ):
        begin = time.monotonic()
        first: float | None = None
        while first is None or time.monotonic() < first + seconds:
            at_s = time.monotonic() - begin
            results.check(process)
            samples.append(Sample(at_s, of_tree(process.pid)))
            if first is None and results.rows:
                first = time.monotonic()
            assert first is not None or at_s < _START_TIMEOUT_S, results.tail()
            if len(samples) % 15 == 0:
                total = sum(samples[-1].figures.values())
                say(f"{at_s:5.0f} s  {total:5.0f} MB  {feed.sent:,} sent  {results.counted:,} in windows")
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begin - at_s)))
        feed.stop()
        deadline = time.monotonic() + _END_TIMEOUT_S
        while to_the_end and results.counted < feed.sent and time.monotonic() < deadline:
            results.check(process)
            samples.append(Sample(time.monotonic() - begin, of_tree(process.pid)))
            time.sleep(1.0)
    return Found(
        hard_limit=hard_limit,
        keys=keys,
        rate=rate,
        samples=samples,
        sent=feed.sent,
        counted=results.counted,
        rows=results.rows,
    )


class Results:
    """The sums of the windows that the job prints."""

    def __init__(self, stdout: IO[str], log: Path) -> None:
        self.rows = 0
        self.counted = 0
        self._stdout = stdout
        self._log = log
        self._thread = threading.Thread(target=self._read, name="results", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stdout:
            if line.endswith("}\n"):  # a killed job may leave an incomplete line
                self.counted += json.loads(line)["total"]
                self.rows += 1

    def join(self) -> None:
        """Wait until all output of the job is read."""
        self._thread.join(30)

    def check(self, process: subprocess.Popen[str]) -> None:
        """Fail if the job has ended."""
        assert process.poll() is None, self.tail()

    def tail(self) -> str:
        """Return the end of the job's log."""
        return self._log.read_text(errors="replace")[-4_000:]


@contextlib.contextmanager
def job(
    name_server: str, topic: str, folder: Path, *, hard_limit: bool
) -> Iterator[tuple[subprocess.Popen[str], Results]]:
    """Run the job as a process. It ends with the block, including its JVM."""
    command = [sys.executable, "-m", "benchmarks.workers.small_job"]
    command += [name_server, topic, str(folder / "checkpoint"), *(["--hard-limit"] if hard_limit else [])]
    log_file = folder / "job.log"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_ROCKETMQ_STREAMS_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    with log_file.open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        results = Results(process.stdout, log_file)
        try:
            yield process, results
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            results.join()


class Feed:
    """Sends messages steadily until it is stopped."""

    def __init__(self, client: Client, topic: str, *, keys: int, rate: int) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._send, args=(client, topic, keys, rate), name="feed", daemon=True
        )
        self._thread.start()

    def _send(self, client: Client, topic: str, keys: int, rate: int) -> None:
        producer, queues, turn = Producer(client), client.write_queues(topic), 0
        begin = time.monotonic()
        try:
            while not self._stop.is_set():
                count = max(1, min(1_000, int((time.monotonic() - begin) * rate) - self.sent))
                bodies = [
                    json.dumps({"key": f"key-{n % keys}", "value": str(n % 100), "pad": "x" * 60}).encode()
                    for n in range(self.sent, self.sent + count)
                ]
                messages = [OutgoingMessage(topic, body) for body in bodies]
                producer.send_batch(messages, queues[turn % len(queues)])
                self.sent += count
                turn += 1
                if count < 1_000:
                    self._stop.wait(_SLICE_S)
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame
            self._error = error

    def stop(self) -> None:
        """Stop sending."""
        self._stop.set()
        self._thread.join(30)
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def feeding(client: Client, topic: str, *, keys: int, rate: int) -> Iterator[Feed]:
    """Send messages to a topic, at the latest until the end of the block."""
    feed = Feed(client, topic, keys=keys, rate=rate)
    try:
        yield feed
    finally:
        feed.stop()


def of_tree(pid: int) -> dict[str, float]:
    """Return the megabytes (PSS) of a job's processes, by kind."""
    figures = dict.fromkeys(KINDS, 0.0)
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                kind = "driver" if process == root else "JVM" if process.name() == "java" else "workers"
                figures[kind] += process.memory_full_info().pss / 1e6
    return figures


def plot(found: Found, file: Path) -> None:
    """Plot the memory over time, stacked by kind."""
    import matplotlib as mpl  # noqa: PLC0415 - of the bench extra, which the tests' twin does without

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, panel = plt.subplots(figsize=(9, 4.5), constrained_layout=True)
    times = [each.at_s for each in found.samples]
    panel.stackplot(times, [[each.figures[kind] for each in found.samples] for kind in KINDS], labels=KINDS)
    panel.axhline(ALLOWED_MB[found.hard_limit], color="black", linewidth=1, linestyle="--", label="allowed")
    panel.set_xlabel("s")
    panel.set_ylabel("MB (PSS)")
    panel.set_title(
        f"{found.keys:,} keys, {found.rate:,} messages/s"
        + (", hard limit" if found.hard_limit else "")
        + f": at most {found.peak_mb:.0f} MB"
    )
    panel.legend(loc="lower right", fontsize="small")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    """Parse the arguments, run, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=2_000, help="messages a second")
    parser.add_argument("--hard-limit", action="store_true", help="WindowStrategy.lowMemory(hardLimit=True)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    with DevCluster() as cluster, tempfile.TemporaryDirectory(prefix="footprint-") as folder:
        with Client(cluster.name_server) as client:
            Admin(client).create_topic("small", queues=4)
        found = run(
            cluster.name_server,
            Path(folder),
            topic="small",
            seconds=args.minutes * 60,
            keys=args.keys,
            rate=args.rate,
            hard_limit=args.hard_limit,
            say=print,
        )
    args.results.mkdir(parents=True, exist_ok=True)
    name = "footprint-hard" if args.hard_limit else "footprint"
    text = json.dumps({"facts": machine_facts(), **asdict(found)})
    (args.results / f"{name}.json").write_text(text, encoding="utf-8")
    plot(found, args.results / f"{name}.png")
    peak = max(found.samples, key=lambda each: sum(each.figures.values()))
    parts = ", ".join(f"{kind} {peak.figures[kind]:.0f}" for kind in KINDS)
    print(
        f"peak {found.peak_mb:.0f} MB at {peak.at_s:.0f} s ({parts}); {found.counted:,} messages in windows"
    )
    settled = found.settled()
    if settled is not None:
        print(f"after {SETTLED_S} s: {settled[0]:.0f} -> {settled[1]:.0f} MB")
    print(f"wrote {args.results / name}.png")
    complaints = found.complaints()
    for complaint in complaints:
        print(complaint)
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
