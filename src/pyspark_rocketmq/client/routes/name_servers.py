"""Requests to name servers: one after the other until one answers; for routes, to all of them."""

# Facts (RouteInfoManager, ClientRequestProcessor, BrokerController, MQClientInstance; RocketMQ 4.9 and 5.4)
# - Every broker registers with every name server, at its start and every 30 s; name servers do not talk to
#   each other. One that was restarted knows for up to 30 s only some of the brokers, or none.
# - A 5.x name server with needWaitForService=true (default: false) refuses routes for the first 45 s (code 1,
#   "name server not ready").
# - GET_ROUTEINFO_BY_TOPIC (105) answers TOPIC_NOT_EXIST (17) without a route; a broker does not know the
#   request (3); a RocketMQ 5 proxy's remoting port does, its gRPC port hangs up or speaks HTTP/2.
# - A proxy shows its own address as that of every broker, and does not know requests for brokers (106) and
#   topics (206).
# - A broker that stops stays in the route for up to 10 s, one that vanishes for up to 120 s.

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.client.net.pipelining import Call, pipeline
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.net.pull_lanes import is_of_proxy
from pyspark_rocketmq.client.retry import RandomSource, RetryPolicy, retry
from pyspark_rocketmq.errors import (
    ConnectError,
    ConnectionLostError,
    NameServerError,
    OptionError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    TransportError,
    UnsupportedRequestError,
)
from pyspark_rocketmq.inventory import ClusterInfo
from pyspark_rocketmq.model import BrokerData, MessageQueue, QueueData, TopicRoute
from pyspark_rocketmq.remoting.body import decode_cluster_info, decode_route, decode_topic_list
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.header import (
    GetAllTopicListFromNameserverRequest,
    GetBrokerClusterInfoRequest,
    GetRouteInfoRequest,
    RequestHeader,
)

__all__ = ["NameServers", "diagnose", "merge_cluster_infos", "merge_routes", "parse_route", "require_list"]

T = TypeVar("T")

_POLICY: Final = RetryPolicy(base_ms=100, max_ms=1_000)

_ROUTES_KEPT: Final = 64

_decode_route = functools.lru_cache(_ROUTES_KEPT)(decode_route)
"""All name servers answer the same, and again the next time, until a broker or a topic changes."""

_PASSED_OVER_S: Final = 30.0
"""How long a name server that did not answer is skipped while another one answers."""


class NameServers:
    """The list of name servers. The one that answered last is used first, the others on failure.

    Parameters
    ----------
    pool : ConnectionPool
    addresses : sequence of str
        ``host:port`` each.
    clock, random
        Injected.
    timeout_ms : int
        Timeout of one name server, and how long the list is retried while none answers: a wrong address is
        reported within seconds, a restart is tolerated.
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
        self._first = self.addresses[0]
        self._passed_over: dict[str, float] = {}

    def call_each(self, request: RequestHeader, *, deadline: Deadline) -> tuple[Response, ...]:
        """Send a request to every name server, for requests that must reach all.

        Raises
        ------
        NameServerError
            A name server does not answer.
        """
        answers = []
        for addr in self.addresses:
            began = self._clock.monotonic()
            try:
                answers.append(
                    self._ask(
                        addr, lambda connection, until: connection.call(request, deadline=until), deadline
                    )
                )
            except (TransportError, RemoteProtocolError) as error:
                diagnosis = diagnose(error, waited_s=self._clock.monotonic() - began)
                raise NameServerError(f"a name server does not answer: {diagnosis}", addr=addr) from error
        return tuple(answers)

    def routes(self, topics: Sequence[str], *, deadline: Deadline) -> dict[str, TopicRoute | None]:
        """Look up topics, all requests in flight together; None is a topic without a route.

        The answers of all name servers are merged: a restarted one may know only some of a topic's brokers.

        Raises
        ------
        NameServerError
            None answers, or the server that answers is no name server.
        """
        answers = self._on_all(lambda connection, until: _lookup(connection, topics, until), deadline)
        return {
            topic: merge_routes([route for answer in answers if (route := answer[topic]) is not None])
            for topic in topics
        }

    def cluster_info(self, *, deadline: Deadline) -> ClusterInfo:
        """Return the brokers that are registered at any name server, merged.

        Raises
        ------
        NameServerError
            As `routes`.
        UnsupportedRequestError
            The server is a proxy.
        """

        def ask(connection: Connection, until: Deadline) -> ClusterInfo:
            answer = connection.call(GetBrokerClusterInfoRequest(), deadline=until)
            return decode_cluster_info(require_list(answer, "brokers").body)

        return merge_cluster_infos(self._on_all(ask, deadline))

    def fetch_registered_brokers(self, *, deadline: Deadline) -> frozenset[str] | None:
        """Return the names of the brokers that are registered at any name server; None if a proxy answers.

        Raises
        ------
        NameServerError
            As `routes`.
        """
        try:
            return frozenset(self.cluster_info(deadline=deadline).brokers)
        except UnsupportedRequestError:
            return None

    def topics(self, *, deadline: Deadline) -> tuple[str, ...]:
        """Return the topics that any name server knows, system topics included. Raises as `cluster_info`."""

        def ask(connection: Connection, until: Deadline) -> tuple[str, ...]:
            answer = connection.call(GetAllTopicListFromNameserverRequest(), deadline=until)
            return decode_topic_list(require_list(answer, "topics").body)

        return tuple(sorted({topic for topics in self._on_all(ask, deadline) for topic in topics}))

    def _on_all(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> list[T]:
        """Send to one that answers, then to the others, except those that did not answer recently."""
        answered, answer = self._on_any(
            lambda connection, until: (connection.addr, use(connection, until)), deadline
        )
        answers = [answer]
        for addr in self.addresses:
            now = self._clock.monotonic()
            if addr == answered or now < self._passed_over.get(addr, now) or deadline.expired:
                continue
            try:
                answers.append(self._ask(addr, use, deadline))
            except RocketMQError:
                self._pass_over(addr)
        return answers

    def _ask(self, addr: str, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        """Connect and send. Without time left after connecting, nothing is sent: that is the time-out."""
        connection = self._pool.get(addr)
        deadline.check("connected", addr=addr)
        return use(connection, deadline.sooner(self._timeout_ms))

    def _pass_over(self, addr: str) -> None:
        self._passed_over[addr] = self._clock.monotonic() + _PASSED_OVER_S

    def _turn(self) -> list[str]:
        """Return the addresses in the order in which they are asked until one answers."""
        now = self._clock.monotonic()
        at = self.addresses.index(self._first)
        turn = [*self.addresses[at:], *self.addresses[:at]]
        return sorted(turn, key=lambda addr: now < self._passed_over.get(addr, now))

    def _on_any(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        try:
            return retry(
                lambda: self._pass(use, deadline),
                deadline=deadline.sooner(self._timeout_ms),
                clock=self._clock,
                random=self._random,
                policy=_POLICY,
            )
        except ConnectError as error:  # the caller's loop must not retry a clear error
            raise NameServerError(error.message, **error.facts) from error.__cause__

    def _pass(self, use: Callable[[Connection, Deadline], T], deadline: Deadline) -> T:
        """Try the list once: the one that answered last first, those that did not answer recently last.

        Each gets a share of the time that is left, so that one that hangs leaves time for the others.
        """
        reasons: list[str] = []
        cause: RocketMQError | None = None
        transient = False
        turn = self._turn()
        for step, addr in enumerate(turn):
            began = self._clock.monotonic()
            if deadline.expired:
                reasons.append(f"{addr}: not asked, {deadline.timeout_ms:.0f} ms had passed")
                continue
            share = deadline.sooner(deadline.remaining_s * 1000 / (len(turn) - step))
            try:
                answer = self._ask(addr, use, share)
            except (TransportError, RemoteProtocolError, NameServerError) as error:
                cause = error
                transient = transient or isinstance(error, TransportError)
                reasons.append(f"{addr}: {diagnose(error, waited_s=self._clock.monotonic() - began)}")
                self._pass_over(addr)
            else:
                self._first = addr
                self._passed_over.pop(addr, None)
                return answer
        message = f"no name server answers: {'; '.join(reasons)}"
        name_server = ";".join(self.addresses)
        if transient:
            raise ConnectError(message, name_server=name_server) from cause
        raise NameServerError(message, name_server=name_server) from cause


def diagnose(error: RocketMQError, *, waited_s: float) -> str:
    """Return what the server at an address with this error may be. The time includes the connection's."""
    match error:
        case ConnectionLostError():
            return (
                "it closed the connection on a RocketMQ request. Is this a name server? A RocketMQ 5 "
                "proxy's gRPC port, an HTTP server, or a TLS-only port without TLS behave so"
            )
        case RemoteProtocolError():
            return f"it does not speak RocketMQ's protocol ({error.message}). Is this a name server?"
        case RequestTimeoutError():
            waited = f"did not answer within {waited_s:.1f} s"
            return f"it accepted the connection but {waited}. Is this a name server?"
        case _:
            return error.message


def _lookup(
    connection: Connection, topics: Sequence[str], deadline: Deadline
) -> dict[str, TopicRoute | None]:
    """Request all topics from one name server, pipelined."""
    calls = [
        (topic, connection, Call(GetRouteInfoRequest(topic=topic), functools.partial(parse_route, topic)))
        for topic in topics
    ]
    found: dict[str, TopicRoute | None] = {}
    for topic, outcome in pipeline(calls, deadline=deadline).items():
        if isinstance(outcome, RocketMQError):
            raise outcome
        found[topic] = outcome
    return found


def require_list(answer: Response, what: str) -> Response:
    """Return an answer that lists brokers or topics, or raise the error of a server that keeps no lists."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        otherwise = "name the topics, or " if what == "topics" else ""
        raise UnsupportedRequestError(
            f"a proxy or a broker, which lists no {what}, answers here: {otherwise}"
            "set the name servers' address",
            code=answer.code,
            remark=answer.remark,
            addr=answer.addr,
        )
    return answer.require()


def parse_route(topic: str, response: Response) -> TopicRoute | None:
    """Return the route in an answer; None if there is none.

    Raises
    ------
    NameServerError
        The server is no name server, or not ready.
    """
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise NameServerError(
            "it does not know route requests, as a broker would answer. Is this a name server?",
            addr=response.addr,
            request=RequestCode.GET_ROUTEINFO_BY_TOPIC.name,
        )
    if response.code == ResponseCode.SYSTEM_ERROR:  # for example of one that waits for its brokers
        raise NameServerError(f"it refuses to answer: {response.remark}", addr=response.addr)
    route = _decode_route(topic, bytes(response.require(topic=topic).body))
    if not is_of_proxy(response):
        return route
    return replace(route, brokers=tuple(replace(data, behind_proxy=True) for data in route.brokers))


def merge_cluster_infos(infos: Sequence[ClusterInfo]) -> ClusterInfo:
    """Merge what several name servers know of the brokers; the first one has precedence."""
    brokers: dict[str, BrokerData] = {}
    clusters: dict[str, set[str]] = {}
    for info in infos:
        for data in info.brokers.values():
            _add_broker(brokers, data)
        for cluster, names in info.clusters.items():
            clusters.setdefault(cluster, set()).update(names)
    return ClusterInfo(brokers, {cluster: tuple(sorted(names)) for cluster, names in clusters.items()})


def merge_routes(routes: Sequence[TopicRoute]) -> TopicRoute | None:
    """Merge the routes of one topic from several name servers; the first one has precedence."""
    if len(routes) < 2:
        return routes[0] if routes else None
    brokers: dict[str, BrokerData] = {}
    queues: dict[str, QueueData] = {}
    owners: dict[MessageQueue, str | None] = {}
    for route in routes:
        for broker in route.brokers:
            _add_broker(brokers, broker)
        for data in route.queues:
            queues.setdefault(data.broker_name, data)
    by_epoch = sorted(routes, key=lambda route: -route.static_epoch)  # one may not know of a remap yet
    for route in by_epoch:
        for queue, owner in route.static_queues.items():
            owners[queue] = owners.get(queue) or owner
    known_brokers, known_queues = tuple(brokers.values()), tuple(queues.values())
    return TopicRoute(routes[0].topic, known_brokers, known_queues, owners, by_epoch[0].static_epoch)


def _add_broker(known: dict[str, BrokerData], data: BrokerData) -> None:
    """Add what another name server knows of a broker; what is known has precedence."""
    first = known.setdefault(data.broker_name, data)
    if first.behind_proxy != data.behind_proxy:
        return
    addresses = {**data.addresses, **first.addresses}
    known[data.broker_name] = replace(first, addresses=addresses)
