"""kill -9 of a stream job while windows close all along: tables and files hold each result once.

``CHAOS_KILLS`` says how many kills each sink gets: one by default.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.topics import create_topic, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.message_search import last_messages
from pyspark_rocketmq.devcluster import DevCluster

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
WINDOWS = 400 if KILLS >= 20 else 40
KEYS = 3
ROWS_PER_WINDOW = 30
BATCH_ROWS = 120
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
UP_TIMEOUT_S = 180


@contextlib.contextmanager
def job(args: list[str], log_file: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the job in processes of its own; nothing of it is left behind."""
    with log_file.open("a") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("streams_job.py")), *args],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
                "BATCH_ROWS": str(BATCH_ROWS),
            },
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "@started\n", log_file.read_text(errors="replace")[-4_000:]
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)


def fill(client: Client, topic: str) -> Counter[tuple[str, str]]:
    """Send rows in the order of their times, and return the sums by window and key."""
    chance = random.Random(SEED)
    expected: Counter[tuple[str, str]] = Counter()
    bodies = []
    for window in range(WINDOWS):
        for row in range(ROWS_PER_WINDOW):
            key, value = f"k{row % KEYS}", chance.randrange(100)
            moment = 1_900_000_000 + window * 10 + row * 10 // ROWS_PER_WINDOW
            bodies.append(json.dumps({"time": moment * 1000, "key": key, "value": value}))
            start = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_900_000_000 + window * 10))
            expected[start, key] += value
    producer, (queue,) = Producer(client), client.write_queues(topic)
    for at in range(0, len(bodies), 500):
        producer.send_batch([OutgoingMessage(topic, body.encode()) for body in bodies[at : at + 500]], queue)
    last = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_900_000_000 + (WINDOWS - 1) * 10))
    return Counter({place: total for place, total in expected.items() if place[0] != last})


def finished(checkpoint: Path) -> int:
    commits = checkpoint / "commits"
    if not commits.exists():
        return -1
    return max((int(file.name) for file in commits.iterdir() if file.name.isdigit()), default=-1)


@pytest.mark.timeout(400 + KILLS * 120)
@pytest.mark.parametrize("sink", ["table", "files", "topic"])
def test_each_result_counts_once(mq: DevCluster, spark: SparkSession, tmp_path: Path, sink: str) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    topic, target = fresh_name("kills"), fresh_name("results")
    create_topic(mq, topic, 1, 6)
    create_topic(mq, target, 1, 6)
    with sqlite3.connect(tmp_path / "results.db") as connection:
        connection.execute("CREATE TABLE results (start_time TEXT, key TEXT, total REAL, n INTEGER)")
    checkpoint = tmp_path / f"checkpoint-{sink}"
    args = [mq.name_server, topic, fresh_name("g"), str(tmp_path), target, sink]
    with Client(mq.name_server) as client:
        expected = fill(client, topic)
        for _ in range(KILLS):
            before = finished(checkpoint)
            with job([*args, "never"], tmp_path / "job.log") as process:
                eventually(lambda b=before: finished(checkpoint) > b, UP_TIMEOUT_S, what="a batch")
                time.sleep(chance.uniform(0, 1))  # the random moment, not a synchronisation
                assert process.poll() is None
        with job([*args, "at-the-end"], tmp_path / "job.log") as process:
            assert process.wait(timeout=300) == 0, (tmp_path / "job.log").read_text()[-4_000:]
        rows, repeats = results(spark, client, tmp_path, target, sink)
    print(f"{sink}: {KILLS} kills, {len(rows)} results, {repeats} repeats")
    assert Counter({(row["start_time"], row["key"]): int(row["total"]) for row in rows}) == expected
    assert len(rows) == len(expected)
    assert all(row["n"] == ROWS_PER_WINDOW // KEYS for row in rows)


def results(spark: SparkSession, client: Client, folder: Path, target: str, sink: str):
    """Return the results as a reader sees them, and how many repeats it left out."""
    match sink:
        case "table":
            with sqlite3.connect(folder / "results.db") as connection:
                connection.row_factory = sqlite3.Row
                return [dict(row) for row in connection.execute("SELECT * FROM results")], 0
        case "files":
            return [json.loads(row[0]) for row in spark.read.text(str(folder / "files")).collect()], 0
    queues = client.read_queues(target)
    messages = last_messages(client, queues, 1_000_000)
    by_key = {message.keys: json.loads(message.body) for message in messages}
    return list(by_key.values()), len(messages) - len(by_key)
