"""The size of topics, and the lag of a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.admin_calls import consume_stats_call
from pyspark_rocketmq.client.broker_calls import OnAway, calls_at_once, glance_deadline, glance_each
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.routes.whole_routes import look_up
from pyspark_rocketmq.errors import BrokerError, RocketMQError, UnsupportedRequestError
from pyspark_rocketmq.inventory import ClusterInfo
from pyspark_rocketmq.model import ConsumerOffset, MessageQueue, OffsetRange
from pyspark_rocketmq.model.names import RETRY_PREFIX

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = [
    "GroupPosition",
    "GroupTotal",
    "OnAway",
    "count_messages",
    "group_lag",
    "group_positions",
    "group_topics",
    "group_totals",
    "stored_ranges",
    "without",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """A group's position in a queue.

    Parameters
    ----------
    committed : int or None
        The next offset that the group will read; None if it never committed.
    consumed_timestamp : int
        Store time (ms) of the last consumed message, 0 if the broker does not know it, or a proxy answers.
    """

    queue: MessageQueue
    committed: int | None
    min_offset: int
    max_offset: int
    consumed_timestamp: int

    @property
    def position(self) -> int:
        """The next offset that the group can read: expired messages are skipped."""
        return max(self.committed or 0, self.min_offset)

    @property
    def lag(self) -> int:
        """Messages that are stored but not consumed; all messages if the group never committed."""
        return max(0, self.max_offset - self.position)


def group_topics(client: Client, group: str, *, on_away: OnAway | None = None) -> tuple[str, ...]:
    """Return the topics for which the group has committed offsets, without its retry topic.

    Parameters and errors as of `group_lag`.

    Raises
    ------
    UnsupportedRequestError
        A proxy answers, which does not list a group's topics.
    """
    try:
        stats = Admin(client).consume_stats(group, on_away=on_away)
    except UnsupportedRequestError as error:
        raise UnsupportedRequestError(f"{error.message}, or name the topics", **error.facts) from error
    topics = {queue.topic for queue in stats}
    return tuple(sorted(topic for topic in topics if not topic.startswith(RETRY_PREFIX)))


def group_lag(
    client: Client, group: str, topics: Iterable[str], *, on_away: OnAway | None = None
) -> tuple[GroupPosition, ...]:
    """Return the group's position in every readable queue of the topics.

    Parameters
    ----------
    client : Client
    group : str
    topics : iterable of str
    on_away : Callable, optional
        Called with the name of each broker that does not answer within about two seconds, or refuses, and the
        cause; its queues are omitted. If none answers, that is an error. Without ``on_away``, the call waits
        for every broker and fails at the operation timeout.

    Raises
    ------
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    topics = tuple(topics)
    look_up(client, topics)
    away: dict[str, RocketMQError] = {}

    def report(name: str, cause: RocketMQError) -> None:
        away.setdefault(name, cause)
        if on_away is not None:
            on_away(name, cause)

    on_late = None if on_away is None else report
    queues = [queue for topic in topics for queue in client.read_queues(topic)]
    committed = _ask(client, {q: broker.committed_offset(group, q) for q in queues}, on_late)
    mins = _ask(client, {q: broker.min_offset(q) for q in committed}, on_late)
    maxs = _ask(client, {q: broker.max_offset(q) for q in mins}, on_late)
    if away and not maxs:
        raise next(iter(away.values()))
    stats = _stats(client, group, topics, on_late, without=away)
    return tuple(
        GroupPosition(
            queue=queue,
            committed=committed[queue],
            min_offset=mins[queue],
            max_offset=end,
            consumed_timestamp=stats[queue].last_timestamp if queue in stats else 0,
        )
        for queue, end in maxs.items()
    )


def _stats(
    client: Client, group: str, topics: Iterable[str], on_away: OnAway | None, *, without: Collection[str]
) -> dict[MessageQueue, ConsumerOffset]:
    """Return the group's progress in topics; with ``on_away``, without retries and these brokers.

    Nothing if a proxy answers, which does not serve this request.
    """
    if any(data.behind_proxy for topic in topics for data in client.route(topic).brokers):
        return {}
    if on_away is None:
        admin = Admin(client)
        return {q: seen for topic in topics for q, seen in admin.consume_stats(group, topic).items()}
    homes = [(data.broker_name, topic) for topic in topics for data in client.route(topic).queues]
    calls = {(name, topic): consume_stats_call(group, topic) for name, topic in homes if name not in without}
    tables = _tables(client, Admin(client).cluster_info(), calls, on_away)
    return {queue: seen for table in tables.values() for queue, seen in table.items()}


def _ask(
    client: Client, calls: Mapping[MessageQueue, Call[T]], on_away: OnAway | None
) -> dict[MessageQueue, T]:
    """Make one call per queue; with ``on_away``, brokers that do not answer soon are reported to it."""
    return client.ask(calls) if on_away is None else glance_each(client, calls, on_away)


def without(away: Mapping[str, RocketMQError]) -> str:
    """Return the note for a sum of lags without the queues of these brokers."""
    silent = sorted(name for name, cause in away.items() if not isinstance(cause, BrokerError))
    notes = [f"{', '.join(silent)}, which did not answer"] if silent else []
    notes += [
        f"{name}, which refused: {cause.message}" + (f" ({cause.remark})" if cause.remark else "")
        for name, cause in sorted(away.items())
        if isinstance(cause, BrokerError)
    ]
    return f", without {'; '.join(notes)}" if notes else ""


def count_messages(
    client: Client, topics: Iterable[str], *, on_away: OnAway | None = None
) -> dict[str, dict[MessageQueue, int]]:
    """Return for each topic, in the given order, the number of messages in each readable queue.

    ``on_away``: as of `group_lag`.

    Raises
    ------
    NameServerError, TransportError, BrokerError
    """
    stored = stored_ranges(client, topics, on_away=on_away)
    return {topic: {each.queue: len(each) for each in own} for topic, own in stored.items()}


def stored_ranges(
    client: Client, topics: Iterable[str], *, on_away: OnAway | None = None
) -> dict[str, tuple[OffsetRange, ...]]:
    """Return for each topic, in the given order, the stored offsets of each readable queue.

    A topic that does not exist has none. ``on_away``: as of `group_lag`.

    Raises
    ------
    NameServerError, TransportError, BrokerError
    """
    names = tuple(topics)
    routes = client.routes.find_many(names, deadline=client.deadline())
    queues = {name: () if (route := routes[name]) is None else route.read_queues() for name in names}
    mins = _ask(client, {q: broker.min_offset(q) for own in queues.values() for q in own}, on_away)
    maxs = _ask(client, {q: broker.max_offset(q) for q in mins}, on_away)
    # Retention may pass the end that was asked for.
    return {
        topic: tuple(OffsetRange(q, min(mins[q], maxs[q]), maxs[q]) for q in own if q in maxs)
        for topic, own in queues.items()
    }


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The topics for which a group has committed offsets, and its lag over all of them."""

    group: str
    topics: tuple[str, ...]
    lag: int


def group_totals(client: Client, groups: Iterable[str], *, on_away: OnAway) -> tuple[GroupTotal, ...]:
    """Return the lag of the groups that have committed offsets, with all requests in flight together.

    Parameters and errors as of `group_lag`.
    """
    totals = []
    for group, positions in group_positions(client, groups, on_away=on_away).items():
        if positions:
            topics = tuple(sorted({at.queue.topic for at in positions}))
            totals.append(GroupTotal(group, topics, sum(at.lag for at in positions)))
    return tuple(totals)


def group_positions(
    client: Client, groups: Iterable[str], *, on_away: OnAway
) -> dict[str, tuple[GroupPosition, ...]]:
    """Return the positions of groups in the queues for which they have offsets, without retry topics.

    All requests are in flight together. A queue without a committed offset shows as 0, as brokers report it.
    Parameters and errors as of `group_lag`.
    """
    progress = _progress(client, groups, on_away)
    queues = {queue for table in progress.values() for queue in table}
    mins = _ask(client, {queue: broker.min_offset(queue) for queue in queues}, on_away)
    return {
        group: tuple(
            GroupPosition(
                queue=queue,
                committed=at.consumer_offset,
                min_offset=mins[queue],
                max_offset=at.broker_offset,
                consumed_timestamp=at.last_timestamp,
            )
            for queue, at in sorted(table.items())
            if queue in mins and not queue.topic.startswith(RETRY_PREFIX)
        )
        for group, table in progress.items()
    }


def _progress(
    client: Client, groups: Iterable[str], on_away: OnAway
) -> dict[str, dict[MessageQueue, ConsumerOffset]]:
    """Return the progress of each group in the queues for which it has offsets."""
    info = Admin(client).cluster_info()
    calls = {(name, group): consume_stats_call(group) for group in groups for name in info.brokers}
    return _tables(client, info, calls, on_away)


def _tables(
    client: Client,
    info: ClusterInfo,
    calls: Mapping[tuple[str, str], Call[dict[MessageQueue, ConsumerOffset]]],
    on_away: OnAway,
) -> dict[str, dict[MessageQueue, ConsumerOffset]]:
    """Make calls by (broker, key); return the answers of all brokers by key."""
    namespace = client.namespace
    found: dict[str, dict[MessageQueue, ConsumerOffset]] = {key: {} for _, key in calls}
    for (name, key), outcome in calls_at_once(client, info, calls, glance_deadline(client)).items():
        if isinstance(outcome, RocketMQError):
            on_away(name, outcome)
            continue
        for queue, offset in outcome.items():
            if namespace.holds(queue.topic):
                found[key][replace(queue, topic=namespace.plain(queue.topic))] = offset
    return found
