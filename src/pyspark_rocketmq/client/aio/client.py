"""The client of a RocketMQ cluster for asyncio: connections, routes and offsets."""

from __future__ import annotations

import asyncio
import random as random_module
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self, TypeVar

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.aio.group_registration import AsyncGroupCommitter
from pyspark_rocketmq.client.aio.routes import AsyncRoutes
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.queue_requests import broker_address, gather_all, queue_address
from pyspark_rocketmq.client.retry import RandomSource, retry_async
from pyspark_rocketmq.client.time_search import LowerBoundSearch, probe
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import BrokerData, MessageQueue, TopicRoute, arguments
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.options.parse import connection_options
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["AsyncClient"]

T = TypeVar("T")

_OPERATION_TIMEOUT_MS: Final = 30_000


class AsyncClient:
    """`Client` for asyncio: the same requests, answers and retries over connections of the event loop.

    For services that write and read a little: `Client` reads and sends several times as fast. Use it in one
    event loop only. Every wait has a deadline. A canceled call leaves the client usable; whether its request
    took effect is unknown.

    Parameters
    ----------
    options : ClientOptions or str
        A string is the name server list: ``"host:port;host:port"``.
    clock, random : optional
        Injected by tests.
    operation_timeout_ms : int
        Timeout of an operation, including its retries.

    Examples
    --------
    >>> async with AsyncClient("127.0.0.1:9876") as client:  # doctest: +SKIP
    ...     queues = await client.read_queues("orders")
    ...     await client.max_offsets(queues)
    """

    def __init__(
        self,
        options: ClientOptions | str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: RandomSource | None = None,
        operation_timeout_ms: int = _OPERATION_TIMEOUT_MS,
    ) -> None:
        self.options = options = connection_options(options)
        self.namespace = Namespace(options.namespace) if options.namespace else NO_NAMESPACE
        self.clock = clock
        self.random: RandomSource = random or random_module.Random()  # noqa: S311 - jitter, not a secret
        self.operation_timeout_ms = arguments.require_timeout_ms(operation_timeout_ms, "operation_timeout_ms")
        self._settings = ConnectionOptions.of(options, self.namespace)
        self._connecting: dict[str, asyncio.Task[AsyncConnection]] = {}
        self._apart: weakref.WeakSet[AsyncConnection] = weakref.WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._groups = AsyncGroupCommitter(self)
        self.routes = AsyncRoutes(
            self.connection,
            options.name_servers,
            clock=clock,
            random=self.random,
            ttl_ms=options.route_refresh_ms,
            timeout_ms=options.connect_timeout_ms,
            namespace=self.namespace,
        )

    def __repr__(self) -> str:
        return f"AsyncClient({';'.join(self.options.name_servers)})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Tasks that wait for an answer get an error."""
        self._check_loop()
        self._closed = True
        tasks = [*self._connecting.values()]
        self._connecting.clear()
        opened = [*self._apart, *(task.result() for task in tasks if not _is_lost(task) and task.done())]
        for connection in opened:  # first what needs no waiting: this may be canceled, too
            connection.abort()
        for task in tasks:
            task.cancel()
        await self.routes.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(connection.close() for connection in opened))
        await self._groups.close()

    def deadline(self, timeout_ms: float | None = None, *, renewable: bool = False) -> Deadline:
        """Return the deadline of an operation that starts now."""
        timeout_ms = self.operation_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(self.clock, timeout_ms, renewable=renewable)

    # --- where things are ---

    async def route(self, topic: str) -> TopicRoute:
        """Return the topic's route, at most ``routeRefreshMs`` old.

        Raises
        ------
        TopicNotFoundError, BrokerNotFoundError, NameServerError
        """
        return await self.routes.get(topic)

    async def served_route(self, topic: str) -> TopicRoute:
        """Return the route of a topic that is known to exist: a missing route is an outage.

        Raises
        ------
        BrokerNotFoundError
        TopicNotFoundError, NameServerError
            This client never had a route of the topic.
        """
        return await self.routes.get_served(topic)

    async def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that may be read, sorted. Raises as `route`."""
        return (await self.route(topic)).read_queues()

    async def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that may be written, sorted. Raises as `route`."""
        return (await self.route(topic)).write_queues()

    async def broker_address(self, broker_name: str, *, topic: str, master_only: bool = True) -> str:
        """Return a broker's address from the topic's route. Raises as `route`."""
        return broker_address(await self.route(topic), broker_name, master_only=master_only)

    async def connection(self, addr: str) -> AsyncConnection:
        """Return the open connection to an address. Tasks that need it meanwhile share the attempt.

        Raises
        ------
        ConnectError
        RocketMQError
            The client is closed, or belongs to another event loop.
        """
        self._check_open(addr)
        task = self._connecting.get(addr)
        if task is None or _is_lost(task):
            task = asyncio.create_task(AsyncConnection.open(addr, self._settings, self.clock))
            task.add_done_callback(_look_at)
            self._connecting[addr] = task
        try:
            return await asyncio.shield(task)
        except RocketMQError as error:
            raise error.with_facts() from error.__cause__  # the others that wait get it, too
        except asyncio.CancelledError:
            if task.cancelled():  # by `close`, not by the caller
                raise RocketMQError("the client is closed", addr=addr) from None
            raise

    async def fresh_connection(self, addr: str) -> AsyncConnection:
        """Return another connection, which the caller closes: a proxy drops answers that have to wait.

        Raises as `connection`.
        """
        self._check_open(addr)
        connection = await AsyncConnection.open(addr, self._settings, self.clock)
        self._apart.add(connection)
        if self._closed:  # meanwhile
            await connection.close()
        return connection

    def _check_open(self, addr: str) -> None:
        if self._closed:
            raise RocketMQError("the client is closed", addr=addr)
        self._check_loop()

    def _check_loop(self) -> None:
        """Reject another event loop, in which the answers of this one's connections never arrive."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise RocketMQError("the client belongs to another event loop: create a client in each")

    # --- offsets ---

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the first stored offset of each queue. Raises as `Client.min_offsets`."""
        return await self.ask({queue: broker.min_offset(queue) for queue in arguments.require_queues(queues)})

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the max offset (the next to be written) of each queue. Raises as `min_offsets`."""
        return await self.ask({queue: broker.max_offset(queue) for queue in arguments.require_queues(queues)})

    async def offsets_at(
        self, timestamps: Mapping[MessageQueue, int], *, group: str = broker.TOOLS_GROUP
    ) -> dict[MessageQueue, int]:
        """Return for each queue the offset of the first message stored at or after a time.

        See `Client.offsets_at`. Raises as `min_offsets`.
        """
        asked, deadline = arguments.require_times(timestamps), self.deadline()
        near = await self.ask(
            {queue: broker.search_offset(queue, moment) for queue, moment in asked.items()},
            deadline=deadline,
        )
        inexact = [queue for queue, answer in near.items() if not answer.exact]
        lows = await self.ask({queue: broker.min_offset(queue) for queue in inexact}, deadline=deadline)
        highs = await self.ask({queue: broker.max_offset(queue) for queue in inexact}, deadline=deadline)
        searches = {
            queue: LowerBoundSearch(
                timestamps[queue], min_offset=lows[queue], max_offset=highs[queue], hint=near[queue].offset
            )
            for queue in inexact
        }
        while todo := [queue for queue, search in searches.items() if search.answer is None]:
            await self.ask({q: probe(q, searches[q], group) for q in todo}, deadline=deadline)
        found = {queue: search.answer for queue, search in searches.items() if search.answer is not None}
        return {queue: found.get(queue, answer.offset) for queue, answer in near.items()}

    async def committed_offsets(
        self, group: str, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, int | None]:
        """Return a group's committed offset of each queue, None if it never committed.

        See `Client.committed_offsets`. Raises as `min_offsets`.
        """
        asked = arguments.require_queues(queues)
        return await self.ask({queue: broker.committed_offset(group, queue) for queue in asked})

    async def commit_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit a group's next offsets. See `Client.commit_offsets`.

        Raises
        ------
        GroupNotFoundError
            The group does not exist, and the brokers do not create groups automatically.
        RocketMQError
            As `min_offsets`.
        """
        await self._groups.commit(group, arguments.require_offsets(offsets), deadline=self.deadline())

    async def ask(
        self, calls: Mapping[MessageQueue, Call[T]], *, deadline: Deadline | None = None
    ) -> dict[MessageQueue, T]:
        """Make one call per queue at the queues' masters, all in flight together, until all succeed."""
        until = deadline or self.deadline()
        answers = await gather_all(self._ask_one(queue, call, until) for queue, call in calls.items())
        return dict(zip(calls, answers, strict=True))

    async def _ask_one(self, queue: MessageQueue, call: Call[T], deadline: Deadline) -> T:
        async def attempt() -> T:
            try:
                connection = await self.connection(queue_address(await self.served_route(queue.topic), queue))
                async with connection.turn(deadline):
                    until = deadline.sooner(self.options.request_timeout_ms)
                    return call.parse(await connection.call(call.request, call.body, deadline=until))
            except RocketMQError as error:
                route = self.routes.remembered(queue.topic)
                asked = route.asked_broker(queue) if route is not None else queue.broker_name
                raise error.with_facts(broker_name=asked, topic=queue.topic) from error.__cause__

        return await retry_async(
            attempt,
            deadline=deadline,
            random=self.random,
            on_stale_route=lambda: self.routes.invalidate(queue.topic),
        )


def broker_of(route: TopicRoute, queue: MessageQueue) -> BrokerData | None:
    """Return the broker that has a queue now."""
    return route.broker(route.owner(queue) or queue.broker_name)


def _is_lost(task: asyncio.Task[AsyncConnection]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or not task.result().alive


def _look_at(task: asyncio.Task[AsyncConnection]) -> None:
    """Look at the outcome: everyone who waited may have been canceled."""
    if not task.cancelled():
        task.exception()
