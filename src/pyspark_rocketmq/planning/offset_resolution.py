"""Resolves a start (or end) policy to one offset per queue, in two pure steps.

`lookups` returns the requests for the brokers, so that the caller can send them together; `resolve` converts
the answers to offsets. Neither uses a clock: the time of the query's start is an argument, and callers keep
it, because a relative start must be resolved only once in a query's life.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar, assert_never

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    Ago,
    AtOffsets,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    LastMessages,
    Latest,
    MessageQueue,
    OffsetRange,
    Position,
    StartPolicy,
)
from pyspark_rocketmq.options import TimestampStrategy
from pyspark_rocketmq.planning.topics.queue_names import rename_queues

__all__ = ["Answers", "Lookups", "batch_ranges", "check_listed", "late_policy", "lookups", "resolve"]

_SHOWN: Final = 5

_QueuePolicy: TypeAlias = Position | GroupOffsets
_Policy = TypeVar("_Policy", StartPolicy, AtOffsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """The requests for the brokers; ``timestamps`` are milliseconds since the epoch."""

    min_offsets: frozenset[MessageQueue]
    max_offsets: frozenset[MessageQueue]
    committed: frozenset[MessageQueue]
    timestamps: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The brokers' answers, for every queue of the `Lookups`.

    ``committed`` is None for a queue where the group has committed nothing. ``timestamps`` contains the first
    offset stored at or after the requested time, or the max offset if there is none.
    """

    min_offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    max_offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    committed: Mapping[MessageQueue, int | None] = field(default_factory=dict)
    timestamps: Mapping[MessageQueue, int] = field(default_factory=dict)


def check_listed(policy: StartPolicy, queues: Collection[MessageQueue]) -> None:
    """Check that the query reads the topics and queues that the policy lists.

    Raises
    ------
    OptionError
        A listed topic or queue does not exist; or a queue is not listed and there is no default.
    """
    if not isinstance(policy, AtOffsets):
        return
    there = set(queues)
    policy = _named_as(policy, there)
    topics = {queue.topic for queue in there}
    strangers = [topic for topic in policy.topics if topic not in topics]
    strangers += [str(queue) for queue in policy.offsets if queue not in there]
    if strangers:
        raise OptionError(
            f"offsets are given for {_some(strangers)}, which the query does not read or which do not exist "
            f"now (is the broker up?); it reads {_some(map(str, sorted(there)))}"
        )
    unlisted = [str(queue) for queue in sorted(there) if _of(policy, queue) is None]
    if unlisted:
        raise OptionError(
            f"no offset is given for {_some(unlisted)}: list every queue, or say where the others begin or "
            "end with startingOffsetsDefault or endingOffsetsDefault (earliest, latest, group)"
        )


def lookups(
    policy: StartPolicy,
    queues: Iterable[MessageQueue],
    *,
    start_time_ms: int,
    strategy: TimestampStrategy = TimestampStrategy.LATEST,
) -> Lookups:
    """Return the requests that are needed to resolve the policy for the queues.

    Parameters
    ----------
    policy : StartPolicy
    queues : iterable of MessageQueue
    start_time_ms : int
        The time of the query's start; relative times refer to it.
    strategy : TimestampStrategy
        ERROR also needs the max offsets of the queues that start by time.

    Raises
    ------
    OptionError
        A queue is not listed and the policy has no default.
    """
    queues = tuple(queues)
    policy = _named_as(policy, queues)
    mins: set[MessageQueue] = set()
    maxs: set[MessageQueue] = set()
    committed: set[MessageQueue] = set()
    timestamps: dict[MessageQueue, int] = {}
    for queue in queues:
        asked = _demand(policy, queue)
        if isinstance(asked, GroupOffsets):
            committed.add(queue)
        match _fallback(asked):
            case Earliest():
                mins.add(queue)
            case Latest():
                maxs.add(queue)
            case LastMessages():
                mins.add(queue)
                maxs.add(queue)
            case AtTimestamp() | Ago() as position:
                timestamps[queue] = _moment(position, start_time_ms)
                if strategy is TimestampStrategy.ERROR:
                    maxs.add(queue)
            case int() | None:
                pass
            case position:
                assert_never(position)
    return Lookups(
        min_offsets=frozenset(mins),
        max_offsets=frozenset(maxs),
        committed=frozenset(committed),
        timestamps=timestamps,
    )


def resolve(
    policy: StartPolicy,
    queues: Iterable[MessageQueue],
    answers: Answers,
    *,
    strategy: TimestampStrategy = TimestampStrategy.LATEST,
) -> dict[MessageQueue, int]:
    """Resolve the policy and the answers to its `lookups` to one offset per queue.

    Explicit and committed offsets are returned unchanged, even outside the queue's current offsets:
    `planning.data_loss` decides whether that is data loss.

    Raises
    ------
    OptionError
        The group has committed nothing and ``groupOffsetReset`` is ``fail``; or a start time is after the
        last message and the strategy is ERROR.
    """
    queues = tuple(queues)
    policy = _named_as(policy, queues)
    offsets: dict[MessageQueue, int] = {}
    uncommitted: list[MessageQueue] = []
    beyond: list[MessageQueue] = []
    for queue in queues:
        asked = _demand(policy, queue)
        committed = answers.committed[queue] if isinstance(asked, GroupOffsets) else None
        match committed if committed is not None else _fallback(asked):
            case int() as offset:
                offsets[queue] = offset
            case Earliest():
                offsets[queue] = answers.min_offsets[queue]
            case Latest():
                offsets[queue] = answers.max_offsets[queue]
            case LastMessages(count):
                offsets[queue] = max(answers.min_offsets[queue], answers.max_offsets[queue] - count)
            case AtTimestamp() | Ago():
                offsets[queue] = answers.timestamps[queue]
                if strategy is TimestampStrategy.ERROR and offsets[queue] >= answers.max_offsets[queue]:
                    beyond.append(queue)
            case None:
                uncommitted.append(queue)
            case position:
                assert_never(position)
    if uncommitted:
        raise OptionError(
            f"the group has committed no offset for {_some(map(str, uncommitted))} and groupOffsetReset is "
            "fail: set it to earliest or latest"
        )
    if beyond:
        raise OptionError(
            f"no message at or after the start time in {_some(map(str, beyond))}: choose an earlier time, "
            "or set startingOffsetsByTimestampStrategy=latest to start at the end"
        )
    return offsets


def late_policy(
    policy: StartPolicy, *, start_time_ms: int, grown: Collection[MessageQueue] = ()
) -> AtOffsets:
    """Return where queues begin that first appear while the query runs.

    Such a queue begins where it would have begun at the query's start. So relative positions (latest, the
    last messages) refer to the time of the start. For a new queue this is its min offset. A queue of a broker
    that was only down is not read from long before the query.

    Parameters
    ----------
    policy : StartPolicy
        The query's policy.
    start_time_ms : int
        The time of the query's start.
    grown : collection of MessageQueue
        Queues that are certainly newer than the query (see `planning.discovery`): they begin at min offset.
    """
    offsets: Mapping[MessageQueue, Position] = {}
    topics: Mapping[str, Position] = {}
    default: Earliest | GroupOffsets | AtTimestamp
    match policy:
        case AtOffsets():
            offsets = {queue: _freeze(p, start_time_ms) for queue, p in policy.offsets.items()}
            topics = {topic: _freeze(p, start_time_ms) for topic, p in policy.topics.items()}
            default = _late_default(policy.default, start_time_ms)
        case _:
            default = _late_default(policy, start_time_ms)
    return AtOffsets({**offsets, **dict.fromkeys(grown, Earliest())}, default, topics)


def batch_ranges(
    starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> tuple[OffsetRange, ...]:
    """Combine a batch's starts and ends to non-empty ranges, in the queues' order.

    Request the ends after the starts: a start by time may be the end of a growing queue.

    Raises
    ------
    OptionError
        A queue's start is after its end.
    """
    wrong = [
        f"{queue} from {starts[queue]} to {ends[queue]}"
        for queue in sorted(starts)
        if starts[queue] > ends[queue]
    ]
    if wrong:
        raise OptionError(f"a batch would start after its end: {_some(wrong)}")
    return tuple(
        OffsetRange(queue, starts[queue], ends[queue])
        for queue in sorted(starts)
        if starts[queue] < ends[queue]
    )


def _named_as(policy: _Policy, queues: Iterable[MessageQueue]) -> _Policy:
    """Return the policy with the queues' current names: queues of a static topic have several names.

    Raises
    ------
    OptionError
        Two different offsets are set for one queue.
    """
    if not isinstance(policy, AtOffsets) or not policy.offsets:
        return policy

    def same(one: Position, other: Position) -> Position:
        if one != other:
            raise OptionError(
                "two offsets are given for one queue of a static topic, under the names of two brokers: its "
                f"queues are those of the topic, whatever the broker ({one}, {other})"
            )
        return one

    return replace(policy, offsets=rename_queues(policy.offsets, queues, choose=same))


def _of(policy: StartPolicy, queue: MessageQueue) -> _QueuePolicy | None:
    """Return the part of the policy that applies to the queue."""
    if not isinstance(policy, AtOffsets):
        return policy
    if queue in policy.offsets:
        return policy.offsets[queue]
    return policy.topics.get(queue.topic, policy.default)


def _demand(policy: StartPolicy, queue: MessageQueue) -> _QueuePolicy:
    position = _of(policy, queue)
    if position is None:
        raise OptionError("no offset is given for a queue and there is no default", queue=queue)
    return position


def _fallback(asked: _QueuePolicy) -> Position | None:
    """Return the position that applies without a committed offset."""
    return asked.reset if isinstance(asked, GroupOffsets) else asked


def _moment(position: AtTimestamp | Ago, start_time_ms: int) -> int:
    if isinstance(position, Ago):
        return max(0, start_time_ms - position.ago_ms)
    return position.timestamp_ms


def _freeze(position: Position, start_time_ms: int) -> Earliest | AtTimestamp | int:
    match position:
        case int() | Earliest():
            return position
        case Latest() | LastMessages():
            return AtTimestamp(start_time_ms)
        case AtTimestamp() | Ago():
            # At the start, a time in the future meant the end of the queue.
            return AtTimestamp(min(start_time_ms, _moment(position, start_time_ms)))
    assert_never(position)


def _late_default(policy: _QueuePolicy | None, start_time_ms: int) -> Earliest | GroupOffsets | AtTimestamp:
    match policy:
        case Earliest() | GroupOffsets(Earliest()):
            return policy
        case GroupOffsets():
            return GroupOffsets(AtTimestamp(start_time_ms))
        case AtTimestamp() | Ago():
            return AtTimestamp(min(start_time_ms, _moment(policy, start_time_ms)))
        case _:  # "fail", too: the user could not have listed a queue that did not exist
            return AtTimestamp(start_time_ms)


def _some(names: Iterable[str]) -> str:
    """Join the first few names."""
    all_names = list(names)
    more = len(all_names) - _SHOWN
    return ", ".join(all_names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
