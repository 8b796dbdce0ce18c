"""The programs of rocketmq-spark's README and of KafkaUtils, each a new process with nothing configured."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.spark.test_seed_programs import PATIENCE_S, program
from tests.support.patient import patient_producer
from tests.support.topics import fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import OutgoingMessage

pytestmark = [pytest.mark.needs("programs"), pytest.mark.timeout(400)]


@pytest.fixture
def filled(client, topic):
    """``filled(messages)``: a topic of four queues with messages "0", "1", ... dealt out over them."""

    def make(messages: int) -> str:
        name = topic(queues=4)
        fill(client, name, [str(number) for number in range(messages)])
        return name

    return make


def test_the_pull_stream_prints_its_messages_and_commits_its_ranges(mq, client, filled, group, tmp_path):
    name = filled(8)
    ends = client.max_offsets(client.read_queues(name))
    with program("000_pull_stream.py", mq.name_server, group, name, folder=tmp_path) as running:

        def committed() -> bool:
            running.check()
            return client.committed_offsets(group, ends) == ends

        eventually(committed, PATIENCE_S, what="the ranges to be committed")
        ranges = [f"{name}@broker-a:{queue}[0, 2): 2 messages\n" for queue in range(4)]
        eventually(lambda: set(ranges) <= set(running.lines), 30, what="the printed ranges")
    assert {f"b'{number}'\n" for number in range(8)} <= set(running.lines)


def test_the_rdd_has_the_ranges_of_both_queues(mq, filled, group, tmp_path):
    name = filled(400)
    with program("000_rdd.py", mq.name_server, group, name, "broker-a", folder=tmp_path) as running:
        assert running.process.wait(PATIENCE_S) == 0, running.log.read_text(errors="replace")[-4_000:]
        eventually(lambda: len(running.lines) == 200, 30, what="two hundred checksums")
    assert all(line.strip().isdigit() for line in running.lines)


def test_results_and_offsets_are_one_transaction_and_the_next_start_continues_there(
    mq, client, filled, group, tmp_path
):
    name, database = filled(8), tmp_path / "results.db"
    args = ("000_own_store.py", mq.name_server, group, name, str(database))

    def results() -> dict[str, int]:
        with closing(sqlite3.connect(database)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            return dict(connection.execute("SELECT * FROM results")) if tables else {}

    with program(*args, folder=tmp_path) as running:

        def stored() -> bool:
            running.check()
            return len(results()) == 8

        eventually(stored, PATIENCE_S, what="eight results")
    assert results() == {str(number): 1 for number in range(8)}
    patient_producer(client).send_batch([OutgoingMessage(name, b"7")], min(client.write_queues(name)))
    with program(*args, folder=tmp_path) as running:

        def continued() -> bool:
            running.check()
            return results()["7"] == 2

        eventually(continued, PATIENCE_S, what="what came while it was away")
    assert results() == {**{str(number): 1 for number in range(7)}, "7": 2}


@pytest.mark.parametrize("reliable", [False, True])
def test_the_receivers_print_what_they_receive(mq, client, filled, group, tmp_path, reliable):
    name = filled(8)
    client.commit_offsets(group, dict.fromkeys(client.read_queues(name), 0))
    checkpoint = [str(tmp_path / "checkpoint")] if reliable else []
    with program("000_receiver.py", mq.name_server, group, name, *checkpoint, folder=tmp_path) as running:

        def printed() -> bool:
            if {f"b'{number}'\n" for number in range(8)} <= set(running.lines):
                return True
            running.check()  # it ends by itself, a minute after its start
            return False

        eventually(printed, PATIENCE_S, what="eight messages")


@pytest.mark.parametrize("way", ["createStream", "createDirectStream"])
def test_the_ways_of_kafka_utils_print_what_is_there_from_the_smallest_offset(
    mq, filled, group, tmp_path, way
):
    name = filled(8)
    with program("002_kafka_utils.py", mq.name_server, group, name, way, folder=tmp_path) as running:

        def printed() -> bool:
            running.check()
            return {f"{number}\n" for number in range(8)} <= set(running.lines)

        eventually(printed, PATIENCE_S, what="eight messages")
        assert "auto.offset.reset=smallest became" in running.log.read_text(errors="replace")
