"""Where a direct stream starts, and where its tasks run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias, assert_never

from pyspark_rocketmq.dstream.ranges import TopicQueueId
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    AtOffsets,
    Earliest,
    GroupOffsets,
    Latest,
    MessageQueue,
    Position,
    StartPolicy,
)

__all__ = [
    "ConsumerStrategy",
    "EarliestStrategy",
    "LatestStrategy",
    "LocationStrategies",
    "LocationStrategy",
    "SpecificOffsetStrategy",
    "Strategy",
    "deal",
    "start_policy",
]

_LATEST: Final = -1
_EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class EarliestStrategy:
    """The group's offset; where there is none, the queue's min offset."""

    def __call__(self) -> Self:
        """Return itself: ``earliest`` and ``earliest()`` are the same, as in Scala and Java."""
        return self


@dataclass(frozen=True, slots=True)
class LatestStrategy:
    """The group's offset; where there is none, the queue's max offset."""

    def __call__(self) -> Self:
        """Return itself: ``latest`` and ``latest()`` are the same."""
        return self


@dataclass(frozen=True, slots=True)
class SpecificOffsetStrategy:
    """The group's offset, or these offsets: always where ``forceSpecial`` is set, else where it has none.

    Parameters
    ----------
    offsets : Mapping
        The next offset to read by queue; -2 is the min offset, -1 the max offset.
    default : int
        For the queues that are not listed: -2 or -1.
    """

    offsets: Mapping[MessageQueue, int]
    default: int = _EARLIEST

    def __post_init__(self) -> None:
        if self.default not in (_LATEST, _EARLIEST):
            raise OptionError("the default is EARLIEST (-2) or LATEST (-1)", default=self.default)
        for queue, offset in self.offsets.items():
            if not isinstance(queue, MessageQueue):
                raise OptionError(
                    "offsets are given by MessageQueue(topic, broker_name, queue_id)", key=queue
                )
            if offset < _EARLIEST:
                raise OptionError("an offset is 0 or more, -1 (latest) or -2 (earliest)", queue=queue)


Strategy: TypeAlias = EarliestStrategy | LatestStrategy | SpecificOffsetStrategy


class ConsumerStrategy:
    """Where a direct stream starts that is not recovered from a checkpoint.

    Examples
    --------
    >>> ConsumerStrategy.specificOffset({MessageQueue("orders", "broker-a", 0): 120}, ConsumerStrategy.LATEST)
    ... # doctest: +ELLIPSIS
    SpecificOffsetStrategy(...)
    """

    LATEST: Final = _LATEST
    EARLIEST: Final = _EARLIEST
    earliest: Final = EarliestStrategy()
    latest: Final = LatestStrategy()

    @staticmethod
    def specificOffset(
        queueToOffset: Mapping[MessageQueue, int], default: int = _EARLIEST
    ) -> SpecificOffsetStrategy:
        """Start at these offsets; see `SpecificOffsetStrategy`."""
        return SpecificOffsetStrategy(dict(queueToOffset), default)


def start_policy(
    strategy: Strategy, committed: Mapping[MessageQueue, int | None], *, force_special: bool
) -> StartPolicy:
    """Return where the queues start, now and those that are found later.

    Parameters
    ----------
    strategy : EarliestStrategy, LatestStrategy or SpecificOffsetStrategy
    committed : Mapping
        The group's offsets of the queues that specific offsets are given for; not used with
        ``force_special``.
    force_special : bool
        Whether specific offsets go before the group's.
    """
    match strategy:
        case EarliestStrategy():
            return GroupOffsets(Earliest())
        case LatestStrategy():
            return GroupOffsets(Latest())
        case SpecificOffsetStrategy(offsets, default):
            rest = Latest() if default == _LATEST else Earliest()
            specific = {queue: _position(offset) for queue, offset in offsets.items()}
            if force_special:
                return AtOffsets(specific, rest)
            stored = {queue: offset for queue, offset in committed.items() if offset is not None}
            return AtOffsets({**specific, **stored}, GroupOffsets(rest))
    assert_never(strategy)


def _position(offset: int) -> Position:
    match offset:
        case -1:
            return Latest()
        case -2:
            return Earliest()
        case _:
            return offset


# --- where tasks run ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocationStrategy:
    """Which host, or executor, should read a queue; Spark may still run a task elsewhere.

    Parameters
    ----------
    hosts : Mapping
        Host names by `MessageQueue`, or by `TopicQueueId` for all brokers; the rest is dealt out evenly over
        the executors, and a stream's queue stays on its executor.
    """

    hosts: Mapping[MessageQueue | TopicQueueId, str] = field(default_factory=dict)

    def __call__(self) -> Self:
        """Return itself: ``PreferConsistent`` and ``PreferConsistent()`` are the same."""
        return self

    def locations(
        self,
        queues: Iterable[MessageQueue],
        executors: Sequence[str],
        before: Mapping[MessageQueue, str] | None = None,
    ) -> dict[MessageQueue, str]:
        """Return where each queue should be read; in local mode only the queues with a host have a place.

        Parameters
        ----------
        queues : iterable of MessageQueue
        executors : sequence of str
            Their locations in a stable order; none in local mode.
        before : Mapping, optional
            An earlier answer: queues stay where they were as far as the shares stay even.
        """
        names = set(queues)
        fixed = {queue: host for queue in names if (host := self._host(queue)) is not None}
        return fixed | deal(names - fixed.keys(), executors, before or {})

    def _host(self, queue: MessageQueue) -> str | None:
        return self.hosts.get(queue) or self.hosts.get(TopicQueueId(queue.topic, queue.queue_id))


def deal(
    queues: AbstractSet[MessageQueue], executors: Sequence[str], before: Mapping[MessageQueue, str]
) -> dict[MessageQueue, str]:
    """Deal queues out over executors: no two shares differ by more than one.

    As few queues move as that allows: if an executor goes, only its queues do; if one comes, only its share.

    Parameters
    ----------
    queues : set of MessageQueue
    executors : sequence of str
    before : Mapping
        Where queues were before.
    """
    if not executors:
        return {}
    kept: dict[str, list[MessageQueue]] = {executor: [] for executor in executors}
    for queue in sorted(queues):
        if (former := before.get(queue)) in kept:
            kept[former].append(queue)
    share, larger = divmod(len(queues), len(executors))
    fullest_first = sorted(executors, key=lambda executor: -len(kept[executor]))
    room = {executor: share + (rank < larger) for rank, executor in enumerate(fullest_first)}
    placed = {queue: executor for executor in executors for queue in kept[executor][: room[executor]]}
    loads = Counter(placed.values())
    for queue in sorted(queues - placed.keys()):
        placed[queue] = min((e for e in executors if loads[e] < room[e]), key=lambda e: loads[e])
        loads[placed[queue]] += 1
    return placed


class LocationStrategies:
    """The location strategies of rocketmq-spark."""

    PreferConsistent: Final = LocationStrategy()

    @staticmethod
    def PreferFixed(hostMap: Mapping[MessageQueue | TopicQueueId, str]) -> LocationStrategy:
        """Read these queues on these hosts."""
        return LocationStrategy(dict(hostMap))
