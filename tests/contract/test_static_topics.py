"""Static topics over a remap: one suite for the mock cluster and a real one, then groups on the real one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.support.cli import CommandLine
from tests.support.patient import patient_producer
from tests.support.static_topics import LOGICAL, create_static_topic, remap
from tests.support.topics import fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    ConsumeFromWhere,
    MessageQueue,
    OffsetRange,
    OutgoingMessage,
    PullConsumer,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.client.groups.group_lag import group_lag
from pyspark_rocketmq.client.read.message_search import messages_by_key
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.remoting.header import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    PullMessageRequest,
    QueryConsumerOffsetRequest,
    RequestHeader,
    SearchOffsetRequest,
    SendMessageRequest,
    UpdateConsumerOffsetRequest,
)
from pyspark_rocketmq.testing import MockCluster

pytestmark = pytest.mark.needs("cluster")

A, B = "broker-a", "broker-b"
END_OF_TIME = 1 << 42


@pytest.fixture(scope="module")
def two() -> Iterator[DevCluster]:
    """Two brokers."""
    with DevCluster(brokers=2) as cluster:
        yield cluster


@dataclass
class World:
    """A cluster, mock or real, with a fresh static topic whose queues are at the first broker."""

    name_server: str
    topic: str
    remap: Callable[[str], None]

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, LOGICAL, 1)


@pytest.fixture(params=["mock", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    topic = fresh_name("static")
    if request.param == "mock":
        with MockCluster(brokers=(A, B)) as mock:
            mock.create_static_topic(topic, 2)
            yield World(mock.name_server, topic, lambda broker: mock.remap(topic, broker))
    else:
        cluster = request.getfixturevalue("two")
        create_static_topic(cluster, topic, 2, A)
        yield World(cluster.name_server, topic, lambda broker: remap(cluster, topic, broker))


class Wire:
    """Requests as they travel, to a broker of choice, and what of the answers counts."""

    def __init__(self, client: Client, world: World) -> None:
        self.client, self.topic = client, world.topic
        self.group = fresh_name("g-static")

    def ask(self, broker: str, request: RequestHeader, *fields: str) -> tuple[object, ...]:
        addr = self.client.broker_address(broker, topic=self.topic)
        answer = self.client.connection(addr).call(request, b"x")
        if answer.code == 501:
            return 501, answer.remark
        return answer.code, *(int(answer.fields[name]) for name in fields if name in answer.fields)

    def send(self, broker: str) -> tuple[object, ...]:
        request = SendMessageRequest(
            producer_group="p", topic=self.topic, queue_id=1, born_timestamp=1, broker_name=broker
        )
        return self.ask(broker, request, "queueId", "queueOffset")

    def pull(self, broker: str, offset: int) -> tuple[object, ...]:
        request = PullMessageRequest(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=1,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=4,
            subscription="*",
            expression_type="TAG",
            broker_name=broker,
        )
        return self.ask(broker, request, "nextBeginOffset", "minOffset", "maxOffset", "offsetDelta")

    def offset(self, broker: str, kind: type[RequestHeader], **fields: object) -> tuple[object, ...]:
        return self.ask(broker, kind(topic=self.topic, queue_id=1, broker_name=broker, **fields), "offset")

    def search(self, broker: str, moment: int) -> tuple[object, ...]:
        return self.offset(broker, SearchOffsetRequest, timestamp=moment, boundary_type="lower")

    def committed(self, broker: str) -> tuple[object, ...]:
        asked = {"consumer_group": self.group, "set_zero_if_not_found": False}
        return self.offset(broker, QueryConsumerOffsetRequest, **asked)

    def commit(self, broker: str, offset: int) -> tuple[object, ...]:
        asked = {"consumer_group": self.group, "commit_offset": offset}
        return self.offset(broker, UpdateConsumerOffsetRequest, **asked)


def test_what_brokers_answer_over_a_remap(world: World) -> None:
    """The numbers are those of RocketMQ 5.4.0."""
    with Client(world.name_server) as client:
        wire = Wire(client, world)
        name = world.topic
        refused = (501, f"{name}-1 does not exit in request process of current broker {A}")
        unmapped = f"{name}-1 cannot find mapping item in request process of current broker {A}"
        not_leader = f"{name}-1 is not leader in broker {A}, request code 31"
        assert [wire.send(A) for _ in range(5)] == [(0, 1, offset) for offset in range(5)]
        eventually(lambda: wire.offset(A, GetMaxOffsetRequest) == (0, 5))
        assert wire.pull(A, 0) == (0, 5, 0, 5, 0)
        assert wire.pull(A, 5) == (19, 5, 0, 5, 0)
        assert wire.commit(A, 3) == (0,)
        world.remap(B)
        client.invalidate(name)
        assert wire.send(A) == refused
        assert wire.pull(A, 0) == (501, unmapped)
        assert wire.offset(A, GetMinOffsetRequest) == (501, not_leader)
        assert wire.offset(A, GetMaxOffsetRequest) == refused
        assert wire.committed(A) == wire.commit(A, 1) == wire.search(A, 0) == refused
        assert wire.pull(B, 3) == (0, 5, 0, 10_000, 0)
        assert [wire.send(B) for _ in range(3)] == [(0, 1, offset) for offset in range(10_000, 10_003)]
        eventually(lambda: wire.offset(B, GetMaxOffsetRequest) == (0, 10_003))
        assert wire.offset(B, GetMinOffsetRequest) == (0, 0)
        between = (20, 10_000, 10_000, 10_000, 10_000)
        assert [wire.pull(B, offset) for offset in (5, 6, 9_999)] == [between] * 3
        assert wire.pull(B, 10_001) == (0, 10_003, 10_000, 10_003, 10_000)
        assert wire.pull(B, 10_003) == (19, 10_003, 10_000, 10_003, 10_000)
        assert wire.pull(B, 10_004) == (21, 10_003, 10_000, 10_003, 10_000)
        assert wire.search(B, 0) == (0, 0)
        assert wire.search(B, END_OF_TIME) == (0, 10_003)
        assert wire.committed(B) == (0, 3)
        for offset, then in ((4, 4), (10_002, 10_002), (2, 10_002)):  # not back from a later part
            assert wire.commit(B, offset) == (0,)
            assert wire.committed(B) == (0, then)


def test_a_client_that_knew_the_old_route(world: World) -> None:
    """What was planned before a remap is read after it; all else goes to the owner."""
    queue, group = world.queue, fresh_name("g-static")
    with Client(world.name_server) as client:
        producer = patient_producer(client)
        before = [producer.send(OutgoingMessage(world.topic, b"%d" % n), queue) for n in range(40)]
        eventually(lambda: client.max_offsets([queue]) == {queue: 40})
        client.commit_offsets(group, {queue: 20})
        consumer = PullConsumer(group, client=client)
        assert consumer.pull(queue, "*", 0, 4).next_begin_offset == 4
        world.remap(B)
        read = list(read_messages(client, [OffsetRange(queue, 10, 40)], ReadOptions(consumer_group=group)))
        assert [(m.queue, m.queue_offset, m.body) for m in read] == [
            (queue, number, b"%d" % number) for number in range(10, 40)
        ]
        assert consumer.pull(queue, "*", 4, 4).next_begin_offset == 8
        after = [producer.send(OutgoingMessage(world.topic, b"+%d" % n), queue) for n in range(40)]
        assert [result.queue_offset for result in (*before, *after)] == [*range(40), *range(10_000, 10_040)]
        eventually(lambda: client.max_offsets([queue]) == {queue: 10_040})
        assert client.committed_offsets(group, [queue]) == {queue: 20}
        client.commit_offsets(group, {queue: 10_010})
        assert client.committed_offsets(group, [queue]) == {queue: 10_010}
        ranges = [OffsetRange(queue, 0, 10_040)]
        read = list(read_messages(client, ranges, ReadOptions(consumer_group=group)))
        assert [m.queue_offset for m in read] == [*range(40), *range(10_000, 10_040)]
        for message in (read[0], read[39], read[40], read[-1]):
            first = next(m for m in read if m.store_timestamp >= message.store_timestamp)
            found = client.offsets_at({queue: message.store_timestamp})[queue]  # may be in the gap before it
            assert min(m.queue_offset for m in read if m.queue_offset >= found) == first.queue_offset
        (lag,) = [row for row in group_lag(client, group, [world.topic]) if row.queue == queue]
        assert lag.lag == 30


def test_a_group_reads_on_while_its_queues_move(two: DevCluster) -> None:
    """Concurrently and in order, with a message that is put off; each queue's messages keep their order."""
    topic = fresh_name("static-group")
    queues = create_static_topic(two, topic, 2, A)
    with Client(two.name_server) as client:
        for ordered in (False, True):
            group = fresh_name("g-static")
            got: list[tuple[int, bytes]] = []
            puts_off = threading.Event()

            def take(messages, got=got, puts_off=puts_off) -> None:
                if any(m.body == b"odd" for m in messages) and not puts_off.is_set():
                    puts_off.set()
                    raise ValueError("put off once")
                got.extend((m.queue_id, m.body) for m in messages)

            options = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET, ordered=ordered)
            with PushConsumer(group, two.name_server, options) as member:
                member.subscribe(topic)
                member.start(take)
                stored = Counter(m.body for m in _everything(client, queues))
                for number, broker in enumerate((B, A)):
                    bodies = [b"%d-%d-%d" % (ordered, number, n) for n in range(20)]
                    bodies += [b"odd"] if number == 0 else []
                    for n, body in enumerate(bodies):
                        patient_producer(client).send(OutgoingMessage(topic, body), queues[n % 2])
                    stored.update(bodies)
                    eventually(lambda: len(got) == stored.total(), 60, what="every message")  # noqa: B023
                    remap(two, topic, broker)
            assert Counter(body for _, body in got) == stored
            assert puts_off.is_set()
            ends = {(m.broker_name, m.queue_id): m.queue_offset + 1 for m in _everything(client, queues)}
            committed = client.committed_offsets(group, queues)
            assert {(queue.broker_name, queue.queue_id): at for queue, at in committed.items()} == ends


def _everything(client: Client, queues: tuple[MessageQueue, ...]):
    ends = client.max_offsets(queues)
    ranges = [OffsetRange(queue, 0, ends[queue]) for queue in queues]
    return list(read_messages(client, ranges, ReadOptions(consumer_group="TOOLS_CONSUMER")))


def test_the_command_line_names_the_owner_and_takes_each_name(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, queue = fresh_name("g-tools"), MessageQueue(world.topic, LOGICAL, 0)
    with Client(world.name_server) as client:
        patient_producer(client).send(OutgoingMessage(world.topic, b"old"), queue)
        world.remap(B)
        patient_producer(client).send(OutgoingMessage(world.topic, b"new"), queue)
        eventually(lambda: client.max_offsets([queue]) == {queue: 10_001})
    cli = CommandLine(capsys, monkeypatch, world.name_server)
    shown = cli("topic", "show", world.topic, "--json").json()
    assert {row["owner"] for row in shown["staticQueues"]} == {B}
    peeked = cli("peek", world.topic, "--queue", f"{A}:0", "--json").json()
    assert [row["queueOffset"] for row in peeked] == [10_000]
    moved = cli("offsets", "reset", group, world.topic, "--to", "earliest", "--yes", "--json")
    assert moved.code == 0, moved
    rows = cli("lag", group, "--topic", world.topic, "--json").json()["queues"]
    assert [(row["brokerName"], row["committed"], row["maxOffset"]) for row in rows] == [
        (LOGICAL, 0, 10_001),
        (LOGICAL, 0, 10_000),
    ]


def test_a_key_finds_messages_at_former_owners(two: DevCluster) -> None:
    topic = fresh_name("static-keys")
    queue, _ = create_static_topic(two, topic, 2, A)
    with Client(two.name_server) as client:
        patient_producer(client).send(OutgoingMessage(topic, b"old", keys="k"), queue)
        remap(two, topic, B)
        patient_producer(client).send(OutgoingMessage(topic, b"new", keys="k"), queue)

        def found() -> list[bytes]:
            return [message.body for message in messages_by_key(client, topic, "k", 10)]

        eventually(lambda: found() == [b"old", b"new"], 20, what="both messages")
