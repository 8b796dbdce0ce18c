"""kill -9 of the driver and of workers, at random moments, for each way to keep a stream's offsets.

``CHAOS_KILLS`` says how many kills of each of the two each way gets: one by default; from 2 on the store of
one's own is tried in SQLite too.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.example_process import ExampleProcess
from tests.support.patient import patient_producer
from tests.support.postgres import PostgresServer
from tests.support.stored_orders import Results
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, OutgoingMessage

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
SEED = int(os.environ.get("CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
QUEUES = 3
pytestmark = [pytest.mark.needs("kills", "programs"), pytest.mark.timeout(180 + 180 * KILLS)]
STORES = ("postgresql", "sqlite") if KILLS > 1 else ("postgresql",)


@pytest.fixture
def feed(mq, topic) -> Iterator[tuple[str, Callable[[int], None]]]:
    """A topic, and a function that sends numbered messages to it."""
    name, sent = topic(queues=QUEUES), 0
    with Client(mq.name_server) as client:
        producer, queues = patient_producer(client), client.write_queues(name)

        def send(count: int) -> None:
            nonlocal sent
            for number in range(sent, sent + count):
                message = OutgoingMessage(name, f"order {number}".encode())
                producer.send(message, queues[number % QUEUES])
            sent += count

        yield name, send


@pytest.fixture
def run(tmp_path) -> Iterator[Callable[[str, list[str]], ExampleProcess]]:
    """Start an example; it is killed at the end."""
    started: list[ExampleProcess] = []

    def start(name: str, args: list[str]) -> ExampleProcess:
        process = ExampleProcess(name, args, tmp_path / "example.log")
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill_driver()


@pytest.fixture
def results() -> Iterator[Callable[[str], Results]]:
    opened: list[Results] = []

    def at(url: str) -> Results:
        opened.append(Results(url))
        return opened[-1]

    yield at
    for result in opened:
        result.close()


def attack(process: ExampleProcess, found: Results, send: Callable[[int], None]) -> int:
    """Kill driver and worker in turns, after progress and at random moments; return how much was sent."""
    print(f"seed {SEED}")
    chance, sent = random.Random(SEED), 0
    for kind in ("worker", "driver") * KILLS:
        send(600)
        sent += 600
        before = sum(found.bodies().values())

        def progress(before=before) -> bool:
            process.check()
            return sum(found.bodies().values()) > before

        eventually(progress, 120, what="progress")
        time.sleep(chance.uniform(0, 1.0))  # the random moment, not a synchronisation
        if kind == "driver":
            process.kill_driver()
            process.start()
            continue
        killed = False
        for _ in range(60):
            send(30)  # or there would be no task
            sent += 30
            killed = process.kill_worker()
            if killed:
                break
        assert killed, "no worker had a task"
    send(100)
    sent += 100
    eventually(lambda: process.check() or len(found.bodies()) == sent, 180, what=f"all {sent} messages")
    rows, lost = sum(found.bodies().values()), process.printed().count("Lost task")
    print(f"{KILLS} kills of the driver and of workers ({lost} tasks lost): {sent} messages, {rows} rows")
    return sent


def test_checkpoints_lose_nothing_and_repeat_batches_exactly(mq, feed, run, results, tmp_path: Path) -> None:
    topic, send = feed
    database = tmp_path / "results.db"
    args = [mq.name_server, topic, str(database), f"file://{tmp_path}/checkpoint"]
    found = results(f"sqlite:///{database}")
    sent = attack(run("dstream_checkpoints", args), found, send)
    assert set(found.bodies()) == {f"order {number}" for number in range(sent)}
    # A batch that came again was the same batch: no message is in two, and none is missing in a repetition.
    per_batch: dict[str, Counter] = {}
    for batch, queue, position in found.rows("SELECT batch, queue, position FROM orders"):
        per_batch.setdefault(batch, Counter())[queue, position] += 1
    everywhere = Counter(place for places in per_batch.values() for place in places)
    assert max(everywhere.values()) == 1, "a message came in two batches"
    for batch, places in per_batch.items():
        assert len(set(places.values())) == 1, f"batch {batch} had other messages when it came again"


def test_commits_after_the_output_lose_nothing(mq, feed, run, results, tmp_path: Path) -> None:
    topic, send = feed
    database = tmp_path / "results.db"
    found = results(f"sqlite:///{database}")
    sent = attack(run("dstream_commits", [mq.name_server, topic, str(database)]), found, send)
    assert set(found.bodies()) == {f"order {number}" for number in range(sent)}


@pytest.mark.parametrize("kind", STORES)
def test_a_store_of_ones_own_has_everything_once(mq, feed, run, results, tmp_path: Path, kind: str) -> None:
    topic, send = feed
    if kind == "sqlite":
        check_own_store(mq, topic, send, run, results, f"sqlite:///{tmp_path}/results.db")
        return
    with PostgresServer() as server:
        check_own_store(mq, topic, send, run, results, server.fresh_database())


def check_own_store(mq, topic, send, run, results, url: str) -> None:
    found = results(url)
    process = run("dstream_own_store", [mq.name_server, topic, url])
    sent = attack(process, found, send)
    assert found.bodies() == Counter(f"order {number}" for number in range(sent))
    counts = found.rows("SELECT queue, count(*) FROM orders GROUP BY queue")
    assert sorted(found.rows("SELECT queue, orders FROM totals")) == sorted(counts), "a sum has repetitions"
    process.kill_driver()
    found.close()
