"""Administration, against real brokers of both generations."""

from __future__ import annotations

import json

import pytest
from tests.support.patient import patient_producer
from tests.support.settings import broker_settings
from tests.support.topics import TopicFactory, fresh_name
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, GroupConfig, MessageQueue, OutgoingMessage
from pyspark_rocketmq.client.admin_calls import await_route
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import BrokerError, OptionError, TopicNotFoundError
from pyspark_rocketmq.model import Permission
from pyspark_rocketmq.remoting.header import DeleteTopicFromNamesrvRequest
from pyspark_rocketmq.remoting.header.base import RequestHeader, header


@pytest.fixture(params=["mq", "mq54", "mq49"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Every supported release."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def admin(client: Client) -> Admin:
    return Admin(client)


def test_a_topic_from_birth_to_death(admin: Admin, client: Client, request: pytest.FixtureRequest) -> None:
    name = fresh_name(request.node.name)
    admin.create_topic(name, queues=3)
    assert len(client.read_queues(name)) == len(client.write_queues(name)) == 3
    assert name in admin.topics()
    config = admin.topic_configs(name)["broker-a"]
    assert (config.read_queues, config.write_queues, config.perm) == (
        3,
        3,
        Permission.READ | Permission.WRITE,
    )
    # Shrinking keeps what is still to be read.
    admin.alter_topic(name, queues=2)
    assert (len(client.read_queues(name)), len(client.write_queues(name))) == (3, 2)
    admin.delete_topic(name)
    assert name not in admin.topics()
    with pytest.raises(TopicNotFoundError):
        client.read_queues(name)
    admin.delete_topic(name)


@header
class RegisterTopicRequest(RequestHeader):
    """What brokers with ``enableSingleTopicRegister`` send: name servers then show these queues (5.x)."""

    CODE = 217  # type: ignore[assignment] - no client sends it

    topic: str


def show_queues(client: Client, topic: str, queues: int) -> None:
    """Let the name server show a number of queues, as if it had ignored a change."""
    (addr,) = client.options.name_servers
    shown = {"brokerName": "broker-a", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
    body = json.dumps({"queueDatas": [shown | {"topicSysFlag": 0}]}).encode()
    client.connection(addr).call(RegisterTopicRequest(topic=topic), body).require()


def test_a_change_that_the_name_server_ignored_is_registered_again(
    admin: Admin, client: Client, cluster: DevCluster, topic: TopicFactory
) -> None:
    name = topic(queues=4, cluster=cluster)
    before = admin.topic_configs(name)
    if cluster.version.startswith("5."):
        show_queues(client, name, 3)
    else:  # 4.9 also ignores new topics
        (addr,) = client.options.name_servers
        client.connection(addr).call(DeleteTopicFromNamesrvRequest(topic=name)).require()
    client.invalidate(name)
    route = client.find_route(name)
    assert route is None or len(route.read_queues()) == 3
    await_route(client, name, lambda r: r is not None and len(r.read_queues()) == 4, homes=["broker-a"])
    assert admin.topic_configs(name) == before


def test_system_topics_are_hidden(admin: Admin, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(cluster=cluster)
    shown = admin.topics()
    assert name in shown
    assert not [
        other for other in shown if other.startswith(("%", "rmq_sys_", "RMQ_SYS_", "TBW102", "broker-"))
    ]
    assert {"TBW102", "broker-a", name} <= set(admin.topics(include_system=True))


def test_names_that_brokers_refuse(admin: Admin) -> None:
    with pytest.raises(BrokerError) as caught:
        admin.create_topic("no spaces please")
    assert caught.value.facts["broker_name"] == "broker-a"


def test_nowhere_to_create_it(admin: Admin) -> None:
    with pytest.raises(OptionError, match="no such broker or cluster"):
        admin.create_topic("any", cluster="no-such-cluster")
    with pytest.raises(OptionError, match=r"no such broker.*broker-z.*broker-a"):
        admin.create_topic("any", brokers=["broker-z"])


def test_topic_statistics(admin: Admin, client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=2, cluster=cluster)
    queue = MessageQueue(name, "broker-a", 1)
    patient_producer(client).send_batch([OutgoingMessage(name, b"x")] * 3, queue)
    eventually(lambda: admin.topic_stats(name)[queue].max_offset == 3)
    stats = admin.topic_stats(name)
    assert stats[queue].min_offset == 0
    assert abs(stats[queue].last_update_timestamp - client.clock.now_ms()) < 60_000
    assert stats[MessageQueue(name, "broker-a", 0)].max_offset == 0
    with pytest.raises(TopicNotFoundError):
        admin.topic_stats("no-such-topic")


def test_a_group_and_its_progress(
    admin: Admin, client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    name = topic(queues=1, cluster=cluster)
    result = patient_producer(client).send_batch([OutgoingMessage(name, b"x")] * 5)
    eventually(lambda: client.max_offsets((result.queue,))[result.queue] == 5)
    admin.create_group(GroupConfig(group, retry_max_times=3))
    assert admin.groups()[group].retry_max_times == 3
    client.commit_offsets(group, {result.queue: 2})
    progress = admin.consume_stats(group, name)[result.queue]
    assert (progress.broker_offset, progress.consumer_offset) == (5, 2)
    assert admin.consume_stats(group)[result.queue].consumer_offset == 2
    assert admin.consumer_connections(group) == {}
    admin.delete_group(group)
    assert group not in admin.groups()


def test_groups_of_the_system_are_hidden(admin: Admin) -> None:
    assert "TOOLS_CONSUMER" not in admin.groups()
    assert "TOOLS_CONSUMER" in admin.groups(include_system=True)


def test_cluster_and_broker(admin: Admin, cluster: DevCluster) -> None:
    info = admin.cluster_info()
    assert info.clusters == {"DefaultCluster": ("broker-a",)}
    assert info.brokers["broker-a"].master == cluster.broker().address
    assert admin.broker_runtime_info("broker-a")["brokerVersionDesc"].startswith("V")


def test_settings_are_read_back(admin: Admin, cluster: DevCluster) -> None:
    with broker_settings(cluster, shortPollingTimeMills="1001"):  # without effect by default
        assert admin.broker_config("broker-a")["shortPollingTimeMills"] == "1001"
    with pytest.raises(OptionError, match="did not accept") as caught:
        admin.set_broker_config("broker-a", {"noSuchSetting": "1"})
    assert caught.value.facts["setting"] == "noSuchSetting"
