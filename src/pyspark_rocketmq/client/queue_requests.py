"""One request for each of many queues: to the broker that has the queue now, all in flight together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeGuard, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.net.pool import ConnectionPool
from pyspark_rocketmq.client.retry import DEFAULT_POLICY, RandomSource, RetryPolicy, retry
from pyspark_rocketmq.client.routes.routing import RouteCache
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError, RouteError
from pyspark_rocketmq.model import MASTER_ID, MessageQueue, TopicRoute
from pyspark_rocketmq.remoting.header import PullMessageRequest

__all__ = ["QueueRequests", "broker_address", "gather_all", "gravest", "is_gone", "queue_address"]

T = TypeVar("T")


class QueueRequests:
    """Makes one call per queue, and retries what failed.

    Parameters
    ----------
    routes : RouteCache
    pool : ConnectionPool
    clock, random
        Injected.
    timeout_ms : int
        How long one try may take.
    """

    def __init__(
        self,
        routes: RouteCache,
        pool: ConnectionPool,
        *,
        clock: Clock,
        random: RandomSource,
        timeout_ms: int,
    ) -> None:
        self._routes = routes
        self._pool = pool
        self._clock = clock
        self._random = random
        self._timeout_ms = timeout_ms

    def try_each(
        self,
        calls: Mapping[MessageQueue, Call[T]],
        *,
        deadline: Deadline,
        policy: RetryPolicy = DEFAULT_POLICY,
        slaves: bool = False,
    ) -> dict[MessageQueue, T | RocketMQError]:
        """Return what each call came to: its value, or the last error that it met.

        Only what failed, and may succeed later, is asked again, after a new look at the route where the error
        says so. No call waits for another, or fails with it.

        Parameters
        ----------
        policy : RetryPolicy
        slaves : bool
            Ask the queues' first slaves instead.
        """
        settled: dict[MessageQueue, T | RocketMQError] = {}
        errors: dict[MessageQueue, RocketMQError] = {}

        def attempt() -> None:
            todo = {queue: call for queue, call in calls.items() if queue not in settled}
            errors.clear()
            outcomes = self._ask_once(todo, deadline.sooner(self._timeout_ms), slaves=slaves)
            for queue, outcome in outcomes.items():
                if isinstance(outcome, RocketMQError) and outcome.retriable:
                    errors[queue] = outcome
                else:
                    settled[queue] = outcome
            if errors:
                raise gravest(errors.values())

        def look_again() -> None:
            for topic in {queue.topic for queue in calls if queue not in settled}:
                self._routes.invalidate(topic)

        try:
            if calls:
                retry(
                    attempt,
                    deadline=deadline,
                    clock=self._clock,
                    random=self._random,
                    policy=policy,
                    on_stale_route=look_again,
                )
        except RocketMQError as error:
            for queue in calls:
                errors.setdefault(queue, error)  # no name server answered in time, for all that were asked
        return {queue: settled[queue] if queue in settled else errors[queue] for queue in calls}

    def _ask_once(
        self, calls: Mapping[MessageQueue, Call[T]], deadline: Deadline, *, slaves: bool
    ) -> dict[MessageQueue, T | RocketMQError]:
        routes = self._routes.try_served({queue.topic for queue in calls}, deadline=deadline)
        placed: list[tuple[MessageQueue, str, Call[T]]] = []
        at_proxies: list[tuple[MessageQueue, str, Call[T]]] = []
        outcomes: dict[MessageQueue, T | RocketMQError] = {}
        for queue, call in calls.items():
            route = routes[queue.topic]
            if isinstance(route, RouteError):
                outcomes[queue] = route
                continue
            try:
                addr = queue_address(route, queue, slave=slaves)
            except BrokerNotFoundError as error:
                outcomes[queue] = error
                continue
            behind_proxy = isinstance(call.request, PullMessageRequest) and _is_behind_proxy(route, queue)
            (at_proxies if behind_proxy else placed).append((queue, addr, call))
        for queue, addr, call in at_proxies:
            try:
                outcomes[queue] = call.on(self._pool.pull_lanes(addr), deadline=deadline)
            except RocketMQError as error:
                outcomes[queue] = error
        answered = outcomes | self._pool.call_each(placed, deadline=deadline)
        return {
            queue: _with_broker(outcome, queue, routes[queue.topic]) for queue, outcome in answered.items()
        }


def _with_broker(
    outcome: T | RocketMQError, queue: MessageQueue, route: TopicRoute | RouteError
) -> T | RocketMQError:
    """Return an error with the broker that was asked: a static topic's queue is named after none."""
    if isinstance(outcome, RocketMQError) and not isinstance(route, RouteError):
        return outcome.with_facts(broker_name=route.asked_broker(queue), topic=queue.topic)
    return outcome


def _is_behind_proxy(route: TopicRoute, queue: MessageQueue) -> bool:
    owner = route.owner(queue)
    broker = None if owner is None else route.broker(owner)
    return broker is not None and broker.behind_proxy


def queue_address(
    route: TopicRoute, queue: MessageQueue, *, master_only: bool = True, slave: bool = False
) -> str:
    """Return the address of a broker that has the queue: the master, else any replica, or the first slave.

    Raises
    ------
    BrokerNotFoundError
    """
    owner = route.owner(queue)
    if owner is None:
        raise BrokerNotFoundError(
            "no broker has the static topic's queue now: it is down, or the topic was created again",
            topic=queue.topic,
            queue=str(queue),
            broker_name=queue.broker_name,
        )
    return broker_address(route, owner, master_only=master_only, slave=slave)


def broker_address(
    route: TopicRoute, broker_name: str, *, master_only: bool = True, slave: bool = False
) -> str:
    """Return a broker's address as the route tells it: the master's, else any replica's, or a slave's.

    Raises
    ------
    BrokerNotFoundError
    """
    data = route.broker(broker_name)
    if data is None:
        raise BrokerNotFoundError(
            "the route names no such broker: it is down, or the topic was deleted",
            topic=route.topic,
            broker_name=broker_name,
        )
    if slave:
        addr = next((data.addresses[i] for i in sorted(data.addresses) if i != MASTER_ID), None)
    else:
        addr = data.master if master_only else next(iter(data), None)
    if addr is None:
        which = "slave" if slave else "master"
        raise BrokerNotFoundError(
            f"the broker has no {which} now", topic=route.topic, broker_name=broker_name
        )
    return addr


def gravest(errors: Iterable[RocketMQError]) -> RocketMQError:
    """Return the error to raise for several: one that no retry helps, else one that asks for a new route."""
    return min(errors, key=lambda error: (error.retriable, not error.stale_route))


def is_gone(outcome: object) -> TypeGuard[RouteError]:
    """Whether a call came to nothing because its topic has no route now."""
    return isinstance(outcome, RouteError) and "broker_name" not in outcome.facts


async def gather_all(tasks: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of tasks that run together.

    Raises
    ------
    RocketMQError
        When all have ended: the gravest error of those that failed.
    """
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, RocketMQError)]
    if errors:
        raise gravest(errors)
    results: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results
