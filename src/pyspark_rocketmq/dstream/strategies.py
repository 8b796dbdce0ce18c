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
    """The group's committed offset; without one, the queue's min offset."""

    def __call__(self) -> Self:
        """Return itself: ``earliest`` and ``earliest()`` are equivalent, as in Scala and Java."""
        return self


@dataclass(frozen=True, slots=True)
class LatestStrategy:
    """The group's committed offset; without one, the queue's max offset."""

    def __call__(self) -> Self:
        """Return itself: ``latest`` and ``latest()`` are equivalent."""
        return self


@dataclass(frozen=True, slots=True)
class SpecificOffsetStrategy:
    """These offsets where the group has no committed offset; with ``forceSpecial``, always these offsets.

    Parameters
    ----------
    offsets : Mapping
        The next offset to read of each queue; -2 is the min offset, -1 the max offset. A queue that does not
        exist is an error, if the stream has ``failOnDataLoss``.
    default : int
        For queues that are not listed: -2 or -1.
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
            if not hasattr(offset, "__index__") or offset < _EARLIEST:
                raise OptionError(
                    "an offset is 0 or more, -1 (latest) or -2 (earliest)", queue=queue, offset=offset
                )


Strategy: TypeAlias = EarliestStrategy | LatestStrategy | SpecificOffsetStrategy


class ConsumerStrategy:
    """Where a direct stream starts without a checkpoint.

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
    """Return where the queues start: those that exist now, and those that appear later.

    Parameters
    ----------
    strategy : EarliestStrategy, LatestStrategy or SpecificOffsetStrategy
    committed : Mapping
        The group's committed offsets of the queues that have specific offsets; not used with
        ``force_special``.
    force_special : bool
        Whether specific offsets override the group's.
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
    """The preferred host or executor of each queue. Spark may still run a task elsewhere.

    Parameters
    ----------
    hosts : Mapping
        Host names by `MessageQueue`, or by `TopicQueueId` for all brokers. The other queues are distributed
        evenly over the executors, and a stream's queue stays on its executor.
    """

    hosts: Mapping[MessageQueue | TopicQueueId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for queue, host in self.hosts.items():
            if not isinstance(queue, MessageQueue | TopicQueueId) or not isinstance(host, str):
                raise OptionError(
                    "hosts are texts, given by MessageQueue(topic, broker_name, queue_id) or "
                    "TopicQueueId(topic, queue_id)",
                    key=queue,
                    host=host,
                )

    def __call__(self) -> Self:
        """Return itself: ``PreferConsistent`` and ``PreferConsistent()`` are equivalent."""
        return self

    def locations(
        self,
        queues: Iterable[MessageQueue],
        executors: Sequence[str],
        before: Mapping[MessageQueue, str] | None = None,
    ) -> dict[MessageQueue, str]:
        """Return where each queue should be read. In local mode, only queues with a host have a location.

        Parameters
        ----------
        queues : iterable of MessageQueue
        executors : sequence of str
            The executors' locations in a stable order; none in local mode.
        before : Mapping, optional
            An earlier result: queues keep their executors as far as the distribution stays even.
        """
        names = set(queues)
        fixed = {queue: host for queue in names if (host := self._host(queue)) is not None}
        return fixed | deal(names - fixed.keys(), executors, before or {})

    def _host(self, queue: MessageQueue) -> str | None:
        return self.hosts.get(queue) or self.hosts.get(TopicQueueId(queue.topic, queue.queue_id))


def deal(
    queues: AbstractSet[MessageQueue], executors: Sequence[str], before: Mapping[MessageQueue, str]
) -> dict[MessageQueue, str]:
    """Distribute queues over executors: no two shares differ by more than one.

    Moves as few queues as that allows: if an executor is removed, only its queues; if one is added, its
    share.

    Parameters
    ----------
    queues : set of MessageQueue
    executors : sequence of str
    before : Mapping
        The previous locations of queues.
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
