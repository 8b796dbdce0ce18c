"""kill -9 of the driver at random moments: into an idempotent sink every message comes exactly once.

``CHAOS_KILLS`` says how many kills there are: one by default; from 20 on they fall into 200,000 messages.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import Row, Sender
from tests.support.lean_jvm import COMPILED
from tests.support.scratch import scratch_env
from tests.support.topics import create_topic, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq import lag
from pyspark_rocketmq.client import Admin, Client
from pyspark_rocketmq.devcluster import DevCluster

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
MESSAGES = 200_000 if KILLS >= 20 else 6_000
BATCH_ROWS = MESSAGES // (100 if KILLS >= 20 else 20)
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
UP_TIMEOUT_S = 180
END_TIMEOUT_S = 120 + 10 * MESSAGES // BATCH_ROWS  # batches of seconds, on a busy machine


@dataclass
class Driver:
    """A driver in a session of processes of its own."""

    args: list[str]
    log_file: Path

    @contextlib.contextmanager
    def running(self, ends: str) -> Iterator[subprocess.Popen[str]]:
        """Start it, wait until its query has started, and leave nothing of it behind."""
        path = os.pathsep.join(map(str, (COMPILED, Path(__file__).parents[2] / "src")))
        with self.log_file.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("table_job.py")), *self.args, ends],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **scratch_env(self.log_file.parent), "PYTHONPATH": path},
                start_new_session=True,
            )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "@started\n", self.log()
            yield process
        finally:
            self.kill(process)

    @staticmethod
    def kill(process: subprocess.Popen[str]) -> None:
        """Kill Python and the JVM at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")[-4_000:]


@pytest.mark.timeout(END_TIMEOUT_S + KILLS * 120)
def test_every_message_once_through_kills_at_random_moments(mq: DevCluster, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    topic, group = fresh_name("kills"), fresh_name("g-kills")
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "table"
    args = [mq.name_server, topic, group, f"file://{checkpoint}", f"file://{table}", str(BATCH_ROWS)]
    driver = Driver(args, tmp_path / "driver.log")
    create_topic(mq, topic, 4, 6)
    in_flight = 0
    with Client(mq.name_server) as client:
        send = Sender(client)
        for kill in range(KILLS):
            if kill == KILLS // 2:
                Admin(client).alter_topic(topic, queues=6)  # two queues that are found while it goes on
                client.invalidate(topic)
            send_some(send, topic, MESSAGES // (KILLS + 1))
            before = finished(checkpoint)
            with driver.running("never") as process:
                if kill % 2 == 0:  # every other kill hits a later batch; the others hit recovery itself
                    eventually(lambda b=before: finished(checkpoint) > b, UP_TIMEOUT_S, what="a batch")
                    within = partial(frozen_within_a_batch, process, checkpoint)
                    eventually(within, UP_TIMEOUT_S, what="a moment within a batch")
                else:
                    time.sleep(chance.uniform(0, 3))  # the random moment, not a synchronisation
                assert process.poll() is None, driver.log()
                driver.kill(process)
            in_flight += planned(checkpoint) > finished(checkpoint)
        send_some(send, topic, MESSAGES - sum(map(len, send.sent.values())))
        with driver.running("at-the-end") as process:
            assert process.wait(timeout=END_TIMEOUT_S) == 0, driver.log()
        expected = send.sent[topic]
    found = rows(table)
    print(
        f"{KILLS} kills, {in_flight} of them within a batch; {len(expected)} messages in "
        f"{planned(checkpoint) + 1} batches"
    )
    assert in_flight >= (KILLS + 1) // 2, "every other driver was stopped within a batch, and killed there"
    assert len(expected) == MESSAGES
    assert Counter(expected) == Counter(found), difference(expected, found)
    assert lag(mq.name_server, group, topic).messages == 0


def frozen_within_a_batch(process: subprocess.Popen[str], checkpoint: Path) -> bool:
    """Stop all of a driver's processes; let them continue unless a batch is planned and not finished."""
    os.killpg(process.pid, signal.SIGSTOP)
    if planned(checkpoint) > finished(checkpoint):
        return True
    os.killpg(process.pid, signal.SIGCONT)
    return False


def send_some(send: Sender, topic: str, count: int) -> None:
    """Send in batches that a broker takes."""
    for first in range(0, count, 8_000):
        send(topic, min(8_000, count - first))


def rows(table: Path) -> list[Row]:
    found: list[Row] = []
    for batch in sorted(table.iterdir()):
        assert (batch / "_SUCCESS").exists(), f"batch {batch.name} was never finished"
        for file in batch.glob("*.parquet"):
            columns = pq.ParquetFile(file).read().to_pydict()
            found += zip(*(columns[n] for n in ("brokerName", "queueId", "queueOffset", "body")), strict=True)
    return found


def planned(checkpoint: Path) -> int:
    return newest(checkpoint / "offsets")


def finished(checkpoint: Path) -> int:
    return newest(checkpoint / "commits")


def newest(log: Path) -> int:
    """Return the last batch of one of the checkpoint's logs, -1 before the first."""
    if not log.exists():
        return -1
    return max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)


def difference(expected: list[Row], found: list[Row]) -> str:
    missing, surplus = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    return f"lost {missing.total()}: {sorted(missing)[:5]}; too much {surplus.total()}: {sorted(surplus)[:5]}"
