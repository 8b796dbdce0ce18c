"""Which queues the options of a reader name now."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    NameServerError,
    RocketMQError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.planning_client import OPERATION_TIMEOUT_MS, PlanningClient
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning.topics.discovery import match_topics

__all__ = [
    "is_outage",
    "outlast_outage",
    "queues_and_brokers",
    "queues_to_read",
    "retry_until",
    "select_queues",
    "topics_to_read",
    "wait_for_queues",
]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_PAUSE_S: Final = 0.5
_LOGGED_EVERY_S: Final = 10.0


def queues_to_read(
    client: PlanningClient, options: SourceOptions, *, whole: bool = False
) -> tuple[MessageQueue, ...]:
    """Return the queues that the options name and the name servers know now, sorted.

    Parameters
    ----------
    whole : bool
        Wait for brokers that had queues of a topic recently: their messages would not be read later.

    Raises
    ------
    TopicNotFoundError
        A topic does not exist.
    BrokerNotFoundError
        No broker is registered. With ``whole``: a broker that had queues of a topic recently is still
        unknown.
    NameServerError
        No name server answers.
    """
    if options.assign:
        return select_queues(options.assign, options)
    topics = topics_to_read(client, options)
    client.look_up(topics, whole=whole)
    return select_queues(sorted(queue for topic in topics for queue in client.read_queues(topic)), options)


def wait_for_queues(
    client: PlanningClient,
    options: SourceOptions,
    *,
    clock: Clock,
    patience_ms: float = OPERATION_TIMEOUT_MS,
    whole: bool = False,
) -> tuple[MessageQueue, ...]:
    """Return what `queues_to_read` does, and wait while no broker of the topics is registered.

    For the start of a query: it may be restarted during an outage.
    """
    return retry_until(
        lambda: queues_to_read(client, options, whole=whole),
        lambda error: error.retriable,
        clock=clock,
        deadline=Deadline(clock, patience_ms),
    )


def queues_and_brokers(
    client: PlanningClient,
    options: SourceOptions,
    *,
    clock: Clock,
    patience_ms: float = OPERATION_TIMEOUT_MS,
) -> tuple[tuple[MessageQueue, ...], frozenset[str]]:
    """Return what `wait_for_queues` does, and the brokers of which all topics are known by that.

    A broker registers with all its topics. One that is not registered before, or not any more afterwards, may
    have queues that the route did not show. A static topic's route shows all its queues, whoever is
    registered: the name in place of their broker is returned, too. With ``assign``, no broker is returned.
    """
    before = frozenset[str]() if options.assign else client.broker_names()
    client.invalidate_all()  # a route from before may lack queues of a broker that registered since
    queues = wait_for_queues(client, options, clock=clock, patience_ms=patience_ms)
    if not before:
        return queues, before
    logical = {queue.broker_name for queue in queues if queue.logical}
    return queues, (before & client.broker_names()) | logical


def topics_to_read(client: PlanningClient, options: SourceOptions) -> tuple[str, ...]:
    """Return the topics that the options name now, without those that are forgotten as a whole."""
    pattern = options.topic_pattern
    topics = options.topics if pattern is None else match_topics(pattern, client.topics())
    forgotten = {each.whole_topic for each in options.forget_queues}
    return tuple(topic for topic in topics if topic not in forgotten)


def select_queues(queues: Iterable[MessageQueue], options: SourceOptions) -> tuple[MessageQueue, ...]:
    """Return the queues without those that the options forget."""
    return tuple(queue for queue in queues if not options.forgets(queue))


def is_outage(error: RocketMQError) -> bool:
    """Whether the error of a running query may be an outage, after which the request succeeds.

    A name server forgets the topics of a broker that restarts, and a whole cluster may restart.
    """
    return error.retriable or isinstance(error, NameServerError | TopicNotFoundError)


def retry_until(
    ask: Callable[[], T], may_come_back: Callable[[RocketMQError], bool], *, clock: Clock, deadline: Deadline
) -> T:
    """Call until it succeeds, fails with an error that will not go away, or fails after the deadline.

    A call that began before it is not the last one: the process may have been frozen meanwhile.
    """
    logged_s = -math.inf
    while True:
        last = deadline.expired
        try:
            return ask()
        except RocketMQError as error:
            if last or not may_come_back(error):
                raise
            if clock.monotonic() >= logged_s + _LOGGED_EVERY_S:
                logged_s = clock.monotonic()
                _LOG.warning("trying again for %.0f s: %s", deadline.remaining_s, error)
        clock.sleep(min(_PAUSE_S, deadline.remaining_s))


def outlast_outage(ask: Callable[[], T], *, clock: Clock, deadline: Deadline) -> T:
    """Call until it succeeds, while brokers or name servers are down.

    Raises
    ------
    BrokerNotFoundError
        Also for a topic that the name servers do not know: they forget the topics of brokers that are down.
    RocketMQError
    """

    def attempt() -> T:
        try:
            return ask()
        except (TopicNotFoundError, NameServerError) as error:
            message = f"no broker has the topic now: {error.message}"
            raise BrokerNotFoundError(message, **error.facts) from error

    return retry_until(attempt, lambda error: error.retriable, clock=clock, deadline=deadline)
