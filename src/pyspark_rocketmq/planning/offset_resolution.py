"""From a start (or end) policy to one offset a queue, in two pure steps.

`lookups` says what must be asked of the brokers, so that the caller can ask everything at once; `resolve`
turns the answers into offsets. Neither asks a clock: the moment of the query's start comes in, and callers
keep it, because a moving start must be resolved only once in a query's life.
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
from pyspark_rocketmq.planning.queue_names import renamed

__all__ = ["Answers", "Lookups", "batch_ranges", "check_listed", "late_policy", "lookups", "resolve"]

_SHOWN: Final = 5

_QueuePolicy: TypeAlias = Position | GroupOffsets
_Policy = TypeVar("_Policy", StartPolicy, AtOffsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """What to ask of the brokers; ``timestamps`` are milliseconds since the epoch."""

    min_offsets: frozenset[MessageQueue]
    max_offsets: frozenset[MessageQueue]
    committed: frozenset[MessageQueue]
    timestamps: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the brokers said; every queue of the `Lookups` must be there.

    ``committed`` is None for a queue where the group has committed nothing. ``timestamps`` holds the first
    offset stored at or after the asked time, which is the max offset when there is none.
    """

    min_offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    max_offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    committed: Mapping[MessageQueue, int | None] = field(default_factory=dict)
    timestamps: Mapping[MessageQueue, int] = field(default_factory=dict)


def check_listed(policy: StartPolicy, queues: Collection[MessageQueue]) -> None:
    """Check that what the policy lists is among the queues that the query reads.

    Raises
    ------
    OptionError
        A listed topic or queue is not there; or a queue is not listed and there is no default.
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
    """Return what must be asked to resolve the policy for the queues.

    Parameters
    ----------
    policy : StartPolicy
    queues : iterable of MessageQueue
    start_time_ms : int
        The moment of the query's start; relative times count from it.
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
    """Turn the policy and the answers to its `lookups` into one offset a queue.

    Explicit and committed offsets are returned as they are, also outside of what the queue holds now:
    whether that is data loss is for `planning.gaps` to decide.

    Raises
    ------
    OptionError
        The group has committed nothing and ``groupOffsetReset`` is ``fail``; or a start time lies after the
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
    """Return where queues begin that are first seen while the query runs.

    Such a queue begins where it would have begun had it been seen at the query's start. What moves with
    time (latest, the last messages) is therefore taken at the start's moment: for a queue that is truly new
    this is its min offset, and a broker that was only absent is not read from long before the query.

    Parameters
    ----------
    policy : StartPolicy
        The query's own.
    start_time_ms : int
        The moment of the query's start.
    grown : collection of MessageQueue
        Queues that are certainly newer than the query (see `planning.discovery`): they begin at their min.
    """
    offsets: Mapping[MessageQueue, Position] = {}
    topics: Mapping[str, Position] = {}
    default: Earliest | GroupOffsets | AtTimestamp
    match policy:
        case AtOffsets():
            offsets = {queue: _frozen(p, start_time_ms) for queue, p in policy.offsets.items()}
            topics = {topic: _frozen(p, start_time_ms) for topic, p in policy.topics.items()}
            default = _late_default(policy.default, start_time_ms)
        case _:
            default = _late_default(policy, start_time_ms)
    return AtOffsets({**offsets, **dict.fromkeys(grown, Earliest())}, default, topics)


def batch_ranges(
    starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> tuple[OffsetRange, ...]:
    """Pair a batch's starts and ends into ranges, empty ones left out, in the queues' order.

    Ask the brokers for the ends after the starts: a start by time may be the end of a queue that grows.

    Raises
    ------
    OptionError
        A queue's start lies after its end.
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
    """Return the policy with the names that the queues have: those of a static topic have several.

    Raises
    ------
    OptionError
        Two of its offsets are of one queue, and differ.
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

    return replace(policy, offsets=renamed(policy.offsets, queues, choose=same))


def _of(policy: StartPolicy, queue: MessageQueue) -> _QueuePolicy | None:
    """Return the part of the policy that speaks for the queue."""
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
    """Return what counts when there is no committed offset."""
    return asked.reset if isinstance(asked, GroupOffsets) else asked


def _moment(position: AtTimestamp | Ago, start_time_ms: int) -> int:
    if isinstance(position, Ago):
        return max(0, start_time_ms - position.ago_ms)
    return position.timestamp_ms


def _frozen(position: Position, start_time_ms: int) -> Earliest | AtTimestamp | int:
    match position:
        case int() | Earliest():
            return position
        case Latest() | LastMessages():
            return AtTimestamp(start_time_ms)
        case AtTimestamp() | Ago():
            # A time in the future meant the end of the queue at the start.
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
        case _:  # "fail" too: the user could not have listed a queue that was not there
            return AtTimestamp(start_time_ms)


def _some(names: Iterable[str]) -> str:
    """Join the first few names."""
    all_names = list(names)
    more = len(all_names) - _SHOWN
    return ", ".join(all_names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
