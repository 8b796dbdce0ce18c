"""The client of a RocketMQ cluster: connections, routes, and offsets of many queues in few round trips."""

from __future__ import annotations

import random as random_module
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self, TypeVar

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.group_registration import GroupCommitter
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.net.pull_lanes import PullChannel
from pyspark_rocketmq.client.paced_warnings import PacedWarnings
from pyspark_rocketmq.client.queue_requests import QueueRequests, broker_address, gravest, queue_address
from pyspark_rocketmq.client.retry import RandomSource
from pyspark_rocketmq.client.routes.name_servers import NameServers
from pyspark_rocketmq.client.routes.routing import RouteCache
from pyspark_rocketmq.client.time_search import LowerBoundSearch, probe
from pyspark_rocketmq.errors import RocketMQError, UnsupportedRequestError
from pyspark_rocketmq.model import BrokerData, MessageQueue, MessageSelector, TopicRoute, arguments
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.options.parse import connection_options
from pyspark_rocketmq.planning.pulling.pull_hints import PullHints
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = ["Client"]

T = TypeVar("T")

_OPERATION_TIMEOUT_MS: Final = 30_000
"""How long an operation is retried through a broker's restart or a change of masters."""


class Client:
    """Manages name servers, routes and one connection per server. All other APIs use it.

    Thread-safe. A forked child process that inherits a client opens its own connections.

    Parameters
    ----------
    options : ClientOptions or str
        A string is the name server list: ``"host:port;host:port"``.
    clock, random, host : optional
        Injected by tests.
    operation_timeout_ms : int
        Timeout of an operation, including its retries. One attempt takes at most
        ``options.request_timeout_ms``. If no name server answers, an error is raised after about 3 s.

    Examples
    --------
    >>> with Client("127.0.0.1:9876") as client:  # doctest: +SKIP
    ...     queues = client.read_queues("orders")
    ...     client.max_offsets(queues)
    """

    def __init__(
        self,
        options: ClientOptions | str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random: RandomSource | None = None,
        host: Host = SYSTEM_HOST,
        operation_timeout_ms: int = _OPERATION_TIMEOUT_MS,
    ) -> None:
        self.options = options = connection_options(options)
        self.namespace = Namespace(options.namespace) if options.namespace else NO_NAMESPACE
        self.clock = clock
        self.warnings = PacedWarnings(clock)
        self.host = host
        self.random: RandomSource = random or random_module.Random()  # noqa: S311 - jitter, not a secret
        self.request_timeout_ms = options.request_timeout_ms
        self.operation_timeout_ms = arguments.require_timeout_ms(operation_timeout_ms, "operation_timeout_ms")
        self.pool = ConnectionPool(ConnectionOptions.of(options, self.namespace), clock, host)
        self.name_servers = NameServers(
            self.pool,
            options.name_servers,
            clock=clock,
            random=self.random,
            timeout_ms=options.connect_timeout_ms,
        )
        self.routes = RouteCache(
            self.name_servers,
            clock=clock,
            ttl_ms=options.route_refresh_ms,
            host=host,
            namespace=self.namespace,
        )
        self.requests = QueueRequests(
            self.routes, self.pool, clock=clock, random=self.random, timeout_ms=options.request_timeout_ms
        )
        self.pull_hints = PullHints()
        """What readers have learned from the brokers' responses to pulls."""
        self._groups = GroupCommitter(self)
        self.pull_selectors: dict[tuple[str, str, MessageSelector], MessageSelector] = {}
        """The filters that pulls of a topic at an address may use, see ``pull_filter``."""
        self._checked: set[tuple[MessageSelector, str, str]] = set()

    def __repr__(self) -> str:
        return f"Client({';'.join(self.options.name_servers)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.pool.close()

    def renew(self) -> None:
        """Drop all connections and routes. They are opened and looked up again on next use."""
        self.pool.close()
        self.routes.invalidate_all()

    # --- where things are ---

    def deadline(self, timeout_ms: float | None = None, *, renewable: bool = False) -> Deadline:
        """Return the deadline of an operation that starts now."""
        timeout_ms = self.operation_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline(self.clock, timeout_ms, renewable=renewable)

    def route(self, topic: str) -> TopicRoute:
        """Return the topic's route, at most ``routeRefreshMs`` old.

        Raises
        ------
        TopicNotFoundError, BrokerNotFoundError, NameServerError
        """
        return self.routes.get(topic, deadline=self.deadline())

    def find_route(self, topic: str) -> TopicRoute | None:
        """Return the topic's route as `route` does, None if it has none. Raises NameServerError."""
        return self.routes.find_many((topic,), deadline=self.deadline())[topic]

    def served_route(self, topic: str) -> TopicRoute:
        """Return the route of a topic that is known to exist: a missing route is an outage, see `RouteCache`.

        Raises
        ------
        BrokerNotFoundError
        TopicNotFoundError, NameServerError
            This client never had a route of the topic.
        """
        return self.routes.get_served((topic,), deadline=self.deadline())[topic]

    def invalidate(self, topic: str) -> None:
        """Invalidate the topic's route. It is looked up again on next use."""
        self.routes.invalidate(topic)

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that may be read, sorted.

        Raises
        ------
        TopicNotFoundError, NameServerError
        """
        return self.route(topic).read_queues()

    def write_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that may be written, sorted: those whose broker has a master.

        Raises
        ------
        TopicNotFoundError, NameServerError
        """
        return self.route(topic).write_queues()

    def broker_address(self, broker_name: str, *, topic: str, master_only: bool = True) -> str:
        """Return a broker's address from the topic's route: the master's, or a slave's if there is no master.

        Raises
        ------
        BrokerNotFoundError
            The route has no such broker, or no master of it; or the topic has no route now.
        TopicNotFoundError, NameServerError
        """
        return broker_address(self.served_route(topic), broker_name, master_only=master_only)

    def queue_address(self, queue: MessageQueue, *, master_only: bool = True) -> str:
        """Return the address of the broker that owns the queue now, as `broker_address` does.

        Raises
        ------
        BrokerNotFoundError
            The route has no such broker, or no master of it; or no broker owns a static topic's queue; or
            the topic has no route now.
        TopicNotFoundError, NameServerError
        """
        return queue_address(self.served_route(queue.topic), queue, master_only=master_only)

    def owners(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, str | None]:
        """Return the current owner of each queue; None for a static topic's queue without owner."""
        asked = arguments.require_queues(queues)
        routes = self.routes.get_served({queue.topic for queue in asked}, deadline=self.deadline())
        return {queue: routes[queue.topic].owner(queue) for queue in asked}

    def find_broker(self, broker_name: str) -> BrokerData | None:
        """Look up a broker's address at the name servers, without a topic; None if it is unknown.

        A proxy knows brokers by topics only.

        Raises
        ------
        NameServerError
        """
        try:
            return self.name_servers.cluster_info(deadline=self.deadline()).brokers.get(broker_name)
        except UnsupportedRequestError:
            return None

    def connection(self, addr: str) -> Connection:
        """Return the open connection to an address.

        Raises
        ------
        ConnectError
        """
        return self.pool.get(addr)

    def pull_channel(self, addr: str, broker: BrokerData | None, *, suspended: bool = False) -> PullChannel:
        """Return where to send the pulls for a broker at an address; ``suspended`` ones wait for messages.

        Raises
        ------
        ConnectError
        """
        if broker is not None and broker.behind_proxy:
            return self.pool.pull_lanes(addr, suspended=suspended)
        return self.connection(addr)

    def drop(self, addr: str) -> None:
        """Close the connection to an address. The next use opens a new one."""
        self.pool.drop(addr)

    # --- offsets ---

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the first stored offset of each queue.

        All requests to a broker are in flight together, and all brokers work in parallel. Offsets are those
        of masters: a slave may lag.

        Raises
        ------
        TopicNotFoundError, NameServerError
        BrokerNotFoundError, TransportError, BrokerError
            If the error is retriable: retries failed for ``operation_timeout_ms``.
        """
        return self.ask({queue: broker.min_offset(queue) for queue in arguments.require_queues(queues)})

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the max offset (the next to be written) of each queue, as its master reports it.

        A broker indexes messages shortly after it acknowledges them: for some milliseconds, the max offset
        may be below the offset that a send returned. Raises as `min_offsets`.
        """
        return self.ask({queue: broker.max_offset(queue) for queue in arguments.require_queues(queues)})

    def offsets_at(
        self, timestamps: Mapping[MessageQueue, int], *, group: str = broker.TOOLS_GROUP
    ) -> dict[MessageQueue, int]:
        """Return for each queue the offset of the first message stored at or after a time.

        A time after the last message returns the max offset, a time before the first message the min offset.
        Brokers before 5.1.4 return an approximation, which is corrected by reading messages. Raises as
        `min_offsets`.

        Parameters
        ----------
        timestamps : Mapping[MessageQueue, int]
            Milliseconds since the epoch, by the brokers' clocks.
        group : str
            The group that pull requests name, where they are needed.
        """
        asked, deadline = arguments.require_times(timestamps), self.deadline()
        near = self.ask(
            {queue: broker.search_offset(queue, moment) for queue, moment in asked.items()},
            deadline=deadline,
        )
        inexact = [queue for queue, answer in near.items() if not answer.exact]
        offsets = {queue: answer.offset for queue, answer in near.items() if answer.exact}
        if inexact:
            lows = self.ask({queue: broker.min_offset(queue) for queue in inexact}, deadline=deadline)
            highs = self.ask({queue: broker.max_offset(queue) for queue in inexact}, deadline=deadline)
            searches = {
                queue: LowerBoundSearch(
                    asked[queue], min_offset=lows[queue], max_offset=highs[queue], hint=near[queue].offset
                )
                for queue in inexact
            }
            offsets.update(self._search(searches, group, deadline))
        return {queue: offsets[queue] for queue in timestamps}

    def _search(
        self, searches: Mapping[MessageQueue, LowerBoundSearch], group: str, deadline: Deadline
    ) -> dict[MessageQueue, int]:
        """Run the searches of all queues in parallel, one message per queue and round."""
        answers: dict[MessageQueue, int] = {}
        while len(answers) < len(searches):
            probes = {}
            for queue, search in searches.items():
                if queue not in answers and search.answer is not None:
                    answers[queue] = search.answer
                elif queue not in answers:
                    probes[queue] = probe(queue, search, group)
            self.ask(probes, deadline=deadline)
        return answers

    def committed_offsets(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return a group's committed offset (the next to read) of each queue, None if it never committed.

        Brokers before 5.0 return 0 for "never" while a queue's first message is in memory. Raises as
        `min_offsets`.
        """
        asked = arguments.require_queues(queues)
        return self.ask({queue: broker.committed_offset(group, queue) for queue in asked})

    def commit_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit a group's next offsets. Brokers accept any offset, higher or lower than the current one.

        The first commit registers the group at the brokers, as a consumer's does, so that RocketMQ's tools
        show its progress. A broker flushes offsets every 5 s: after a crash, it may have offsets that are up
        to 5 s old. A broker that is down, or a topic that is gone, does not prevent the other commits. Raises
        as `min_offsets`, and

        Raises
        ------
        GroupNotFoundError
            The group does not exist, and the brokers do not create groups automatically.
        """
        self._groups.commit(group, arguments.require_offsets(offsets), deadline=self.deadline())

    def try_commit_offsets(
        self, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, RocketMQError]:
        """Commit as `commit_offsets`, without retries, and return the errors of what is not committed.

        Raises
        ------
        NameServerError
        """
        return self._groups.try_commit(group, arguments.require_offsets(offsets), deadline=self.deadline())

    def check_selector(self, selector: MessageSelector, topic: str, *, group: str) -> None:
        """Have the topic's brokers parse an SQL92 selector once. A tag selector needs no check.

        Without this check, a broker that cannot parse the expression returns every message.

        Raises
        ------
        OptionError
            It cannot be parsed, or the brokers do not support SQL filters (``enablePropertyFilter``).
        """
        if selector.expression_type != "TAG":
            self.check_selector_at(self.read_queues(topic), selector, group=group)

    def check_selector_at(
        self, queues: Iterable[MessageQueue], selector: MessageSelector, *, group: str
    ) -> None:
        """Run `check_selector` at the brokers of these queues."""
        if selector.expression_type == "TAG":
            return
        owners = self.owners(queues)
        places = {(selector, queue.topic, owner): queue for queue, owner in owners.items() if owner}
        asked = self.namespace.qualify
        calls = {
            queue: broker.check_selector(selector, asked(queue.topic), asked(group))
            for place, queue in places.items()
            if place not in self._checked
        }
        self.ask(calls)
        self._checked |= places.keys()

    def ask(
        self, calls: Mapping[MessageQueue, Call[T]], *, deadline: Deadline | None = None
    ) -> dict[MessageQueue, T]:
        """Make one call per queue at the queues' masters, all in flight together, until all have succeeded.

        Only failed calls are retried, after a route refresh if the error requires it.
        """
        answers: dict[MessageQueue, T] = {}
        errors: list[RocketMQError] = []
        for queue, outcome in self.requests.try_each(calls, deadline=deadline or self.deadline()).items():
            if isinstance(outcome, RocketMQError):
                errors.append(outcome)
            else:
                answers[queue] = outcome
        if errors:
            raise gravest(errors)
        return answers
