"""kill -9 of stream jobs while windows close all along: tables, files and readers see each result once.

One process runs three jobs over one topic: to a table, to files, and to a topic. ``CHAOS_KILLS`` says how
often it is killed: once by default. What is on the machine alone (RocksDB's folder) is lost with each kill;
after the first one the checkpoints are copied, and the copies are what goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chaos.streams_job import SINKS
from tests.support.lean_jvm import COMPILED
from tests.support.topics import create_topic, fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.read.message_search import last_messages
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.spark import drop_repeats

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
WINDOWS = 60 * KILLS
KEYS = 3
ROWS_PER_WINDOW = 30
BATCH_ROWS = 120
"""Four windows a batch: some close in each."""
LAST_BATCH_ROWS = 6_000
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
UP_TIMEOUT_S = 300
SPARE_LIVES = 3 + KILLS // 4
SLOW_WORKER = "Python worker failed to connect back"
"""Spark gives a Python worker 10 s to come up, which is not always enough where other suites use the
processors too. For this reason only, a process may end by itself and is started again, as by a supervisor."""

STARTED = "--- a process starts ---"
"""Between the logs of two processes."""

Results = Counter[tuple[str, str, int]]
"""Window, key and sum, and how often."""


@contextlib.contextmanager
def jobs(args: list[str], log_file: Path, batch_rows: int) -> Iterator[subprocess.Popen[str]]:
    """Run the jobs in processes of their own, which have started or ended; nothing of them is left behind."""
    with log_file.open("a") as log:
        print(STARTED, file=log, flush=True)
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("streams_job.py")), *args],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, (COMPILED, Path(__file__).parents[2] / "src"))),
                "BATCH_ROWS": str(batch_rows),
            },
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "@started\n":
            process.wait(timeout=60)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)


def send_rows(client: Client, topic: str) -> Results:
    """Send rows in the order of their times, and return the results of the windows that close."""
    chance = random.Random(SEED)
    sums: Counter[tuple[str, str]] = Counter()
    bodies = []
    for window in range(WINDOWS):
        start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_900_000_000 + window * 10))
        for row in range(ROWS_PER_WINDOW):
            key, value = f"k{row % KEYS}", chance.randrange(100)
            moment = 1_900_000_000 + window * 10 + row * 10 // ROWS_PER_WINDOW
            bodies.append(json.dumps({"time": moment * 1000, "key": key, "value": value}))
            sums[start, key] += value
    fill(client, topic, bodies)
    return Counter({(begun, key, total): 1 for (begun, key), total in sums.items() if begun != start})


def finished(checkpoint: Path) -> int:
    """Return the last batch that a checkpoint knows as finished, -1 when there is none."""
    commits = checkpoint / "commits"
    if not commits.exists():
        return -1
    return max((int(file.name) for file in commits.iterdir() if file.name.isdigit()), default=-1)


@pytest.mark.needs("kills", "programs")
@pytest.mark.timeout(400 + KILLS * 120)
def test_each_result_counts_once(mq: DevCluster, spark: SparkSession, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    topic, target = fresh_name("kills"), fresh_name("results")
    create_topic(mq, topic, 1, 6)
    create_topic(mq, target, 1, 6)
    with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
        connection.execute("CREATE TABLE results (start_time TEXT, key TEXT, total REAL, n INTEGER)")
    checkpoints = tmp_path / "checkpoints"
    args = [mq.name_server, topic, fresh_name("g"), str(tmp_path), target]
    log = tmp_path / "jobs.log"

    def batches() -> list[int]:
        return [finished(checkpoints / sink) for sink in SINKS]

    with Client(mq.name_server) as client:
        expected = send_rows(client, topic)
        ended = 0
        for kill in range(KILLS):
            while not killed(args, log, batches, chance):
                ended += 1
                check_end(log, ended)
            if kill == 0:
                changes = list((checkpoints / "files").glob("state/**/*.changelog"))
                assert changes, "the state has no change log"
                shutil.copytree(checkpoints, tmp_path / "copies")
                shutil.rmtree(checkpoints)
                (tmp_path / "copies").rename(checkpoints)
        at_kill = batches()
        while not finishes(args, log):
            ended += 1
            check_end(log, ended)
        found = {
            "table": table(tmp_path / "results.db"),
            "files": [json.loads(row[0]) for row in spark.read.text(str(tmp_path / "files")).collect()],
            "topic, by Spark": without_repeats(spark, mq, target),
        }
        messages = last_messages(client, client.read_queues(target), 1_000_000)
    by_key = {message.keys: json.loads(message.body) for message in messages}
    found["topic, by key"] = list(by_key.values())
    print(
        f"{KILLS} kills, {ended} other ends, in batches {at_kill} of {batches()}; "
        f"{expected.total()} results, {len(messages) - len(by_key)} repeats in the topic"
    )
    for name, rows in found.items():
        assert Counter((row["start_time"], row["key"], int(row["total"])) for row in rows) == expected, name
        assert all(row["n"] == ROWS_PER_WINDOW // KEYS for row in rows), name


def check_end(log: Path, ended: int) -> None:
    """Check why the last process has ended by itself."""
    last = log.read_text().rpartition(STARTED)[2]
    assert SLOW_WORKER in last, last[-4_000:]
    assert ended <= SPARE_LIVES, last[-4_000:]


def killed(args: list[str], log: Path, batches: Callable[[], list[int]], chance: random.Random) -> bool:
    """Let each job finish at least a batch, then kill them; whether they lived until then."""
    before = batches()
    with jobs([*args, "never"], log, BATCH_ROWS) as process:
        eventually(
            lambda: (
                process.poll() is not None
                or all(now > was for now, was in zip(batches(), before, strict=True))
            ),
            UP_TIMEOUT_S,
            what="a batch of each job",
        )
        time.sleep(chance.uniform(0, 1))  # the random moment, not a synchronisation
        return process.poll() is None


def finishes(args: list[str], log: Path) -> bool:
    """Let the jobs read to the end; whether they got there."""
    with jobs([*args, "at-the-end"], log, LAST_BATCH_ROWS) as process:
        return process.wait(timeout=300) == 0


def table(file: Path) -> list[dict[str, object]]:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM results")]


def without_repeats(spark: SparkSession, mq: DevCluster, topic: str) -> list[dict[str, object]]:
    options = {"nameServer": mq.name_server, "topic": topic, "bodyAs": "string", "includeProperties": "true"}
    df = drop_repeats(spark.read.format("rocketmq").options(**options).load())
    return [json.loads(row.body) for row in df.select("body").collect()]
