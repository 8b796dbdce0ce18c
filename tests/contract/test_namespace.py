"""Topics and groups of a namespace, seen from inside and from outside, on the mock broker and a real one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import pytest
from tests.support.patient import patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageQueue,
    MessageSelector,
    OffsetRange,
    OutgoingMessage,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
)
from pyspark_rocketmq.client.read.message_search import message_by_id
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import TopicNotFoundError
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.testing import MockBroker

NAMESPACE = f"ns{secrets.token_hex(3)}"


@pytest.fixture(params=["mock", "mq"])
def name_server(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "mq":
        yield request.getfixturevalue("mq").name_server
        return
    with MockBroker({f"{NAMESPACE}%orders": 2}) as mock:
        yield mock.name_server


@pytest.fixture
def inside(name_server: str) -> Iterator[Client]:
    given = {"nameServer": name_server, "namespace": NAMESPACE}
    with Client(parse_options(ClientOptions, given, environ={})) as client:
        yield client


@pytest.fixture
def outside(name_server: str) -> Iterator[Client]:
    with Client(name_server) as client:
        yield client


def test_a_namespace_has_topics_groups_and_offsets_of_its_own(inside: Client, outside: Client):
    try:
        Admin(outside).topic_route(f"{NAMESPACE}%orders")
    except TopicNotFoundError:
        Admin(inside).create_topic("orders", queues=2)
    queue = MessageQueue("orders", "broker-a", 1)
    assert queue in inside.read_queues("orders")
    with pytest.raises(TopicNotFoundError):
        outside.read_queues("orders")

    Producer(inside, "p").send_batch(
        [OutgoingMessage("orders", b"%d" % n, tags="a") for n in range(40)], queue
    )
    on_server = MessageQueue(f"{NAMESPACE}%orders", "broker-a", 1)
    eventually(lambda: outside.max_offsets([on_server]) == {on_server: 40})
    assert inside.max_offsets([queue]) == {queue: 40}
    assert inside.offsets_at({queue: 0}) == {queue: 0}

    options = ReadOptions(consumer_group="report", selector=MessageSelector.by_tag("a"))
    messages = list(read_messages(inside, [OffsetRange(queue, 0, 40)], options))
    assert [message.body for message in messages] == [b"%d" % n for n in range(40)]
    assert {message.topic for message in messages} == {"orders"}
    pulled = PullConsumer("report", client=inside).pull(queue, "*", 39)
    assert [(m.topic, m.body) for m in pulled.messages] == [("orders", b"39")]

    inside.commit_offsets("report", {queue: 30})
    assert inside.committed_offsets("report", [queue]) == {queue: 30}
    assert outside.committed_offsets(f"{NAMESPACE}%report", [on_server]) == {on_server: 30}
    assert outside.committed_offsets("report", [on_server]) == {on_server: None}
    assert Admin(outside).topic_route(f"%RETRY%{NAMESPACE}%report"), "the group is known by its full name"

    assert Admin(inside).topics() == ("orders",)
    assert f"{NAMESPACE}%orders" in Admin(outside).topics()


def test_a_message_that_comes_again_has_the_users_name_of_its_topic(name_server: str):
    got: list[Message] = []

    def listener(messages: Sequence[Message]) -> ConsumeResult | None:
        got.extend(messages)
        return None if messages[0].reconsume_times else ConsumeResult.LATER

    given = {"nameServer": name_server, "namespace": f"{NAMESPACE}a"}
    quick = PushOptions(retry_delay_level=1, rebalance_ms=200, start=ConsumeFromWhere.FIRST_OFFSET)
    with Client(parse_options(ClientOptions, given, environ={})) as client:
        Admin(client).create_topic("orders", queues=1)
        patient_producer(client).send(OutgoingMessage("orders", b"x"))
        with PushConsumer("billing", client.options, quick) as consumer:
            consumer.subscribe("orders")
            consumer.start(listener)
            eventually(lambda: len(got) == 2, 90, what="the message, twice")
    assert [(m.topic, m.body, m.reconsume_times) for m in got] == [("orders", b"x", 0), ("orders", b"x", 1)]


def test_subscriptions_of_connected_consumers_bear_the_users_names(mq):
    given = {"nameServer": mq.name_server, "namespace": f"{NAMESPACE}c"}
    with Client(parse_options(ClientOptions, given, environ={})) as client:
        admin = Admin(client)
        admin.create_topic("orders", queues=1)
        with PushConsumer("billing", client.options, PushOptions(rebalance_ms=200)) as consumer:
            consumer.subscribe("orders", "a")
            consumer.start(lambda messages: None)

            def all_are_known() -> bool:
                """Brokers record the connection first, and then one topic after the other."""
                found = admin.consumer_connections("billing")["broker-a"].subscriptions
                told = {topic: selector.expression for topic, selector in found.items()}
                assert told == {"orders": "a", "%RETRY%billing": "*"}
                return True

            eventually(lambda: admin.consumer_connections("billing"), what="the consumer")
            eventually(all_are_known)


def test_statistics_and_settings_bear_the_users_names(mq):
    given = {"nameServer": mq.name_server, "namespace": f"{NAMESPACE}s"}
    with Client(parse_options(ClientOptions, given, environ={})) as client:
        admin = Admin(client)
        admin.create_topic("orders", queues=1)
        admin.create_group("report")
        (queue,) = client.read_queues("orders")
        patient_producer(client).send_batch([OutgoingMessage("orders", b"x")] * 3, queue)
        eventually(lambda: client.max_offsets([queue]) == {queue: 3})
        client.commit_offsets("report", {queue: 2})
        sent = patient_producer(client).send(OutgoingMessage("orders", b"found"), queue)
        found = message_by_id(client, "orders", sent.offset_msg_id)
        assert found is not None
        assert (found.topic, found.body) == ("orders", b"found")
        eventually(lambda: client.max_offsets([queue]) == {queue: 4})
        assert admin.topic_stats("orders")[queue].max_offset == 4
        stats = admin.consume_stats("report", "orders")[queue]
        assert (stats.broker_offset, stats.consumer_offset) == (4, 2)
        assert list(admin.groups()) == ["report"]
        assert admin.topic_configs("orders")["broker-a"].topic == "orders"
        admin.delete_group("report")
        assert list(admin.groups()) == []
        admin.delete_topic("orders")
        assert admin.topics() == ()
