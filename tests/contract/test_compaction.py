"""A compacted topic of a real broker: its offsets without messages are no loss."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.light_cluster import light_cluster
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageSelector, OutgoingMessage
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(180)]

MESSAGES = 3_000
FILE_BYTES = 64 << 10
"""Some four hundred messages. All files but the last one are compacted."""
KEPT = 500
"""Each so-manieth message has a key of its own."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    settings = {
        "compactionScheduleInternal": "500",
        "compactionMappedFileSize": str(FILE_BYTES),
        "compactionCqMappedFileSize": str(FILE_BYTES // 16),
    }
    with light_cluster(**settings) as cluster, Client(cluster.name_server) as client:
        yield client


@pytest.fixture(scope="module")
def queue(client: Client) -> MessageQueue:
    Admin(client).create_topic("latest", queues=1, attributes={"cleanup.policy": "COMPACTION"})
    eventually(lambda: client.write_queues("latest"), 30)
    (queue,) = client.write_queues("latest")
    producer = patient_producer(client)
    for number in range(MESSAGES):
        message = OutgoingMessage("latest", b"%d" % number, tags="a", keys=key_of(number))
        producer.send(message, queue)
    eventually(lambda: len(read(client, queue)) < MESSAGES / 2, 60)
    return queue


def read(client: Client, queue: MessageQueue, begin: int = 0, **options: object) -> list[Message]:
    found = read_messages(
        client, [OffsetRange(queue, begin, MESSAGES)], ReadOptions(**{"consumer_group": "g", **options})
    )
    return list(found)


def key_of(number: int) -> str:
    return f"own-{number}" if number % KEPT == 0 else f"shared-{number % 7}"


def test_a_strict_read_has_the_last_message_of_each_key_and_no_loss(
    client: Client, queue: MessageQueue
) -> None:
    assert (client.min_offsets([queue])[queue], client.max_offsets([queue])[queue]) == (0, MESSAGES)
    found = read(client, queue)
    offsets = [message.queue_offset for message in found]
    assert [int(message.body) for message in found] == offsets == sorted(set(offsets))
    assert {*{key_of(number): number for number in range(MESSAGES)}.values()} <= {*offsets}
    assert len(offsets) < MESSAGES / 2


def test_a_read_may_begin_within_a_hole(client: Client, queue: MessageQueue) -> None:
    begins = (1, KEPT - 1, KEPT, KEPT + 1)
    before = read(client, queue)
    found = {begin: read(client, queue, begin) for begin in begins}
    after = read(client, queue)
    for begin in begins:
        earlier, later = ([each for each in all_ if each.queue_offset >= begin] for all_ in (before, after))
        assert_between(found[begin], earlier, later)


def test_tags_choose_although_the_broker_does_not(client: Client, queue: MessageQueue) -> None:
    assert read(client, queue, selector=MessageSelector.by_tag("b")) == []
    before = read(client, queue)
    found = read(client, queue, selector=MessageSelector.by_tag("a"))
    assert_between(found, before, read(client, queue))


def assert_between(found: list[Message], before: list[Message], after: list[Message]) -> None:
    """Assert that messages are those of a read before and of one after, between which a broker compacts."""
    offsets = [message.queue_offset for message in found]
    assert offsets == sorted(set(offsets))
    assert all(message in before for message in found)
    assert all(message in found for message in after)
