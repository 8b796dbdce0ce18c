"""Which offsets are rows, by the records of a commit topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.planning.commits.records import Abort, Begin, Commit, Ranges, Record

__all__ = [
    "HOLD_MS",
    "MAX_SPAN",
    "Entry",
    "clip",
    "expand",
    "find_holds",
    "find_open",
    "is_valid",
    "join",
    "listed",
    "shrink",
]
__all__ += ["subtract"]

MAX_SPAN: Final = 10_000
"""The number of records after ``since`` from which on a commit is void: bounds what a reader must look at."""

HOLD_MS: Final = 60_000
"""For how long unmarked messages wait for a batch that has begun. A longer one is read in part twice."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record at its offset in the commit topic, and when it was stored (ms since the epoch)."""

    offset: int
    stored_at_ms: int
    record: Record


def is_valid(offset: int, commit: Commit, others: Iterable[Entry]) -> bool:
    """Return whether a commit decides its batch: it is the first, and not long after its ``since``.

    Parameters
    ----------
    offset : int
        Where the commit is in the commit topic.
    commit : Commit
    others : iterable of Entry
        All records from ``commit.since`` up to ``offset``, at least; others do not matter.
    """
    if offset - commit.since > MAX_SPAN:
        return False
    return not any(
        commit.since <= other.offset < offset
        and isinstance(other.record, Commit)
        and other.record.owner == commit.owner
        and other.record.number >= commit.number
        and other.offset - other.record.since <= MAX_SPAN
        for other in others
    )


def find_open(entries: Iterable[Entry]) -> list[Entry]:
    """Return the `Begin` of each batch that is neither committed nor aborted."""
    begun: list[Entry] = []
    for entry in entries:
        match entry.record:
            case Begin():
                begun.append(entry)
            case Commit() | Abort() as decision:
                begun = [each for each in begun if not _ends(decision, each.record)]
    return begun


def find_holds(begun: Iterable[Entry]) -> dict[MessageQueue, int]:
    """Return where the messages of batches begin that will soon be committed."""
    holds: dict[MessageQueue, int] = {}
    for each in begun:
        if isinstance(each.record, Begin):
            for queue, end in each.record.ends.items():
                holds[queue] = min(end, holds.get(queue, end))
    return holds


def _ends(decision: Commit | Abort, begin: Record) -> bool:
    return begin.owner == decision.owner and begin.number <= decision.number


# --- ranges -------------------------------------------------------------------------------------


def join(parts: Iterable[Ranges]) -> dict[MessageQueue, tuple[tuple[int, int], ...]]:
    """Return the union of ranges, in order, adjacent ones joined."""
    pieces: dict[MessageQueue, list[tuple[int, int]]] = {}
    for part in parts:
        for queue, ranges in part.items():
            pieces.setdefault(queue, []).extend(ranges)
    return {queue: _join(ranges) for queue, ranges in pieces.items() if ranges}


def _join(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    ranges.sort()
    joined: list[tuple[int, int]] = []
    low = high = -1
    for begin, end in ranges:
        if begin > high:
            if low < high:
                joined.append((low, high))
            low, high = begin, end
        elif end > high:
            high = end
    if low < high:
        joined.append((low, high))
    return tuple(joined)


def clip(
    ranges: Ranges, *, begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int] | None = None
) -> dict[MessageQueue, tuple[tuple[int, int], ...]]:
    """Return the parts from ``begins`` on; with ``ends``, before them, and nothing of other queues."""
    clipped: dict[MessageQueue, tuple[tuple[int, int], ...]] = {}
    for queue, parts in ranges.items():
        low = begins.get(queue, 0)
        high = None if ends is None else ends.get(queue, 0)
        kept = [(max(begin, low), end if high is None else min(end, high)) for begin, end in parts]
        if kept := [(begin, end) for begin, end in kept if begin < end]:
            clipped[queue] = tuple(kept)
    return clipped


def listed(ranges: Ranges) -> tuple[OffsetRange, ...]:
    """Return ranges as `OffsetRange`, sorted."""
    return tuple(
        sorted(OffsetRange(queue, begin, end) for queue, parts in ranges.items() for begin, end in parts)
    )


def subtract(whole: Iterable[OffsetRange], ranges: Ranges) -> tuple[OffsetRange, ...]:
    """Return what is left of each range without those in ``ranges``."""
    rest: list[OffsetRange] = []
    for each in whole:
        rest += (
            OffsetRange(each.queue, begin, end) for begin, end in _gaps(each, ranges.get(each.queue, ()))
        )
    return tuple(rest)


def _gaps(whole: OffsetRange, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    gaps, position = [], whole.from_offset
    for begin, end in parts:
        if begin >= whole.until_offset:
            break
        if position < begin:
            gaps.append((position, begin))
        position = max(position, end)
    if position < whole.until_offset:
        gaps.append((position, whole.until_offset))
    return gaps


def shrink(
    positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int], ranges: Ranges
) -> dict[MessageQueue, int]:
    """Return how far each queue could be read if the offsets in ``ranges`` did not exist."""
    left = {}
    for queue, end in reach.items():
        whole = OffsetRange(queue, positions[queue], max(end, positions[queue]))
        rest = sum(end - begin for begin, end in _gaps(whole, ranges.get(queue, ())))
        left[queue] = positions[queue] + rest
    return left


def expand(
    positions: Mapping[MessageQueue, int],
    until: Mapping[MessageQueue, int],
    reach: Mapping[MessageQueue, int],
    ranges: Ranges,
) -> dict[MessageQueue, int]:
    """Return the ends that `shrink` has made smaller: the inverse, as far as possible within ``reach``."""
    ends = {}
    for queue, end in until.items():
        wanted, at = end - positions[queue], reach[queue]
        for begin, stop in _gaps(
            OffsetRange(queue, positions[queue], max(at, positions[queue])), ranges.get(queue, ())
        ):
            if stop - begin > wanted:
                at = begin + wanted
                break
            wanted -= stop - begin
        ends[queue] = max(at, positions[queue])
    return ends
