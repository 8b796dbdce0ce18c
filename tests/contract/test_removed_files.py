"""What a real broker answers for messages whose file of the log or index is gone; what becomes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support.patient import patient_producer
from tests.support.topics import TopicFactory, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageSelector, OutgoingMessage
from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.read.pull_answer import has_natural_holes
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION
from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.remoting.codes import ResponseCode

pytestmark = pytest.mark.needs("cluster")

FILE_BYTES = 1 << 20
LARGE, SMALL = 60, 3_000
"""Some fifteen of 64 KiB fill a file; the small ones are in the second one."""
MESSAGES = LARGE + SMALL
INDEX_FILE_BYTES = 20_000
"""The entries of 1,000 messages."""
INDEXED = 2_500


@pytest.fixture(scope="module", params=[DEFAULT_VERSION, "5.4.0", "4.9.7"])
def cluster(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    settings = {
        "mappedFileSizeCommitLog": str(FILE_BYTES),
        "mappedFileSizeConsumeQueue": str(INDEX_FILE_BYTES),
    }
    with DevCluster(version=request.param, broker_config=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def queue(cluster: DevCluster) -> MessageQueue:
    """A queue whose messages were in four files, of which the second is gone."""
    with Client(cluster.name_server) as client:
        Admin(client).create_topic("removed", queues=1)
        (queue,) = client.write_queues("removed")
        producer = patient_producer(client)
        for number in range(LARGE):  # nothing that compresses
            if number == 17:
                for start in range(0, SMALL, 500):
                    small = [OutgoingMessage("removed", b"%d" % n) for n in range(start, start + 500)]
                    producer.send_batch(small, queue=queue)
            body = random.Random(number).randbytes(64 << 10)
            producer.send(OutgoingMessage("removed", body, tags="ab"[number % 2]), queue)
        eventually(lambda: client.max_offsets([queue])[queue] == MESSAGES, 20)
    delete(cluster, f"commitlog/{FILE_BYTES:020}")
    return queue


@pytest.fixture(scope="module")
def indexed(cluster: DevCluster) -> MessageQueue:
    """A queue whose index has three files, of which the second is gone."""
    with Client(cluster.name_server) as client:
        Admin(client).create_topic("indexed", queues=1)
        (queue,) = client.write_queues("indexed")
        for start in range(0, INDEXED, 500):
            some = [OutgoingMessage("indexed", b"%d" % n, tags="a") for n in range(start, start + 500)]
            patient_producer(client).send_batch(some, queue=queue)
        eventually(lambda: client.max_offsets([queue])[queue] == INDEXED, 20)
    delete(cluster, f"consumequeue/indexed/0/{INDEX_FILE_BYTES:020}")
    return queue


def delete(cluster: DevCluster, name: str) -> None:
    """Stop the broker, delete a file of its store, and start it again."""
    server = cluster.broker()
    server.stop()
    (file,) = server.home.rglob(name)
    file.unlink()
    server.start()


@pytest.fixture
def client(client: Client, queue: MessageQueue) -> Client:
    """A client of the broker, once it has read its log."""
    eventually(lambda: client.max_offsets([queue])[queue] == MESSAGES, 60)
    return client


def offsets(client: Client, queue: MessageQueue, **options: object) -> list[int]:
    ranges = [OffsetRange(queue, 0, client.max_offsets([queue])[queue])]
    read = read_messages(client, ranges, ReadOptions(**{"consumer_group": "g", **options}))
    return [message.queue_offset for message in read]


def pull(
    client: Client, queue: MessageQueue, offset: int, selector: MessageSelector | None = None
) -> Response:
    call = broker.pull(queue, offset, group="g", max_nums=4, selector=selector or MessageSelector())
    connection = client.connection(client.broker_address(queue.broker_name, topic=queue.topic))
    return connection.call(call.request, deadline=client.deadline())


def test_they_are_lost_and_not_gaps(client: Client, queue: MessageQueue) -> None:
    there = offsets(client, queue, fail_on_data_loss=False)
    missing = sorted(set(range(MESSAGES)) - set(there))
    assert SMALL < len(missing) < SMALL + 20
    assert missing == list(range(missing[0], missing[-1] + 1)), "one file's, in the middle"
    assert 0 < missing[0] <= missing[-1] < MESSAGES - 1
    with pytest.raises(DataLossError, match="the broker has deleted the files") as caught:
        offsets(client, queue)
    assert caught.value.condition == "OFFSETS_EXPIRED"
    assert caught.value.facts["from_offset"] == missing[0]


def test_a_filtered_read_has_all_that_is_left(client: Client, queue: MessageQueue) -> None:
    """Holes of its answers say nothing: the filter makes some, too."""
    everything = offsets(client, queue, fail_on_data_loss=False)
    assert everything == offsets(
        client, queue, fail_on_data_loss=False, selector=MessageSelector.by_tag("a || b")
    )


def test_what_the_broker_answers(client: Client, queue: MessageQueue) -> None:
    """It passes over 800 of them at a time: 20 with MESSAGE_WAS_REMOVING, or a hole if it finds others."""
    there = offsets(client, queue, fail_on_data_loss=False)
    missing = sorted(set(range(MESSAGES)) - set(there))
    answer = pull(client, queue, missing[0])
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING")
    assert int(answer.fields["nextBeginOffset"]) == missing[0] + 800
    assert int(answer.fields["minOffset"]) == 0
    answer = pull(client, queue, missing[-3])
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert decode_messages(answer.body, broker_name="")[0].queue_offset == missing[-1] + 1


@pytest.mark.parametrize("selector", [MessageSelector(), MessageSelector.by_tag("a")], ids=["all", "tag"])
def test_messages_without_their_index_are_lost(
    client: Client, indexed: MessageQueue, selector: MessageSelector
) -> None:
    """Also for a filter: it has not looked at them."""
    eventually(lambda: client.max_offsets([indexed])[indexed] == INDEXED, 60)
    there = offsets(client, indexed, fail_on_data_loss=False, selector=selector)
    assert there == [*range(1_000), *range(2_000, INDEXED)]
    with pytest.raises(DataLossError, match="the broker has deleted the files") as caught:
        offsets(client, indexed, selector=selector)
    assert caught.value.facts["from_offset"] == 1_000


def test_what_the_broker_answers_without_an_index(client: Client, indexed: MessageQueue) -> None:
    """A pull ends where the index does; 19 with OFFSET_FOUND_NULL leads to its next file."""
    eventually(lambda: client.max_offsets([indexed])[indexed] == INDEXED, 60)
    answer = pull(client, indexed, 998)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert int(answer.fields["nextBeginOffset"]) == 1_000
    answer = pull(client, indexed, 999, MessageSelector.by_tag("other"))
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert int(answer.fields["nextBeginOffset"]) == 1_000
    for offset in (1_000, 1_500, 1_999):
        for selector in (MessageSelector(), MessageSelector.by_tag("a")):
            answer = pull(client, indexed, offset, selector)
            assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_FOUND_NULL")
            assert int(answer.fields["nextBeginOffset"]) == 2_000


def test_compacted_topics_have_holes_by_nature(mq: DevCluster, topic: TopicFactory, group: str) -> None:
    with Client(mq.name_server) as client:
        (plain,) = client.read_queues(topic(queues=1, cluster=mq))
        assert not has_natural_holes(client, plain, client.deadline())
        name = fresh_name(group)
        Admin(client).create_topic(name, queues=1, attributes={"cleanup.policy": "COMPACTION"})
        (compacted,) = client.read_queues(name)
        assert has_natural_holes(client, compacted, client.deadline())


def test_every_broker_says_that_a_plain_topic_has_none(client: Client, queue: MessageQueue) -> None:
    assert not has_natural_holes(client, queue, client.deadline())
