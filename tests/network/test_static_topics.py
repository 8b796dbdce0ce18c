"""Static topics: a queue keeps its name and offsets wherever it is; each request goes to its owner of now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    AsyncClient,
    Client,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    OffsetRange,
    OutgoingMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.client.groups.group_lag import count_messages, group_lag
from pyspark_rocketmq.client.read.message_search import last_messages, messages_at
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches, read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import BrokerNotFoundError, CorruptMessageError, RocketMQError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.record.encode.outgoing_rows import OutgoingRows
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header import DeleteTopicRequest
from pyspark_rocketmq.spark.write.sink_topics import SinkTopics
from pyspark_rocketmq.testing import MockCluster, PullLimits

LOGICAL = "__syslo__global__"
TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, LOGICAL, 0)
OPTIONS = ReadOptions(consumer_group="g", missing_patience_ms=200, stall_timeout_ms=10_000)


@pytest.fixture
def mq() -> Iterator[MockCluster]:
    with MockCluster(brokers=("a", "b", "c"), limits=PullLimits(messages=4)) as mock:
        mock.create_static_topic(TOPIC, 2)
        yield mock


@pytest.fixture
def client(client: Client, mq: MockCluster) -> Client:
    """A client that has the route of before the remap."""
    assert client.read_queues(TOPIC) == mq.queues(TOPIC)
    return client


def put_numbered(mq: MockCluster, count: int, queue: MessageQueue = QUEUE) -> list[tuple[int, bytes]]:
    """Store numbered messages; return their offsets and bodies."""
    bodies = [b"%d" % number for number in range(mq.max_offset(queue), mq.max_offset(queue) + count)]
    return [(mq.send(OutgoingMessage(TOPIC, body), queue), body) for body in bodies]


def read(client: Client, begin: int, end: int, queue: MessageQueue = QUEUE) -> list[tuple[int, bytes]]:
    messages = read_messages(client, [OffsetRange(queue, begin, end)], OPTIONS)
    return [(message.queue_offset, message.body) for message in messages]


def test_a_topic_that_is_created_after_a_static_one_was_deleted_is_not_static(
    mq: MockCluster, client: Client
) -> None:
    admin = Admin(client)
    admin.delete_topic(TOPIC)
    admin.create_topic(TOPIC, queues=1)
    queues = client.read_queues(TOPIC)
    assert [queue.broker_name for queue in queues] == ["a", "b", "c"]
    assert client.max_offsets(queues) == dict.fromkeys(queues, 0)
    with pytest.raises(KeyError, match=TOPIC):
        mq.remap(TOPIC, "b")


def test_a_static_topic_that_is_deleted_on_one_broker_stays_on_others(
    mq: MockCluster, client: Client
) -> None:
    mq.remap(TOPIC, "b")
    address = mq.address("a")
    client.connection(address).call(DeleteTopicRequest(topic=TOPIC), deadline=client.deadline())
    client.invalidate(TOPIC)
    (message,) = put_numbered(mq, 1)
    assert client.read_queues(TOPIC) == mq.queues(TOPIC)
    assert client.max_offsets((QUEUE,)) == {QUEUE: message[0] + 1}


def test_a_range_that_was_planned_before_a_remap_is_read_after_it(mq: MockCluster, client: Client) -> None:
    before = put_numbered(mq, 10)
    mq.remap(TOPIC, "b")
    assert read(client, 0, 10) == before
    after = put_numbered(mq, 10)
    assert after[0][0] == 10_000
    mq.remap(TOPIC, "c")
    last = put_numbered(mq, 10)
    assert read(client, 3, mq.max_offset(QUEUE)) == before[3:] + after + last
    assert read(client, 10_004, 10_009) == after[4:9]


def test_messages_around_a_remap_are_found(mq: MockCluster, client: Client) -> None:
    """The offsets of the next owner begin far after those of the one before."""
    other = MessageQueue(TOPIC, LOGICAL, 1)
    bodies = [body for _, body in put_numbered(mq, 10)]
    mq.remap(TOPIC, "b")
    assert [message.body for message in last_messages(client, [QUEUE, other], 3)] == bodies[-3:]
    bodies += [body for _, body in put_numbered(mq, 2)]
    assert [message.body for message in last_messages(client, [QUEUE, other], 3)] == bodies[-3:]
    assert [message.body for message in last_messages(client, [QUEUE, other], 100)] == bodies
    assert [message.body for message in messages_at(client, [QUEUE, other], 0, 11)] == bodies[:11]


def test_a_range_is_read_on_when_its_queue_moves_meanwhile(mq: MockCluster, client: Client) -> None:
    stored = put_numbered(mq, 200)
    slow, found = replace(OPTIONS, pulls_in_flight=1), []
    for batch in read_batches(
        client, [OffsetRange(QUEUE, 0, 200)], slow, DecodeOptions(columns=("body",), max_batch_rows=8)
    ):
        if not found:
            mq.remap(TOPIC, "b")
            asked = mq.asked[RequestCode.PULL_MESSAGE]
        found += batch.column("body").to_pylist()
    assert found == [body for _, body in stored]
    assert mq.asked[RequestCode.PULL_MESSAGE] > asked, "all was pulled before it moved"


@pytest.mark.parametrize("name", ["a", "b", LOGICAL])
def test_every_name_of_a_queue_leads_to_its_owner(mq: MockCluster, client: Client, name: str) -> None:
    stored = put_numbered(mq, 5)
    mq.remap(TOPIC, "b")
    queue = MessageQueue(TOPIC, name, 0)
    assert read(client, 0, 5, queue) == stored
    assert client.min_offsets([queue]) == {queue: 0}
    assert client.max_offsets([queue]) == {queue: 10_000}


def test_a_reset_of_the_group_is_no_loss(mq: MockCluster, client: Client) -> None:
    """The broker tells it once, whatever offset is asked, and for a static topic without its remark."""
    stored = put_numbered(mq, 10)
    mq.reset_offset("g", QUEUE, 2)
    assert read(client, 5, 10) == stored[5:]


@pytest.mark.parametrize("offset", [3, 10_001])
def test_a_new_group_commits_by_asyncio(mq: MockCluster, client: Client, offset: int) -> None:
    """The owner commits what is below the remap at the former owner, which knows no new group either."""
    put_numbered(mq, 5)
    mq.remap(TOPIC, "b")
    put_numbered(mq, 2)

    async def commit() -> dict[MessageQueue, int | None]:
        async with AsyncClient(mq.name_server) as there:
            await there.commit_offsets("new", {QUEUE: offset})
            return await there.committed_offsets("new", [QUEUE])

    assert asyncio.run(commit()) == {QUEUE: offset}


def test_what_is_read_has_the_queues_name(mq: MockCluster, client: Client) -> None:
    put_numbered(mq, 1)
    mq.remap(TOPIC, "b")
    put_numbered(mq, 1)
    queue = MessageQueue(TOPIC, LOGICAL, 1)
    put_numbered(mq, 1, queue)
    ranges = [OffsetRange(QUEUE, 0, 10_001), OffsetRange(queue, 0, 10_001)]
    messages = list(read_messages(client, ranges, OPTIONS))
    assert [(m.queue, m.queue_offset) for m in messages] == [(QUEUE, 0), (QUEUE, 10_000), (queue, 10_000)]


def test_offsets_and_commits_follow_the_owner(mq: MockCluster, client: Client) -> None:
    put_numbered(mq, 5)
    client.commit_offsets("g", {QUEUE: 3})
    mq.remap(TOPIC, "b")
    assert client.committed_offsets("g", [QUEUE]) == {QUEUE: 3}
    put_numbered(mq, 2)
    client.commit_offsets("g", {QUEUE: 4})
    assert client.committed_offsets("g", [QUEUE]) == {QUEUE: 4}
    client.commit_offsets("g", {QUEUE: 10_001})
    assert client.committed_offsets("g", [QUEUE]) == {QUEUE: 10_001} == {QUEUE: mq.committed("g", QUEUE)}
    (first, _) = group_lag(client, "g", [TOPIC])
    assert (first.queue, first.lag) == (QUEUE, 1)
    assert count_messages(client, [TOPIC])[TOPIC][QUEUE] == 10_002


def test_a_moment_is_found_in_every_part_of_a_queue(mq: MockCluster, client: Client) -> None:
    """The broker's own search answers 0 for nearly everything once a queue has moved."""
    put_numbered(mq, 3)
    mq.remap(TOPIC, "b")
    put_numbered(mq, 3)
    mq.remap(TOPIC, "c")
    stored = [*mq.messages(TOPIC, QUEUE)]
    for message in stored:
        first = next(other for other in stored if other.store_timestamp >= message.store_timestamp)
        found = client.offsets_at({QUEUE: message.store_timestamp})[QUEUE]  # may be in the gap before it
        assert next(other for other in stored if other.queue_offset >= found) == first
    assert client.offsets_at({QUEUE: stored[-1].store_timestamp + 1}) == {QUEUE: mq.max_offset(QUEUE)}
    assert client.offsets_at({QUEUE: 0}) == {QUEUE: 0}


def test_a_moment_is_found_among_messages_that_do_not_decode(mq: MockCluster, client: Client) -> None:
    put_numbered(mq, 5)
    stored = mq.messages(TOPIC, QUEUE)
    here = MessageQueue(TOPIC, client.route(TOPIC).owner(QUEUE) or "", QUEUE.queue_id)
    for message in stored:  # a compression that nobody knows
        mq.corrupt(here, message.queue_offset, lambda r: r[:38] + bytes([r[38] | 7, r[39] | 1]) + r[40:])
    with pytest.raises(CorruptMessageError):
        read(client, 0, 5)
    assert client.offsets_at({QUEUE: stored[0].store_timestamp}) == {QUEUE: 0}
    assert client.offsets_at({QUEUE: stored[-1].store_timestamp + 1}) == {QUEUE: 5}


def test_a_producer_writes_on_over_a_remap(mq: MockCluster, client: Client) -> None:
    producer = Producer(client)
    sent = []
    for broker in ("a", "b", "c"):
        mq.remap(TOPIC, broker)
        results = [producer.send(OutgoingMessage(TOPIC, b"x"), queue) for queue in mq.queues(TOPIC)]
        results.append(producer.send(OutgoingMessage(TOPIC, b"x", sharding_key="k")))
        sent += [(result.queue, result.queue_offset) for result in results]
    there = [(message.queue, message.queue_offset) for message in mq.messages(TOPIC)]
    assert sorted(sent) == sorted(there)


def test_a_producer_passes_over_the_owner_that_fails(mq: MockCluster, client: Client) -> None:
    mq.create_static_topic("spread", 2)
    with mq._lock:  # one queue each, which takes mqadmin to do
        static = mq._static_topics["spread"]
        static.move(1, "b", mq._add_queue("spread", "b"), 0)
    mq.stop_broker("a", unregister=False)
    producer = Producer(client)
    queues = {producer.send(OutgoingMessage("spread", b"x")).queue.queue_id for _ in range(6)}
    assert queues == {1}


def test_a_pull_consumer_goes_on_over_a_remap(mq: MockCluster, client: Client) -> None:
    stored = put_numbered(mq, 5)
    consumer = PullConsumer("g", client=client)
    found, offset = [], 0
    for broker in ("b", "c"):
        mq.remap(TOPIC, broker)
        stored += put_numbered(mq, 5)
        while offset < mq.max_offset(QUEUE):
            result = consumer.pull(QUEUE, "*", offset)
            found += [(message.queue_offset, message.body) for message in result.messages]
            offset = result.next_begin_offset
    assert found == stored


@pytest.mark.parametrize("ordered", [False, True])
def test_a_group_goes_on_over_a_remap(mq: MockCluster, client: Client, ordered: bool) -> None:
    """Locks, pulls and commits go to the owner; each message comes once, in order when that is asked."""
    got: dict[int, list[bytes]] = {0: [], 1: []}
    options = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, ordered=ordered, commit_ms=50)

    def take(messages: Sequence[Message]) -> None:
        for message in messages:
            got[message.queue_id].append(message.body)

    sent: dict[int, list[bytes]] = {0: [], 1: []}
    with PushConsumer("g", mq.name_server, options) as member:
        member.subscribe(TOPIC)
        member.start(take)
        for broker in ("a", "b", "c"):
            mq.remap(TOPIC, broker)
            for queue in mq.queues(TOPIC):
                sent[queue.queue_id] += [body for _, body in put_numbered(mq, 10, queue)]
            eventually(lambda: sum(map(len, got.values())) >= sum(map(len, sent.values())), 30)
        assert {queue_id: sorted(bodies) for queue_id, bodies in got.items()} == {
            queue_id: sorted(bodies) for queue_id, bodies in sent.items()
        }
        assert got == sent or not ordered
        ends = {queue: mq.max_offset(queue) for queue in mq.queues(TOPIC)}
        eventually(lambda: {queue: mq.committed("g", queue) for queue in ends} == ends, 10)


def test_queues_of_an_owner_that_is_away_wait_and_the_others_answer(mq: MockCluster) -> None:
    with Client(mq.name_server, operation_timeout_ms=500) as client:
        put_numbered(mq, 1)
        mq.stop_broker("a")
        assert client.read_queues(TOPIC) == mq.queues(TOPIC)
        with pytest.raises(BrokerNotFoundError, match="no broker has the static topic's queue now"):
            client.max_offsets([QUEUE])
        mq.start_broker("a")
        eventually(lambda: answers(client), 10)


def test_an_owner_that_does_not_answer_is_named_and_the_others_answer(mq: MockCluster) -> None:
    mq.create_static_topic(TOPIC, 3, broker="b")
    with Client(mq.name_server, operation_timeout_ms=500) as client:
        assert client.read_queues(TOPIC) == mq.queues(TOPIC)
        mq.stop_broker("a", unregister=False)
        with pytest.raises(RocketMQError) as caught:
            client.max_offsets([QUEUE])
        assert caught.value.facts["broker_name"] == "a"
        away: dict[str, RocketMQError] = {}
        seen = group_lag(client, "g", [TOPIC], on_away=away.__setitem__)
        assert ([row.queue.queue_id for row in seen], [*away]) == ([2], ["a"])

    async def ask() -> RocketMQError:
        async with AsyncClient(mq.name_server, operation_timeout_ms=500) as client:
            with pytest.raises(RocketMQError) as caught:
                await client.max_offsets([QUEUE])
            return caught.value

    assert asyncio.run(ask()).facts["broker_name"] == "a"


def answers(client: Client) -> bool:
    try:
        return client.max_offsets([QUEUE]) == {QUEUE: 1}
    except RocketMQError:
        return False


def sink(**given: object) -> SinkOptions:
    return parse_options(SinkOptions, {"nameServer": "127.0.0.1:1", "topic": TOPIC} | given, environ={})


def test_rows_name_a_queue_by_any_broker(mq: MockCluster, client: Client) -> None:
    topics = SinkTopics(client, sink())
    queues = topics.queues(TOPIC)
    assert queues is not None
    rows = OutgoingRows(
        place=np.arange(4),
        body=pa.array([b"x"] * 4),
        properties=pa.array([b""] * 4),
        flag=np.zeros(4, np.int32),
        single=np.zeros(4, np.bool_),
        broker_name=pa.array([b"a", b"b", LOGICAL.encode(), None]),
        queue_id=pa.array([0, 1, 1, 9], pa.int32()),
    )
    numbers, unknown = topics.assign(rows, queues)
    assert ([*numbers[:3]], unknown) == ([0, 1, 1], [3])
