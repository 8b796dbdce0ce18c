"""Making a consumer group known to the brokers, once, before its first commit."""

# Facts (ClientManageProcessor, ConsumerManageProcessor, ConsumerProgressSubCommand; seen on 5.4.0 and 4.9.7)
# - From 5.3 on a commit of a group that the broker has never seen is refused (26); a heartbeat creates the
#   group if the broker may (autoCreateSubscriptionGroup), and its topic %RETRY%group, without which
#   `mqadmin consumerProgress -g` fails. A pull creates the group, but not the topic.
# - A heartbeat registers the client for rebalancing until it unregisters or its connection ends; where
#   members are online they rebalanced before and will again: so only brokers that lack %RETRY%group get one.

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.fork import ForkSafeLock
from pyspark_rocketmq.errors import BrokerError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.body import encode_heartbeat
from pyspark_rocketmq.remoting.header import HeartbeatRequest, UnregisterClientRequest

if TYPE_CHECKING:
    from pyspark_rocketmq.client.core import Client

__all__ = ["GroupAnnouncer"]


class GroupAnnouncer:
    """Announces each group to each broker at most once in the client's life."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = ForkSafeLock()
        self._announced: set[tuple[str, str]] = set()

    def announce(self, group: str, queues: Iterable[MessageQueue], *, deadline: Deadline) -> None:
        """Make the group known to the brokers of these queues, where it may not be yet.

        Raises
        ------
        NameServerError, TransportError
        """
        brokers = {owner: queue.topic for queue, owner in self._client.owners(queues).items() if owner}
        with self._lock:
            new = {name: topic for name, topic in brokers.items() if (group, name) not in self._announced}
        if not new:
            return
        retry_topic = f"%RETRY%{group}"
        route = self._client.routes.find_many((retry_topic,), deadline=deadline)[retry_topic]
        known = {data.broker_name for data in route.queues} if route is not None else set()
        for broker_name, topic in new.items():
            if broker_name not in known:
                self._heartbeat(group, broker_name, topic, deadline)
        with self._lock:
            self._announced.update((group, broker_name) for broker_name in new)

    def _heartbeat(self, group: str, broker_name: str, topic: str, deadline: Deadline) -> None:
        client = self._client
        connection = client.connection(client.broker_address(broker_name, topic=topic))
        client_id = f"pyspark-rocketmq@{os.getpid()}"
        until = deadline.sooner(client.request_timeout_ms)
        try:
            body = encode_heartbeat(client_id, consumer_groups=(client.namespace.qualified(group),))
            connection.call(HeartbeatRequest(), body, deadline=until).require(group=group)
            leave = UnregisterClientRequest(client_id=client_id, consumer_group=group)
            connection.call(leave, deadline=until).require(group=group)
        except BrokerError:
            return  # the commit itself will tell: a broker may well take it without knowing the group
