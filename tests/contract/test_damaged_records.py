"""Messages that a real broker has stored damaged: what it answers, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from tests.simulation.damage import DAMAGES
from tests.support.light_cluster import light_cluster
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageSelector, OutgoingMessage
from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.record.message import decode_messages

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(120)]

MESSAGES, BROKEN = 20, 7


@pytest.fixture(scope="module")
def cluster() -> Iterator[DevCluster]:
    with light_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: DevCluster) -> Iterator[Client]:
    with Client(cluster.name_server) as client:
        yield client


@pytest.fixture(params=DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
def damage(request: pytest.FixtureRequest) -> Callable[[bytes], bytes]:
    return request.param


@pytest.fixture
def queue(client: Client, damage: Callable[[bytes], bytes]) -> MessageQueue:
    """A queue of twenty messages."""
    topic = f"damaged-{damage.__name__}"
    Admin(client).create_topic(topic, queues=1)
    eventually(lambda: client.write_queues(topic), 30)
    (queue,) = client.write_queues(topic)
    for number in range(MESSAGES):
        patient_producer(client).send(OutgoingMessage(topic, b"body %d" % number), queue)
    return queue


def pull(client: Client, queue: MessageQueue) -> bytes:
    call = broker.pull(queue, 0, group="g", max_nums=MESSAGES, selector=MessageSelector())
    answer = client.connection(client.queue_address(queue)).call(call.request, deadline=client.deadline())
    return bytes(answer.body)


def test_the_broker_passes_them_on_and_all_others_are_read(
    cluster: DevCluster, client: Client, queue: MessageQueue, damage: Callable[[bytes], bytes]
) -> None:
    """A change of the log is seen at once: the broker maps the same pages."""
    before = pull(client, queue)
    places = [each.commit_log_offset for each in decode_messages(before, broker_name="")]
    begin, end = (places[at] - places[0] for at in (BROKEN, BROKEN + 1))
    record = damage(before[begin:end])
    (log,) = cluster.broker().home.rglob("commitlog/00000000000000000000")
    with log.open("r+b") as file:
        os.pwrite(file.fileno(), record, places[BROKEN])
    assert pull(client, queue) == before[:begin] + record + before[end:]

    ranges, options = [OffsetRange(queue, 0, MESSAGES)], ReadOptions(consumer_group="g")
    others = [number for number in range(MESSAGES) if number != BROKEN]
    for policy, expected in (("skip", others), ("null", list(range(MESSAGES)))):
        decode = DecodeOptions(columns=("queueOffset", "body"), on_corrupt=policy)
        rows = [row for batch in read_batches(client, ranges, options, decode) for row in batch.to_pylist()]
        assert [row["queueOffset"] for row in rows] == expected
        assert all(
            row["body"] == b"body %d" % row["queueOffset"] for row in rows if row["queueOffset"] in others
        )
    with pytest.raises(CorruptMessageError, match=f"{BROKEN}"):
        list(read_batches(client, ranges, options, DecodeOptions(columns=("body",))))
