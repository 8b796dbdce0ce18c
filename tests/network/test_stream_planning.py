"""Planning a stream over real connections: what the reader asks for, the client brings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client import Client, MessageQueue, MessageSelector, OutgoingMessage, Producer
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.client.read.samples import message_sizes, message_times, served
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.offsets.queue_lookup import queues_and_brokers, topics_to_read
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.schema import read_schema
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader
from pyspark_rocketmq.testing import MockBroker, MockCluster

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 2}) as mock:
        yield mock


@pytest.fixture
def client(client: Client) -> Client:
    """A client whose topic has light messages in one queue and heavy ones in the other."""
    producer = Producer(client)
    for _ in range(20):
        producer.send(OutgoingMessage("orders", b"x" * 100, tags="a"), Q0)
        producer.send_batch([OutgoingMessage("orders", b"x" * 2_000, tags="b")] * 2, Q1)
    return client


def reader(mq: MockBroker, **options: str) -> RocketMQStreamReader:
    given = {"nameServer": mq.name_server, "topic": "orders", "startingOffsets": "earliest"} | options
    parsed = parse_options(SourceOptions, given, where="readStream", environ={})
    return RocketMQStreamReader(parsed, read_schema(None))


def available_now(stream: RocketMQStreamReader) -> dict[str, Any]:
    """Make the calls of an AvailableNow run; return its last end."""
    stream.prepareForTriggerAvailableNow()
    start, limit = stream.initialOffset(), stream.getDefaultReadLimit()
    for _ in range(100):
        end = json.loads(json.dumps(stream.latestOffset(start, limit)))
        if end == start:
            return end
        assert stream.partitions(start, end)
        start = end
    raise AssertionError("the run does not end")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxOffsetsPerTrigger": "7", "eventTimeAlignment": "store"},
        {"maxOffsetsPerTrigger": "7", "eventTimeAlignment": "born"},
        {"maxBytesPerTrigger": "20k"},
    ],
)
def test_the_lag_of_a_run_that_read_everything_is_nothing(
    mq: MockBroker, client: Client, options: dict[str, str]
):
    stream = reader(mq, consumerGroup="report", **options)
    end = available_now(stream)
    stream.stop()
    assert SourceOffset.from_dict(end).offsets == client.max_offsets([Q0, Q1]) == {Q0: 20, Q1: 40}
    assert client.committed_offsets("report", [Q0, Q1]) == {Q0: 20, Q1: 40}


def test_a_broker_that_takes_no_commits_does_not_end_the_run(mq: MockBroker, client: Client, caplog):
    mq.fail(15, code=1, remark="no", times=1_000)
    stream = reader(mq, consumerGroup="report")
    available_now(stream)
    stream.stop()
    assert "offsets of group report are not committed, tried again later" in caplog.text


def test_times_and_sizes_are_those_of_the_messages(mq: MockBroker, client: Client):
    times = message_times(client, {Q0: 3, Q1: 39}, group="g")
    messages = {(message.queue, message.queue_offset): message for message in mq.messages("orders")}
    for queue, offset in ((Q0, 3), (Q1, 39)):
        message = messages[queue, offset]
        seen = times[queue]
        assert (seen.born_timestamp, seen.store_timestamp) == (
            message.born_timestamp,
            message.store_timestamp,
        )
    assert message_times(client, {Q0: 20}, group="g") == {}, "there is no message"
    mq.expire(Q0, 5)
    assert message_times(client, {Q0: 3}, group="g") == message_times(client, {Q0: 5}, group="g")

    sizes = message_sizes(client, {Q0: 5, Q1: 0}, group="g", selector=MessageSelector())
    assert 100 < sizes[Q0] < 500
    assert 2_000 < sizes[Q1] < 2_400
    only_a = message_sizes(client, {Q0: 5, Q1: 0}, group="g", selector=MessageSelector.by_tag("a"))
    assert only_a == {Q0: sizes[Q0], Q1: 0}, "what is filtered out weighs nothing"
    assert message_sizes(client, {Q0: 20}, group="g", selector=MessageSelector()) == {}


def test_the_times_of_a_message_after_a_long_gap_are_found(mq: MockBroker, client: Client):
    """Else a stream would read other queues past it, and say that nothing older is unread."""
    mq.gap(Q0, 5_000)  # a broker passes 800 offsets in a pull
    mq.send(OutgoingMessage("orders", b"after the gap"), Q0)
    after = mq.messages("orders", Q0)[-1]
    assert after.queue_offset == 5_020
    times = message_times(client, {Q0: 20}, group="g")
    assert times[Q0].store_timestamp == after.store_timestamp


@pytest.mark.parametrize("given", ["earliest", '{"orders": -2}'])
def test_a_broker_that_was_down_at_the_start_is_read_from_where_the_query_started_not_from_later_options(
    given: str,
):
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        for name in ("broker-a", "broker-b"):
            mq.send(OutgoingMessage("orders", b"x"), MessageQueue("orders", name, 0))
        mq.stop_broker("broker-b")
        first = reader(mq, startingOffsets=given)
        limit = first.getDefaultReadLimit()
        end = json.loads(json.dumps(first.latestOffset(first.initialOffset(), limit)))
        first.stop()
        assert SourceOffset.from_dict(end).offsets == {Q0: 1}
        mq.start_broker("broker-b")
        again = reader(mq, startingOffsets="latest")
        later = SourceOffset.from_dict(json.loads(json.dumps(again.latestOffset(end, limit))))
        again.stop()
        assert later.begin == {MessageQueue("orders", "broker-b", 0): 0}
        assert later.offsets[MessageQueue("orders", "broker-b", 0)] == 1


@pytest.mark.parametrize("away", [True, False])
def test_queues_of_a_static_topic_begin_at_the_start_if_their_owner_was_away_and_else_are_new(
    away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_rocketmq.offsets.offset_lookup.OPERATION_TIMEOUT_MS", 500)
    with MockCluster(brokers=("a", "b")) as mq:
        mq.create_static_topic("orders", 1, broker="a")
        mq.create_static_topic("orders", 2, broker="b")
        for queue in mq.queues("orders"):
            mq.send(OutgoingMessage("orders", b"x"), queue)
        sent_ms = SYSTEM_CLOCK.now_ms()
        eventually(lambda: SYSTEM_CLOCK.now_ms() > sent_ms, 10)
        if away:
            mq.stop_broker("b")
        first, again = reader(mq, startingOffsets="latest"), reader(mq, startingOffsets="latest")
        limit = first.getDefaultReadLimit()
        end = json.loads(json.dumps(first.latestOffset(first.initialOffset(), limit)))
        assert len(SourceOffset.from_dict(end).offsets) == (1 if away else 2)
        first.stop()
        if away:
            mq.start_broker("b")
        else:
            mq.create_static_topic("orders", 3)
        new, found = mq.queues("orders")[1 if away else 2], []
        mq.send(OutgoingMessage("orders", b"x"), new)

        def plan() -> bool:
            found.append(SourceOffset.from_dict(json.loads(json.dumps(again.latestOffset(end, limit)))))
            return new in found[-1].offsets

        eventually(plan, 10)
        again.stop()
        assert (found[-1].begin[new], found[-1].offsets[new]) == ((1, 2) if away else (0, 1))


@pytest.mark.parametrize("subscription", [{"topic": "orders;more"}, {"subscribePattern": "orders|more"}])
def test_a_route_from_before_a_broker_registered_does_not_say_that_it_had_no_queues(
    subscription: dict[str, str],
) -> None:
    """Else they would be new ones, and be read from their first message."""
    with MockCluster({"orders": 1}, brokers=("broker-a", "broker-b")) as mq:
        mq.create_topic("more", 1, brokers=("broker-b",))
        mq.unregister("broker-b")
        given = {"nameServer": mq.name_server, **subscription}
        options = parse_options(SourceOptions, given, where="readStream", environ={})
        client = PlanningClient(options.client)
        try:
            client.look_up(client.topics())
            mq.register("broker-b")
            queues, brokers = queues_and_brokers(client, options, clock=SYSTEM_CLOCK)
        finally:
            client.close()
    assert brokers == {"broker-a", "broker-b"}
    assert {(queue.topic, queue.broker_name) for queue in queues} == {
        ("orders", "broker-a"),
        ("orders", "broker-b"),
        ("more", "broker-b"),
    }


@pytest.mark.parametrize("namespace", [None, "ns"])
def test_a_pattern_does_not_match_the_topics_that_bear_the_names_of_brokers_and_clusters(
    namespace: str | None,
) -> None:
    """Brokers create them. Replies to requests are in one of them."""
    own = ("broker-a", "MockCluster", "MockCluster_REPLY_TOPIC")
    users = ("orders", "%RETRY%billing") if namespace is None else ("ns%broker-a", "ns%orders")
    with MockBroker(dict.fromkeys((*own, *users), 1)) as mq:
        given = {"nameServer": mq.name_server, "subscribePattern": ".*"}
        given |= {} if namespace is None else {"namespace": namespace}
        options = parse_options(SourceOptions, given, environ={})
        retries = parse_options(SourceOptions, given | {"subscribePattern": "%RETRY%.*"}, environ={})
        with PlanningClient(options.client) as client:
            found, found_retries = (topics_to_read(client, each) for each in (options, retries))
    assert found == (("orders",) if namespace is None else ("broker-a", "orders"))
    assert found_retries == (("%RETRY%billing",) if namespace is None else ())


def test_a_queue_beyond_the_number_of_read_queues_is_not_served(mq: MockBroker, client: Client) -> None:
    assert served(client, {Q0: 0, Q1: 0}, group="g") == {Q0, Q1}
    mq.create_topic("orders", 2, read_queues=1)
    assert served(client, {Q0: 0, Q1: 0}, group="g") == {Q0}
