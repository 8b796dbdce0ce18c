"""Every request that we declare, asked of real servers in both serializations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from tests.support.releases import version_name
from tests.support.topics import TopicFactory, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.inventory import GroupConfig
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.remoting import body as bodies
from pyspark_rocketmq.remoting import header as headers
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.command import Buffer, Serializer
from pyspark_rocketmq.remoting.header import RequestHeader

T = TypeVar("T")

TAKES_ALL = 4
"""Pull flag: the subscription that comes along counts."""


class Peer:
    """A connection whose calls must succeed."""

    def __init__(self, addr: str, serializer: Serializer, credentials: Credentials | None = None) -> None:
        self.connection = Connection(addr, ConnectionOptions(serializer=serializer, credentials=credentials))

    def call(self, request: RequestHeader, body: bytes = b"") -> Response:
        return self.connection.call(request, body, deadline=Deadline(SYSTEM_CLOCK, 20_000))

    def ask(self, request: RequestHeader, body: bytes = b"") -> Response:
        return self.call(request, body).require()

    def read(self, decode: Callable[[Buffer], T], request: RequestHeader, body: bytes = b"") -> T:
        return decode(self.ask(request, body).body)


@pytest.fixture(params=["mq", "mq54", "mq49"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, DevCluster)
    return found


@pytest.fixture(params=Serializer)
def peers(request: pytest.FixtureRequest, cluster: DevCluster) -> Iterator[tuple[Peer, Peer]]:
    """A name server and a broker."""
    name_server = Peer(cluster.name_server, request.param)
    broker = Peer(cluster.brokers[0].address, request.param)
    yield name_server, broker
    name_server.connection.close()
    broker.connection.close()


def send(broker: Peer, queue: MessageQueue) -> headers.SendMessageResponse:
    request = headers.SendMessageRequest(
        producer_group="p",
        topic=queue.topic,
        queue_id=queue.queue_id,
        born_timestamp=1_700_000_000_000,
        properties="TAGS\x01größe\x02KEYS\x01k1\x02",
        broker_name=queue.broker_name,
    )
    return headers.SendMessageResponse.parse(broker.ask(request, b"hello").fields)


def pull(broker: Peer, queue: MessageQueue, offset: int, group: str) -> Response:
    return broker.call(
        headers.PullMessageRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=TAKES_ALL,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
    )


def offset_at(broker: Peer, request: RequestHeader) -> int:
    return headers.OffsetResponse.parse(broker.ask(request).fields).offset


def wait_for_message(broker: Peer, queue: MessageQueue) -> None:
    """A broker indexes a stored message a moment later: pulls say when."""
    eventually(
        lambda: pull(broker, queue, 0, "TOOLS_CONSUMER").code == ResponseCode.SUCCESS, what="the message"
    )


def test_routes(cluster: DevCluster, peers: tuple[Peer, Peer], topic: TopicFactory) -> None:
    name_server, broker = peers
    name, address = topic(queues=3, cluster=cluster), cluster.brokers[0].address
    for standard in (True, None):
        body = name_server.ask(
            headers.GetRouteInfoRequest(topic=name, accept_standard_json_only=standard)
        ).body
        route = bodies.decode_route(name, body)
        assert [queue.queue_id for queue in route.write_queues()] == [0, 1, 2]
        assert route.brokers[0].master == address
    info = name_server.read(bodies.decode_cluster_info, headers.GetBrokerClusterInfoRequest())
    assert [data.master for data in info.brokers.values()] == [address]
    (cluster_name,) = info.clusters
    for request in (
        headers.GetAllTopicListFromNameserverRequest(),
        headers.GetTopicsByClusterRequest(cluster=cluster_name),
    ):
        assert name in name_server.read(bodies.decode_topic_list, request)
    broker.ask(headers.DeleteTopicRequest(topic=name))
    name_server.ask(headers.DeleteTopicFromNamesrvRequest(topic=name))
    answer = name_server.call(headers.GetRouteInfoRequest(topic=name))
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_messages_and_offsets(
    cluster: DevCluster, peers: tuple[Peer, Peer], topic: TopicFactory, group: str
) -> None:
    _, broker = peers
    queue = MessageQueue(topic(queues=2, cluster=cluster), cluster.brokers[0].name, 1)
    where = {"topic": queue.topic, "queue_id": queue.queue_id, "broker_name": queue.broker_name}
    broker.ask(
        headers.UpdateAndCreateSubscriptionGroupRequest(), bodies.encode_group_config(GroupConfig(group))
    )
    stored = send(broker, queue)
    assert (stored.queue_id, stored.queue_offset) == (1, 0)
    wait_for_message(broker, queue)

    answer = pull(broker, queue, 0, group)
    header = headers.PullMessageResponse.parse(answer.fields)
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (1, 0, 1)
    assert b"hello" in bytes(answer.body)
    beyond = pull(broker, queue, 9, group)
    assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
    assert headers.PullMessageResponse.parse(beyond.fields).next_begin_offset == 1

    assert offset_at(broker, headers.GetMinOffsetRequest(**where)) == 0
    assert offset_at(broker, headers.GetMaxOffsetRequest(**where)) == 1
    assert offset_at(broker, headers.SearchOffsetRequest(timestamp=0, **where)) == 0
    earliest = broker.ask(headers.GetEarliestMsgStoretimeRequest(**where))
    stored_at = headers.GetEarliestMsgStoretimeResponse.parse(earliest.fields).timestamp
    stats = broker.read(bodies.decode_topic_stats, headers.GetTopicStatsInfoRequest(topic=queue.topic))
    assert (stats[queue].max_offset, stats[queue].last_update_timestamp) == (1, stored_at)

    broker.ask(headers.UpdateConsumerOffsetRequest(consumer_group=group, commit_offset=1, **where))
    assert offset_at(broker, headers.QueryConsumerOffsetRequest(consumer_group=group, **where)) == 1
    progress = broker.read(
        bodies.decode_consume_stats, headers.GetConsumeStatsRequest(consumer_group=group, topic=queue.topic)
    )
    assert (progress[queue].broker_offset, progress[queue].consumer_offset) == (1, 1)

    viewed = broker.ask(headers.ViewMessageRequest(offset=int(stored.msg_id[-16:], 16), topic=queue.topic))
    assert b"hello" in bytes(viewed.body)


def test_groups_and_clients(
    cluster: DevCluster, peers: tuple[Peer, Peer], topic: TopicFactory, group: str
) -> None:
    _, broker = peers
    queue = MessageQueue(topic(queues=1, cluster=cluster), cluster.brokers[0].name, 0)
    config = GroupConfig(group, retry_max_times=3, consume_message_orderly=True)
    broker.ask(headers.UpdateAndCreateSubscriptionGroupRequest(), bodies.encode_group_config(config))
    groups = broker.read(bodies.decode_group_configs, headers.GetAllSubscriptionGroupRequest())
    assert groups[group].retry_max_times == 3

    subscriptions = {queue.topic: MessageSelector.by_tag("a || b")}
    broker.ask(
        headers.HeartbeatRequest(),
        bodies.encode_heartbeat(
            "me@1", producer_groups=[group], consumer_groups=[group], subscriptions=subscriptions
        ),
    )
    ids = broker.read(bodies.decode_consumer_ids, headers.GetConsumerListByGroupRequest(consumer_group=group))
    assert ids == ("me@1",)
    consumers = broker.read(
        bodies.decode_consumer_connection, headers.GetConsumerConnectionListRequest(consumer_group=group)
    )
    assert consumers.subscriptions[queue.topic] == subscriptions[queue.topic]
    assert consumers.clients[0].language == "PYTHON"
    producers = broker.read(
        bodies.decode_producer_connection, headers.GetProducerConnectionListRequest(producer_group=group)
    )
    assert producers == consumers.clients
    readers = broker.read(bodies.decode_group_list, headers.QueryTopicConsumeByWhoRequest(topic=queue.topic))
    assert readers == (group,)

    lock = bodies.encode_queue_lock(group, "me@1", [queue])
    others = bodies.encode_queue_lock(group, "you@2", [queue])
    assert broker.read(bodies.decode_locked_queues, headers.LockBatchMqRequest(), lock) == {queue}
    assert broker.read(bodies.decode_locked_queues, headers.LockBatchMqRequest(), others) == frozenset()
    broker.ask(headers.UnlockBatchMqRequest(), lock)
    assert broker.read(bodies.decode_locked_queues, headers.LockBatchMqRequest(), others) == {queue}

    broker.ask(headers.UnregisterClientRequest(client_id="me@1", producer_group=group, consumer_group=group))
    gone = broker.call(headers.GetConsumerConnectionListRequest(consumer_group=group))
    assert gone.code == ResponseCode.CONSUMER_NOT_ONLINE
    broker.ask(headers.DeleteSubscriptionGroupRequest(group_name=group))
    groups = broker.read(bodies.decode_group_configs, headers.GetAllSubscriptionGroupRequest())
    assert group not in groups


def test_settings(cluster: DevCluster, peers: tuple[Peer, Peer], topic: TopicFactory) -> None:
    _, broker = peers
    name = topic(queues=3, cluster=cluster)

    def has_all_topics() -> bool:
        """The broker counts its topics before it lists them, and other tests create some in between."""
        answer = broker.ask(headers.GetAllTopicConfigRequest())
        topics = bodies.decode_topic_configs(answer.body)
        assert topics[name].read_queues == 3
        return int(answer.fields.get("totalTopicNum", len(topics))) == len(topics)

    eventually(has_all_topics, what="a list with as many topics as the broker counts")
    settings = broker.ask(headers.GetBrokerConfigRequest())
    assert headers.GetBrokerConfigResponse.parse(settings.fields).version
    before = bodies.decode_broker_properties(settings.body)["mappedFileSizeConsumeQueue"]
    broker.ask(
        headers.UpdateBrokerConfigRequest(),
        bodies.encode_broker_properties({"mappedFileSizeConsumeQueue": before}),
    )
    ours = MessageSelector.by_tag("a || b")
    broker.ask(headers.CheckClientConfigRequest(), bodies.encode_client_check("me", "g", name, ours))


def test_what_only_5_x_knows(mq: DevCluster, group: str) -> None:
    broker = Peer(mq.brokers[0].address, Serializer.JSON)
    name = fresh_name("attributes")
    attributes = bodies.encode_topic_attributes({"message.type": "FIFO"})
    broker.ask(
        headers.CreateTopicRequest(
            topic=name, read_queue_nums=1, write_queue_nums=1, perm=6, attributes=attributes
        )
    )
    config = broker.read(bodies.decode_topic_config, headers.GetTopicConfigRequest(topic=name))
    assert config.attributes == {"message.type": "FIFO"}
    created = broker.read(bodies.decode_group_config, headers.GetSubscriptionGroupConfigRequest(group=group))
    assert created.group == group
    reset = broker.read(
        bodies.decode_reset_offsets, headers.ResetOffsetRequest(group=group, topic=name, timestamp=-1)
    )
    assert reset == {MessageQueue(name, mq.brokers[0].name, 0): 0}
    assert broker.read(bodies.decode_topic_list, headers.QueryTopicsByConsumerRequest(group=group)) == (name,)
    runtime = broker.read(bodies.decode_runtime_info, headers.GetBrokerRuntimeInfoRequest())
    assert runtime["brokerVersionDesc"] == version_name(mq.version)
    broker.connection.close()
