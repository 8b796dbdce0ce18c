"""Commits a consumer group's offsets, after registering the group at the brokers once."""

# Facts (ClientManageProcessor, ConsumerManageProcessor, ConsumerProgressSubCommand; seen on 5.4.0 and 4.9.7)
# - From 5.3 on a commit of a group that the broker has never seen is refused (26); a heartbeat creates the
#   group if the broker may (autoCreateSubscriptionGroup), and its topic %RETRY%group, without which
#   `mqadmin consumerProgress -g` fails. A pull creates the group, but not the topic.
# - A proxy keeps heartbeats to itself: the broker does not hear of the group (5.4.0).
# - A heartbeat registers the client for rebalancing until it unregisters or its connection ends; where
#   members are online they rebalanced before and will again: so only brokers that lack %RETRY%group get one.
# - A broker that gets a group's first commits of a topic side by side makes a table for each and keeps the
#   last one (ConsumerOffsetManager.commitOffset, 4.9 and 5.4): one goes ahead and makes it.

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.fork import ForkSafeLock
from pyspark_rocketmq.client.net.host import Host
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.queue_requests import QueueRequests, gravest
from pyspark_rocketmq.client.retry import RandomSource, RetryPolicy, retry
from pyspark_rocketmq.client.routes.routing import RouteCache
from pyspark_rocketmq.errors import (
    BrokerError,
    GroupNotFoundError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
)
from pyspark_rocketmq.model import MessageQueue, MessageSelector, TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.model.names import retry_topic
from pyspark_rocketmq.remoting.body import encode_heartbeat
from pyspark_rocketmq.remoting.header import HeartbeatRequest, UnregisterClientRequest
from pyspark_rocketmq.remoting.namespace import Namespace

__all__ = ["GroupCommitter"]

_ONCE: Final = RetryPolicy(attempts=1)


class GroupClient(Protocol):
    """The part of `Client` that commits for a group need."""

    routes: RouteCache
    requests: QueueRequests
    pool: ConnectionPool
    namespace: Namespace
    clock: Clock
    random: RandomSource
    request_timeout_ms: int
    host: Host

    def owners(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, str | None]:
        """Return the current owner of each queue."""

    def served_route(self, topic: str) -> TopicRoute:
        """Return the route of a topic that is known to exist."""


class GroupCommitter:
    """Commits offsets. Registers each group at each broker once per client, and where it is lost again."""

    def __init__(self, client: GroupClient) -> None:
        self._client = client
        self._lock = ForkSafeLock()
        self._announced: set[tuple[str, str]] = set()
        self._tables: set[tuple[str, str, str]] = set()

    def commit(self, group: str, offsets: Mapping[MessageQueue, int], *, deadline: Deadline) -> None:
        """Commit as `try_commit`, and try again what may succeed later.

        Raises
        ------
        RocketMQError
        """
        require(group, str, "group", must="a text")
        left = dict(offsets)
        refused: list[RocketMQError] = []

        def attempt() -> None:
            failed = self.try_commit(group, left, deadline=deadline)
            refused.extend(error for error in failed.values() if not error.retriable)
            again = {queue: error for queue, error in failed.items() if error.retriable}
            for queue in left.keys() - again.keys():
                del left[queue]
            if again:
                raise gravest(again.values())

        retry(attempt, deadline=deadline, clock=self._client.clock, random=self._client.random)
        if refused:
            raise gravest(refused)

    def try_commit(
        self, group: str, offsets: Mapping[MessageQueue, int], *, deadline: Deadline
    ) -> dict[MessageQueue, RocketMQError]:
        """Commit at every broker once: none waits for one that is down, or for a topic that is gone.

        Returns
        -------
        dict[MessageQueue, RocketMQError]
            Why offsets are not committed.

        Raises
        ------
        NameServerError
        """
        client = self._client
        routes = client.routes.try_served({queue.topic for queue in offsets}, deadline=deadline)
        served = [queue for queue in offsets if not isinstance(routes[queue.topic], RouteError)]
        with self._lock:
            before = frozenset(self._announced)
        self.announce(group, served, deadline=deadline)
        failed = self._commit_once(group, offsets, routes, deadline)
        homes = {
            q: _home(q, routes[q.topic]) for q, it in failed.items() if isinstance(it, GroupNotFoundError)
        }
        with self._lock:
            now = self._announced - before
        lost = {home: queue for queue, home in homes.items() if (group, home) not in now}
        if lost:  # it was deleted, or the broker lost its disk, or has just come back
            self._tables = {table for table in self._tables if table[0] != group or table[1] not in lost}
            with contextlib.suppress(RouteError):
                told = self._register(group, lost, deadline)
                with self._lock:
                    self._announced.update((group, name) for name in told)
            again = {queue: offsets[queue] for queue, home in homes.items() if home in lost}
            failed = {queue: it for queue, it in failed.items() if queue not in again}
            failed |= self._commit_once(group, again, routes, deadline)
        return failed

    def _commit_once(
        self,
        group: str,
        offsets: Mapping[MessageQueue, int],
        routes: Mapping[str, TopicRoute | RouteError],
        deadline: Deadline,
    ) -> dict[MessageQueue, RocketMQError]:
        client = self._client
        calls = {queue: broker.commit_offset(group, queue, offset) for queue, offset in offsets.items()}
        tables = {queue: (group, _home(queue, routes[queue.topic]), queue.topic) for queue in offsets}
        first = {table: queue for queue, table in tables.items() if table not in self._tables}
        ahead = {queue: calls[queue] for queue in first.values()}
        made = client.requests.try_each(ahead, deadline=deadline, policy=_ONCE)
        self._tables |= {tables[q] for q, it in made.items() if not isinstance(it, RocketMQError)}
        rest = {q: it for q, it in calls.items() if q not in ahead and tables[q] in self._tables}
        outcomes = made | client.requests.try_each(rest, deadline=deadline, policy=_ONCE)
        found = {queue: outcomes.get(queue, made.get(first.get(tables[queue], queue))) for queue in offsets}
        return {queue: it for queue, it in found.items() if isinstance(it, RocketMQError)}

    def announce(self, group: str, queues: Iterable[MessageQueue], *, deadline: Deadline) -> None:
        """Register the group at the brokers of these queues, if it may be unknown there.

        At a broker that cannot be reached, this is repeated with the next commit.

        Raises
        ------
        NameServerError
        """
        owners = self._client.owners(queues)
        brokers = {owner: queue for queue, owner in owners.items() if owner}
        # Former owners of a static topic's queues keep the offsets from before a remap; the owner requests
        # them.
        for topic, queue in {queue.topic: queue for queue in owners if queue.logical}.items():
            brokers |= {data.broker_name: queue for data in self._client.served_route(topic).queues}
        with self._lock:
            new = {name: queue for name, queue in brokers.items() if (group, name) not in self._announced}
        if not new:
            return
        again = retry_topic(group)
        route = self._client.routes.find_many((again,), deadline=deadline)[again]
        known = {data.broker_name for data in route.queues} if route is not None else set()
        told = known & new.keys()
        told |= self._register(
            group, {name: queue for name, queue in new.items() if name not in known}, deadline
        )
        with self._lock:
            self._announced.update((group, name) for name in told)

    def _register(self, group: str, brokers: Mapping[str, MessageQueue], deadline: Deadline) -> set[str]:
        """Make the group known to brokers, in parallel; return those that were reached."""
        addresses: dict[str, str] = {}
        proxied: dict[str, MessageQueue] = {}
        for name, queue in brokers.items():
            data = self._client.served_route(queue.topic).broker(name)
            if data is not None and data.behind_proxy:
                proxied[name] = queue
            elif data is not None and data.master is not None:
                addresses[name] = data.master
        return self._pull_nothing(group, proxied, deadline) | self._heartbeat(group, addresses, deadline)

    def _pull_nothing(self, group: str, brokers: Mapping[str, MessageQueue], deadline: Deadline) -> set[str]:
        """Pull at the ends of queues, for the group's sake; return the brokers that were reached."""
        requests = self._client.requests
        asked = {queue: broker.max_offset(queue) for queue in brokers.values()}
        ends = requests.try_each(asked, deadline=deadline, policy=_ONCE)
        nothing = {
            queue: broker.pull(queue, end, group=group, max_nums=1, selector=MessageSelector())
            for queue, end in ends.items()
            if not isinstance(end, RocketMQError)
        }
        outcomes = requests.try_each(nothing, deadline=deadline, policy=_ONCE)
        return {name for name, queue in brokers.items() if queue in outcomes and _is_reached(outcomes[queue])}

    def _heartbeat(self, group: str, addresses: Mapping[str, str], deadline: Deadline) -> set[str]:
        """Send a consumer's heartbeats and leave; return the brokers that were reached."""
        client = self._client
        client_id = f"pyspark-rocketmq@{client.host.process_id()}"
        until = deadline.sooner(client.request_timeout_ms)

        def done(response: Response) -> None:
            response.require(group=group)

        body = encode_heartbeat(client_id, consumer_groups=(client.namespace.qualify(group),))
        join = Call(HeartbeatRequest(), done, body)
        leave = Call(UnregisterClientRequest(client_id=client_id, consumer_group=group), done)
        joined = client.pool.call_each(((name, at, join) for name, at in addresses.items()), deadline=until)
        members = [(name, addresses[name], leave) for name, it in joined.items() if it is None]
        outcomes = joined | client.pool.call_each(members, deadline=until)
        for name, outcome in outcomes.items():
            if isinstance(outcome, RequestTimeoutError):  # may have joined: the connection's end removes it
                client.pool.drop(addresses[name])
        return {name for name, outcome in outcomes.items() if _is_reached(outcome)}


def _is_reached(outcome: object) -> bool:
    """Whether a broker answered. If it refused, the commit shows it: it may not need to know the group."""
    return isinstance(outcome, BrokerError) or not isinstance(outcome, RocketMQError)


def _home(queue: MessageQueue, route: TopicRoute | RouteError) -> str:
    """Return the broker that keeps the queue's committed offset."""
    owner = None if isinstance(route, RouteError) else route.owner(queue)
    return owner or queue.broker_name
