"""kill -9 and SIGSTOP while two queries write one topic by committed ranges, and a stream reads it.

Killed are a worker, the driver, and the broker, whose slave is read until it is back. A driver is stopped,
gets a successor, and wakes up again. The reader's whole history is judged by `commit_history`.

``CHAOS_KILLS`` says how many there are of each (one by default; from 20 on they fall into 200,000 messages).
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
from pathlib import Path
from typing import Final

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.support.commit_history import Reading, Seen, decide, examine
from tests.support.lean_jvm import COMPILED
from tests.support.light_cluster import LIGHT_JVM
from tests.support.patient import patient_client
from tests.support.scratch import scratch_env
from tests.support.topics import create_topic, fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, PullConsumer
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import RocketMQError

KINDS: Final = ("worker", "driver", "broker", "zombie")
KILLS: Final = int(os.environ.get("CHAOS_KILLS", "1"))
MESSAGES: Final = 200_000 if KILLS >= 20 else 8_000
BATCH_ROWS: Final = max(20, MESSAGES // 2 // (6 * len(KINDS) * KILLS))
SEED: Final = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
_QUEUES: Final = 2
_PATIENCE_S: Final = 400


@pytest.fixture
def failing_mq() -> Iterator[DevCluster]:
    """A broker that is killed, with a slave."""
    settings = {"slaveReadEnable": "true"}
    with DevCluster(slaves=1, broker_config=settings, broker_options=LIGHT_JVM) as cluster:
        yield cluster


class Writer:
    """The job, as processes that are killed, stopped and started again."""

    def __init__(self, args: list[str], pairs: list[str], log_file: Path) -> None:
        self._args, self._pairs = args, pairs
        self._log_file = log_file
        self._process = self._start(BATCH_ROWS)
        self.restarts = 0

    def _start(self, batch_rows: int) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(map(str, (COMPILED, Path(__file__).parents[2] / "src")))
        script = Path(__file__).with_name("committed_job.py")
        with self._log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(script), *self._args, str(batch_rows), *self._pairs],
                stdout=log,
                stderr=log,
                env={**os.environ, **scratch_env(self._log_file.parent), "PYTHONPATH": path},
                start_new_session=True,
            )

    @property
    def done(self) -> bool:
        """Whether it has ended at the end of its sources; it is started again where it failed."""
        code = self._process.poll()
        if code:
            self.restarts += 1
            assert self.restarts < 10 * len(KINDS) * KILLS, self.log_tail()
            self._process = self._start(BATCH_ROWS)
        return code == 0

    def kill(self) -> None:
        """Kill Python and the JVM; what they started notices by itself."""
        _kill(self._process)

    def restart(self, batch_rows: int = BATCH_ROWS) -> None:
        self.kill()
        self._process = self._start(batch_rows)

    def kill_worker(self, chance: random.Random) -> bool:
        """Kill one of the Python workers, if there is one."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
            workers = [each for each in children if _is_worker(each)]
            if workers:
                chance.choice(workers).kill()
                return True
        return False

    @contextlib.contextmanager
    def succeeded(self) -> Iterator[None]:
        """Stop it and start its successor for the block; wake it up after that, and kill it later."""
        zombie = self._process
        os.killpg(zombie.pid, signal.SIGSTOP)
        try:
            self._process = self._start(BATCH_ROWS)
            yield
            os.killpg(zombie.pid, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                zombie.wait(timeout=5)  # usually it fails: its checkpoint has another's batch
        finally:
            _kill(zombie)

    def log_tail(self) -> str:
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-60:])


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and parent and "pyspark.daemon" in parent.cmdline()
    return False


class Reader:
    """A stream that reads what is committed, and keeps every run of every micro-batch."""

    def __init__(self, spark: SparkSession, name_server: str, topic: str, folder: Path) -> None:
        self._spark = spark
        self._name_server, self._topic, self._folder = name_server, topic, folder
        self.history: list[Reading] = []
        self.restarts = 0
        self._query = self._start(available_now=False)

    def _start(self, *, available_now: bool) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("rocketmq")
            .options(nameServer=self._name_server, topic=self._topic, startingOffsets="earliest")
            .options(isolation="read_committed", bodyAs="string")
            .option("columns", "brokerName,queueId,queueOffset,body")
            .load()
        )
        return (
            rows.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._folder))
            .trigger(**({"availableNow": True} if available_now else {"processingTime": "200 milliseconds"}))
            .start()
        )

    def _take(self, rows: DataFrame, batch: int) -> None:
        self.history.append(Reading(batch, [_seen(*row) for row in rows.collect()]))

    def go_on(self, *, restart: bool = False) -> None:
        """Start the query again if it failed, as its user would."""
        if restart:
            self._query.stop()
        if not self._query.isActive:
            self.restarts += 1
            assert self.restarts < 20 * len(KINDS) * KILLS, self._query.exception()
            self._query = self._start(available_now=False)

    def finish(self) -> None:
        """Read the rest."""
        self._query.stop()
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._query = self._start(available_now=True)
            try:
                assert self._query.awaitTermination(_PATIENCE_S), "reading does not end"
                break
            except StreamingQueryException:
                assert time.monotonic() < deadline, "the query fails again and again"

    def stop(self) -> None:
        self._query.stop()


def _seen(broker: str, queue: int, offset: int, body: str) -> Seen:
    key, _, number = body.rpartition("|")
    return Seen((broker, queue), offset, key, int(number))


@pytest.mark.needs("cluster", "kills", "programs")
@pytest.mark.timeout(60 + 3 * _PATIENCE_S + 100 * len(KINDS) * KILLS)
def test_what_a_reader_sees_of_committed_ranges_is_sound(
    failing_mq: DevCluster, spark: SparkSession, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    target, sources = fresh_name("committed"), [fresh_name("source"), fresh_name("source")]
    create_topic(failing_mq, target, 4, 6)
    create_topic(failing_mq, f"{target}-commits", 1, 6)
    pairs: list[str] = []
    written: dict[str, int] = {}
    for source in sources:
        written |= fill_source(failing_mq, source, MESSAGES // 2)
        pairs += [source, f"file://{tmp_path}/{source}"]
    writer = Writer([failing_mq.name_server, target], pairs, tmp_path / "job.log")
    reader = None
    try:
        reader = Reader(spark, failing_mq.name_server, target, tmp_path / "reader")
        done = attack(writer, reader, failing_mq, target)
        writer.restart(20 * BATCH_ROWS)
        eventually(lambda: reader.go_on() or writer.done, _PATIENCE_S, what="the end of the job")
        reader.finish()
    finally:
        writer.kill()
        if reader is not None:
            reader.stop()
    transactions = decide(commit_records(failing_mq.name_server, f"{target}-commits"), target)
    found = examine(reader.history, transactions, written)
    sent = end_of(failing_mq.name_server, target)
    rows = sum(transaction.rows for transaction in transactions)
    print(
        f"kills: {dict(done)}; {MESSAGES} rows in {len(transactions)} transactions, {sent - rows} messages "
        f"of attempts that were not committed; {len(reader.history)} micro-batches read; after failures, "
        f"the writer started {writer.restarts} times again, the reader {reader.restarts} times; "
        f"defects: {dict(Counter(each.defect.name for each in found))}"
    )
    assert not found, found[:10]
    assert rows == MESSAGES
    assert done == Counter(dict.fromkeys(KINDS, KILLS)), "the job was done before the last kill"


def attack(writer: Writer, reader: Reader, mq: DevCluster, target: str) -> Counter[str]:
    """Kill one victim after the other, each after more was committed since the last kill."""
    chance = random.Random(SEED)
    done: Counter[str] = Counter()
    commits = f"{target}-commits"

    def await_progress() -> None:
        before = end_of(mq.name_server, commits)
        eventually(
            lambda: reader.go_on() or writer.done or end_of(mq.name_server, commits) > before + 4,
            _PATIENCE_S,
            what="progress after a kill",
        )

    for _ in range(KILLS):
        for kind in chance.sample(KINDS, len(KINDS)):
            await_progress()
            time.sleep(chance.uniform(0, 1.5))  # the random moment, not a synchronisation
            if writer.done:
                return done
            match kind:
                case "worker":
                    eventually(lambda: writer.done or writer.kill_worker(chance), what="a worker")
                case "driver":
                    writer.restart()
                case "zombie":
                    with writer.succeeded():
                        await_progress()
                case _:
                    mq.broker("broker-a").kill()
                    time.sleep(chance.uniform(0, 3))  # how long only the slave is there
                    mq.broker("broker-a").start()
                    reader.go_on(restart=True)
            done[kind] += 1
            print(f"{time.strftime('%X')} {kind}", flush=True)
    return done


def fill_source(mq: DevCluster, topic: str, messages: int) -> dict[str, int]:
    """Fill a source's queues with the rows of a key each, and return how many rows each key has."""
    create_topic(mq, topic, _QUEUES, 6)
    each = messages // _QUEUES
    with patient_client(mq.name_server) as client:
        for queue in client.write_queues(topic):
            bodies = [f"{topic}-{queue.queue_id}|{number}" for number in range(each)]
            fill(client, topic, bodies, queues=[queue])
    return {f"{topic}-{queue_id}": each for queue_id in range(_QUEUES)}


def end_of(name_server: str, topic: str) -> int:
    """Return the sum of the ends of a topic's queues; 0 while its broker is down."""
    with contextlib.suppress(RocketMQError), Client(name_server) as client:
        return sum(client.max_offsets(client.read_queues(topic)).values())
    return 0


def commit_records(name_server: str, topic: str) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    with PullConsumer("reader", name_server=name_server) as consumer:
        (queue,) = consumer.fetch_subscribe_message_queues(topic)
        offset, end = 0, consumer.max_offset(queue)
        while offset < end:
            result = consumer.pull(queue, "*", offset, 32)
            found += [(message.queue_offset, message.body) for message in result.messages]
            offset = result.next_begin_offset
    return found
