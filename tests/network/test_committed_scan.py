"""Which half messages are found committed, from what is stored in their destination queues."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client import Client, MessageQueue, OutgoingMessage, Producer
from pyspark_rocketmq.client.send.committed_scan import CommittedScan, read_stored
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.testing import MockCluster

QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster({"orders": 2}) as cluster:
        yield cluster


@pytest.fixture
def producer(client: Client) -> Producer:
    return Producer(client)


def send(producer: Producer, *bodies: str, queue: MessageQueue = QUEUE) -> list[str]:
    """Store messages; return their unique keys."""
    return [producer.send(OutgoingMessage(queue.topic, body.encode()), queue).msg_id for body in bodies]


def halves(*keys: str) -> pa.Table:
    return pa.table({"msgId": pa.array(keys, pa.string()), "number": range(len(keys))})


def missing(scan: CommittedScan) -> list[str]:
    return scan.missing()["msgId"].to_pylist()


def test_a_half_message_is_committed_when_a_destination_has_its_key(
    client: Client, producer: Producer
) -> None:
    (before,) = send(producer, "stored before the first commit")
    one, two = send(producer, "1", "2")
    scan = CommittedScan(client, halves(before, one, "not committed", two), {QUEUE: 1, OTHER: 0})
    assert missing(scan) == [before, one, "not committed", two]
    assert scan.look() == 2
    assert scan.missing()["number"].to_pylist() == [0, 2]


def test_each_look_reads_what_came_since_the_last_one(client: Client, producer: Producer) -> None:
    one, two, three = send(producer, "1", "2", "3")
    scan = CommittedScan(client, halves(one, two, three, "later"), {QUEUE: 0, OTHER: 0})
    assert [scan.look(), scan.look()] == [3, 0]
    (other,) = send(producer, "not one of them", queue=OTHER)
    assert scan.look() == 0
    assert missing(scan) == ["later"]
    scan = CommittedScan(client, halves(one, other), {QUEUE: 0, OTHER: 0})
    assert (scan.look(), missing(scan)) == (2, [])


def test_a_queue_that_became_shorter_is_not_believed(
    mq: MockCluster, client: Client, producer: Producer
) -> None:
    keys = send(producer, "1", "2", "3")
    scan = CommittedScan(client, halves(*keys), {QUEUE: 0})
    scan.look()
    mq.truncate(QUEUE, 2)
    with pytest.raises(DataLossError, match="shorter than before") as lost:
        scan.look()
    facts = lost.value.facts
    assert [facts[name] for name in ("condition", "queue", "before", "now")] == [
        *("OFFSET_WENT_BACK", QUEUE, 3, 2)
    ]


def test_expired_messages_count_as_not_stored(mq: MockCluster, client: Client, producer: Producer) -> None:
    """Also those whose file is gone and whose index is not."""
    keys = send(producer, *"abcdef")
    scan = CommittedScan(client, halves(*keys), {QUEUE: 0})
    mq.expire(QUEUE, 2)
    mq.remove(QUEUE, 3, 4)
    assert scan.look() == 3
    assert missing(scan) == [keys[0], keys[1], keys[3]]


def test_messages_that_are_gone_for_another_reason_leave_everything_unknown(
    mq: MockCluster, producer: Producer
) -> None:
    send(producer, *"abcdef")
    mq.truncate(QUEUE, 4)
    with (
        Client(mq.name_server, clock=FakeClock()) as client,
        pytest.raises(DataLossError, match="it is not known which rows of a transaction are stored") as lost,
    ):
        list(read_stored(client, [OffsetRange(QUEUE, 0, 6)], ("msgId",)))
    facts = lost.value.facts
    assert [facts[name] for name in ("condition", "queue", "from_offset", "until_offset")] == [
        *("OFFSET_WENT_BACK", QUEUE, 4, 6)
    ]


def test_only_the_columns_that_are_asked_for_are_read(client: Client, producer: Producer) -> None:
    keys = send(producer, "a", "b")
    (batch,) = read_stored(client, [OffsetRange(QUEUE, 0, 2)], ("msgId", "body"))
    assert batch.schema.names == ["msgId", "body"]
    assert batch["body"].to_pylist() == [b"a", b"b"]
    assert [key.decode() if isinstance(key, bytes) else key for key in batch["msgId"].to_pylist()] == keys
