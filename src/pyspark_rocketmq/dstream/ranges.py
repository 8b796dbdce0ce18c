"""Offset ranges as in rocketmq-spark: by (topic, queue id), and by Spark partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark import TaskContext

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, OffsetRange

__all__ = [
    "CanCommitOffsets",
    "HasOffsetRanges",
    "OffsetRanges",
    "RangesLike",
    "TopicQueueId",
    "reads_now",
    "to_ranges",
]


@dataclass(frozen=True, slots=True, order=True)
class TopicQueueId:
    """A queue id of a topic, at all brokers: a partition in rocketmq-spark's terms."""

    topic: str
    queue_id: int


class OffsetRanges(tuple[OffsetRange, ...]):
    """The ranges of an RDD: Spark's partition i reads the i-th range.

    Empty ranges come last and have no partition. Picklable, so that closures may contain them.

    Examples
    --------
    >>> ranges = OffsetRanges([OffsetRange.create("orders", 1, "broker-a", 0, 100)])
    >>> ranges[0].until_offset
    100
    >>> [str(found) for found in ranges.get(TopicQueueId("orders", 1))]
    ['orders@broker-a:1[0, 100)']
    """

    __slots__ = ()

    def get(self, key: TopicQueueId) -> tuple[OffsetRange, ...]:
        """Return the ranges of a queue id, one per broker; none if the RDD has no such queue.

        Raises
        ------
        OptionError
            A task looks up its range by its partition's number, as in rocketmq-spark's README, but reads
            another queue.
        """
        _check_look_up(self, key)
        return _ranges_of(self, key)

    def toDict(self) -> dict[TopicQueueId, list[OffsetRange]]:
        """Return the ranges by (topic, queue id), as in rocketmq-spark."""
        found: dict[TopicQueueId, list[OffsetRange]] = {}
        for r in self:
            found.setdefault(TopicQueueId(r.topic, r.queue_id), []).append(r)
        return found

    @property
    def planned(self) -> int:
        """The number of offsets in all ranges."""
        return sum(map(len, self))

    @property
    def ends(self) -> dict[MessageQueue, int]:
        """Where each queue ends: the last end of its ranges, which may be of several batches."""
        ends: dict[MessageQueue, int] = {}
        for found in self:
            ends[found.queue] = max(found.until_offset, ends.get(found.queue, 0))
        return ends


RangesLike: TypeAlias = Iterable[OffsetRange] | Mapping[TopicQueueId, Sequence[OffsetRange]]


def to_ranges(given: RangesLike) -> OffsetRanges:
    """Sort ranges into the order of the partitions: as given, empty ones last.

    Raises
    ------
    OptionError
        They are no ranges, or a key of the mapping has another topic or queue id than its ranges.
    """
    if isinstance(given, Mapping):
        flat: list[OffsetRange] = []
        for key, ranges in given.items():
            if not isinstance(key, TopicQueueId):
                raise OptionError("ranges are filed under TopicQueueId(topic, queue_id)", key=key)
            for found in _checked(ranges):
                flat.append(found)
                if (found.topic, found.queue_id) != (key.topic, key.queue_id):
                    raise OptionError(
                        "a range is filed under another queue: the first two arguments of OffsetRange.create "
                        "are the topic (not the group, as rocketmq-spark's README has it) and the queue id",
                        range=found,
                        key=key,
                    )
    else:
        flat = _checked(given)
    return OffsetRanges(sorted(flat, key=lambda found: len(found) == 0))


def _checked(given: Any) -> list[OffsetRange]:
    """Return ranges as a list. Raises an OptionError for anything else, such as one range alone."""
    flat = list(given) if isinstance(given, Iterable) else [given]
    if not isinstance(given, Iterable) or not all(isinstance(found, OffsetRange) for found in flat):
        wrong = next((found for found in flat if not isinstance(found, OffsetRange)), given)
        raise OptionError(
            "offset ranges are a list of OffsetRange.create(topic, queue_id, broker_name, from, until)",
            given=wrong,
        )
    return flat


_reading: tuple[int, OffsetRange] | None = None
"""The task attempt that runs in this process (its id), and the range that it reads."""


def reads_now(ranges: Sequence[OffsetRange]) -> None:
    """Record the range that the task of this process reads."""
    global _reading  # noqa: PLW0603 - a Python worker runs one task at a time
    context = TaskContext.get()
    if context is not None and len(ranges) == 1:
        _reading = context.taskAttemptId(), ranges[0]


def _check_look_up(ranges: OffsetRanges, key: TopicQueueId) -> None:
    """Reject the lookup of rocketmq-spark's README where it would return another queue's range.

    Partition numbers skip queues without new messages, and count the queues of all brokers.
    """
    context = TaskContext.get()
    if context is None or _reading is None or context.partitionId() != key.queue_id:
        return
    attempt, mine = _reading
    if attempt == context.taskAttemptId() and mine in ranges and mine not in _ranges_of(ranges, key):
        raise OptionError(
            "a partition's number is no queue id. The range of this task is "
            "offsetRanges[TaskContext.get().partitionId()]",
            partition=context.partitionId(),
            reads=mine,
            asked=key,
        )


def _ranges_of(ranges: Iterable[OffsetRange], key: TopicQueueId) -> tuple[OffsetRange, ...]:
    return tuple(r for r in ranges if (r.topic, r.queue_id) == (key.topic, key.queue_id))


class HasOffsetRanges(ABC):
    """An RDD with offset ranges."""

    @property
    @abstractmethod
    def offsetRanges(self) -> OffsetRanges:
        """The ranges, in the order of the partitions."""


class CanCommitOffsets(ABC):
    """A stream whose offsets can be committed to the brokers."""

    @abstractmethod
    def commitAsync(self, offsetRanges: RangesLike, callback: Any = None) -> None:
        """Commit the ends of the ranges for the stream's group, in the background."""
