"""Fresh topics and groups, named after the test that uses them, and messages in topics."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

from tests.support.patient import patient_client, patient_producer
from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import MessageQueue, Permission, QueueData
from pyspark_rocketmq.testing import MockCluster

Given: TypeAlias = OutgoingMessage | bytes | str
"""A message, or its body."""

_numbers = itertools.count()
_run = secrets.token_hex(3)


class TopicFactory(Protocol):
    """Creates a fresh topic and returns its name."""

    def __call__(
        self,
        queues: int = 4,
        *,
        cluster: DevCluster | None = None,
        perm: int = 6,
        brokers: Sequence[str] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> str: ...


def fresh_name(test_name: str) -> str:
    """Return a name that no other test, and no other run, uses; at most 60 characters."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", test_name).strip("_")[:44]
    return f"{plain}-{_run}-{next(_numbers)}"


def create_topic(
    cluster: DevCluster,
    topic: str,
    queues: int,
    perm: int,
    brokers: Sequence[str] | None = None,
    attributes: Mapping[str, str] | None = None,
) -> None:
    """Create a topic on some or all brokers; name servers and proxies show its route when this returns."""
    with patient_client(cluster.name_server) as client:
        Admin(client).create_topic(
            topic, queues=queues, perm=Permission(perm), brokers=brokers, attributes=attributes
        )
        created = set(client.route(topic).queues)
    for proxy in cluster.proxies:
        with patient_client(proxy.address) as client:
            eventually(lambda client=client: _shows(client, topic, created), 30, what="the proxy's route")


def _shows(client: Client, topic: str, queues: set[QueueData]) -> bool:
    """Whether a proxy, which keeps routes for a second, shows all of them."""
    client.invalidate(topic)
    route = client.find_route(topic)
    return route is not None and set(route.queues) == queues


def put(mq: MockCluster, queue: MessageQueue, *bodies: bytes) -> list[bytes]:
    """Store messages in a queue of a mock cluster, at once; return the bodies."""
    for body in bodies:
        mq.send(OutgoingMessage(queue.topic, body), queue)
    return list(bodies)


def fill(
    client: Client,
    topic: str,
    messages: Sequence[Given],
    *,
    queues: int | Sequence[MessageQueue] | None = None,
) -> dict[MessageQueue, int]:
    """Send messages to a topic's queues, and return the queues' max offsets when readers see all messages.

    Each message is stored once, and each queue keeps the order.

    Parameters
    ----------
    queues : int or sequence of MessageQueue, optional
        Which queues get the messages in turn, or how many. By default all.
    """
    producer, places = patient_producer(client), client.write_queues(topic)
    if queues is not None:
        places = places[:queues] if isinstance(queues, int) else tuple(queues)
    expected = sum(client.max_offsets(places).values()) + len(messages)
    outgoing = [_outgoing(topic, message) for message in messages]
    for at, queue in enumerate(places):
        own = outgoing[at :: len(places)]
        step = max(1, min(500, 2_000_000 // max((len(message.body) for message in own), default=1)))
        for start in range(0, len(own), step):
            match own[start : start + step]:
                case [message]:  # brokers refuse batches in some topics, such as those of retries
                    producer.send(message, queue)
                case batch:
                    producer.send_batch(batch, queue)
    eventually(
        lambda: sum(client.max_offsets(places).values()) >= expected,
        60,
        what=f"{expected} messages in {topic}",
    )
    return client.max_offsets(places)


def _outgoing(topic: str, message: Given) -> OutgoingMessage:
    if isinstance(message, OutgoingMessage):
        return message
    return OutgoingMessage(topic, message.encode() if isinstance(message, str) else message)


def wait_for_messages(client: Client, topic: str, count: int) -> None:
    """Wait until readers see this number of messages in a topic."""
    eventually(
        lambda: sum(client.max_offsets(client.read_queues(topic)).values()) == count,
        60,
        what=f"{count} messages in {topic}",
    )
