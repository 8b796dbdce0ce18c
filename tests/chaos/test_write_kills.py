"""kill -9 at random moments, of a worker, of the driver, of the broker: no row is lost, each counts once.

What is written is read back twice: with repeats, where none may be missing (at least once), and through
`drop_repeats`, where each row must come exactly once (effectively once). What is written with transactions
is there once at the first look: neither a row of an attempt that came to nothing, nor a repeat.

``CHAOS_KILLS`` says how many kills there are (a few by default; 30 and more copy 200,000 messages).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.patient import patient_client
from tests.support.scratch import scratch_env
from tests.support.topics import create_topic, fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, Message, OutgoingMessage, PullConsumer
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.spark import drop_repeats

KILLS = max(3, int(os.environ.get("CHAOS_KILLS", "3")))  # one of each victim
MESSAGES = 200_000 if KILLS >= 30 else 20_000
TRANSACTION_KILLS = max(30, KILLS) if KILLS >= 20 else min(2, KILLS)
TRANSACTION_MESSAGES = 60_000 if KILLS >= 20 else 6_000
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
VICTIMS = ("driver", "broker", "worker")
_PATIENCE_S = 400
WITHIN = f"{2 * _PATIENCE_S} seconds"
"""How far apart two copies of a row may be stored: longer than the test waits for the writer."""


@pytest.fixture
def broken_mq() -> Iterator[DevCluster]:
    """A broker of the test's own: it is killed."""
    with DevCluster() as cluster:
        yield cluster


class Job:
    """The copying job as processes that can be killed and started again."""

    def __init__(self, args: list[str], log_file: Path, *, guarantee: str, batch_rows: int) -> None:
        self._args = args
        self._settings = {"GUARANTEE": guarantee, "BATCH_ROWS": str(batch_rows)}
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        script = Path(__file__).with_name("copy_job.py")
        paths = [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            **scratch_env(self._log_file.parent),
            **self._settings,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(script), *self._args],
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    @property
    def ended(self) -> int | None:
        """The exit code, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def kill_driver(self) -> None:
        """Kill Python and the JVM; what they started notices by itself."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=60)

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill one of the Python workers that run tasks, if there is one."""
        workers = list(self._workers())
        if not workers:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(workers).kill()
            return True
        return False

    def _workers(self) -> Iterator[psutil.Process]:
        assert self._process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if (
                        "pyspark.daemon" in process.cmdline()
                        and "pyspark.daemon" in process.parent().cmdline()
                    ):
                        yield process

    def go_on(self) -> None:
        """Start it again if the worker that was killed was the query's own, one that plans or commits.

        Spark tries a task again, but ends a query for those.
        """
        if self.ended:
            assert "Python worker exited unexpectedly" in self.log_tail(), self.log_tail()
            self.start()

    def log_tail(self) -> str:
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-80:])


@dataclass
class Copied:
    """A source that was copied while processes were killed."""

    kills: Counter[str]
    found: list[Message]
    target: str


@pytest.fixture
def copy(broken_mq: DevCluster, tmp_path: Path) -> Callable[..., Copied]:
    """Copy a topic, kill meanwhile, and read what is there in the end."""

    def run(guarantee: str, messages: int, kills: int) -> Copied:
        print(f"seed {SEED}")
        source, target = fresh_name("source"), fresh_name("target")
        create_topic(broken_mq, source, 4, 6)
        create_topic(broken_mq, target, 4, 6)
        if guarantee == "staged":
            create_topic(broken_mq, f"{target}-staging", 4, 6)
            create_topic(broken_mq, f"{target}-staging-commits", 1, 6)
        send_rows(broken_mq.name_server, source, messages)
        job = Job(
            [broken_mq.name_server, source, target, f"file://{tmp_path}/checkpoint"],
            tmp_path / "job.log",
            guarantee=guarantee,
            batch_rows=messages // (10 if kills < 30 else 100),
        )
        job.start()
        try:
            done = attack(job, broken_mq, target, random.Random(SEED), kills)
            eventually(lambda: job.go_on() or job.ended == 0, _PATIENCE_S, what="the end of the job")
        finally:
            job.kill_driver()
        assert done.total() == kills, "the job was done before the last kill"
        return Copied(done, read_all(broken_mq.name_server, target), target)

    return run


@pytest.mark.needs("cluster", "kills", "programs")
@pytest.mark.timeout(60 + 3 * _PATIENCE_S + 60 * KILLS)
def test_nothing_is_lost_and_every_row_counts_once(
    copy: Callable[..., Copied], broken_mq: DevCluster, spark: SparkSession, tmp_path: Path
) -> None:
    copied = copy("effectively-once", MESSAGES, KILLS)
    once = read_once(spark, broken_mq.name_server, copied.target, tmp_path / "once")
    print(
        f"kills: {dict(copied.kills)}; {MESSAGES} rows, {len(copied.found)} messages, "
        f"{once.total()} rows through drop_repeats"
    )
    bodies = {message.body for message in copied.found}
    assert len(bodies) == MESSAGES, f"lost {MESSAGES - len(bodies)} rows"
    assert once == Counter(bodies)


@pytest.mark.needs("cluster", "kills", "programs")
@pytest.mark.timeout(60 + 3 * _PATIENCE_S + 60 * TRANSACTION_KILLS)
@pytest.mark.parametrize("guarantee", ["transactional", "staged"])
def test_every_row_of_a_transactional_write_is_there_once(
    copy: Callable[..., Copied], guarantee: str
) -> None:
    copied = copy(guarantee, TRANSACTION_MESSAGES, TRANSACTION_KILLS)
    print(f"kills: {dict(copied.kills)}; {TRANSACTION_MESSAGES} rows, {len(copied.found)} messages")
    assert Counter(message.body for message in copied.found) == {
        f"row {row}".encode(): 1 for row in range(TRANSACTION_MESSAGES)
    }


def attack(job: Job, mq: DevCluster, target: str, chance: random.Random, kills: int) -> Counter[str]:
    """Kill one victim after the other, each in a run that has got further since the last kill."""
    done: Counter[str] = Counter()
    victims = itertools.cycle(VICTIMS)
    while done.total() < kills:
        victim = next(victims)
        before = written(mq.name_server, target)
        eventually(
            lambda before=before: job.go_on() or job.ended == 0 or written(mq.name_server, target) > before,
            _PATIENCE_S,
            what="progress after a kill",
        )
        time.sleep(chance.uniform(0, 1.5))  # the random moment, not a synchronisation
        if job.ended == 0:
            break
        match victim:
            case "worker":
                if not job.kill_worker(chance):
                    continue
            case "driver":
                job.kill_driver()
                job.start()
            case _:
                mq.broker().kill()
                mq.broker().start()
        done[victim] += 1
    return done


def send_rows(name_server: str, topic: str, messages: int) -> None:
    with patient_client(name_server) as client:
        rows = [OutgoingMessage(topic, f"row {row}".encode(), tags="t", keys="k") for row in range(messages)]
        fill(client, topic, rows)


def written(name_server: str, topic: str) -> int:
    with Client(name_server) as client:
        return sum(client.max_offsets(client.read_queues(topic)).values())


def read_all(name_server: str, topic: str) -> list[Message]:
    found: list[Message] = []
    with PullConsumer("reader", name_server=name_server) as consumer:
        for queue in consumer.fetch_subscribe_message_queues(topic):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, "*", offset, 32)
                found += result.messages
                offset = result.next_begin_offset
    return found


def read_once(spark: SparkSession, name_server: str, topic: str, folder: Path) -> Counter[bytes]:
    """Read the topic to its end as a user does who wants each row once."""
    found: Counter[bytes] = Counter()

    def take(batch: DataFrame, _: int) -> None:
        found.update(bytes(row.body) for row in batch.select("body").toLocalIterator())

    messages = (
        spark.readStream.format("rocketmq")
        .options(nameServer=name_server, topic=topic, startingOffsets="earliest", includeProperties=True)
        .options(eventTimeAlignment="store", includeAlignedTimestamp=True)
        .option("maxOffsetsPerTrigger", MESSAGES // 10)  # its queues are apart, as for a reader that follows
        .load()
    )
    query = (
        drop_repeats(messages, within=WITHIN)
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(_PATIENCE_S), "reading does not end"
    finally:
        query.stop()
    return found
