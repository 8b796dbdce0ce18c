"""Offset ranges as rocketmq-spark's users know them: by (topic, queue id), and by Spark partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark import RDD

from pyspark_rocketmq.errors import NoOffsetRangesError, OptionError
from pyspark_rocketmq.model import OffsetRange

__all__ = ["CanCommitOffsets", "HasOffsetRanges", "OffsetRanges", "RangesLike", "TopicQueueId", "to_ranges"]


@dataclass(frozen=True, slots=True, order=True)
class TopicQueueId:
    """A queue id of a topic, over all brokers: what rocketmq-spark calls a partition."""

    topic: str
    queue_id: int


class OffsetRanges(tuple[OffsetRange, ...]):
    """The ranges of an RDD: the i-th is what Spark's partition i reads.

    Empty ranges come last and have no partition. Plain values: they travel into tasks with a closure.

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
        """Return the ranges of a queue id, one a broker; none if the RDD has no such queue."""
        return tuple(r for r in self if (r.topic, r.queue_id) == (key.topic, key.queue_id))

    def toDict(self) -> dict[TopicQueueId, list[OffsetRange]]:
        """Return the form of rocketmq-spark: the ranges by (topic, queue id)."""
        found: dict[TopicQueueId, list[OffsetRange]] = {}
        for r in self:
            found.setdefault(TopicQueueId(r.topic, r.queue_id), []).append(r)
        return found

    @property
    def planned(self) -> int:
        """How many offsets there are in all."""
        return sum(map(len, self))


RangesLike: TypeAlias = Iterable[OffsetRange] | Mapping[TopicQueueId, Sequence[OffsetRange]]


def to_ranges(given: RangesLike) -> OffsetRanges:
    """Bring ranges into the order of the partitions: as given, empty ones last.

    Raises
    ------
    OptionError
        A key of the mapping names another topic or queue id than its ranges.
    """
    if isinstance(given, Mapping):
        for key, ranges in given.items():
            for found in ranges:
                if (found.topic, found.queue_id) != (key.topic, key.queue_id):
                    raise OptionError("a range is filed under another queue", range=found, key=key)
        flat = [found for ranges in given.values() for found in ranges]
    else:
        flat = list(given)
    return OffsetRanges(sorted(flat, key=lambda found: len(found) == 0))


class HasOffsetRanges(ABC):
    """An RDD that knows which messages it consists of."""

    @property
    @abstractmethod
    def offsetRanges(self) -> OffsetRanges:
        """The ranges, in the order of the partitions."""


class CanCommitOffsets(ABC):
    """A stream whose progress can be committed to the brokers."""

    @abstractmethod
    def commitAsync(self, offsetRanges: RangesLike, callback: Any = None) -> None:
        """Commit the ends of the ranges for the stream's group, in the background."""


def explain_missing_ranges() -> None:
    """Let ``offsetRanges`` of RDDs that have none say why, as PySpark adds ``toDF`` to RDDs."""

    def offset_ranges(rdd: RDD[Any]) -> OffsetRanges:
        raise NoOffsetRangesError(
            "this RDD does not know its offset ranges any more: take them in the first transform or "
            "foreachRDD of the stream that createMQPullStream returned, or from what createRDD returned. "
            "Every further step makes an RDD whose partitions may mix queues",
            rdd=type(rdd).__name__,
        )

    RDD.offsetRanges = property(offset_ranges)  # type: ignore[attr-defined]
