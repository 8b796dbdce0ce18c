"""kill -9 of receiver, worker, driver and broker, at random moments: receivers with a log lose nothing.

``CHAOS_KILLS`` says how many kills of each there are, one by default, and ``CHAOS_KINDS`` of which.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.example_process import ExampleProcess
from tests.support.stored_orders import Results
from tests.support.topics import create_topic
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage, Producer
from pyspark_rocketmq.devcluster import DevCluster

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
KINDS = tuple(os.environ.get("CHAOS_KINDS", "receiver,worker,driver,broker").split(","))
QUEUES = 4
pytestmark = pytest.mark.timeout(240 + 240 * KILLS)


@pytest.fixture
def broken_mq() -> Iterator[DevCluster]:
    """A broker of the test's own: it is killed."""
    with DevCluster() as cluster:
        yield cluster


@pytest.fixture
def send(broken_mq) -> Iterator[Callable[[int], int]]:
    """A function that sends numbered messages, and returns how many there are in all."""
    create_topic(broken_mq, "orders", QUEUES, 6)
    sent = 0
    with Client(broken_mq.name_server) as client:
        producer, queues = Producer(client), client.write_queues("orders")

        def some(count: int) -> int:
            nonlocal sent
            for number in range(sent, sent + count):
                message = OutgoingMessage("orders", f"order {number}".encode())
                producer.send(message, queues[number % QUEUES])
            sent += count
            return sent

        yield some


@pytest.fixture
def job(broken_mq, tmp_path: Path) -> Iterator[ExampleProcess]:
    """The example with two receivers; it is killed at the end."""
    args = [
        "receiver",
        broken_mq.name_server,
        "orders",
        f"{tmp_path}/results.db",
        f"file://{tmp_path}/checkpoint",
    ]
    process = ExampleProcess("dstream_receivers", args, tmp_path / "example.log")
    process.start()
    yield process
    process.kill_driver()


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Results]:
    results = Results(f"sqlite:///{tmp_path}/results.db")
    yield results
    results.close()


def test_receivers_with_a_log_lose_nothing(broken_mq, send, job, found) -> None:
    print(f"seed {SEED}")
    chance, killed = random.Random(SEED), Counter()
    broker = broken_mq.broker()
    port = int(broker.address.rpartition(":")[2])

    def is_receiver(process: psutil.Process) -> bool:
        return any(c.raddr and c.raddr.port == port for c in process.net_connections("tcp"))

    for kind in KINDS * KILLS:
        send(300)
        before = sum(found.bodies().values())
        eventually(lambda b=before: job.check() or sum(found.bodies().values()) > b, 120, what="progress")
        time.sleep(chance.uniform(0, 1.0))  # the random moment, not a synchronisation
        match kind:
            case "driver":
                job.kill_driver()
                job.start()
            case "broker":
                broker.kill()
                broker.start()
            case "receiver":
                eventually(lambda: send(30) and job.kill_worker(is_receiver), 90, what="a receiver to kill")
            case "worker":
                eventually(
                    lambda: send(30) and job.kill_worker(lambda process: not is_receiver(process)),
                    90,
                    what="a worker with a task to kill",
                )
        killed[kind] += 1
        print(f"{dict(killed)} killed, {sum(found.bodies().values())} rows", flush=True)
    sent = send(100)
    eventually(lambda: job.check() or len(found.bodies()) == sent, 240, what=f"all {sent} messages")
    assert set(found.bodies()) == {f"order {number}" for number in range(sent)}
    rows = sum(found.bodies().values())
    print(f"{dict(killed)} killed: {sent} messages sent, {len(found.bodies())} stored, {rows} rows")
