"""The routes of topics, looked up at all name servers concurrently, once for all tasks that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.retry import RandomSource, RetryPolicy, retry_async
from pyspark_rocketmq.client.routes.name_servers import (
    diagnose,
    merge_cluster_infos,
    merge_routes,
    parse_route,
    require_list,
)
from pyspark_rocketmq.client.routes.routing import users_topics
from pyspark_rocketmq.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConnectError,
    NameServerError,
    RemoteProtocolError,
    RocketMQError,
    RouteError,
    TransportError,
)
from pyspark_rocketmq.model import TopicRoute
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.planning.topics.missing_topic import SeenBroker, why_missing
from pyspark_rocketmq.remoting.body import decode_cluster_info, decode_topic_list
from pyspark_rocketmq.remoting.header import (
    GetAllTopicListFromNameserverRequest,
    GetBrokerClusterInfoRequest,
    GetRouteInfoRequest,
    RequestHeader,
)
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["AsyncRoutes"]

T = TypeVar("T")

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
    namespace : Namespace
        The names that errors propose are those of this namespace.
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
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self._connect = connect
        self._addresses = tuple(addresses)
        self._clock = clock
        self._random = random
        self._ttl_s = ttl_ms / 1000
        self._timeout_ms = timeout_ms
        self._namespace = namespace
        self._known: dict[str, tuple[TopicRoute, float]] = {}
        self._stale: set[str] = set()
        self._looking: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._passed_over: dict[str, float] = {}
        self._seen: dict[str, SeenBroker] = {}

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
        TopicNotFoundError
            Brokers are registered, and none has the topic.
        BrokerNotFoundError
            No broker is registered, or none of those that had the topic.
        NameServerError
        """
        route = await self.find(topic)
        if route is None:
            raise await self._why_missing(topic)
        return route

    async def get_served(self, topic: str) -> TopicRoute:
        """Return the route of a topic that is in use: one that had a route, and has none now, is an outage.

        Raises
        ------
        BrokerNotFoundError
            As `get`, or the topic had a route and was deleted.
        TopicNotFoundError, NameServerError
        """
        try:
            return await self.get(topic)
        except RouteError as error:
            if topic not in self._known or isinstance(error, BrokerNotFoundError):
                raise
            raise BrokerNotFoundError(
                f"the topic's route is gone: its brokers are down, or it was deleted ({error.message})",
                **{"topic": topic} | error.facts,
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

    async def _why_missing(self, topic: str) -> RouteError:
        """Ask the name servers why a topic has no route, as `RouteCache.why_missing`."""
        before = self.remembered(topic)
        homes = [] if before is None else [self._seen[data.broker_name] for data in before.brokers]
        registered: frozenset[str] | None = None
        topics: tuple[str, ...] = ()
        try:
            lists = await self._ask_any(
                GetBrokerClusterInfoRequest(),
                lambda answer: decode_cluster_info(require_list(answer, "brokers").body),
            )
            registered = frozenset(merge_cluster_infos(lists).brokers)
            if registered and registered.issuperset(each.broker_name for each in homes):
                names = await self._ask_any(
                    GetAllTopicListFromNameserverRequest(),
                    lambda answer: decode_topic_list(require_list(answer, "topics").body),
                )
                known = sorted({name for each in names for name in each})
                topics = users_topics(known, registered, self._namespace)
        except BrokerError:  # a proxy keeps no lists, and a managed endpoint may forbid these requests
            registered = None
        return why_missing(
            topic,
            registered=registered,
            homes=homes,
            seen=self._seen.values(),
            topics=topics,
            name_server=";".join(self._addresses),
        )

    async def _look_up(self, topic: str) -> TopicRoute | None:
        try:
            request = GetRouteInfoRequest(topic=topic)
            answers = await self._ask_any(request, lambda answer: parse_route(topic, answer))
            route = merge_routes([answer for answer in answers if answer is not None])
        except RocketMQError:
            route = self.remembered(topic)  # brokers work without name servers
            if route is None:
                raise
        self._stale.discard(topic)
        if route is not None:
            self._known[topic] = (route, self._clock.monotonic() + self._ttl_s)
            for data in route.brokers:
                seen = SeenBroker(data.broker_name, next(iter(data), None), self._clock.now_ms())
                self._seen[data.broker_name] = seen
        return route

    async def _ask_any(self, request: RequestHeader, parse: Callable[[Response], T]) -> list[T]:
        """Ask the name servers until one answers, at most for the time-out.

        Raises
        ------
        NameServerError
        """
        deadline = Deadline(self._clock, self._timeout_ms)
        try:
            return await retry_async(
                lambda: self._pass(request, parse, deadline),
                deadline=deadline,
                random=self._random,
                policy=_POLICY,
            )
        except ConnectError as error:  # the caller's loop must not retry a clear error
            raise NameServerError(error.message, **error.facts) from error.__cause__

    async def _pass(
        self, request: RequestHeader, parse: Callable[[Response], T], deadline: Deadline
    ) -> list[T]:
        """Ask the name servers once, except those that did not answer recently; return their answers."""
        now = self._clock.monotonic()
        asked = [addr for addr in self._addresses if self._passed_over.get(addr, now) <= now]
        asked = asked or list(self._addresses)
        outcomes = await asyncio.gather(
            *(self._ask(addr, request, parse, deadline) for addr in asked), return_exceptions=True
        )
        answers: list[T] = []
        reasons: list[str] = []
        transient = False
        for addr, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, TransportError | RemoteProtocolError | NameServerError):
                waited_s = self._clock.monotonic() - now
                reasons.append(f"{addr}: {diagnose(outcome, waited_s=waited_s)}")
                transient = transient or isinstance(outcome, TransportError)
                self._passed_over[addr] = self._clock.monotonic() + _PASSED_OVER_S
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._passed_over.pop(addr, None)
                answers.append(outcome)
        if answers:
            return answers
        if len(asked) < len(self._addresses):
            self._passed_over.clear()  # the others may be back
            transient = True
        kind = ConnectError if transient else NameServerError
        name_server = ";".join(self._addresses)
        raise kind(f"no name server answers: {'; '.join(reasons)}", name_server=name_server)

    async def _ask(
        self, addr: str, request: RequestHeader, parse: Callable[[Response], T], deadline: Deadline
    ) -> T:
        connection = await self._connect(addr)
        return parse(await connection.call(request, deadline=deadline))
