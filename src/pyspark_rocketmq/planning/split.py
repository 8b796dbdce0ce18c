"""How offset ranges become Spark partitions: large ranges are split, small ones combined.

A function of the ranges and the options only: no cores, no sizes, no clock. A replayed micro-batch must have
the same partitions.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark_rocketmq.model import OffsetRange

__all__ = ["SMALL_RANGE", "split"]

SMALL_RANGE: Final = 32_768
"""Ranges with fewer offsets than this share a partition until it contains about this many.

A Python task costs Spark 30 to 50 ms of CPU before it reads; this many messages of 1 KiB take 100 ms.
"""

_MANY: Final = 16
_MOST_GROWTH: Final = 4
"""With this number of partitions they become larger, up to four times, before there are more of them.

A few small partitions keep the cores of a small read busy; what hundreds of them cost is no longer covered by
reading side by side.
"""


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    partition_per_queue: bool = False,
    small_range: int = SMALL_RANGE,
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Convert ranges to partitions, each a tuple of ranges to read one after the other.

    Every offset is in exactly one partition. Within a partition a queue's messages keep their order, and
    partitions are ordered by their first range, so that the parts of a queue follow one another.

    Parameters
    ----------
    ranges : iterable of OffsetRange
        At most one per queue; empty ranges are omitted.
    min_partitions : int, optional
        Minimum number of partitions, if there are as many messages.
    max_records_per_partition : int, optional
        Maximum offsets per partition.
    partition_per_queue : bool
        One partition per queue, regardless of its size.
    small_range : int
        See `SMALL_RANGE`.
    """
    whole = sorted(r for r in ranges if len(r) > 0)
    if partition_per_queue:
        return tuple((r,) for r in whole)
    enough = max(small_range, min(sum(map(len, whole)) // _MANY, _MOST_GROWTH * small_range))
    counts = _part_counts(whole, min_partitions or 1, max_records_per_partition)
    parts = [part for r, count in zip(whole, counts, strict=True) for part in _cut(r, count)]
    small = [part for part in parts if len(part) < enough]
    partitions: list[tuple[OffsetRange, ...]] = [(part,) for part in parts if len(part) >= enough]
    partitions += _pack(
        small, enough, max_records_per_partition, at_least=(min_partitions or 1) - len(partitions)
    )
    return tuple(sorted(partitions))


def _part_counts(ranges: Sequence[OffsetRange], min_partitions: int, most: int | None) -> list[int]:
    """Return the number of parts of each range: the range with the largest parts is split next."""
    counts = [1 if most is None else -(-len(r) // most) for r in ranges]
    missing = min(min_partitions, sum(map(len, ranges))) - sum(counts)
    by_size = [
        (-_biggest(r, count), index) for index, (r, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(by_size)
    for _ in range(missing):
        _, index = by_size[0]
        counts[index] += 1
        heapq.heapreplace(by_size, (-_biggest(ranges[index], counts[index]), index))
    return counts


def _biggest(r: OffsetRange, count: int) -> int:
    return -(-len(r) // count)


def _cut(r: OffsetRange, count: int) -> list[OffsetRange]:
    """Split a range into parts whose lengths differ by at most one."""
    bounds = [r.from_offset + len(r) * index // count for index in range(count + 1)]
    return [OffsetRange(r.queue, begin, end) for begin, end in itertools.pairwise(bounds)]


def _pack(
    parts: Sequence[OffsetRange], enough: int, most: int | None, *, at_least: int
) -> list[tuple[OffsetRange, ...]]:
    """Distribute small parts evenly over few partitions: each has ``enough``, none is above ``most``."""
    if not parts:
        return []
    wanted = min(len(parts), max(1, at_least, sum(map(len, parts)) // enough))
    bins: list[list[OffsetRange]] = [[] for _ in range(wanted)]
    lightest = [(0, index) for index in range(wanted)]
    for part in sorted(parts, key=lambda part: (-len(part), part)):
        load, index = lightest[0]
        if most is not None and load and load + len(part) > most:
            heapq.heappush(lightest, (len(part), len(bins)))
            bins.append([part])
        else:
            bins[index].append(part)
            heapq.heapreplace(lightest, (load + len(part), index))
    return [tuple(sorted(found)) for found in bins if found]
