"""Commits a group's offsets for asyncio, by the facts and in the order of `client.group_registration`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.aio.routes import AsyncRoutes
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.queue_requests import gather_all, gravest
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    GroupNotFoundError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue, MessageSelector, TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.model.names import retry_topic
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.remoting.body import encode_heartbeat
from pyspark_rocketmq.remoting.header import HeartbeatRequest, UnregisterClientRequest
from pyspark_rocketmq.remoting.namespace import Namespace

__all__ = ["AsyncGroupCommitter"]

T = TypeVar("T")


class AsyncGroupClient(Protocol):
    """The part of `AsyncClient` that commits for a group need."""

    options: ClientOptions
    routes: AsyncRoutes
    namespace: Namespace

    async def served_route(self, topic: str) -> TopicRoute:
        """Return the route of a topic that is known to exist."""

    async def broker_address(self, broker_name: str, *, topic: str) -> str:
        """Return the address of a broker's master."""

    async def connection(self, addr: str) -> AsyncConnection:
        """Return the connection to an address."""

    async def ask(
        self, calls: Mapping[MessageQueue, Call[T]], *, deadline: Deadline | None = None
    ) -> dict[MessageQueue, T]:
        """Make one call per queue, until all succeed."""


class AsyncGroupCommitter:
    """Commits offsets. Registers each group at each broker once per client, and where it is lost again."""

    def __init__(self, client: AsyncGroupClient) -> None:
        self._client = client
        self._announced: set[tuple[str, str]] = set()
        self._leaving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for the heartbeats whose callers were canceled. The connections are closed: they end soon."""
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int], *, deadline: Deadline) -> None:
        """Commit at every broker, until all succeed. None waits for a broker that is down.

        Raises
        ------
        RocketMQError
        """
        require(group, str, "group", must="a text")
        routes: dict[str, TopicRoute] = {}
        gone: list[RocketMQError] = []
        for topic in {queue.topic for queue in offsets}:
            try:
                routes[topic] = await self._client.served_route(topic)
            except (TopicNotFoundError, BrokerNotFoundError) as error:  # the others do not wait for it
                gone.append(error)
        offsets = {queue: offset for queue, offset in offsets.items() if queue.topic in routes}
        before = frozenset(self._announced)
        await self._announce(group, offsets, routes, deadline)
        tables: dict[tuple[str, str], dict[MessageQueue, Call[None]]] = {}
        for queue, offset in offsets.items():
            owner = routes[queue.topic].owner(queue) or queue.broker_name
            tables.setdefault((owner, queue.topic), {})[queue] = broker.commit_offset(group, queue, offset)
        try:
            await gather_all(self._commit_table(calls, deadline) for calls in tables.values())
        except GroupNotFoundError:  # it was deleted, or a broker lost its disk, or has just come back
            homes = {owner: next(iter(calls)) for (owner, _), calls in tables.items()}
            now = self._announced - before
            lost = {owner: queue for owner, queue in homes.items() if (group, owner) not in now}
            if not lost:
                raise
            await self._register_all(group, lost, routes, deadline)
            await gather_all(self._commit_table(calls, deadline) for calls in tables.values())
        if gone:
            raise gravest(gone)

    async def _commit_table(self, calls: Mapping[MessageQueue, Call[None]], deadline: Deadline) -> None:
        """Commit a topic's offsets at a broker; one goes ahead and makes the table."""
        first = next(iter(calls))
        await self._client.ask({first: calls[first]}, deadline=deadline)
        rest = {queue: call for queue, call in calls.items() if queue != first}
        await self._client.ask(rest, deadline=deadline)

    async def _announce(
        self,
        group: str,
        queues: Iterable[MessageQueue],
        routes: Mapping[str, TopicRoute],
        deadline: Deadline,
    ) -> None:
        """Register the group at the brokers of these queues, if it may be unknown there."""
        brokers: dict[str, MessageQueue] = {}
        for queue in queues:
            route = routes[queue.topic]
            brokers[route.owner(queue) or queue.broker_name] = queue
            if queue.logical:  # its former owners keep offsets from before a remap, which the owner requests
                brokers |= {data.broker_name: queue for data in route.queues}
        new = {name: queue for name, queue in brokers.items() if (group, name) not in self._announced}
        if not new:
            return
        again = await self._client.routes.find(retry_topic(group))
        known = {data.broker_name for data in again.queues} if again is not None else set()
        self._announced |= {(group, name) for name in new.keys() & known}
        unknown = {name: queue for name, queue in new.items() if name not in known}
        await self._register_all(group, unknown, routes, deadline)

    async def _register_all(
        self,
        group: str,
        brokers: Mapping[str, MessageQueue],
        routes: Mapping[str, TopicRoute],
        deadline: Deadline,
    ) -> None:
        """Register the group at brokers, each with a queue there. Those that are not reached are left out."""

        async def register(name: str, queue: MessageQueue) -> None:
            data = routes[queue.topic].broker(name)
            proxied = data is not None and data.behind_proxy
            if await self._register(group, name, queue, deadline, proxied=proxied):
                self._announced.add((group, name))

        await gather_all(register(name, queue) for name, queue in brokers.items())

    async def _register(
        self, group: str, broker_name: str, queue: MessageQueue, deadline: Deadline, *, proxied: bool
    ) -> bool:
        """Make the group known to a broker; return whether the broker was reached."""
        try:
            if proxied:
                await self._pull_nothing(group, queue, deadline)
            else:
                await self._heartbeat(group, broker_name, queue.topic, deadline)
        except BrokerError:
            return True  # the commit itself shows it: a broker may accept it without knowing the group
        except RocketMQError:
            return False
        return True

    async def _pull_nothing(self, group: str, queue: MessageQueue, deadline: Deadline) -> None:
        """Pull at the end of a queue, for the group's sake."""
        until = deadline.sooner(self._client.options.request_timeout_ms)
        end = (await self._client.ask({queue: broker.max_offset(queue)}, deadline=until))[queue]
        nothing = broker.pull(queue, end, group=group, max_nums=1, selector=MessageSelector())
        await self._client.ask({queue: nothing}, deadline=until)

    async def _heartbeat(self, group: str, broker_name: str, topic: str, deadline: Deadline) -> None:
        """Send a consumer's heartbeat and leave, also if the caller is canceled meanwhile.

        A member that stayed would get its share of the queues from the others, and not read them.
        """
        until = deadline.sooner(self._client.options.request_timeout_ms)
        addr = await self._client.broker_address(broker_name, topic=topic)
        connection = await self._client.connection(addr)
        task = asyncio.create_task(self._join_and_leave(connection, group, until))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        await asyncio.shield(task)

    async def _join_and_leave(self, connection: AsyncConnection, group: str, until: Deadline) -> None:
        client_id = f"pyspark-rocketmq@{os.getpid()}"
        body = encode_heartbeat(client_id, consumer_groups=(self._client.namespace.qualify(group),))
        leave = UnregisterClientRequest(client_id=client_id, consumer_group=group)
        try:
            (await connection.call(HeartbeatRequest(), body, deadline=until)).require(group=group)
            (await connection.call(leave, deadline=until)).require(group=group)
        except RequestTimeoutError:
            connection.abort()  # it may have joined: the end of its connection removes it
            raise
