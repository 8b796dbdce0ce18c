"""Measures groups, dead letters and topics of a cluster in few rounds of requests."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.broker_calls import glance_each
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.client.groups.group_lag import GroupPosition, group_positions, stored_ranges
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.read.samples import MessageTimes, message_times
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.client.routes.known_brokers import KnownBrokers
from pyspark_rocketmq.errors import BrokerError, RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.model.names import dead_letter_topic
from pyspark_rocketmq.options import ClientOptions

__all__ = ["ClusterMeter", "ClusterState", "DeadLetters", "GroupState", "QueueState", "TopicState"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_FRESH_S: Final = 5.0
"""Several Prometheus servers that scrape at the same time cost the brokers one measurement."""

_OPERATION_TIMEOUT_MS: Final = 4_000


@dataclass(frozen=True, slots=True)
class QueueState:
    """A group's position in a queue.

    ``seconds``: how long the next message has been stored; 0 if all is read, None if unknown.
    """

    at: GroupPosition
    seconds: float | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A group's dead letters; the ages in seconds are None if unknown."""

    messages: int
    oldest_s: float | None = None
    newest_s: float | None = None


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's queues and dead letters; None if the group's dead-letter topic is unknown to the brokers."""

    group: str
    queues: tuple[QueueState, ...] = ()
    dead_letters: DeadLetters | None = None

    def of_topic(self, topic: str) -> GroupState:
        """Return the part in one topic."""
        return GroupState(self.group, tuple(each for each in self.queues if each.at.queue.topic == topic))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics for which the group has offsets."""
        return tuple(sorted({each.at.queue.topic for each in self.queues}))

    @property
    def messages(self) -> int:
        """Messages to read."""
        return sum(each.at.lag for each in self.queues)

    @property
    def seconds(self) -> float | None:
        """How long the oldest message to read has been stored; None if it is unknown for a queue."""
        known = [each.seconds for each in self.queues if each.seconds is not None]
        return max(known, default=0.0) if len(known) == len(self.queues) else None


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic at a broker: the messages ever written to its queues, and those still stored."""

    topic: str
    broker_name: str
    written: int
    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """A cluster at one time. Queues of brokers that do not answer are missing.

    ``brokers``: whether each answered; False for one that was registered within the last day and is not now.
    ``up``: whether a name server answered.
    """

    up: bool = False
    brokers: Mapping[str, bool] = field(default_factory=dict)
    groups: tuple[GroupState, ...] = ()
    topics: tuple[TopicState, ...] = ()


class ClusterMeter:
    """Measures a cluster when it is asked, at most every five seconds. Changes nothing.

    Parameters
    ----------
    options : ClientOptions
    groups : sequence of str, optional
        The groups to measure, with the topics that they read; None for all groups and topics.
    clock : Clock
    """

    def __init__(
        self, options: ClientOptions, groups: Sequence[str] | None, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client = Client(options, operation_timeout_ms=_OPERATION_TIMEOUT_MS, clock=clock)
        self._groups = None if groups is None else tuple(dict.fromkeys(groups))
        self._clock = clock
        self._lock = threading.Lock()
        self._known = KnownBrokers(clock)
        self._state = ClusterState()
        self._measured_s = float("-inf")

    def state(self) -> ClusterState:
        """Return the cluster's state, at most a few seconds old. Never fails: what is unknown is missing."""
        with self._lock:
            if self._clock.monotonic() - self._measured_s > _FRESH_S:
                self._state = _Measurement(self._client, self._clock, self._known).take(self._groups)
                self._measured_s = self._clock.monotonic()
            return self._state

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._client.close()


class _Measurement:
    """One measurement, which does not ask a broker again that did not answer."""

    def __init__(self, client: Client, clock: Clock, known: KnownBrokers) -> None:
        self._client = client
        self._known = known
        self._now_ms = clock.now_ms()
        self._away: set[str] = set()
        self._groups: tuple[GroupState, ...] = ()
        self._topics: tuple[TopicState, ...] = ()

    def take(self, groups: Sequence[str] | None) -> ClusterState:
        admin = Admin(self._client)
        try:
            brokers = tuple(admin.cluster_info().brokers)
        except RocketMQError as error:
            _LOG.warning("nothing is measured: %s", error)
            return ClusterState()
        try:
            self._measure(admin, groups)
        except RocketMQError as error:
            _LOG.warning("a part is not measured: %s", error)
        away = self._away.union(self._known.find_missing(brokers))
        return ClusterState(
            up=True,
            brokers={name: name not in away for name in sorted({*brokers, *away})},
            groups=self._groups,
            topics=self._topics,
        )

    def _measure(self, admin: Admin, groups: Sequence[str] | None) -> None:
        names = tuple(admin.groups(on_away=self._on_away)) if groups is None else groups
        positions = group_positions(self._client, names, on_away=self._on_away)
        self._groups = tuple(GroupState(group, self._with_times(positions.get(group, ()))) for group in names)
        read = {topic for group in self._groups for topic in group.topics}
        topics = tuple(admin.topics()) if groups is None else tuple(sorted(read))
        dead = {group: dead_letter_topic(group) for group in names}
        stored = stored_ranges(self._client, (*topics, *dead.values()), on_away=self._on_away)
        routes = self._client.routes.find_many(topics, deadline=self._client.deadline())
        queues = {topic: route.read_queues() if route else () for topic, route in routes.items()}
        self._topics = tuple(
            state for topic in topics for state in _by_broker(topic, stored[topic], queues[topic])
        )
        letters = self._dead_letters({group: stored[topic] for group, topic in dead.items()})
        self._groups = tuple(
            GroupState(each.group, each.queues, letters.get(each.group)) for each in self._groups
        )

    def _with_times(self, positions: Iterable[GroupPosition]) -> tuple[QueueState, ...]:
        rows = tuple(positions)
        behind = {at.queue: at.position for at in rows if at.lag}
        ages = self._ages(behind)
        return tuple(QueueState(at, ages.get(at.queue) if at.lag else 0.0) for at in rows)

    def _dead_letters(self, stored: Mapping[str, Sequence[OffsetRange]]) -> dict[str, DeadLetters]:
        letters = [each for ranges in stored.values() for each in ranges if len(each)]
        oldest = self._ages({each.queue: each.from_offset for each in letters})
        newest = self._ages({each.queue: each.until_offset - 1 for each in letters})
        return {
            group: DeadLetters(
                sum(map(len, ranges)),
                max((oldest[each.queue] for each in ranges if each.queue in oldest), default=None),
                min((newest[each.queue] for each in ranges if each.queue in newest), default=None),
            )
            for group, ranges in stored.items()
            if ranges
        }

    def _ages(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Return how long the messages at these offsets have been stored, in seconds."""
        found: Mapping[MessageQueue, MessageTimes] = message_times(self, offsets, group=TOOLS_GROUP)
        return {queue: max(0, self._now_ms - at.store_timestamp) / 1000 for queue, at in found.items()}

    def ask(self, calls: Mapping[MessageQueue, Call[T]], /) -> dict[MessageQueue, T]:
        """Make one call per queue, and return the answers of brokers that answer soon."""
        todo = {queue: call for queue, call in calls.items() if queue.broker_name not in self._away}
        return glance_each(self._client, todo, self._on_away)

    def _on_away(self, broker_name: str, cause: RocketMQError) -> None:
        if isinstance(cause, BrokerError):  # it answered, but refused
            _LOG.warning("broker %s does not tell: %s", broker_name, cause)
            return
        if broker_name not in self._away:
            _LOG.warning("broker %s does not answer: %s", broker_name, cause)
        self._away.add(broker_name)


def _by_broker(topic: str, ranges: Iterable[OffsetRange], queues: Iterable[MessageQueue]) -> list[TopicState]:
    """Return the sums of each broker. Without all its queues, a counter would seem to start again."""
    expected = Counter(queue.broker_name for queue in queues)
    own: dict[str, list[OffsetRange]] = {}
    for each in ranges:
        own.setdefault(each.queue.broker_name, []).append(each)
    return [
        TopicState(topic, name, sum(each.until_offset for each in found), sum(map(len, found)))
        for name, found in own.items()
        if len(found) == expected[name]
    ]
