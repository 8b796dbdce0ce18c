"""The state of one key of a Top-N: its rows in their order. No I/O, and no Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

from pyspark_rocketmq.sql.state.groups import identity, order
from pyspark_rocketmq.sql.state.steps import Ranking

__all__ = ["Line", "Ranked", "differences"]

Line: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What a row is ranked by, and the row."""


class Ranked:
    """The rows of a key. If no row is taken back, only the first ones are kept.

    Parameters
    ----------
    ranking : Ranking
    changes : bool
        Whether rows are taken back.
    """

    def __init__(self, ranking: Ranking, *, changes: bool) -> None:
        self.lines: list[Line] = []
        self._ranking = ranking
        self._changes = changes

    def change(self, added: Sequence[Line], removed: Sequence[Line]) -> None:
        """Add rows, and take rows back. Of equal ranks, earlier rows come first, or the newest one does."""
        if removed:
            gone = Counter(map(identity, removed))
            gone.subtract(Counter(map(identity, added)))  # a row that came and went in this batch
            came = Counter({key: -count for key, count in gone.items() if count < 0})
            kept = []
            for line in self.lines:
                key = identity(line)
                if gone[key] > 0:
                    gone[key] -= 1
                else:
                    kept.append(line)
            self.lines = kept
            new = []
            for line in added:
                key = identity(line)
                if came[key] > 0:
                    came[key] -= 1
                    new.append(line)
            added = new
        self.lines = [*reversed(added), *self.lines] if self._ranking.newest else [*self.lines, *added]
        for at, (down, nulls_first) in reversed(list(enumerate(self._ranking.order))):
            self.lines.sort(key=lambda line: _place(line[0][at], down, nulls_first), reverse=down)
        if not self._changes:
            del self.lines[self._ranking.limit :]

    def first(self) -> list[tuple[Any, ...]]:
        """Return the first rows."""
        return [row for _, row in self.lines[: self._ranking.limit]]


def _place(value: Any, down: bool, nulls_first: bool) -> tuple[bool, tuple[bool, Any]]:
    """Return what a value is sorted by; the order is reversed if it descends."""
    if value is None:
        return (down is nulls_first, (False, 0))
    return (down is not nulls_first, order(value))


def differences(
    ranking: Ranking,
    before: Sequence[tuple[Any, ...]],
    after: Sequence[tuple[Any, ...]],
    renewed: Collection[str] = (),
) -> Iterator[tuple[str, tuple[Any, ...], int]]:
    """Yield the changes from the first rows to others: their kind, the row and its rank from 1.

    Rows whose identities are in ``renewed`` are changes also if they stay.
    """
    if ranking.shows_rank:
        for rank in range(max(len(before), len(after))):
            old = before[rank] if rank < len(before) else None
            new = after[rank] if rank < len(after) else None
            if identity(old) == identity(new) and identity(new) not in renewed:
                continue
            if old is not None:
                yield "-D" if new is None else "-U", old, rank + 1
            if new is not None:
                yield "+I" if old is None else "+U", new, rank + 1
        return
    gone = Counter(map(identity, before))
    gone.subtract(Counter(map(identity, after)))
    came = Counter({key: -count for key, count in gone.items() if count < 0})
    changed = set(came)
    for kind, rows, counts in (("-D", before, gone), ("+I", after, came)):
        for rank, row in enumerate(rows, 1):
            if counts[identity(row)] > 0:
                counts[identity(row)] -= 1
                yield kind, row, rank
    for rank, row in enumerate(after, 1):
        if identity(row) in renewed and identity(row) not in changed:
            yield "-U", row, rank
            yield "+U", row, rank
