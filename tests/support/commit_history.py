"""Judges what a reader with ``isolation=read_committed`` has seen, row by row, by what a commit topic says.

It shares no code with the readers: the rule of validity is here a second time, as docs/committed-ranges.md
has it. Each kind of defect has a name, see `Defect`.
"""

from __future__ import annotations

import enum
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

__all__ = ["Defect", "Finding", "Reading", "Seen", "Transaction", "decide", "examine"]

_MAX_SPAN: Final = 10_000

Place: TypeAlias = tuple[str, int]
"""A queue of the topic: its broker's name and its number."""


class Defect(enum.Enum):
    """What a reader must never see."""

    LOST = "a row of a committed transaction was not read"
    REPEATED = "a row was read in two micro-batches, or twice in one"
    ABORTED = "a message was read that no valid commit lists"
    TORN = "a transaction was read in several micro-batches"
    REORDERED = "rows of a sharding key were read in another order than they were written"
    CHANGED = "a micro-batch had other rows when it ran again"


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect, and where it is."""

    defect: Defect
    where: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A row as a reader got it: its key, and its place in the order of the key's rows."""

    place: Place
    offset: int
    key: str
    number: int


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of a micro-batch: Spark runs it again after a failure."""

    batch: int
    rows: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A batch that is committed, and the offsets that its valid commit lists."""

    owner: str
    number: int
    ranges: Mapping[Place, Sequence[tuple[int, int]]]

    @property
    def rows(self) -> int:
        return sum(end - begin for parts in self.ranges.values() for begin, end in parts)

    def __str__(self) -> str:
        return f"batch {self.number} of {self.owner}"


def decide(bodies: Iterable[tuple[int, bytes]], topic: str) -> list[Transaction]:
    """Return the committed transactions of a topic, by the records of its commit topic with their offsets."""
    documents = [(offset, json.loads(body)) for offset, body in bodies]
    commits = [(offset, found) for offset, found in documents if found["kind"] == "commit"]
    in_time = [(offset, found) for offset, found in commits if offset - found["since"] <= _MAX_SPAN]
    return [
        Transaction(found["owner"], found["number"], _places(found["ranges"].get(topic, {})))
        for offset, found in in_time
        if not any(
            found["since"] <= other < offset
            and earlier["owner"] == found["owner"]
            and earlier["number"] >= found["number"]
            for other, earlier in in_time
        )
    ]


def _places(ranges: Mapping[str, Mapping[str, Any]]) -> dict[Place, list[tuple[int, int]]]:
    return {
        (broker, int(queue)): [(begin, end) for begin, end in parts]
        for broker, queues in ranges.items()
        for queue, parts in queues.items()
    }


def examine(
    readings: Iterable[Reading],
    transactions: Collection[Transaction],
    written: Mapping[str, int],
) -> list[Finding]:
    """Return all defects of a history.

    Parameters
    ----------
    readings : iterable of Reading
        All runs of all micro-batches, in their order.
    transactions : collection of Transaction
        As `decide` returns them.
    written : Mapping
        How many rows each key has. Their numbers are 0, 1, 2 …, in the order in which they are written.
    """
    batches: dict[int, Sequence[Seen]] = {}
    found: list[Finding] = []
    for reading in readings:
        before = batches.setdefault(reading.batch, reading.rows)
        if Counter(before) != Counter(reading.rows):
            found.append(Finding(Defect.CHANGED, f"micro-batch {reading.batch}"))
    holders = {
        (place, offset): transaction
        for transaction in transactions
        for place, parts in transaction.ranges.items()
        for begin, end in parts
        for offset in range(begin, end)
    }
    seen = [(number, row) for number in sorted(batches) for row in batches[number]]
    return [
        *found,
        *_aborted(seen, holders),
        *_torn(seen, holders),
        *_lost(seen, holders, written),
        *_repeated(seen),
        *_reordered(seen),
    ]


_Rows: TypeAlias = Sequence[tuple[int, Seen]]
_Holders: TypeAlias = Mapping[tuple[Place, int], Transaction]


def _aborted(seen: _Rows, holders: _Holders) -> list[Finding]:
    return [
        Finding(Defect.ABORTED, f"{row} in micro-batch {batch}")
        for batch, row in seen
        if (row.place, row.offset) not in holders
    ]


def _torn(seen: _Rows, holders: _Holders) -> list[Finding]:
    parts: dict[str, set[int]] = defaultdict(set)
    for batch, row in seen:
        if (holder := holders.get((row.place, row.offset))) is not None:
            parts[str(holder)].add(batch)
    return [
        Finding(Defect.TORN, f"{name} in micro-batches {sorted(batches)}")
        for name, batches in parts.items()
        if len(batches) > 1
    ]


def _lost(seen: _Rows, holders: _Holders, written: Mapping[str, int]) -> list[Finding]:
    read = {(row.key, row.number) for _, row in seen}
    rows = [(key, number) for key, count in written.items() for number in range(count)]
    unread = holders.keys() - {(row.place, row.offset) for _, row in seen}
    return [
        *(Finding(Defect.LOST, f"row {row}") for row in rows if row not in read),
        *(Finding(Defect.LOST, f"{at} of {holders[at]}") for at in sorted(unread)),
    ]


def _repeated(seen: _Rows) -> list[Finding]:
    counts = Counter((row.key, row.number) for _, row in seen)
    return [
        Finding(Defect.REPEATED, f"row {row}, {count} times") for row, count in counts.items() if count > 1
    ]


def _reordered(seen: _Rows) -> list[Finding]:
    """Within a micro-batch, rows of a queue come in the order of their offsets; of a key, all in one."""
    last: dict[str, int] = {}
    found = []
    for batch, row in seen:
        if row.number < last.get(row.key, -1):
            found.append(
                Finding(Defect.REORDERED, f"{row} after number {last[row.key]}, micro-batch {batch}")
            )
        last[row.key] = row.number
    return found
