"""Request from the brokers the offsets that the planning functions need."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.read.settled_ends import settle_ends
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError, RouteError, TopicNotFoundError
from pyspark_rocketmq.model import MessageQueue, OffsetRange, StartPolicy
from pyspark_rocketmq.offsets.planning_client import (
    OPERATION_TIMEOUT_MS,
    Ends,
    PlanningClient,
)
from pyspark_rocketmq.offsets.queue_lookup import is_outage, retry_until, select_queues, topics_to_read
from pyspark_rocketmq.options import SourceOptions, TimestampStrategy
from pyspark_rocketmq.options.choices import EventTime
from pyspark_rocketmq.planning.data_loss import decide_moved_back, find_shortened
from pyspark_rocketmq.planning.offset_resolution import (
    Answers,
    Lookups,
    batch_ranges,
    late_policy,
    lookups,
    resolve,
)
from pyspark_rocketmq.planning.topics.discovery import discover

__all__ = [
    "Ends",
    "PlanningClient",
    "check_filter",
    "doubt_routes",
    "fetch_available_ends",
    "fetch_running_ends",
    "fetch_start_ends",
    "find_late_begins",
    "find_moved_back",
    "resolve_batch",
    "resolve_offsets",
    "wait_for_ends",
    "whole_topics",
]

_LOG: Final = logging.getLogger(__name__)


def check_filter(client: PlanningClient, queues: Iterable[MessageQueue], options: SourceOptions) -> None:
    """Reject an ``sqlFilter`` that a broker cannot parse, before messages are read with it.

    A broker that does not answer is skipped: tasks repeat the check before they pull from it.

    Raises
    ------
    OptionError
        The filter cannot be parsed, or a broker does not support SQL filters.
    """
    try:
        client.check_selector_at(queues, options.selector, group=options.group)
    except RocketMQError as error:
        if not is_outage(error):
            raise
        text = "sqlFilter is checked later, a broker does not answer: %s"
        client.warnings.warn(_LOG, text, error, about=type(error))


def resolve_offsets(
    client: PlanningClient,
    policy: StartPolicy,
    queues: Iterable[MessageQueue],
    options: SourceOptions,
    *,
    start_time_ms: int,
    ends: Mapping[MessageQueue, int] | None = None,
    strategy: TimestampStrategy | None = None,
) -> dict[MessageQueue, int]:
    """Resolve a policy to one offset per queue.

    Parameters
    ----------
    ends : Mapping, optional
        Max offsets that are already known: "latest" then resolves to them.
    strategy : TimestampStrategy, optional
        By default that of the options.

    Raises
    ------
    OptionError
        A queue is not listed, or the group has no committed offset and no fallback is allowed.
    RocketMQError
        A broker does not answer.
    """
    queues = tuple(queues)
    strategy = strategy or options.bounds.starting_timestamp_strategy
    asked = lookups(policy, queues, start_time_ms=start_time_ms, strategy=strategy)
    answers = _look_up_all_but_ends(client, asked, options)
    known = {queue: ends[queue] for queue in asked.max_offsets if ends and queue in ends}
    unknown = asked.max_offsets - known.keys()
    maxs = known | (client.max_offsets(sorted(unknown)) if unknown else {})
    return resolve(policy, queues, replace(answers, max_offsets=maxs), strategy=strategy)


def resolve_batch(
    client: PlanningClient,
    start: StartPolicy,
    end: StartPolicy,
    queues: Iterable[MessageQueue],
    options: SourceOptions,
    *,
    start_time_ms: int,
    clock: Clock,
) -> tuple[OffsetRange, ...]:
    """Resolve both ends of a batch, the starts first, since queues grow meanwhile.

    "latest" and "the last n messages" refer to the same time at both ends. An end time after a queue's last
    message is the queue's end, whatever ``startingOffsetsByTimestampStrategy`` says.

    Raises
    ------
    DataLossError
        A queue ends before the group's offset, and ``failOnDataLoss`` is set.
    OptionError
        As `resolve_offsets`; or a start is after its end.
    RocketMQError
        A broker does not answer.
    """
    queues = tuple(queues)
    strategy = options.bounds.starting_timestamp_strategy
    before = lookups(start, queues, start_time_ms=start_time_ms, strategy=strategy)
    after = lookups(end, queues, start_time_ms=start_time_ms)
    begins = _look_up_all_but_ends(client, before, options)
    wanted = before.max_offsets | after.max_offsets
    maxs = client.max_offsets(sorted(wanted)) if wanted else {}
    finishes = _look_up_all_but_ends(client, after, options)
    starts = resolve(start, queues, replace(begins, max_offsets=maxs), strategy=strategy)
    ends = resolve(end, queues, replace(finishes, max_offsets=maxs))
    read = {q: at for q, at in begins.committed.items() if at is not None and ends[q] == maxs.get(q)}
    told = {queue: ends[queue] for queue in read}
    settled = settle_ends(told, read, partial(client.max_offsets, read), clock)
    moved = find_moved_back(client.min_offsets, read, settled, fail_on_data_loss=options.fail_on_data_loss)
    return batch_ranges({**starts, **moved}, {**ends, **settled})


def _look_up_all_but_ends(client: PlanningClient, asked: Lookups, options: SourceOptions) -> Answers:
    """Request everything but max offsets: they come last, else a start by time may be after them."""
    return Answers(
        min_offsets=client.min_offsets(sorted(asked.min_offsets)) if asked.min_offsets else {},
        committed=client.committed_offsets(options.group, sorted(asked.committed)) if asked.committed else {},
        timestamps=client.offsets_at(asked.timestamps) if asked.timestamps else {},
    )


def fetch_available_ends(client: PlanningClient, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return the max offset of every queue whose broker answers, at the start of a query.

    The queues of a broker that is down (in the route or not) are omitted from this round only: they keep
    their offsets and continue when it returns. All brokers together have 10 s.

    Raises
    ------
    RocketMQError
        No broker answers, or a broker rejects the request.
    """
    ends = client.ends(queues, patience_ms=OPERATION_TIMEOUT_MS)
    _check_answered(ends, lambda error: error.retriable)
    return dict(ends.masters)


def fetch_start_ends(client: PlanningClient, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return what `fetch_available_ends` does, for the queues that get the first positions of a query.

    Raises
    ------
    RocketMQError
        As `fetch_available_ends`.
    """
    queues = tuple(queues)
    there = fetch_available_ends(client, queues)
    return whole_topics(there, [queue for queue in queues if queue not in there])


def whole_topics(ends: Mapping[MessageQueue, int], failed: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return the ends without those of a topic at a broker that answered for some of its queues only.

    A queue that is known later than others of its topic and broker was created later (`discover`).
    """
    partly = {(queue.topic, queue.broker_name) for queue in failed if not queue.logical}
    return {queue: end for queue, end in ends.items() if (queue.topic, queue.broker_name) not in partly}


def fetch_running_ends(
    client: PlanningClient, options: SourceOptions, *, patience_ms: float | None = None
) -> Ends:
    """Return where the queues of a running stream end, without waiting for brokers that are down.

    Slaves replace masters, unless queues are aligned by event time: messages that a slave lacks are backlog,
    too.

    Parameters
    ----------
    patience_ms : float, optional
        How long to wait for a broker that answered the previous request.

    Raises
    ------
    RocketMQError
        No broker answers, or a broker rejects the request.
    """
    group = options.group if options.event_time_alignment is EventTime.OFF else None
    queues = _queues_with_a_route(client, options)
    ends = client.ends(queues, patience_ms=patience_ms, slave_group=group)
    _check_answered(ends, is_outage)  # with `assign`, a topic whose only broker is down is not left out above
    if options.assign:
        _warn_of_absent(client, [queue for queue, end in ends.masters.items() if not end])
    return ends


def _warn_of_absent(client: PlanningClient, empty: Collection[MessageQueue]) -> None:
    """Warn of queues that their topic does not have. A topic may get them: a stream waits for their rows."""
    there: set[MessageQueue] = set()
    for topic in sorted({queue.topic for queue in empty}):
        try:
            there.update(client.read_queues(topic))
        except RouteError:  # name servers are down, and brokers work without them
            continue
    brokers = {(queue.topic, queue.broker_name) for queue in there}
    for queue in sorted(set(empty) - there):
        if (queue.topic, queue.broker_name) in brokers:
            known = ", ".join(str(each) for each in sorted(there) if each.topic == queue.topic)
            text = "assign names %s, which the topic does not have, and its rows are waited for; there are %s"
            client.warnings.warn(_LOG, text, queue, known, about=queue)


def _check_answered(ends: Ends, may_come_back: Callable[[RocketMQError], bool]) -> None:
    for error in ends.failed.values():
        if not may_come_back(error) or not ends.readable:
            raise error


def wait_for_ends(
    client: PlanningClient,
    options: SourceOptions,
    *,
    clock: Clock,
    deadline: Deadline,
    patience_ms: float | None = None,
) -> Ends:
    """Return what `fetch_running_ends` does, and retry during an outage (`is_outage`).

    Raises
    ------
    RocketMQError
        No broker has answered by the deadline.
    """
    return retry_until(
        lambda: fetch_running_ends(client, options, patience_ms=patience_ms),
        is_outage,
        clock=clock,
        deadline=deadline,
    )


def _queues_with_a_route(client: PlanningClient, options: SourceOptions) -> tuple[MessageQueue, ...]:
    if options.assign:
        return select_queues(options.assign, options)
    queues: list[MessageQueue] = []
    missing: list[RocketMQError] = []
    topics = topics_to_read(client, options)
    client.look_up(topics)
    for topic in topics:
        try:
            queues += client.read_queues_again(topic)
        except (TopicNotFoundError, BrokerNotFoundError) as error:  # the other topics do not wait for it
            missing.append(error)
    if missing and not queues:
        raise missing[0]
    for gone in missing:  # at each look of a query, perhaps for days
        client.warnings.warn(_LOG, "%s; its queues wait", gone, about=gone.facts.get("topic"))
    return select_queues(queues, options)


def find_late_begins(
    client: PlanningClient,
    policy: StartPolicy,
    known: Mapping[MessageQueue, int],
    seen: Mapping[MessageQueue, int],
    options: SourceOptions,
    *,
    missing: Iterable[MessageQueue],
    started_at_ms: int,
    brokers: Collection[str],
    first_topics: Callable[[str], bool],
) -> dict[MessageQueue, int]:
    """Return where queues without a position in a running stream begin. Without an answer, they wait.

    Parameters
    ----------
    known : Mapping
        The stream's positions.
    seen : Mapping
        The ends of the queues that answer now.
    missing : iterable of MessageQueue
        Other queues of the topics: others of their broker without a position wait for them.
    started_at_ms : int
        The time at which the stream's start was resolved.
    brokers : collection of str
        The brokers whose topics were all known at that time.
    first_topics : Callable
        Whether a topic was read at that time.
    """
    whole = whole_topics(seen, [queue for queue in missing if queue not in known])
    found = discover(known, whole, brokers=brokers)
    if not found.new:
        return {}
    late = late_policy(policy, start_time_ms=started_at_ms, grown=found.grown)
    # A topic created later has no messages older than the start, whatever the driver's clock says.
    newer = late_policy(policy, start_time_ms=0)
    created = tuple(queue for queue in found.created if first_topics(queue.topic))
    others = tuple(queue for queue in found.new if queue not in created)
    resolve_late = partial(resolve_offsets, client, strategy=TimestampStrategy.LATEST)  # it may be empty
    begins: dict[MessageQueue, int] = {}
    for name in sorted({queue.broker_name for queue in found.new}):  # a broker delays no queue of another
        try:
            begins |= {
                **resolve_late(late, _at(name, others), options, start_time_ms=started_at_ms),
                **resolve_late(newer, _at(name, created), options, start_time_ms=0),
            }
        except RocketMQError as error:
            if not error.retriable:
                raise
            text = "new queues wait: their first offset is unknown now: %s"
            client.warnings.warn(_LOG, text, error, about=(name, type(error)))
    return begins


def _at(broker_name: str, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
    return tuple(queue for queue in queues if queue.broker_name == broker_name)


def find_moved_back(
    look_up: Callable[[Sequence[MessageQueue]], Mapping[MessageQueue, int]],
    known: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    *,
    fail_on_data_loss: bool,
) -> dict[MessageQueue, int]:
    """Return where queues continue that end before their position.

    Parameters
    ----------
    look_up : Callable
        Returns the min offsets of queues. Those that it leaves out wait.
    known : Mapping
        The positions.
    ends : Mapping
        The ends as masters report them.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        Such a queue exists, and ``fail_on_data_loss`` is set.
    """
    queues = find_shortened(known, ends)
    if not queues:
        return {}
    mins, begins = look_up(queues), {}
    for queue in queues:
        if queue not in mins:
            _LOG.warning("%s ends before its position and waits: its broker does not answer", queue)
            continue
        begins[queue] = decide_moved_back(
            queue,
            known[queue],
            min_offset=mins[queue],
            max_offset=ends[queue],
            fail_on_data_loss=fail_on_data_loss,
        )
        _LOG.warning("%s ends at %d, before its position %d", queue, ends[queue], known[queue])
    return begins


def doubt_routes(client: PlanningClient, shortened: Iterable[MessageQueue]) -> None:
    """Have routes looked up again that show such queues: brokers report the end 0 for a deleted topic."""
    for topic in {queue.topic for queue in shortened}:
        client.invalidate(topic)
