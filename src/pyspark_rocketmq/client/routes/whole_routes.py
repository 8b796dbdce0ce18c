"""Looks up the routes of many topics, and waits until they have all brokers that they had."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.retry import RandomSource, retry
from pyspark_rocketmq.client.routes.name_servers import NameServers
from pyspark_rocketmq.client.routes.routing import RouteCache
from pyspark_rocketmq.errors import BrokerNotFoundError

__all__ = ["look_up"]


class RoutedClient(Protocol):
    """What a lookup uses of a client."""

    routes: RouteCache
    name_servers: NameServers
    clock: Clock
    random: RandomSource

    def deadline(self) -> Deadline:
        """Return the deadline of an operation that begins now."""
        ...


def look_up(client: RoutedClient, topics: Iterable[str], *, whole: bool = False) -> None:
    """Look up the routes of topics, with all requests in flight together, to fill the cache.

    A topic without a route is no error here.

    Parameters
    ----------
    whole : bool
        Wait for brokers that had queues of a topic recently and that no name server knows now.

    Raises
    ------
    BrokerNotFoundError
        Such a broker is still down at the end of the client's operation timeout.
    NameServerError
    """
    names = tuple(topics)
    deadline = client.deadline()
    client.routes.find_many(names, deadline=deadline)
    if whole:
        retry(
            lambda: _require_brokers(client, names, deadline),
            deadline=deadline,
            clock=client.clock,
            random=client.random,
        )


def _require_brokers(client: RoutedClient, topics: tuple[str, ...], deadline: Deadline) -> None:
    lacking = [topic for topic in topics if client.routes.missing_brokers(topic)]
    if not lacking:
        return
    registered = client.name_servers.fetch_registered_brokers(deadline=deadline)
    for topic in lacking:
        client.routes.invalidate(topic)
    client.routes.find_many(lacking, deadline=deadline)
    known = registered or frozenset()  # a proxy does not tell: wait for the broker
    for topic in lacking:
        missing = client.routes.missing_brokers(topic)
        client.routes.forget_brokers(topic, missing & known)  # they are up, but no longer have it
        if away := missing - known:
            raise BrokerNotFoundError(
                "the topic had queues at brokers that no name server knows now: they or the name servers "
                "are restarting, and what is read now would be a part of the topic",
                topic=topic,
                broker_name=";".join(sorted(away)),
            )
