"""kill -9 of receiver, worker, driver and broker, at random moments: receivers with a log lose nothing.

``CHAOS_KILLS`` says how many kills of each there are, one by default, and ``CHAOS_KINDS`` of which.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from tests.support.example_process import ExampleProcess
from tests.support.patient import patient_producer
from tests.support.stored_orders import Results
from tests.support.topics import create_topic
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
KINDS = tuple(os.environ.get("CHAOS_KINDS", "receiver,worker,driver,broker").split(","))
QUEUES = 4
pytestmark = [pytest.mark.needs("kills", "programs"), pytest.mark.timeout(240 + 240 * KILLS)]


@pytest.fixture
def broken_mq() -> Iterator[DevCluster]:
    """A broker of the test's own: it is killed."""
    with DevCluster() as cluster:
        yield cluster


@pytest.fixture
def two_brokers() -> Iterator[DevCluster]:
    """Two brokers of the test's own; three of the queues are at the first one, one is at the second.

    So that one of two receivers has queues of both.
    """
    with DevCluster(2) as cluster, Client(cluster.name_server) as client:
        Admin(client).create_topic("orders", queues=3, brokers=["broker-a"])
        Admin(client).create_topic("orders", queues=1, brokers=["broker-b"])
        yield cluster


@pytest.fixture
def send(broken_mq) -> Iterator[Callable[[int], int]]:
    """A function that sends numbered messages, and returns how many there are in all."""
    create_topic(broken_mq, "orders", QUEUES, 6)
    sent = 0
    with Client(broken_mq.name_server) as client:
        producer, queues = patient_producer(client), client.write_queues("orders")

        def some(count: int) -> int:
            nonlocal sent
            for number in range(sent, sent + count):
                message = OutgoingMessage("orders", f"order {number}".encode())
                producer.send(message, queues[number % QUEUES])
            sent += count
            return sent

        yield some


@pytest.fixture
def run_job(tmp_path: Path) -> Iterator[Callable[[DevCluster], ExampleProcess]]:
    """A function that starts the example, with two receivers; it is killed at the end."""
    with ExitStack() as started:

        def run(cluster: DevCluster) -> ExampleProcess:
            files = [f"{tmp_path}/results.db", f"file://{tmp_path}/checkpoint"]
            args = ["receiver", cluster.name_server, "orders", *files]
            process = ExampleProcess("dstream_receivers", args, tmp_path / "example.log")
            started.callback(process.kill_driver)
            process.start()
            return process

        yield run


@pytest.fixture
def job(broken_mq, run_job) -> ExampleProcess:
    return run_job(broken_mq)


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


def test_a_broker_that_dies_holds_up_no_receiver_of_the_other_one(two_brokers, run_job, found) -> None:
    print(f"seed {SEED}")
    chance, sent, kills = random.Random(SEED), 0, 0
    job = run_job(two_brokers)
    with Client(two_brokers.name_server) as client:
        producer, queues = patient_producer(client), client.write_queues("orders")

        def send_to(broker_name: str, count: int) -> None:
            nonlocal sent
            mine = [queue for queue in queues if queue.broker_name == broker_name]
            for number in range(sent, sent + count):
                producer.send(OutgoingMessage("orders", f"order {number}".encode()), mine[number % len(mine)])
            sent += count

        def all_stored() -> bool:
            job.check()
            return len(found.bodies()) == sent

        names = sorted({queue.broker_name for queue in queues})
        assert names == ["broker-a", "broker-b"]
        for dying in names * KILLS:
            (alive,) = set(names) - {dying}
            send_to("broker-a", 60)
            send_to("broker-b", 60)
            eventually(all_stored, 240, what=f"all {sent} messages")
            time.sleep(chance.uniform(0, 1.0))  # the random moment, not a synchronisation
            two_brokers.broker(dying).kill()
            for _ in range(3):
                send_to(alive, 30)
                eventually(all_stored, 60, what=f"all {sent} messages, while {dying} is away")
            if kills % 2:
                job.kill_driver()
                job.start()
                send_to(alive, 30)
                eventually(all_stored, 240, what=f"all {sent} messages after a recovery without {dying}")
            two_brokers.broker(dying).start()
            kills += 1
        send_to("broker-a", 30)
        send_to("broker-b", 30)
        eventually(all_stored, 240, what=f"all {sent} messages")
    assert set(found.bodies()) == {f"order {number}" for number in range(sent)}
    print(f"{kills} brokers killed: {sent} messages, {sum(found.bodies().values())} rows")
