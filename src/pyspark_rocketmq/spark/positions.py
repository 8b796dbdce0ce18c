"""Asking the brokers where queues begin and end, as the pure planning says what to ask."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.core import Client
from pyspark_rocketmq.client.peek import MessageTimes, message_sizes, message_times, stored_at
from pyspark_rocketmq.errors import NameServerError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, StartPolicy
from pyspark_rocketmq.options import ClientOptions, SourceOptions
from pyspark_rocketmq.planning.discovery import discover, matching_topics
from pyspark_rocketmq.planning.gaps import decide_hidden, decide_moved_back
from pyspark_rocketmq.planning.queue_names import renamed
from pyspark_rocketmq.planning.starts import Answers, late_policy, lookups, resolve

__all__ = [
    "PlanningClient",
    "available_ends",
    "behind",
    "check_filter",
    "check_hidden",
    "hidden",
    "late_begins",
    "moved_back",
    "patient_ends",
    "planning_client",
    "queues_to_read",
    "resolve_offsets",
]

_LOG: Final = logging.getLogger(__name__)

_OPERATION_TIMEOUT_MS: Final = 10_000
_PAUSE_S: Final = 0.5


class PlanningClient(Protocol):
    """What planning needs to know of a RocketMQ; `planning_client` opens the real one."""

    def topics(self) -> tuple[str, ...]:
        """Return every topic there is, the system's too."""
        ...

    def read_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the topic's queues."""
        ...

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the first stored offsets."""
        ...

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offsets to be written next."""
        ...

    def offsets_at(self, timestamps: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return the first offsets stored at or after a moment."""
        ...

    def committed_offsets(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return a group's next offsets, None where it has committed nothing."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store a group's next offsets."""
        ...

    def message_times(
        self, offsets: Mapping[MessageQueue, int], group: str
    ) -> dict[MessageQueue, MessageTimes]:
        """Return the times of the messages at these offsets."""
        ...

    def stored_at(self, offsets: Mapping[MessageQueue, int], group: str) -> dict[MessageQueue, int]:
        """Return when the messages at exactly these offsets were stored (ms), where there are any."""
        ...

    def message_sizes(
        self, offsets: Mapping[MessageQueue, int], group: str, selector: MessageSelector
    ) -> dict[MessageQueue, int]:
        """Return the bytes that an offset brings, by a sample at these offsets."""
        ...

    def check_selector_at(
        self, queues: Iterable[MessageQueue], selector: MessageSelector, *, group: str
    ) -> None:
        """Have the queues' brokers parse an SQL selector, each once."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


class _Client(Client):
    """A client that remembers the topic list as long as routes, for patterns."""

    def __init__(self, options: ClientOptions) -> None:
        # Gives up early: a stream has a patience of its own, and whoever starts a batch waits for it.
        super().__init__(options, operation_timeout_ms=_OPERATION_TIMEOUT_MS)
        self._topics: tuple[str, ...] = ()
        self._topics_expire = -math.inf

    def topics(self) -> tuple[str, ...]:
        """Return every topic there is, the system's too."""
        if self.clock.monotonic() >= self._topics_expire:
            self._topics = Admin(self).topics(include_system=True)
            self._topics_expire = self.clock.monotonic() + self.options.route_refresh_ms / 1000
        return self._topics

    def message_times(
        self, offsets: Mapping[MessageQueue, int], group: str
    ) -> dict[MessageQueue, MessageTimes]:
        """Return the times of the messages at these offsets."""
        return message_times(self, offsets, group=group)

    def stored_at(self, offsets: Mapping[MessageQueue, int], group: str) -> dict[MessageQueue, int]:
        """Return when the messages at exactly these offsets were stored (ms), where there are any."""
        return stored_at(self, offsets, group=group)

    def message_sizes(
        self, offsets: Mapping[MessageQueue, int], group: str, selector: MessageSelector
    ) -> dict[MessageQueue, int]:
        """Return the bytes that an offset brings, by a sample at these offsets."""
        return message_sizes(self, offsets, group=group, selector=selector)


def planning_client(options: ClientOptions) -> PlanningClient:
    """Open the client that plans."""
    return _Client(options)


def queues_to_read(client: PlanningClient, options: SourceOptions) -> tuple[MessageQueue, ...]:
    """Return the queues that the options name and the name servers know now, sorted.

    Raises
    ------
    TopicNotFoundError
        A topic does not exist.
    NameServerError
        No name server answers.
    """
    if options.assign:
        return options.assign
    topics = _topics_to_read(client, options)
    return tuple(sorted(queue for topic in topics for queue in client.read_queues(topic)))


def _topics_to_read(client: PlanningClient, options: SourceOptions) -> tuple[str, ...]:
    pattern = options.topic_pattern
    return options.topics if pattern is None else matching_topics(pattern, client.topics())


def check_filter(client: PlanningClient, queues: Iterable[MessageQueue], options: SourceOptions) -> None:
    """Refuse an ``sqlFilter`` that a broker cannot parse, before anything is read by it.

    A broker without an answer is passed over: whoever pulls from it asks it first, too.

    Raises
    ------
    OptionError
        It does not parse, or a broker does not filter by SQL.
    """
    try:
        client.check_selector_at(queues, options.selector, group=options.group)
    except RocketMQError as error:
        if not error.retriable and not isinstance(error, (NameServerError, TopicNotFoundError)):
            raise
        _LOG.warning("sqlFilter is checked later, a broker does not answer: %s", error)


def resolve_offsets(
    client: PlanningClient,
    policy: StartPolicy,
    queues: Iterable[MessageQueue],
    options: SourceOptions,
    *,
    start_time_ms: int,
    ends: Mapping[MessageQueue, int] | None = None,
) -> dict[MessageQueue, int]:
    """Resolve a policy to one offset a queue.

    Parameters
    ----------
    ends : Mapping, optional
        Max offsets that are known already: "latest" then means the same moment as they do.

    Raises
    ------
    OptionError
        A queue is not listed, or the group has committed nothing and may not fall back.
    RocketMQError
        A broker does not answer.
    """
    queues = tuple(queues)
    strategy = options.starting_timestamp_strategy
    asked = lookups(policy, queues, start_time_ms=start_time_ms, strategy=strategy)
    known = {queue: ends[queue] for queue in asked.max_offsets if ends and queue in ends}
    answers = Answers(
        min_offsets=client.min_offsets(asked.min_offsets) if asked.min_offsets else {},
        max_offsets=known | client.max_offsets(asked.max_offsets - known.keys())
        if asked.max_offsets - known.keys()
        else known,
        committed=client.committed_offsets(options.group, asked.committed) if asked.committed else {},
        timestamps=client.offsets_at(asked.timestamps) if asked.timestamps else {},
    )
    return resolve(policy, queues, answers, strategy=strategy)


def available_ends(client: PlanningClient, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return the max offset of every queue whose broker answers.

    A broker that is away (out of the route, or in it but dead) costs its queues this round, no more: they
    keep their offsets and go on when it is back.

    Raises
    ------
    RocketMQError
        Nobody answers.
    """
    asked = tuple(queues)
    while True:
        try:
            return client.max_offsets(asked)
        except RocketMQError as error:
            away = error.facts.get("broker_name")
            others = tuple(queue for queue in asked if queue.broker_name != away)
            if not error.retriable or not others or len(others) == len(asked):
                raise
            _LOG.warning("broker %s does not answer; its queues wait: %s", away, error)
            asked = others


def patient_ends(
    client: PlanningClient, options: SourceOptions, *, clock: Clock, deadline: Deadline
) -> dict[MessageQueue, int]:
    """Return what `available_ends` does, and go on asking while nobody answers.

    A topic without a route waits too: a name server forgets the topics of a broker that restarts. So do name
    servers that are down: those of a whole cluster that restarts.

    Raises
    ------
    RocketMQError
        Nobody has answered by the deadline.
    """
    while True:
        try:
            return available_ends(client, _queues_with_a_route(client, options))
        except RocketMQError as error:
            may_come_back = error.retriable or isinstance(error, (NameServerError, TopicNotFoundError))
            if deadline.expired or not may_come_back:
                raise
            _LOG.warning("nobody answers, asking again: %s", error)
        clock.sleep(min(_PAUSE_S, deadline.remaining_s))


def _queues_with_a_route(client: PlanningClient, options: SourceOptions) -> tuple[MessageQueue, ...]:
    if options.assign:
        return options.assign
    queues: list[MessageQueue] = []
    missing: list[TopicNotFoundError] = []
    for topic in _topics_to_read(client, options):
        try:
            queues += client.read_queues(topic)
        except TopicNotFoundError as error:
            missing.append(error)
    if missing and not queues:
        raise missing[0]
    for gone in missing:
        _LOG.warning("%s; its queues wait", gone)
    return tuple(queues)


def late_begins(
    client: PlanningClient,
    policy: StartPolicy,
    known: Mapping[MessageQueue, int],
    seen: Iterable[MessageQueue],
    options: SourceOptions,
    *,
    started_at_ms: int,
) -> dict[MessageQueue, int]:
    """Return where the queues begin that a running stream has no position of; without an answer they wait.

    Parameters
    ----------
    known : Mapping
        The stream's positions.
    seen : iterable of MessageQueue
        The queues that there are now.
    started_at_ms : int
        When the stream's start was resolved.
    """
    found = discover(known, seen)
    if not found.new:
        return {}
    late = late_policy(policy, start_time_ms=started_at_ms, grown=found.grown)
    try:
        return resolve_offsets(client, late, found.new, options, start_time_ms=started_at_ms)
    except RocketMQError as error:
        if not error.retriable:
            raise
        _LOG.warning("new queues wait, their begin cannot be asked for now: %s", error)
        return {}


def moved_back(
    client: PlanningClient,
    known: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    *,
    fail_on_data_loss: bool,
) -> dict[MessageQueue, int]:
    """Return where the queues go on that end before their position.

    Raises
    ------
    DataLossError
        There is one, and ``fail_on_data_loss`` is set.
    """
    queues = behind(known, ends)
    if not queues:
        return {}
    mins = client.min_offsets(queues)
    begins = {}
    for queue in queues:
        begins[queue] = decide_moved_back(
            queue,
            known[queue],
            min_offset=mins[queue],
            max_offset=ends[queue],
            fail_on_data_loss=fail_on_data_loss,
        )
        _LOG.warning("%s ends at %d, before its position %d", queue, ends[queue], known[queue])
    return begins


def hidden(known: Iterable[MessageQueue], seen: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
    """Return the known queues that are not seen though their topic is, at their broker: it has fewer now."""
    there = set(seen)
    places = {(queue.topic, queue.broker_name) for queue in there}
    return frozenset(q for q in known if q not in there and (q.topic, q.broker_name) in places)


def check_hidden(
    client: PlanningClient,
    known: Mapping[MessageQueue, int],
    queues: Iterable[MessageQueue],
    *,
    fail_on_data_loss: bool,
) -> None:
    """Tell of `hidden` queues that were not read to their ends.

    Raises
    ------
    DataLossError
        There is one, and ``fail_on_data_loss`` is set.
    """
    for queue, end in client.max_offsets(queues).items():
        unread = decide_hidden(queue, known[queue], max_offset=end, fail_on_data_loss=fail_on_data_loss)
        if unread:
            _LOG.warning("%d messages of %s wait: its topic has fewer read queues now", unread, queue)


def behind(known: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> list[MessageQueue]:
    """Return the queues that end before their position."""
    known = renamed(known, ends, choose=max)
    return [queue for queue, end in ends.items() if end < known.get(queue, end)]
