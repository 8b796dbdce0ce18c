"""One suite for the mock broker and a real one: what the mock answers is what RocketMQ answers.

It runs over both kinds of connections: those of threads, and those of an event loop. It also runs through a
proxy, without what a proxy does not pass on (`direct`).

Requests go out raw, so that codes, remarks and offsets are seen as they travel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from tests.support.event_loop import AsyncConnections, BlockingConnection, LoopThread
from tests.support.releases import version_name
from tests.support.settings import broker_settings
from tests.support.topics import TopicFactory, fill, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageQueue, OutgoingMessage, Producer
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.devcluster.jars import DEFAULT_VERSION
from pyspark_rocketmq.errors import (
    BrokerError,
    GroupNotFoundError,
    ServiceNotAvailableError,
    TopicExistsError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import Permission
from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.remoting.body import (
    decode_consumer_ids,
    decode_locked_queues,
    encode_heartbeat,
    encode_queue_lock,
)
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import (
    ConsumerSendMsgBackRequest,
    GetAllSubscriptionGroupRequest,
    GetConsumerListByGroupRequest,
    GetEarliestMsgStoretimeRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    GetRouteInfoRequest,
    GetTopicConfigRequest,
    HeartbeatRequest,
    LockBatchMqRequest,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    QueryMessageRequest,
    QueryTopicsByConsumerRequest,
    RequestHeader,
    SearchOffsetRequest,
    SendBatchMessageRequest,
    SendMessageRequest,
    UnlockBatchMqRequest,
    UnregisterClientRequest,
    UpdateConsumerOffsetRequest,
)
from pyspark_rocketmq.testing import MockBroker

BROKER = "broker-a"


@dataclass
class World:
    """A broker, mock or real, with one fresh topic."""

    client: Client
    topic: str
    group: str
    cluster: MockBroker | DevCluster
    admin: Admin
    connect: Callable[[str], Connection | BlockingConnection] | None = None

    @property
    def version(self) -> str:
        return self.cluster.version if isinstance(self.cluster, DevCluster) else DEFAULT_VERSION

    @property
    def is_proxied(self) -> bool:
        return isinstance(self.cluster, DevCluster) and bool(self.cluster.proxies)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, BROKER, 0)

    def ask(self, request: RequestHeader, body: bytes = b"") -> Response:
        addr = self.client.broker_address(BROKER, topic=self.topic)
        connection = (self.connect or self.client.connection)(addr)
        return connection.call(request, body, deadline=self.client.deadline(90_000))

    def pull(self, offset: int, **fields: object) -> Response:
        request = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 1_000,
            "sys_flag": 4,
            "subscription": "*",
            "expression_type": "TAG",
            "broker_name": BROKER,
        } | fields
        return self.ask(PullMessageRequest(**request))

    def seen(self, offset: int, **fields: object) -> tuple[int, str | None, int, int, int, list[bytes]]:
        """Pull; return code, remark, next, min, max, bodies."""
        response = self.pull(offset, **fields)
        header = PullMessageResponse.parse(response.fields)
        bodies = [message.body for message in decode_messages(response.body, broker_name=BROKER)]
        return (
            *(response.code, response.remark),
            *(header.next_begin_offset, header.min_offset, header.max_offset),
            bodies,
        )

    def fill(self, *messages: OutgoingMessage | bytes | int) -> None:
        """Store messages in queue 0 and wait until they can be read."""
        fill(self.client, self.topic, messages, queues=[self.queue])

    def send(self, body: bytes = b"x", *, batch: bool = False, **fields: object) -> Response:
        kind = SendBatchMessageRequest if batch else SendMessageRequest
        request = {
            "producer_group": "p",
            "topic": self.topic,
            "default_topic": "none",
            "queue_id": 0,
            "born_timestamp": 1_700_000_000_000,
            "broker_name": BROKER,
        } | fields
        return self.ask(kind(**request), body)


WITHOUT_PROXY = ("mock", "mock over asyncio", "mq", "mq54")
direct = pytest.mark.parametrize("world", WITHOUT_PROXY, indirect=True)
"""A proxy does not serve these requests, or by itself."""


@pytest.fixture(params=[*WITHOUT_PROXY, "proxied"])
def world(request: pytest.FixtureRequest, group: str) -> Iterator[World]:
    if request.param == "mock over asyncio":
        with (
            MockBroker({"orders": 2}) as mock,
            LoopThread() as loop,
            Client(mock.name_server) as client,
            AsyncConnections(mock.name_server, loop) as connections,
        ):
            yield World(client, "orders", group, mock, Admin(client), connections.connect)
    elif request.param == "mock":
        with MockBroker({"orders": 2}) as mock, Client(mock.name_server) as client:
            yield World(client, "orders", group, mock, Admin(client))
    else:
        make: TopicFactory = request.getfixturevalue("topic")
        cluster = request.getfixturevalue(request.param)
        name = make(queues=2, cluster=cluster, brokers=[BROKER])
        with Client(cluster.name_server) as reached, Client(cluster.proxy or cluster.name_server) as client:
            yield World(client, name, group, cluster, Admin(reached))


# --- pulling --------------------------------------------------------------------------------


def test_pulls_in_and_outside_of_the_queue(world: World) -> None:
    assert world.seen(0) == (19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0, [])
    assert world.seen(5) == (21, "NO_MESSAGE_IN_QUEUE", 0, 0, 0, [])
    bodies = [b"%d" % number for number in range(50)]
    world.fill(*bodies)
    assert world.seen(0) == (0, "FOUND", 32, 0, 50, bodies[:32])
    assert world.seen(32) == (0, "FOUND", 50, 0, 50, bodies[32:])
    assert world.seen(7, max_msg_nums=3) == (0, "FOUND", 10, 0, 50, bodies[7:10])
    assert world.seen(7, max_msg_nums=0) == (0, "FOUND", 8, 0, 50, bodies[7:8])
    assert world.seen(50) == (19, "OFFSET_OVERFLOW_ONE", 50, 0, 50, [])
    assert world.seen(51) == (21, "OFFSET_OVERFLOW_BADLY", 50, 0, 50, [])


def test_an_answer_ends_before_its_bytes_are_too_many(world: World) -> None:
    world.fill(*[b"x" * 60_000] * 6)
    assert world.seen(0)[2:5] == (4, 0, 6)
    world.fill(b"y" * 300_000, b"z")
    code, _, next_offset, _, _, bodies = world.seen(6)
    assert (code, next_offset, [len(body) for body in bodies]) == (0, 7, [300_000])


def test_a_tag_filter_compares_hashes(world: World) -> None:
    tags = ["Aa", "BB", None, "C", "Aa"]  # the first two have one hash
    world.fill(*[OutgoingMessage(world.topic, b"%d" % at, tags=tag) for at, tag in enumerate(tags)])
    assert world.seen(0, subscription="BB") == (0, "FOUND", 5, 0, 5, [b"0", b"1", b"4"])
    assert world.seen(0, subscription="C || D")[2:] == (5, 0, 5, [b"3"])
    assert world.seen(0, subscription="nothing") == (20, "NO_MATCHED_MESSAGE", 5, 0, 5, [])
    assert world.seen(0, subscription="") == (0, "FOUND", 5, 0, 5, [b"0", b"1", b"2", b"3", b"4"])
    assert world.seen(0, subscription="C", max_msg_nums=1) == (0, "FOUND", 4, 0, 5, [b"3"])


def test_a_filter_looks_at_800_messages_at_most(world: World) -> None:
    for _ in range(2):
        world.fill(*[OutgoingMessage(world.topic, b"x", tags="no")] * 500)
    assert world.seen(0, subscription="yes", max_msg_nums=10)[:3] == (20, "NO_MATCHED_MESSAGE", 800)
    assert world.seen(0, subscription="yes", max_msg_nums=900)[:3] == (20, "NO_MATCHED_MESSAGE", 900)
    assert world.seen(800, subscription="yes", max_msg_nums=10)[:3] == (20, "NO_MATCHED_MESSAGE", 1000)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"queue_id": 2}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "no-such-topic"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_pulls_that_are_refused(world: World, fields: dict[str, object], code: ResponseCode) -> None:
    assert world.pull(0, **fields).code == code


def test_an_sql_filter_is_refused_by_default(world: World) -> None:
    settings = {} if isinstance(world.cluster, MockBroker) else {"enablePropertyFilter": "false"}
    with broker_settings(world.cluster, **settings):
        answer = world.pull(0, subscription="a > 5", expression_type="SQL92")
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_suspended_pull_wakes_up_for_a_message(world: World) -> None:
    assert world.seen(0)[0] == 19  # the broker knows the group from now on
    sender = threading.Timer(0.2, world.fill, (b"late",))
    started = time.monotonic()
    sender.start()
    try:
        response = world.pull(0, sys_flag=6, suspend_timeout_millis=60_000)
    finally:
        sender.join()
    assert (response.code, response.remark) == (0, "FOUND")
    assert 0.15 < time.monotonic() - started < 30


def test_a_pull_can_commit(world: World) -> None:
    world.fill(b"1", b"2")
    world.pull(1, sys_flag=5, commit_offset=1)
    assert world.client.committed_offsets(world.group, (world.queue,)) == {world.queue: 1}


def test_a_pull_that_waits_commits_only_when_it_comes(world: World) -> None:
    world.fill(b"1", b"2", b"3")
    world.pull(1, sys_flag=5, commit_offset=1)

    def commit_and_send() -> None:
        world.client.commit_offsets(world.group, {world.queue: 3})
        world.fill(b"late")

    sender = threading.Timer(0.2, commit_and_send)
    sender.start()
    try:
        assert world.pull(3, sys_flag=7, commit_offset=2, suspend_timeout_millis=60_000).code == 0
    finally:
        sender.join()
    assert world.client.committed_offsets(world.group, (world.queue,)) == {world.queue: 3}


def test_a_topic_that_may_not_be_read(world: World) -> None:
    world.fill(b"1")
    world.admin.alter_topic(world.topic, perm=Permission.WRITE, brokers=[BROKER])
    assert world.pull(0).code == ResponseCode.NO_PERMISSION

    def is_shown() -> bool:
        world.client.invalidate(world.topic)
        return world.client.route(world.topic).read_queues() == ()

    eventually(is_shown, 60, what="the permission in the route, which a proxy keeps for a while")


# --- sending --------------------------------------------------------------------------------


def test_a_send_says_where_the_message_is(world: World) -> None:
    first = world.send(b"1", properties="UNIQ_KEY\x01id-1\x02TAGS\x01t\x02k\x01v\x02")
    second = world.send(b"2", flag=7)
    assert (first.code, first.fields["queueId"], first.fields["queueOffset"]) == (0, "0", "0")
    assert (first.fields["transactionId"], second.fields["queueOffset"]) == ("id-1", "1")
    eventually(lambda: world.client.max_offsets((world.queue,))[world.queue] == 2)
    one, two = decode_messages(world.pull(0).body, broker_name=BROKER, check_crc=True)
    assert (one.body, one.tags, one.msg_id, one.properties["k"]) == (b"1", "t", "id-1", "v")
    assert one.offset_msg_id == first.fields["msgId"]
    assert {"MSG_REGION", "TRACE_ON", "CLUSTER"} <= one.properties.keys()
    assert (two.body, two.flag, two.queue_offset, two.born_timestamp) == (b"2", 7, 1, 1_700_000_000_000)
    assert abs(one.store_timestamp - time.time() * 1000) < 60_000


def test_a_batch_is_stored_as_it_comes(world: World) -> None:
    items = [BatchItem(b"a", {"x": "1"}, 5), BatchItem(b"b", {"TAGS": "t"}, -6)]
    response = world.send(encode_batch(items), batch=True)
    assert (response.code, response.fields["queueOffset"]) == (0, "0")
    assert response.fields["msgId"].count(",") == 1
    eventually(lambda: world.client.max_offsets((world.queue,))[world.queue] == 2)
    a, b = decode_messages(world.pull(0).body, broker_name=BROKER, check_crc=True)
    assert (a.body, dict(a.properties), a.flag) == (b"a", {"x": "1"}, 5)
    assert (b.body, b.tags, b.flag, b.queue_offset) == (b"b", "t", -6, 1)


def test_a_send_without_a_queue_goes_anywhere(world: World) -> None:
    response = world.send(queue_id=-1)
    assert (response.code, response.fields["queueId"] in "01") == (0, True)


@pytest.mark.parametrize(
    ("body", "fields", "code"),
    [
        (b"x", {"queue_id": 2}, ResponseCode.INVALID_PARAMETER),
        (b"x" * (4 * 1024 * 1024 + 1), {}, ResponseCode.MESSAGE_ILLEGAL),
        (b"x", {"properties": "k\x01" + "v" * 32_767 + "\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        (b"", {}, ResponseCode.SYSTEM_ERROR),
    ],
    ids=["queue", "body", "properties", "empty"],
)
def test_sends_that_are_refused(
    world: World, body: bytes, fields: dict[str, object], code: ResponseCode
) -> None:
    assert world.send(body, **fields).code == code


def test_a_send_to_a_topic_that_does_not_exist(world: World) -> None:
    """A proxy says that its type is another one than the message's."""
    answer = world.send(topic="no-such-topic")
    assert answer.code == (ResponseCode.MESSAGE_ILLEGAL if world.is_proxied else ResponseCode.TOPIC_NOT_EXIST)
    with pytest.raises(ServiceNotAvailableError):
        answer.require()


def test_4_mib_are_taken(world: World) -> None:
    assert world.send(b"x" * (4 * 1024 * 1024)).code == 0


def test_a_one_way_send_is_stored(world: World) -> None:
    Producer(world.client).send_one_way(OutgoingMessage(world.topic, b"1"), world.queue)
    eventually(lambda: world.client.max_offsets((world.queue,))[world.queue] == 1)


# --- offsets --------------------------------------------------------------------------------


def test_offsets_of_queues(world: World) -> None:
    world.fill(b"1", b"2", b"3")
    offsets = []
    for request in (
        GetMinOffsetRequest(topic=world.topic, queue_id=0, broker_name=BROKER),
        GetMaxOffsetRequest(topic=world.topic, queue_id=0, broker_name=BROKER),
        GetMaxOffsetRequest(topic=world.topic, queue_id=1, broker_name=BROKER),
        GetMaxOffsetRequest(topic=world.topic, queue_id=77, broker_name=BROKER),
        GetMaxOffsetRequest(topic="no-such-topic", queue_id=0, broker_name=BROKER),
    ):
        response = world.ask(request)
        assert response.code == 0
        offsets.append(response.fields["offset"])
    assert offsets == ["0", "3", "0", "0", "0"]


def test_offsets_by_time(world: World) -> None:
    world.fill(b"1")
    sent = time.time_ns()
    eventually(lambda: time.time_ns() - sent > 5_000_000, what="another millisecond on the broker's clock")
    world.fill(b"2", b"3")
    stored = [message.store_timestamp for message in decode_messages(world.pull(0).body, broker_name=BROKER)]
    assert stored[0] < stored[1]

    def search(moment: int, boundary: str = "lower") -> int:
        request = SearchOffsetRequest(
            topic=world.topic, queue_id=0, timestamp=moment, boundary_type=boundary, broker_name=BROKER
        )
        return int(world.ask(request).fields["offset"])

    assert [search(at) for at in (0, stored[0], stored[0] + 1, stored[1], stored[1] + 1)] == [0, 0, 1, 1, 3]
    assert [search(at, "upper") for at in (0, stored[0], stored[1], stored[1] + 99)] == [0, 0, 2, 2]


@direct
def test_the_time_of_the_first_message(world: World) -> None:
    world.fill(b"1", b"2")
    first, _ = decode_messages(world.pull(0).body, broker_name=BROKER)
    earliest = world.ask(GetEarliestMsgStoretimeRequest(topic=world.topic, queue_id=0, broker_name=BROKER))
    assert earliest.fields["timestamp"] == str(first.store_timestamp)


def test_committed_offsets(world: World) -> None:
    world.fill(b"1", b"2")
    commit = UpdateConsumerOffsetRequest(
        consumer_group=world.group, topic=world.topic, queue_id=0, commit_offset=2, broker_name=BROKER
    )
    assert world.ask(commit).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    world.pull(0)  # makes the group
    assert world.client.committed_offsets(world.group, (world.queue,)) == {world.queue: None}
    query = QueryConsumerOffsetRequest(
        consumer_group=world.group,
        topic=world.topic,
        queue_id=0,
        set_zero_if_not_found=None,
        broker_name=BROKER,
    )
    assert (world.ask(query).code, world.ask(query).fields["offset"]) == (0, "0")
    assert world.ask(commit).code == 0
    assert world.client.committed_offsets(world.group, (world.queue,)) == {world.queue: 2}
    elsewhere = UpdateConsumerOffsetRequest(
        consumer_group=world.group, topic="no-such-topic", queue_id=0, commit_offset=2, broker_name=BROKER
    )
    assert world.ask(elsewhere).code == ResponseCode.TOPIC_NOT_EXIST


@direct
def test_a_heartbeat_makes_the_group_and_its_retry_topic(world: World) -> None:
    retry_topic = f"%RETRY%{world.group}"
    with pytest.raises(TopicNotFoundError):
        world.client.route(retry_topic)
    assert world.ask(HeartbeatRequest(), encode_heartbeat("c", consumer_groups=(world.group,))).code == 0
    eventually(lambda: world.admin.topic_route(retry_topic).read_queues())
    assert world.group in world.admin.groups()


# --- topics, routes, statistics -------------------------------------------------------------


@direct
def test_topics_come_and_go(world: World) -> None:
    admin, name = world.admin, fresh_name("behaviour")
    admin.create_topic(name, queues=3, brokers=[BROKER])
    assert name in admin.topics()
    config = admin.topic_configs(name)[BROKER]
    assert (config.read_queues, config.write_queues, int(config.perm)) == (3, 3, 6)
    assert [str(queue) for queue in admin.topic_route(name).read_queues()] == [
        f"{name}@{BROKER}:{queue_id}" for queue_id in range(3)
    ]
    admin.create_topic(name, queues=3, brokers=[BROKER])
    with pytest.raises(TopicExistsError, match="was not changed \\(read queues: 3, not 8\\)"):
        admin.create_topic(name, queues=8, brokers=[BROKER])
    admin.alter_topic(name, queues=1)
    route = admin.topic_route(name)
    assert (len(route.read_queues()), len(route.write_queues())) == (3, 1)
    admin.alter_topic(name, read_queues=1, perm=Permission.READ)
    altered = admin.topic_configs(name)[BROKER]
    assert (altered.read_queues, altered.write_queues, altered.perm) == (1, 1, Permission.READ)
    admin.delete_topic(name)
    assert name not in admin.topics()
    with pytest.raises(TopicNotFoundError):
        admin.topic_route(name)
    with pytest.raises(BrokerError) as caught:
        admin.create_topic("not a topic", brokers=[BROKER])
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


@direct
def test_a_queue_that_is_taken_away_keeps_its_messages(world: World) -> None:
    last = MessageQueue(world.topic, BROKER, 1)
    fill(world.client, world.topic, [b"1", b"2"], queues=[last])
    world.admin.alter_topic(world.topic, queues=1)
    assert world.seen(0, queue_id=1)[-1] == [b"1", b"2"]  # it is read to its end
    world.admin.alter_topic(world.topic, read_queues=1)
    assert world.pull(0, queue_id=1).code == ResponseCode.INVALID_PARAMETER
    assert world.send(queue_id=1).code == ResponseCode.INVALID_PARAMETER
    assert world.client.max_offsets([last]) == {last: 2}
    assert world.client.min_offsets([last]) == {last: 0}
    world.admin.alter_topic(world.topic, queues=2)
    assert world.seen(0, queue_id=1)[-1] == [b"1", b"2"]


@direct
def test_routes_of_no_topic(world: World) -> None:
    (addr,) = world.client.options.name_servers
    response = world.client.connection(addr).call(GetRouteInfoRequest(topic="no-such-topic"))
    assert response.code == ResponseCode.TOPIC_NOT_EXIST
    assert world.ask(GetTopicConfigRequest(topic="no-such-topic")).code == ResponseCode.TOPIC_NOT_EXIST


def test_statistics(world: World) -> None:
    admin = world.admin
    world.fill(b"1", b"2", b"3")
    stats = admin.topic_stats(world.topic)
    assert {str(queue): (s.min_offset, s.max_offset) for queue, s in stats.items()} == {
        f"{world.topic}@{BROKER}:0": (0, 3),
        f"{world.topic}@{BROKER}:1": (0, 0),
    }
    world.client.commit_offsets(world.group, {world.queue: 2})
    progress = admin.consume_stats(world.group, world.topic)[world.queue]
    assert (progress.broker_offset, progress.consumer_offset) == (3, 2)


@direct
def test_clusters_and_settings(world: World) -> None:
    admin = world.admin
    info = admin.cluster_info()
    assert info.brokers[BROKER].master == world.client.broker_address(BROKER, topic=world.topic)
    assert [BROKER in names for names in info.clusters.values()] == [True]
    assert admin.broker_runtime_info(BROKER)["brokerVersionDesc"] == version_name(world.version)
    assert admin.broker_config(BROKER)["maxTransferCountOnMessageInMemory"] == "32"


def test_settings_change_at_run_time(world: World) -> None:
    world.fill(*[b"x"] * 40)
    with broker_settings(world.cluster, maxTransferCountOnMessageInMemory="35"):
        assert world.seen(0)[2] == 35
    assert world.seen(0)[2] == 32


@direct
def test_groups(world: World) -> None:
    admin = world.admin
    assert world.group not in admin.groups()
    world.pull(0)
    assert world.group in admin.groups()
    with pytest.raises(GroupNotFoundError):
        world.ask(
            UpdateConsumerOffsetRequest(
                consumer_group="no-such-group",
                topic=world.topic,
                queue_id=0,
                commit_offset=1,
                broker_name=BROKER,
            )
        ).require()
    assert world.ask(GetAllSubscriptionGroupRequest()).code == 0


@direct
def test_what_a_server_does_not_know(world: World) -> None:
    assert world.ask(GetRouteInfoRequest(topic=world.topic)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


# --- members of groups ----------------------------------------------------------------------


def beat(world: World, client_id: str) -> None:
    body = encode_heartbeat(client_id, consumer_groups=(world.group,), consume_type="CONSUME_PASSIVELY")
    assert world.ask(HeartbeatRequest(), body).code == ResponseCode.SUCCESS


def test_members_are_those_that_beat_until_they_leave(world: World) -> None:
    request = GetConsumerListByGroupRequest(consumer_group=world.group)
    assert world.ask(request).code == ResponseCode.SYSTEM_ERROR
    beat(world, "one")
    assert decode_consumer_ids(world.ask(request).body) == ("one",)
    leave = UnregisterClientRequest(client_id="one", consumer_group=world.group)
    assert world.ask(leave).code == ResponseCode.SUCCESS
    assert world.ask(request).code == ResponseCode.SYSTEM_ERROR


def test_a_queue_is_locked_for_one_member(world: World) -> None:
    queues = [world.queue, MessageQueue(world.topic, BROKER, 1)]

    def lock(client_id: str, some: list[MessageQueue]) -> frozenset[MessageQueue]:
        answer = world.ask(LockBatchMqRequest(), encode_queue_lock(world.group, client_id, some))
        return decode_locked_queues(answer.require().body)

    assert lock("one", queues[:1]) == {queues[0]}
    assert lock("one", queues[:1]) == {queues[0]}
    assert lock("two", queues) == {queues[1]}
    for client_id in ("two", "one"):  # who does not hold a lock cannot give it back
        body = encode_queue_lock(world.group, client_id, queues[:1])
        assert world.ask(UnlockBatchMqRequest(), body).code == ResponseCode.SUCCESS
        assert lock("two", queues) == ({queues[1]} if client_id == "two" else set(queues))


@pytest.mark.parametrize(("delay_level", "most", "kind"), [(1, 16, "RETRY"), (-1, 16, "DLQ"), (1, 0, "DLQ")])
def test_a_message_that_is_sent_back_comes_again_or_is_a_dead_letter(
    world: World, delay_level: int, most: int, kind: str
) -> None:
    beat(world, "one")
    world.fill(OutgoingMessage(world.topic, b"x", tags="t"))
    (message,) = decode_messages(world.pull(0).body, broker_name=BROKER)
    request = ConsumerSendMsgBackRequest(
        offset=message.commit_log_offset,
        group=world.group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=world.topic,
        max_reconsume_times=most,
        broker_name=BROKER,
    )
    assert world.ask(request).code == ResponseCode.SUCCESS
    again = MessageQueue(f"%{kind}%{world.group}", BROKER, 0)
    end = GetMaxOffsetRequest(topic=again.topic, queue_id=0, broker_name=BROKER)
    eventually(lambda: OffsetResponse.parse(world.ask(end).fields).offset == 1, 30, what="the message again")
    pulled = world.pull(0, topic=again.topic)
    (found,) = decode_messages(pulled.body, broker_name=BROKER)
    assert (found.body, found.tags, found.properties["RETRY_TOPIC"]) == (b"x", "t", world.topic)
    assert found.reconsume_times == 1
    lost = replace(request, offset=message.commit_log_offset + (1 << 40))
    assert world.ask(lost).code == ResponseCode.SYSTEM_ERROR


# --- what is not mocked ---------------------------------------------------------------------


def test_the_mock_refuses_what_it_does_not_know() -> None:
    with MockBroker({"orders": 1}) as mock, Client(mock.name_server) as client:
        connection = client.connection(mock.address(BROKER))
        for request in (
            QueryTopicsByConsumerRequest(group="g"),
            QueryMessageRequest(topic="orders", key="k", max_num=1, begin_timestamp=0, end_timestamp=1),
        ):
            assert connection.call(request).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
