"""The state of one key of a join whose rows are taken back. No I/O, and no Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from pyspark_rocketmq.sql.state.groups import identity

__all__ = ["Joined", "Pair"]

Values: TypeAlias = tuple[Any, ...]
Pair: TypeAlias = tuple[Values | None, Values | None]
"""A row of the left side and one of the right side; None for a row without a match."""


class Joined:
    """The rows of both sides that have the key.

    Parameters
    ----------
    outer : (bool, bool)
        Whether the rows of the left, and of the right side, are kept without a match.
    matches : bool
        Whether the key has no NULL: NULL equals nothing, and such rows need no state.
    renews : bool
        Whether the pairs of a row that was taken back and came again are changes, too.
    """

    def __init__(self, outer: tuple[bool, bool], *, matches: bool = True, renews: bool = False) -> None:
        self._outer = outer
        self._matches = matches
        self._renews = renews
        self._sides: tuple[dict[str, tuple[Values, int]], ...] = ({}, {})

    def change(self, changes: Iterable[tuple[int, int, Values]]) -> Iterator[tuple[str, Pair]]:
        """Apply a batch's changes: of a side (0 or 1), +1 or -1, and a row. Yield the changes of the join.

        What comes and goes in the batch has no change, unless pairs are renewed.
        """
        net: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        rows: dict[str, Values] = {}
        for side, sign, row in changes:
            key = identity(row)
            rows[key] = row
            net[side][key] += sign
        emitted: Counter[str] = Counter()
        pairs: dict[str, Pair] = {}
        for side in (0, 1):
            for key, count in net[side].items():
                for pair, times in self._add(side, key, rows[key], count):
                    name = identity(pair)
                    pairs[name] = pair
                    emitted[name] += times
        for kind, sign in (("-D", -1), ("+I", 1)):
            for key, count in emitted.items():
                for _ in range(count * sign):
                    yield kind, pairs[key]
        if self._renews:
            again = ((side, key) for side in (0, 1) for key, count in net[side].items() if not count)
            found = (pair for side, key in again for pair in self._pairs(side, key, rows[key]))
            for key, pair in {identity(pair): pair for pair in found}.items():
                if not emitted[key]:
                    yield from (("-U", pair), ("+U", pair))

    def _pairs(self, side: int, key: str, row: Values) -> Iterator[Pair]:
        """Return the pairs of a row that a side has."""
        own, others = self._sides[side], self._sides[1 - side]
        if self._matches and own.get(key, (row, 0))[1] <= 0:
            return
        for other, _ in others.values():
            yield _pair(side, row, other)
        if self._outer[side] and not others:
            yield _pair(side, row, None)

    def _add(self, side: int, key: str, row: Values, count: int) -> Iterator[tuple[Pair, int]]:
        """Change how often a side has a row; yield the pairs that this adds, or takes back."""
        if not count:
            return
        if not self._matches:
            if self._outer[side]:
                yield _pair(side, row, None), count
            return
        own, others = self._sides[side], self._sides[1 - side]
        had_rows = any(number > 0 for _, number in own.values())
        number = own.pop(key, (row, 0))[1] + count
        if number:
            own[key] = (row, number)
        has_rows = any(number > 0 for _, number in own.values())
        for other, times in others.values():
            yield _pair(side, row, other), count * times
            if self._outer[1 - side] and had_rows is not has_rows:
                yield _pair(side, None, other), -times if has_rows else times
        if self._outer[side] and not others:
            yield _pair(side, row, None), count

    @property
    def is_empty(self) -> bool:
        """Whether neither side has a row."""
        return not any(self._sides)

    def pack(self) -> Values:
        """Return the state as plain values."""
        return tuple(list(side.values()) for side in self._sides)

    def unpack(self, packed: Values) -> None:
        """Restore a state."""
        self._sides = tuple({identity(row): (row, count) for row, count in side} for side in packed)


def _pair(side: int, row: Values | None, other: Values | None) -> Pair:
    return (other, row) if side else (row, other)
