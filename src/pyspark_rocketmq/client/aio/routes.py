"""The routes of topics, looked up at all name servers concurrently, once for all tasks that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.retry import RandomSource, RetryPolicy, retry_async
from pyspark_rocketmq.client.routes.name_servers import diagnose, merge_routes, parse_route
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectError,
    NameServerError,
    RemoteProtocolError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
)
from pyspark_rocketmq.model import TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.remoting.header import GetRouteInfoRequest

__all__ = ["AsyncRoutes"]

_POLICY: Final = RetryPolicy(base_ms=100, max_ms=1_000)

_PASSED_OVER_S: Final = 30.0
"""How long a name server that did not answer is skipped while another one answers."""


class AsyncRoutes:
    """Routes by topic, cached for ``ttl_ms``. Tasks that look up the same topic share one lookup.

    An expired route is used for this time again if no name server answers.

    Parameters
    ----------
    connect : Callable
        Returns the connection to an address.
    addresses : sequence of str
        The name servers.
    clock, random
        Injected.
    ttl_ms : int
        Option ``routeRefreshMs``.
    timeout_ms : int
        Timeout of one name server, and how long the list is retried while none answers.
    """

    def __init__(
        self,
        connect: Callable[[str], Awaitable[AsyncConnection]],
        addresses: Sequence[str],
        *,
        clock: Clock,
        random: RandomSource,
        ttl_ms: int,
        timeout_ms: int,
    ) -> None:
        self._connect = connect
        self._addresses = tuple(addresses)
        self._clock = clock
        self._random = random
        self._ttl_s = ttl_ms / 1000
        self._timeout_ms = timeout_ms
        self._known: dict[str, tuple[TopicRoute, float]] = {}
        self._stale: set[str] = set()
        self._looking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._passed_over: dict[str, float] = {}

    async def find(self, topic: str) -> TopicRoute | None:
        """Return a topic's route, None if it has none.

        Raises
        ------
        NameServerError
            No name server answers, and the route is not known.
        RocketMQError
            The client is closed meanwhile.
        """
        known = self._known.get(require(topic, str, "topic", must="a text"))
        if known is not None and topic not in self._stale and self._clock.monotonic() < known[1]:
            return known[0]
        task = self._looking.get(topic)
        if task is None:
            task = self._looking[topic] = asyncio.create_task(self._look_up(topic))
            task.add_done_callback(lambda done: self._looked_up(topic, done))
        # A task that is canceled does not cancel the lookup that others wait for.
        try:
            return await asyncio.shield(task)
        except RocketMQError as error:
            raise error.with_facts() from error.__cause__  # the others that wait get it, too
        except asyncio.CancelledError:
            if task.cancelled():  # by `close`, not by the caller
                raise RocketMQError("the client is closed", topic=topic) from None
            raise

    async def get(self, topic: str) -> TopicRoute:
        """Return a topic's route.

        Raises
        ------
        TopicNotFoundError, NameServerError
        """
        route = await self.find(topic)
        if route is None:
            raise TopicNotFoundError(
                "the topic does not exist, or its brokers are down",
                topic=topic,
                name_server=";".join(self._addresses),
            )
        return route

    async def get_served(self, topic: str) -> TopicRoute:
        """Return the route of a topic that is in use: one that had a route, and has none now, is an outage.

        Raises
        ------
        BrokerNotFoundError
            The topic had a route: its brokers are down, or it was deleted.
        TopicNotFoundError, NameServerError
        """
        try:
            return await self.get(topic)
        except TopicNotFoundError as error:
            if topic not in self._known:
                raise
            raise BrokerNotFoundError(
                f"the topic's route is gone: its brokers are down, or it was deleted ({error.message})",
                **error.facts,
            ) from error

    def remembered(self, topic: str) -> TopicRoute | None:
        """Return the topic's last known route, without requests."""
        known = self._known.get(topic)
        return None if known is None else known[0]

    def invalidate(self, topic: str) -> None:
        """Invalidate the topic's route. It is looked up again on next use."""
        self._stale.add(topic)

    async def close(self) -> None:
        """Cancel the lookups."""
        tasks = [*self._looking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _looked_up(self, topic: str, task: asyncio.Task[TopicRoute | None]) -> None:
        self._looking.pop(topic, None)
        if not task.cancelled():
            task.exception()  # everyone who waited may have been canceled

    async def _look_up(self, topic: str) -> TopicRoute | None:
        deadline = Deadline(self._clock, self._timeout_ms)
        try:
            route = await retry_async(
                lambda: self._pass(topic, deadline), deadline=deadline, random=self._random, policy=_POLICY
            )
        except RocketMQError as error:
            route = self.remembered(topic)  # brokers work without name servers
            if route is None and isinstance(error, ConnectError):
                raise NameServerError(error.message, **error.facts) from error.__cause__
            if route is None:
                raise
        self._stale.discard(topic)
        if route is not None:
            self._known[topic] = (route, self._clock.monotonic() + self._ttl_s)
        return route

    async def _pass(self, topic: str, deadline: Deadline) -> TopicRoute | None:
        """Ask the name servers once, except those that did not answer recently, and merge their answers."""
        now = self._clock.monotonic()
        asked = [addr for addr in self._addresses if self._passed_over.get(addr, now) <= now]
        asked = asked or list(self._addresses)
        outcomes = await asyncio.gather(
            *(self._ask(addr, topic, deadline) for addr in asked), return_exceptions=True
        )
        routes: list[TopicRoute] = []
        reasons: list[str] = []
        transient = False
        answered = False
        for addr, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, TransportError | RemoteProtocolError | NameServerError):
                waited_s = self._clock.monotonic() - now
                reasons.append(f"{addr}: {diagnose(outcome, waited_s=waited_s)}")
                transient = transient or isinstance(outcome, TransportError)
                self._passed_over[addr] = self._clock.monotonic() + _PASSED_OVER_S
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                answered = True
                self._passed_over.pop(addr, None)
                routes += [outcome] if outcome is not None else []
        if answered:
            return merge_routes(routes)
        if len(asked) < len(self._addresses):
            self._passed_over.clear()  # the others may be back
            transient = True
        kind = ConnectError if transient else NameServerError
        name_server = ";".join(self._addresses)
        raise kind(f"no name server answers: {'; '.join(reasons)}", name_server=name_server)

    async def _ask(self, addr: str, topic: str, deadline: Deadline) -> TopicRoute | None:
        connection = await self._connect(addr)
        answer = await connection.call(GetRouteInfoRequest(topic=topic), deadline=deadline)
        return parse_route(topic, answer)
