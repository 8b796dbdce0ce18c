"""Where topics live: the name servers, asked in turn, and what they said, remembered for a while."""

# Facts (RouteInfoManager, ClientRequestProcessor, MQClientInstance; RocketMQ 4.9 and 5.4)
# - Every broker registers with every name server; name servers do not talk to each other.
# - GET_ROUTEINFO_BY_TOPIC (105) answers TOPIC_NOT_EXIST (17) without a route; a broker does not know the
#   request (3); a RocketMQ 5 proxy's remoting port does, its gRPC port hangs up or speaks HTTP/2.
# - A broker that stops stays in the route for up to 10 s, one that vanishes for up to 120 s.

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.connection import Connection, Response
from pyspark_rocketmq.client.fork import ForkSafeLock, tell_after_fork
from pyspark_rocketmq.client.pipeline import Call, pipeline
from pyspark_rocketmq.client.pool import ConnectionPool
from pyspark_rocketmq.client.retry import RandomSource, RetryPolicy, retry
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectError,
    ConnectionLostError,
    NameServerError,
    OptionError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
)
from pyspark_rocketmq.model import TopicRoute
from pyspark_rocketmq.remoting.body import decode_route
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.header import GetRouteInfoRequest, RequestHeader

__all__ = ["NameServers", "RouteCache"]

T = TypeVar("T")

_POLICY: Final = RetryPolicy(base_ms=100, max_ms=1_000)


class NameServers:
    """The list of name servers: the one that answered last is asked first, the others stand in.

    Parameters
    ----------
    pool : ConnectionPool
    addresses : sequence of str
        ``host:port`` each.
    clock, random
        Injected.
    timeout_ms : int
        How long one name server may take to answer, and how long the list is gone through again while
        none does: a wrong address is an answer in seconds, a restart is bridged.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        addresses: Sequence[str],
        *,
        clock: Clock,
        random: RandomSource,
        timeout_ms: int = 3_000,
    ) -> None:
        if not addresses:
            raise OptionError("no name server: give nameServer as host:port, several with ';'")
        self.addresses = tuple(addresses)
        self._pool = pool
        self._clock = clock
        self._random = random
        self._timeout_ms = timeout_ms
        self._first = 0

    def call(self, request: RequestHeader, body: bytes = b"", *, deadline: Deadline) -> Response:
        """Ask the first name server that answers.

        Raises
        ------
        NameServerError
            None does; says for each address why.
        """
        return self._on_any(
            lambda connection, until: connection.call(request, body, deadline=until), deadline
        )

    def call_each(self, request: RequestHeader, *, deadline: Deadline) -> tuple[Response, ...]:
        """Ask every name server of the list, for requests that must reach all.

        Raises
        ------
        NameServerError
            One of them does not answer.
        """
        answers = []
        for addr in self.addresses:
            try:
                connection = self._pool.get(addr)
                answers.append(connection.call(request, deadline=deadline.sooner(self._timeout_ms)))
            except (TransportError, RemoteProtocolError) as error:
                raise NameServerError(
                    f"a name server does not answer: {_diagnose(error)}", addr=addr
                ) from error
        return tuple(answers)

    def routes(self, topics: Sequence[str], *, deadline: Deadline) -> dict[str, TopicRoute | None]:
        """Look topics up, all requests in flight together; None stands for a topic without a route.

        A topic that one name server does not know is asked of the others: a broker may not have reached all.

        Raises
        ------
        NameServerError
            None answers, or what answers is no name server.
        """
        found = self._on_any(lambda connection, until: _lookup(connection, topics, until), deadline)
        for addr in self.addresses:
            missing = [topic for topic in topics if found[topic] is None]
            if not missing or len(self.addresses) == 1:
                break
            try:
                found.update(_lookup(self._pool.get(addr), missing, deadline.sooner(self._timeout_ms)))
            except (TransportError, RemoteProtocolError, NameServerError):
                continue  # the first answer stands
        return found

    def _on_any(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        try:
            return retry(
                lambda: self._pass(use, deadline),
                deadline=deadline.sooner(self._timeout_ms),
                clock=self._clock,
                random=self._random,
                policy=_POLICY,
            )
        except ConnectError as error:  # the clear error must not be retried by the caller's loop again
            raise NameServerError(error.message, **error.facts) from error.__cause__

    def _pass(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        """Go through the list once, from the one that answered last."""
        reasons: list[str] = []
        cause: RocketMQError | None = None
        transient = False
        for step in range(len(self.addresses)):
            index = (self._first + step) % len(self.addresses)
            addr = self.addresses[index]
            try:
                answer = use(self._pool.get(addr), deadline.sooner(self._timeout_ms))
            except (TransportError, RemoteProtocolError, NameServerError) as error:
                cause = error
                transient = transient or isinstance(error, TransportError)
                reasons.append(f"{addr}: {_diagnose(error)}")
            else:
                self._first = index
                return answer
        message = f"no name server answers: {'; '.join(reasons)}"
        name_server = ";".join(self.addresses)
        if transient:
            raise ConnectError(message, name_server=name_server) from cause
        raise NameServerError(message, name_server=name_server) from cause


def _diagnose(error: RocketMQError) -> str:
    """Say what an address that gave this error may be."""
    match error:
        case ConnectionLostError():
            return (
                "it closed the connection on a RocketMQ request. Is this a name server? A RocketMQ 5 "
                "proxy's gRPC port, an HTTP server, or a TLS-only port without TLS behave so"
            )
        case RemoteProtocolError():
            return f"it does not speak RocketMQ's protocol ({error.message}). Is this a name server?"
        case RequestTimeoutError():
            return "it accepted the connection but did not answer. Is this a name server?"
        case _:
            return error.message


def _lookup(
    connection: Connection, topics: Sequence[str], deadline: Deadline
) -> dict[str, TopicRoute | None]:
    """Ask one name server for all topics at once."""
    calls = [
        (topic, connection, Call(GetRouteInfoRequest(topic=topic), functools.partial(_route, topic)))
        for topic in topics
    ]
    found: dict[str, TopicRoute | None] = {}
    for topic, outcome in pipeline(calls, deadline=deadline).items():
        if isinstance(outcome, RocketMQError):
            raise outcome
        found[topic] = outcome
    return found


def _route(topic: str, response: Response) -> TopicRoute | None:
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise NameServerError(
            "it does not know route requests, as a broker would answer. Is this a name server?",
            addr=response.addr,
            request=RequestCode.GET_ROUTEINFO_BY_TOPIC.name,
        )
    return decode_route(topic, response.require(topic=topic).body)


class RouteCache:
    """Routes by topic, kept for ``ttl_ms``; lookups of one topic at one moment share one request.

    A route that has expired is still used when no name server answers: brokers serve without them.

    Parameters
    ----------
    name_servers : NameServers
    clock : Clock
    ttl_ms : int
        Option ``routeRefreshMs``.
    """

    def __init__(self, name_servers: NameServers, *, clock: Clock, ttl_ms: int = 30_000) -> None:
        self._name_servers = name_servers
        self._clock = clock
        self._ttl_s = ttl_ms / 1000
        self._lock = ForkSafeLock()
        tell_after_fork(self)
        self._known: dict[str, tuple[TopicRoute, float]] = {}
        self._stale: set[str] = set()
        self._ever_known: set[str] = set()
        self._looking: dict[str, Future[TopicRoute | None]] = {}

    def after_fork(self) -> None:
        """Forget what threads of the parent process look up: in this child nobody ever answers them."""
        self._looking = {}

    def get(self, topic: str, *, deadline: Deadline) -> TopicRoute:
        """Return the topic's route.

        Raises
        ------
        TopicNotFoundError
            No name server knows the topic.
        NameServerError
            No name server answers and the route was never known.
        """
        return self.get_many((topic,), deadline=deadline)[topic]

    def get_many(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, TopicRoute]:
        """Return the routes of several topics; those to be looked up are looked up together."""
        routes: dict[str, TopicRoute] = {}
        for topic, route in self.find_many(topics, deadline=deadline).items():
            if route is None:
                raise TopicNotFoundError(
                    "the topic does not exist: no name server has a route to it",
                    topic=topic,
                    name_server=";".join(self._name_servers.addresses),
                )
            routes[topic] = route
        return routes

    def get_served(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, TopicRoute]:
        """Return the routes of topics that are in use: as `get_many`, but patient.

        Raises
        ------
        BrokerNotFoundError
            A topic that had a route has none now: while its only broker restarts, name servers forget it. Or
            they are down, too.
        TopicNotFoundError, NameServerError
        """
        names = tuple(topics)
        try:
            return self.get_many(names, deadline=deadline)
        except (TopicNotFoundError, NameServerError) as error:
            looked_for = (error.facts["topic"],) if isinstance(error, TopicNotFoundError) else names
            with self._lock:
                if not self._ever_known.issuperset(looked_for):
                    raise
            raise BrokerNotFoundError(
                f"the topic's route is gone: its brokers are down, or it was deleted ({error.message})",
                **{"topic": ";".join(looked_for)} | error.facts,
            ) from error

    def remembered(self, topic: str) -> TopicRoute | None:
        """Return the topic's route as it was last known, without asking anybody."""
        with self._lock:
            known = self._known.get(topic)
        return None if known is None else known[0]

    def find_many(self, topics: Iterable[str], *, deadline: Deadline) -> dict[str, TopicRoute | None]:
        """Return the routes of several topics, None for those that have none."""
        names = tuple(dict.fromkeys(topics))
        routes: dict[str, TopicRoute | None] = {}
        mine: dict[str, Future[TopicRoute | None]] = {}
        others: dict[str, Future[TopicRoute | None]] = {}
        with self._lock:
            now = self._clock.monotonic()
            for topic in names:
                known = self._known.get(topic)
                if known is not None and topic not in self._stale and now < known[1]:
                    routes[topic] = known[0]
                elif topic in self._looking:
                    others[topic] = self._looking[topic]
                else:
                    mine[topic] = self._looking[topic] = Future()
        if mine:
            routes.update(self._look_up(mine, deadline))
        for topic, future in others.items():
            try:
                routes[topic] = future.result(timeout=deadline.remaining_s)
            except TimeoutError as cause:
                raise RequestTimeoutError("no route in time", topic=topic) from cause
        return routes

    def invalidate(self, topic: str) -> None:
        """Look the topic up anew at its next use."""
        with self._lock:
            self._stale.add(topic)

    def invalidate_all(self) -> None:
        """Look every topic up again at its next use."""
        with self._lock:
            self._stale.update(self._known)

    def forget(self, topic: str) -> None:
        """Act as if the topic had never been looked up: it was deleted on purpose."""
        with self._lock:
            self._known.pop(topic, None)
            self._ever_known.discard(topic)

    def _look_up(
        self, futures: dict[str, Future[TopicRoute | None]], deadline: Deadline
    ) -> dict[str, TopicRoute | None]:
        """Ask the name servers and hand the outcome to everybody who waits for it."""
        try:
            found = self._name_servers.routes(tuple(futures), deadline=deadline)
        except NameServerError as error:
            with self._lock:
                found = {topic: self._known[topic][0] for topic in futures if topic in self._known}
            if len(found) < len(futures):
                self._settle(futures, error)
                raise
        except BaseException as error:
            self._settle(futures, error)
            raise
        expiry = self._clock.monotonic() + self._ttl_s
        with self._lock:
            for topic, route in found.items():
                self._stale.discard(topic)
                self._known.pop(topic, None)
                if route is not None:
                    self._known[topic] = (route, expiry)
                    self._ever_known.add(topic)
        self._settle(futures, found)
        return found

    def _settle(
        self,
        futures: dict[str, Future[TopicRoute | None]],
        outcome: dict[str, TopicRoute | None] | BaseException,
    ) -> None:
        with self._lock:
            for topic in futures:
                del self._looking[topic]
        for topic, future in futures.items():
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome[topic])
