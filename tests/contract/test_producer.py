"""Sending, against real brokers of both generations."""

from __future__ import annotations

import random

import pytest
from tests.support.patient import patient_producer
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    Compression,
    Message,
    MessageQueue,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
    SendPipeline,
    SendStatus,
    encode_many,
    encode_one,
)
from pyspark_rocketmq.client.send.queue_selection import queue_for_key
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.errors import (
    LocalProtocolError,
    MessageIllegalError,
    OptionError,
    PermissionDeniedError,
    TopicNotFoundError,
)


@pytest.fixture(params=["mq", "mq54", "mq49", "proxied"])
def cluster(request: pytest.FixtureRequest) -> DevCluster:
    """Every supported release, and a proxy."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def topic(topic: TopicFactory) -> TopicFactory:
    """Make topics at one broker, of the two that have a proxy; there they take messages of every type."""

    def make(queues: int = 4, *, cluster: DevCluster | None = None, perm: int = 6) -> str:
        mixed = {"message.type": "MIXED"} if cluster is not None and cluster.proxies else None
        return topic(queues, cluster=cluster, perm=perm, brokers=["broker-a"], attributes=mixed)

    return make


def stored(client: Client, topic: str, count: int) -> list[Message]:
    """Return the topic's messages, queue by queue, once there are ``count`` of them."""
    consumer = PullConsumer(f"read-{topic}", client=client)
    queues = client.read_queues(topic)
    eventually(lambda: sum(client.max_offsets(queues).values()) >= count, 20)
    messages: list[Message] = []
    for queue, end in client.max_offsets(queues).items():
        offset = 0
        while offset < end:
            result = consumer.pull(queue, "*", offset, 1000)
            messages += result.messages
            offset = result.next_begin_offset
    return messages


def test_everything_arrives(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=2, cluster=cluster)
    result = patient_producer(client).send(
        OutgoingMessage(
            name,
            "grüße 你好".encode(),
            tags="TagA",
            keys=("k1", "k2"),
            properties={"größe": "XL", "quote": 'a"b\\c\n'},
            flag=-7,
            sharding_key="s",
        )
    )
    assert result.status is SendStatus.SEND_OK
    (message,) = stored(client, name, 1)
    assert message.body.decode() == "grüße 你好"
    assert (message.tags, message.keys, message.flag) == ("TagA", "k1 k2", -7)
    assert message.properties["größe"] == "XL"
    assert message.properties["quote"] == 'a"b\\c\n'
    assert message.properties["__SHARDINGKEY"] == "s"
    assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)


def test_a_batch_is_stored_in_one_piece(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=4, cluster=cluster)
    result = patient_producer(client).send_batch(
        [
            OutgoingMessage(name, b"%d" % number, tags=f"T{number}", keys=f"k{number}", flag=number)
            for number in range(50)
        ]
    )
    messages = stored(client, name, 50)
    assert [message.body for message in messages] == [b"%d" % number for number in range(50)]
    assert [message.tags for message in messages] == [f"T{number}" for number in range(50)]
    assert [message.flag for message in messages] == list(range(50))
    assert [message.queue_offset for message in messages] == list(range(50))
    assert [message.msg_id for message in messages] == result.msg_id.split(",")
    assert [message.offset_msg_id for message in messages] == result.offset_msg_id.split(",")
    assert {message.queue for message in messages} == {result.queue}


@pytest.mark.parametrize("kind", list(Compression))
def test_compression(client: Client, cluster: DevCluster, topic: TopicFactory, kind: Compression) -> None:
    name = topic(queues=1, cluster=cluster)
    producer = patient_producer(client, compression=kind, batch_compression=kind, compress_above=1000)
    small, large = b"s" * 999, b"l" * 1000
    producer.send(OutgoingMessage(name, small))
    producer.send(OutgoingMessage(name, large))
    producer.send_batch([OutgoingMessage(name, large), OutgoingMessage(name, small)])
    producer.send_batch([OutgoingMessage(name, large), OutgoingMessage(name, large)])
    messages = stored(client, name, 6)
    assert [message.body for message in messages] == [small, large, large, small, large, large]
    packed = kind is not Compression.NONE
    assert [bool(message.sys_flag & 1) for message in messages] == [
        False,
        packed,
        False,
        False,
        packed,
        packed,
    ]


def test_one_way(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1, cluster=cluster)
    Producer(client).send_one_way(OutgoingMessage(name, b"gone"))
    assert [message.body for message in stored(client, name, 1)] == [b"gone"]


def test_queues_take_turns(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=4, cluster=cluster)
    producer = patient_producer(client)
    used = [producer.send(OutgoingMessage(name, b"x")).queue.queue_id for _ in range(8)]
    assert sorted(used[:4]) == sorted(used[4:]) == [0, 1, 2, 3]


def test_a_key_keeps_its_queue(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=5, cluster=cluster)
    producer = patient_producer(client)
    for key in ("order-1", "order-2", "größe", ""):
        used = {producer.send(OutgoingMessage(name, b"x", sharding_key=key)).queue for _ in range(3)}
        assert used == {queue_for_key(key, client.write_queues(name))}


def test_a_given_queue(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=2, cluster=cluster)
    queue = MessageQueue(name, "broker-a", 1)
    assert patient_producer(client).send(OutgoingMessage(name, b"x"), queue).queue == queue
    with pytest.raises(PermissionDeniedError, match="does not exist"):
        Producer(client).send(OutgoingMessage(name, b"x"), MessageQueue(name, "broker-a", 2))


def test_a_delayed_message(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1, cluster=cluster)
    before = client.clock.now_ms()
    patient_producer(client).send(OutgoingMessage(name, b"later", delay_level=1))
    (message,) = stored(client, name, 1)
    assert message.store_timestamp - before >= 900


def test_a_message_for_a_moment(mq: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1)
    with Client(mq.name_server) as client:
        moment = client.clock.now_ms() + 2_000
        patient_producer(client).send(OutgoingMessage(name, b"then", deliver_at_ms=moment))
        (message,) = stored(client, name, 1)
    assert message.store_timestamp >= moment - 1_000  # the broker's timer has a precision of 1 s


def test_a_message_for_a_moment_that_is_too_far_away_is_refused(mq: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1)
    three_days_ms = 3 * 24 * 3600 * 1000
    with Client(mq.name_server) as client:
        patient_producer(client).send(OutgoingMessage(name, b"x", delay_ms=three_days_ms - 60_000))
        for delay_ms in (three_days_ms + 60_000, (1 << 62) - 1):
            with pytest.raises(MessageIllegalError, match="should not be bigger than the max delay"):
                Producer(client).send(OutgoingMessage(name, b"x", delay_ms=delay_ms))
        assert client.max_offsets(client.read_queues(name)) == {MessageQueue(name, "broker-a", 0): 0}


def test_missing_topics_are_not_made(client: Client, cluster: DevCluster) -> None:
    with pytest.raises(TopicNotFoundError, match="does not exist"):
        Producer(client).send(OutgoingMessage("never-made", b"x"))
    with Client(cluster.name_server) as direct:
        assert "never-made" not in Admin(direct).topics()


def test_a_topic_that_may_not_be_written(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1, cluster=cluster, perm=4)
    with pytest.raises(PermissionDeniedError, match="forbids writing"):
        Producer(client).send(OutgoingMessage(name, b"x"))


def test_what_cannot_be_sent(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1, cluster=cluster)
    producer = Producer(client)
    with pytest.raises(OptionError, match="reserves the property TAGS"):
        producer.send(OutgoingMessage(name, b"x", properties={"TAGS": "a"}))
    with pytest.raises(LocalProtocolError, match="0x01"):
        producer.send(OutgoingMessage(name, b"x", properties={"a": "b\x02c"}))
    with pytest.raises(LocalProtocolError, match="32767"):
        producer.send(OutgoingMessage(name, b"x", properties={"a": "b" * 40_000}))
    with pytest.raises(OptionError, match="within a batch"):
        producer.send_batch([OutgoingMessage(name, b"x", delay_level=3)])
    with pytest.raises(OptionError, match="one topic"):
        producer.send_batch([OutgoingMessage(name, b"x"), OutgoingMessage("other", b"x")])
    with pytest.raises(OptionError, match="at least one message"):
        producer.send_batch([])
    with pytest.raises(MessageIllegalError, match="bytes in one send"):
        producer.send(OutgoingMessage(name, random.Random(0).randbytes((4 << 20) + 1)))
    assert client.max_offsets(client.read_queues(name)) == {MessageQueue(name, "broker-a", 0): 0}


def test_the_broker_refuses_a_message_for_good(
    client: Client, cluster: DevCluster, topic: TopicFactory
) -> None:
    name = topic(queues=1, cluster=cluster)
    options = ProducerOptions(compression=Compression.NONE, max_message_bytes=8 << 20)
    with pytest.raises(MessageIllegalError) as caught:
        Producer(client, options=options).send(OutgoingMessage(name, b"x" * (5 << 20)))
    assert caught.value.code == 13


def test_a_pipeline_stores_everything_once(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=4, cluster=cluster)
    producer = patient_producer(client)
    outcomes = []
    with SendPipeline(producer, max_in_flight=16) as pipeline:
        for start in range(0, 2000, 20):
            batch = [OutgoingMessage(name, b"%d" % number) for number in range(start, start + 20)]
            outcomes += pipeline.submit(encode_many(batch, producer.ids), token=start)
            assert pipeline.unfinished <= 16
        outcomes += pipeline.flush()
    assert sorted(outcome.token for outcome in outcomes) == list(range(0, 2000, 20))
    assert [outcome.error for outcome in outcomes] == [None] * 100
    bodies = sorted(int(message.body) for message in stored(client, name, 2000))
    assert bodies == list(range(2000))


def test_an_ordered_pipeline_keeps_the_order(
    client: Client, cluster: DevCluster, topic: TopicFactory
) -> None:
    """Sends in flight side by side to one queue are stored in either order."""
    name = topic(queues=3, cluster=cluster)
    producer = patient_producer(client)
    with SendPipeline(producer, max_in_flight=64, ordered=True) as pipeline:
        for number in range(900):
            message = OutgoingMessage(name, b"%d" % number)
            pipeline.submit(encode_one(message, producer.ids), key=f"key-{number % 7}")
        outcomes = pipeline.flush()
    assert not [outcome.error for outcome in outcomes if outcome.error]
    numbers: dict[int, list[int]] = {}
    for message in stored(client, name, 900):
        numbers.setdefault(int(message.body) % 7, []).append(int(message.body))
    assert sorted(numbers) == list(range(7))
    assert all(key_numbers == sorted(key_numbers) for key_numbers in numbers.values())
    assert sum(map(len, numbers.values())) == 900


def test_a_pipeline_reports_what_failed(client: Client, cluster: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1, cluster=cluster)
    producer = patient_producer(client, max_message_bytes=1000)
    with SendPipeline(producer) as pipeline:
        outcomes = pipeline.submit(encode_one(OutgoingMessage(name, b"fine"), producer.ids), token="good")
        large = OutgoingMessage(name, b"x" * 2000)
        outcomes += pipeline.submit(encode_one(large, producer.ids), token="bad")
        outcomes += pipeline.flush()
    assert {outcome.token: type(outcome.error) for outcome in outcomes} == {
        "good": type(None),
        "bad": MessageIllegalError,
    }
    assert [message.body for message in stored(client, name, 1)] == [b"fine"]
