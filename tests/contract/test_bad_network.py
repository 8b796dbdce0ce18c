"""A real broker behind a bad network: its route is rewritten to lead through a proxy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests.support.patient import PATIENCE_MS, patient_client, patient_producer
from tests.support.proxy import Proxy, RewritingNameServer, Trouble
from tests.support.topics import TopicFactory
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    ClientOptions,
    MessageQueue,
    OffsetRange,
    OutgoingMessage,
    Producer,
    ProducerOptions,
)
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.devcluster import DevCluster

pytestmark = pytest.mark.timeout(90)

BODIES = [b"message %d " % number + b"x" * (number % 500) for number in range(3_000)]


@contextlib.contextmanager
def through(mq: DevCluster, *troubles: Trouble) -> Iterator[tuple[Client, Proxy]]:
    real = mq.broker().address
    hangs = any(trouble.stall_after is not None for trouble in troubles)
    timeout_ms = 2_000 if hangs else PATIENCE_MS
    with (
        Proxy(real, *troubles) as proxy,
        RewritingNameServer(mq.name_server, {real: proxy.addr}) as name_server,
        Client(
            ClientOptions(
                name_servers=(name_server.addr,),
                request_timeout_ms=timeout_ms,
                connect_timeout_ms=PATIENCE_MS,
            )
        ) as client,
    ):
        yield client, proxy


@pytest.fixture
def queue(mq: DevCluster, topic: TopicFactory) -> MessageQueue:
    name = topic(queues=1)
    queue = MessageQueue(name, "broker-a", 0)
    with patient_client(mq.name_server) as client:
        for start in range(0, len(BODIES), 500):
            batch = [OutgoingMessage(name, body) for body in BODIES[start : start + 500]]
            patient_producer(client).send_batch(batch, queue)
        eventually(lambda: client.max_offsets((queue,))[queue] == len(BODIES))
    return queue


@pytest.mark.parametrize(
    "troubles",
    [
        [Trouble(cut_after=50_000)] * 6 + [Trouble()],
        [Trouble(stall_after=120_000), Trouble()],
        [Trouble(step=1_460, delay_s=0.0005)],
    ],
    ids=["cut", "half-open", "slow"],
)
def test_reading_gives_every_message_once(
    mq: DevCluster, queue: MessageQueue, group: str, troubles: list[Trouble]
) -> None:
    with through(mq, *troubles) as (client, proxy):
        batches = read_batches(
            client,
            [OffsetRange(queue, 0, len(BODIES))],
            ReadOptions(consumer_group=group, stall_timeout_ms=30_000),
            DecodeOptions(columns=("body",)),
        )
        assert [body for batch in batches for body in batch.column("body").to_pylist()] == BODIES
        # A connection that hangs is told from a slow one by the time alone.
        assert proxy.connections == len(troubles) or (
            proxy.connections > len(troubles) and any(trouble.stall_after is not None for trouble in troubles)
        )


def test_sends_get_through(mq: DevCluster, topic: TopicFactory) -> None:
    name = topic(queues=1)
    queue = MessageQueue(name, "broker-a", 0)
    with through(mq, *[Trouble(cut_after=1_500)] * 4, Trouble(stall_after=900), Trouble()) as (client, _):
        producer = Producer(client, options=ProducerOptions(send_timeout_ms=2_000, retries=8))
        for number in range(40):
            producer.send(OutgoingMessage(name, b"%d" % number), queue)
    with Client(mq.name_server) as client:
        end = client.max_offsets((queue,))[queue]
        batches = read_batches(
            client,
            [OffsetRange(queue, 0, end)],
            ReadOptions(consumer_group="g"),
            DecodeOptions(columns=("body",)),
        )
        numbers = [int(body) for batch in batches for body in batch.column("body").to_pylist()]
    assert list(dict.fromkeys(numbers)) == list(range(40))
