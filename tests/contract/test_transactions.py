"""Transactions on real brokers of three releases, which ask after a second; and on the mock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.patient import patient_producer
from tests.support.topics import create_topic, fresh_name
from tests.support.transactional_job import TransactionalJob
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, Message, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.record.layout import MessageFlag
from pyspark_rocketmq.spark import TransactionResolver
from pyspark_rocketmq.spark.write.transaction_log import TransactionName
from pyspark_rocketmq.testing import MockCluster

NAME = TransactionName("query", 0)
BODIES = [f"m{number}" for number in range(300)]
# After 15 questions, its default, a broker would give a message up.
ASKS_SOON = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "10000",
}
REAL = pytest.param(DEFAULT_VERSION, marks=pytest.mark.needs("cluster"))

Cluster = DevCluster | MockCluster


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[str], Cluster]]:
    started: dict[str, Cluster] = {}

    def of(version: str) -> Cluster:
        if version not in started:
            mock = version == "mock"
            started[version] = MockCluster() if mock else DevCluster(version=version, broker_config=ASKS_SOON)
            started[version].__enter__()
        return started[version]

    yield of
    for cluster in started.values():
        cluster.__exit__(None, None, None)


@pytest.fixture(params=[REAL, "5.4.0", "4.9.7"])
def asking(request: pytest.FixtureRequest, clusters: Callable[[str], Cluster]) -> DevCluster:
    return clusters(request.param)


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Cluster], TransactionalJob]]:
    with ExitStack() as jobs:

        def job(cluster: Cluster) -> TransactionalJob:
            topic = fresh_name(request.node.name)
            if isinstance(cluster, MockCluster):
                cluster.create_topic(topic, 4)
            else:
                create_topic(cluster, topic, 4, 6)
            started = TransactionalJob(cluster.name_server, topic, tmp_path)
            jobs.callback(started.close)
            return started

        yield job


def visible(job: TransactionalJob) -> list[Message]:
    topic = job.options.topic
    assert topic is not None
    with Client(job.options.client) as client:
        ends = client.max_offsets(client.read_queues(topic))
        ranges = [OffsetRange(queue, 0, end) for queue, end in ends.items() if end]
        return list(read_messages(client, ranges, ReadOptions(consumer_group="reader")))


def bodies(job: TransactionalJob) -> Counter[str]:
    return Counter(message.body.decode() for message in visible(job))


@pytest.mark.parametrize("version", [REAL, "5.4.0", "4.9.7", "mock"])
def test_a_batch_is_visible_when_it_is_committed_and_not_before(clusters, start, version: str) -> None:
    job = start(clusters(version))
    halves = job.write(BODIES, NAME)
    assert visible(job) == []
    job.commit(halves, NAME)
    eventually(lambda: bodies(job) == Counter(BODIES), 20, what="every message")
    first = visible(job)[0]
    half = {row["msgId"]: row for row in halves.to_pylist()}[first.msg_id]
    assert first.prepared_transaction_offset == half["commitLogOffset"]
    assert first.sys_flag & (MessageFlag.TRANSACTION_PREPARED | MessageFlag.TRANSACTION_COMMIT) == 8
    assert first.properties["transaction"] == str(NAME)
    assert first.properties.get("__transactionId__") == (None if version == "4.9.7" else first.msg_id)
    job.transactions.abandon(TransactionName("query", 1), job.write(["no"], NAME), group=job.group)
    assert "no" not in bodies(job)


@pytest.mark.parametrize("version", [REAL, "5.4.0", "4.9.7", "mock"])
@pytest.mark.parametrize("wrong", ["beyond the log", "an ordinary message", "another half message"])
def test_a_broker_says_that_it_does_not_have_a_half_message(
    clusters, start, version: str, wrong: str
) -> None:
    """As one that lost the end of its disk: nothing is at that place, or something else by now."""
    job = start(clusters(version))
    producer = patient_producer(job.client)
    ordinary = producer.send(OutgoingMessage(job.options.topic, b"ordinary"))
    halves = job.write(["lost", "a", "b"], NAME).sort_by("commitLogOffset")
    places = halves["commitLogOffset"].to_pylist()
    places[0] = {
        "beyond the log": 1 << 40,
        "an ordinary message": int(ordinary.offset_msg_id[-16:], 16),
        "another half message": places[1],
    }[wrong]
    with pytest.raises(DataLossError) as failure:
        job.commit(halves.set_column(4, "commitLogOffset", pa.array(places)), NAME)
    assert failure.value.condition == "HALF_MESSAGES_LOST"
    eventually(lambda: len(visible(job)) == 3, 20, what="the others")
    assert job.log.undone("query") == (0,)


def test_what_a_finished_batch_left_is_rolled_back_when_the_broker_asks(asking: DevCluster, start) -> None:
    """A task that was killed left half messages, under the name of a batch that another attempt finished."""
    job = start(asking)
    job.write([f"left {number}" for number in range(20)], NAME)
    with TransactionResolver(**job.given) as resolver:
        eventually(lambda: resolver.asked >= 20, 60, what="questions about an unfinished batch")
        assert resolver.rolled_back == 0
        job.commit(job.write(BODIES, NAME), NAME)
        eventually(lambda: resolver.rolled_back >= 20, 60, what="rollbacks")
    assert bodies(job) == Counter(BODIES)


def test_a_batch_that_takes_longer_than_the_broker_waits_is_there_once(asking: DevCluster, start) -> None:
    """The broker has stored newer copies of the half messages by then: they are rolled back."""
    job = start(asking)
    with TransactionResolver(**job.given) as resolver:
        halves = job.write(BODIES[:50], NAME)
        eventually(lambda: resolver.asked >= 50, 60, what="questions")
        job.commit(halves, NAME)
        eventually(lambda: resolver.rolled_back >= 50, 60, what="rollbacks of the copies")
    assert bodies(job) == Counter(BODIES[:50])
