"""Routes and offsets, against real brokers of both generations."""

from __future__ import annotations

import re
import time

import pytest
from tests.support.light_cluster import light_cluster
from tests.support.patient import patient_mqadmin, patient_producer
from tests.support.topics import TopicFactory, fill
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, MessageQueue, OutgoingMessage, PullConsumer
from pyspark_rocketmq.client.shared import shared_client
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import GroupNotFoundError, NameServerError, TopicNotFoundError
from pyspark_rocketmq.model import Message
from pyspark_rocketmq.options import ClientOptions


@pytest.fixture(params=["mq", "mq54", "mq49"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Every supported release."""
    return request.getfixturevalue(request.param)


def read_all(client: Client, queue: MessageQueue, group: str) -> list[Message]:
    consumer = PullConsumer(group, client=client)
    messages: list[Message] = []
    offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
    while offset < end:
        result = consumer.pull(queue, "*", offset)
        messages += result.messages
        offset = result.next_begin_offset
    return messages


def fill_queues(client: Client, topic: str, count: int) -> tuple[MessageQueue, ...]:
    """Send this number of messages to each queue; return the queues."""
    queues = client.write_queues(topic)
    fill(client, topic, [b"%d" % number for number in range(count) for _ in queues])
    return queues


def test_queues_are_sorted_and_offsets_exclusive(
    client: Client, cluster: DevCluster, topic: TopicFactory
) -> None:
    name = topic(queues=3, cluster=cluster)
    queues = fill_queues(client, name, 5)
    assert queues == tuple(MessageQueue(name, "broker-a", queue_id) for queue_id in range(3))
    assert client.read_queues(name) == queues
    assert client.min_offsets(queues) == dict.fromkeys(queues, 0)
    assert client.max_offsets(queues) == dict.fromkeys(queues, 5)


def test_no_queues_no_calls(client: Client) -> None:
    assert client.max_offsets(()) == {}
    assert client.offsets_at({}) == {}
    client.commit_offsets("nobody", {})


def test_unknown_topic_is_named_with_the_name_server(client: Client, cluster: DevCluster) -> None:
    with pytest.raises(TopicNotFoundError, match="does not exist") as caught:
        client.read_queues("no-such-topic")
    assert "no-such-topic" in str(caught.value)
    assert cluster.name_server in str(caught.value)


def test_many_routes_at_once(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    names = [topic(queues=1, cluster=cluster) for _ in range(3)]
    found = client.routes.find_many([*names, "no-such-topic"], deadline=client.deadline())
    assert found["no-such-topic"] is None
    assert all(found[name] is not None for name in names)


def test_a_thousand_queues(client: Client, cluster: DevCluster, topic: TopicFactory, group: str) -> None:
    """That they are all in flight together is shown by the tests against scripted peers."""
    queues = client.read_queues(topic(queues=1000, cluster=cluster))
    assert client.max_offsets(queues) == dict.fromkeys(queues, 0)
    offsets = {queue: queue.queue_id for queue in queues}
    client.commit_offsets(group, offsets)
    assert client.committed_offsets(group, queues) == offsets


def test_offsets_at_means_the_first_message_at_or_after(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    """Bursts share a timestamp: brokers of 4.9 answer with any message of a burst, or a neighbour."""
    name = topic(queues=1, cluster=cluster)
    producer = patient_producer(client)
    for size in (1, 40, 1, 1, 25, 3):
        producer.send_batch([OutgoingMessage(name, b"x")] * size)
    (queue,) = client.read_queues(name)
    eventually(lambda: client.max_offsets((queue,))[queue] == 71)
    times = [message.store_timestamp for message in read_all(client, queue, group)]
    moments = {moment + shift for moment in set(times) for shift in (-1, 0, 1)}
    moments |= {0, times[0] - 100_000, times[-1] + 100_000}
    for moment in sorted(moments):
        right = sum(stored < moment for stored in times)
        assert client.offsets_at({queue: moment}) == {queue: right}, moment


def test_offsets_at_of_an_empty_queue(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    queues = client.read_queues(topic(queues=2, cluster=cluster))
    now = client.clock.now_ms()
    assert client.offsets_at(dict.fromkeys(queues, now)) == dict.fromkeys(queues, 0)


def test_commits_of_a_group_that_never_was(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    name = topic(queues=2, cluster=cluster)
    first, second = fill_queues(client, name, 3)
    client.commit_offsets(group, {first: 2, second: 3})
    assert client.committed_offsets(group, (first, second)) == {first: 2, second: 3}
    client.commit_offsets(group, {first: 1})
    assert client.committed_offsets(group, (first,)) == {first: 1}


@pytest.mark.needs("java")
def test_rocketmq_tools_show_the_progress(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    """Needs %RETRY%group, which only a heartbeat makes."""
    name = topic(queues=2, cluster=cluster)
    first, second = fill_queues(client, name, 3)
    client.commit_offsets(group, {first: 2, second: 3})
    shown = patient_mqadmin(cluster, "consumerProgress", "-g", group)
    assert re.search(r"Diff Total: 1$", shown, re.MULTILINE), shown


def test_never_committed_is_none(mq: DevCluster, topic: TopicFactory, group: str) -> None:
    with Client(mq.name_server) as client:
        queues = fill_queues(client, topic(queues=2), 1)
        assert client.committed_offsets(group, queues) == dict.fromkeys(queues)


def test_a_group_that_was_deleted_is_registered_again(
    client: Client, cluster: DevCluster, topic: TopicFactory, group: str
) -> None:
    queues = fill_queues(client, topic(queues=2, cluster=cluster), 3)
    client.commit_offsets(group, dict.fromkeys(queues, 1))
    with Client(cluster.name_server) as other:
        Admin(other).delete_group(group)
    client.commit_offsets(group, dict.fromkeys(queues, 2))
    assert client.committed_offsets(group, queues) == dict.fromkeys(queues, 2)


@pytest.mark.needs("cluster")
def test_group_that_may_not_be_created(topic: TopicFactory, group: str) -> None:
    with light_cluster(autoCreateSubscriptionGroup="false") as own, Client(own.name_server) as client:
        (queue,) = client.read_queues(topic(queues=1, cluster=own))
        with pytest.raises(GroupNotFoundError) as caught:
            client.commit_offsets(group, {queue: 1})
        assert caught.value.facts["group"] == group


def test_a_dead_name_server_is_passed_over(mq: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1)
    options = ClientOptions(name_servers=("127.0.0.1:1", mq.name_server), connect_timeout_ms=60_000)
    started = time.monotonic()
    with Client(options) as client:
        assert len(client.read_queues(name)) == 1
    assert time.monotonic() - started < 30


def test_a_broker_is_no_name_server(mq: DevCluster) -> None:
    addr = mq.broker().address
    with Client(addr) as client, pytest.raises(NameServerError, match="Is this a name server") as caught:
        client.read_queues("any")
    assert addr in str(caught.value)


def test_equal_options_share_a_client(mq: DevCluster) -> None:
    one = shared_client(ClientOptions(name_servers=(mq.name_server,)))
    try:
        assert shared_client(ClientOptions(name_servers=(mq.name_server,))) is one
        assert shared_client(ClientOptions(name_servers=(mq.name_server,), connect_timeout_ms=1)) is not one
    finally:
        one.close()
