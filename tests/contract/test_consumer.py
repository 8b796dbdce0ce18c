"""Pulling by offset, against real brokers of both generations."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.event_loop import Blocking, LoopThread
from tests.support.settings import broker_settings
from tests.support.topics import TopicFactory, fill

from pyspark_rocketmq.client import (
    AsyncPullConsumer,
    Client,
    MessageQueue,
    MessageSelector,
    OutgoingMessage,
    PullConsumer,
    PullStatus,
)
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import OptionError


@pytest.fixture(params=["mq", "mq54", "mq49", "proxied"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Every supported release, and a proxy."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["threads", "asyncio"])
def consumer(request: pytest.FixtureRequest, name_server: str, group: str) -> Iterator[PullConsumer]:
    """Both consumers, by the same names."""
    if request.param == "threads":
        with PullConsumer(group, name_server=name_server) as made:
            yield made
        return
    with LoopThread() as loop:
        consumer = AsyncPullConsumer(group, name_server=name_server)
        blocking: Any = Blocking(loop, consumer)
        yield blocking
        loop.run(consumer.close())


@pytest.fixture
def queue(cluster: DevCluster, topic: TopicFactory) -> MessageQueue:
    return MessageQueue(topic(queues=1, cluster=cluster, brokers=["broker-a"]), "broker-a", 0)


def send(cluster: DevCluster, *messages: OutgoingMessage) -> None:
    with Client(cluster.name_server) as client:
        fill(client, messages[0].topic, messages)


def test_found_and_the_end(cluster: DevCluster, consumer: PullConsumer, queue: MessageQueue) -> None:
    send(cluster, *(OutgoingMessage(queue.topic, b"%d" % number) for number in range(40)))
    assert consumer.fetch_subscribe_message_queues(queue.topic) == (queue,)
    first = consumer.pull(queue, "*", 0, 32)
    assert first.status is PullStatus.FOUND
    assert (first.min_offset, first.max_offset, first.next_begin_offset) == (0, 40, 32)
    second = consumer.pull(queue, "*", first.next_begin_offset, 32)
    assert [message.body for message in (*first.messages, *second.messages)] == [b"%d" % n for n in range(40)]
    assert [message.queue_offset for message in second.messages] == list(range(32, 40))
    end = consumer.pull(queue, "*", 40)
    assert (end.status, end.messages, end.next_begin_offset) == (PullStatus.NO_NEW_MSG, (), 40)


def test_an_offset_outside_is_illegal(
    cluster: DevCluster, consumer: PullConsumer, queue: MessageQueue
) -> None:
    send(cluster, OutgoingMessage(queue.topic, b"x"))
    result = consumer.pull(queue, "*", 7)
    assert (result.status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 1)


def test_tags_are_checked_again(cluster: DevCluster, consumer: PullConsumer, queue: MessageQueue) -> None:
    """Aa and BB have the same Java hash: the broker hands out both."""
    send(
        cluster,
        OutgoingMessage(queue.topic, b"1", tags="Aa"),
        OutgoingMessage(queue.topic, b"2", tags="BB"),
        OutgoingMessage(queue.topic, b"3"),
        OutgoingMessage(queue.topic, b"4", tags="C"),
    )
    result = consumer.pull(queue, "BB || C", 0)
    assert [message.body for message in result.messages] == [b"2", b"4"]
    nothing = consumer.pull(queue, "AaAa", 0)
    assert (nothing.status, nothing.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 4)


def test_only_a_hash_matched(cluster: DevCluster, consumer: PullConsumer, queue: MessageQueue) -> None:
    send(cluster, OutgoingMessage(queue.topic, b"1", tags="Aa"))
    result = consumer.pull(queue, "BB", 0)
    assert (result.status, result.messages, result.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, (), 1)


def test_a_waiting_pull_wakes_up(cluster: DevCluster, consumer: PullConsumer, queue: MessageQueue) -> None:
    sender = threading.Timer(0.3, send, (cluster, OutgoingMessage(queue.topic, b"late")))
    started = time.monotonic()
    sender.start()
    try:
        result = consumer.pull_block_if_not_found(queue, "*", 0, suspend_ms=60_000)
    finally:
        sender.join()
    assert [message.body for message in result.messages] == [b"late"]
    assert time.monotonic() - started < 30


def test_a_waiting_pull_ends(consumer: PullConsumer, queue: MessageQueue) -> None:
    result = consumer.pull_block_if_not_found(queue, "*", 0, suspend_ms=100)
    assert result.status is PullStatus.NO_NEW_MSG


def test_group_offsets(cluster: DevCluster, consumer: PullConsumer, queue: MessageQueue) -> None:
    send(cluster, *[OutgoingMessage(queue.topic, b"x")] * 3)
    consumer.update_consume_offset(queue, 2)
    assert consumer.fetch_consume_offset(queue) == 2
    assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 3)
    assert consumer.search_offset(queue, 0) == 0


@pytest.mark.parametrize(("offset", "max_nums"), [(-1, 1), (0, 0)])
def test_arguments_out_of_range(mq: DevCluster, offset: int, max_nums: int) -> None:
    with (
        PullConsumer("any", name_server=mq.name_server) as consumer,
        pytest.raises(OptionError, match=r"whole number from [01] "),
    ):
        consumer.pull(MessageQueue("any", "broker-a", 0), "*", offset, max_nums)


def test_sql_where_the_broker_does_not_filter(mq: DevCluster, topic: TopicFactory, group: str) -> None:
    queue = MessageQueue(topic(queues=1), "broker-a", 0)
    with (
        broker_settings(mq, enablePropertyFilter="false"),
        PullConsumer(group, name_server=mq.name_server) as consumer,
        pytest.raises(OptionError, match="SQL"),
    ):
        consumer.pull(queue, MessageSelector.by_sql("a > 5"), 0)


def test_sql_filter(mq: DevCluster, topic: TopicFactory, group: str) -> None:
    queue = MessageQueue(topic(queues=1), "broker-a", 0)
    send(mq, *(OutgoingMessage(queue.topic, b"%d" % n, properties={"a": str(n)}) for n in range(10)))
    with (
        broker_settings(mq, enablePropertyFilter="true"),
        PullConsumer(group, name_server=mq.name_server) as consumer,
    ):
        result = consumer.pull(queue, MessageSelector.by_sql("a > 6"), 0)
        assert [message.body for message in result.messages] == [b"7", b"8", b"9"]
        # Unchecked the broker would return everything.
        with pytest.raises(OptionError, match="does not parse"):
            consumer.pull(queue, MessageSelector.by_sql("a >"), 0)
