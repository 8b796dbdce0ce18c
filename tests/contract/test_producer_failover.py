"""Sends and look-ups while brokers die and come back: nothing that was acknowledged is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Admin,
    Client,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
    SendPipeline,
    encode_many,
)
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = pytest.mark.needs("cluster")


@pytest.fixture(scope="module")
def pair() -> Iterator[DevCluster]:
    """Two masters of the test's own: one is killed and started again."""
    with DevCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def client(pair: DevCluster) -> Iterator[Client]:
    with Client(pair.name_server, operation_timeout_ms=60_000) as made:
        yield made


def stored(pair: DevCluster, topic: str) -> list[int]:
    """Read all of a topic with a client that remembers no route from before."""
    found: list[int] = []
    with Client(pair.name_server) as client:
        consumer = PullConsumer(f"read-{topic}", client=client)
        for queue, end in client.max_offsets(client.read_queues(topic)).items():
            offset = 0
            while offset < end:
                result = consumer.pull(queue, "*", offset, 1000)
                found += [int(message.body) for message in result.messages]
                offset = result.next_begin_offset
    return found


def test_a_pipeline_over_the_death_of_a_broker(pair: DevCluster, client: Client) -> None:
    Admin(client).create_topic("orders", queues=2)
    producer = Producer(client, options=ProducerOptions(retries=6))
    acknowledged: set[int] = set()
    with SendPipeline(producer, max_in_flight=8) as pipeline:
        outcomes = []
        for batch in range(200):
            numbers = range(batch * 10, batch * 10 + 10)
            messages = [OutgoingMessage("orders", b"%d" % number) for number in numbers]
            outcomes += pipeline.submit(encode_many(messages, producer.ids), token=numbers)
            if batch == 60:
                pair.broker("broker-b").kill()
            if batch == 140:
                pair.broker("broker-b").start()
        outcomes += pipeline.flush()
    for outcome in outcomes:
        assert outcome.error is None
        assert isinstance(outcome.token, range)
        acknowledged |= set(outcome.token)
    assert acknowledged == set(range(2000))
    eventually(lambda: set(stored(pair, "orders")) == acknowledged, 20)


def test_offsets_wait_for_a_broker_that_restarts(pair: DevCluster, client: Client) -> None:
    Admin(client).create_topic("restarted", queues=1, brokers=["broker-a"])
    result = Producer(client).send(OutgoingMessage("restarted", b"1"))
    eventually(lambda: client.max_offsets((result.queue,)) == {result.queue: 1})
    pair.broker("broker-a").stop()
    pair.broker("broker-a").launch()  # comes up while the client is asking
    assert client.max_offsets((result.queue,)) == {result.queue: 1}
    pair.broker("broker-a").await_up()
