"""What keeps the state of keys in Python workers, and gives the changes of their results.

# Facts (Spark 4.3): a worker imports this module, and what it imports, when it starts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, DecimalType, StructField, StructType

from pyspark_rocketmq.sql.state.groups import Group, identity
from pyspark_rocketmq.sql.state.joins import Joined
from pyspark_rocketmq.sql.state.rankings import Line, Ranked, differences
from pyspark_rocketmq.sql.state.steps import ARGUMENT, OP, ORDER, SIDE, Grouping, Ranking

__all__ = [
    "AT",
    "DIGITS",
    "REMOVALS",
    "STATE",
    "GroupChanges",
    "JoinChanges",
    "RankChanges",
    "plain",
    "scaled",
    "scales",
]

AT: Final = "__at"
REMOVALS: Final = frozenset({"-U", "-D"})
DIGITS: Final = 38
"""The most of a DECIMAL."""

STATE: Final = StructType([StructField("state", BinaryType())])
"""What a key keeps: plain values as bytes."""


class _Keeper(StatefulProcessor):
    """Keeps one value for each key, and gives the changes of its result.

    With a time to live, a result that stays the same although its rows changed is a change, too: as in Flink,
    what reads it keeps it as long as rows come.

    Parameters
    ----------
    output : StructType
    changes : bool
        Whether rows are taken back.
    ttl_ms : int, optional
    """

    def __init__(self, output: StructType, *, changes: bool, ttl_ms: int | None) -> None:
        self._changes = changes
        self._ttl_ms = ttl_ms
        self._row = Row(*(field.name for field in output.fields), OP, AT)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("key", STATE, self._ttl_ms)

    def load(self) -> Any:
        """Return what is kept; None for a new key."""
        found = self._state.get()
        return None if found is None else pickle.loads(found[0])  # noqa: S301 - what we wrote ourselves

    def save(self, kept: Any) -> None:
        """Keep a value. None forgets the key."""
        if kept is None:
            self._state.clear()
        else:
            self._state.update((pickle.dumps(kept),))

    def sign(self, row: Row) -> int:
        """Return -1 for a row that is taken back, otherwise 1."""
        return -1 if self._changes and row[OP] in REMOVALS else 1

    def known(self, rows: Iterator[Row], kept: Any) -> Iterator[Row]:
        """Return a batch's rows of a key. A key that was forgotten has no row to take back."""
        if kept is not None or self._ttl_ms is None:
            return rows
        return (row for row in rows if self.sign(row) > 0)


class GroupChanges(_Keeper):
    """The changes of groups' results. A batch gives at most one change of a group."""

    def __init__(self, grouping: Grouping, output: StructType, *, changes: bool, ttl_ms: int | None) -> None:
        super().__init__(output, changes=changes, ttl_ms=ttl_ms)
        self._grouping = grouping
        self._scales = scales(output.fields[grouping.keys :])

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Add a batch's rows of a group, and emit the change of its result."""
        del timerValues
        group, packed = Group(self._grouping, changes=self._changes), self.load()
        with localcontext(prec=2 * DIGITS):
            if packed is not None:
                group.unpack(packed)
            old = None if packed is None or group.is_empty else self._results(group)
            names = [
                f"{ARGUMENT}{at}" if aggregate.argument else None
                for at, aggregate in enumerate(self._grouping.aggregates)
            ]
            for row in self.known(rows, packed):
                group.add(self.sign(row), [None if name is None else plain(row[name]) for name in names])
            new = None if group.is_empty else self._results(group)
        keys = tuple(key) if self._grouping.keys else ()
        forgotten = new is None and group.rows == 0
        self.save(None if forgotten else group.pack())
        if self._ttl_ms is None and repr(old) == repr(new):
            return
        if old is not None:
            yield self._row(*keys, *old, "-D" if new is None else "-U", 0)
        if new is not None:
            yield self._row(*keys, *new, "+I" if old is None else "+U", 1)

    def _results(self, group: Group) -> tuple[Any, ...]:
        return scaled(group.results(), self._scales)


def scales(fields: Iterable[StructField]) -> list[int | None]:
    """Return how many digits after the point the decimals of columns have; None for other columns."""
    kinds = [field.dataType for field in fields]
    return [kind.scale if isinstance(kind, DecimalType) else None for kind in kinds]


def scaled(values: Iterable[Any], digits: Iterable[int | None]) -> tuple[Any, ...]:
    """Return values with the digits of their columns."""
    return tuple(
        value
        if scale is None or value is None
        else Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        for value, scale in zip(values, digits, strict=True)
    )


def plain(value: Any) -> Any:
    """Return a value of a row as one that can be compared and kept."""
    return bytes(value) if isinstance(value, bytearray) else value


class RankChanges(_Keeper):
    """The changes of the first rows of a key."""

    def __init__(
        self,
        ranking: Ranking,
        columns: Sequence[str],
        output: StructType,
        *,
        changes: bool,
        ttl_ms: int | None,
    ) -> None:
        super().__init__(output, changes=changes, ttl_ms=ttl_ms)
        self._ranking = ranking
        self._columns = tuple(columns)
        self._orders = tuple(f"{ORDER}{at}" for at in range(len(ranking.order)))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Rank a batch's rows of a key, and emit the changes of its first rows."""
        del key, timerValues
        ranked = Ranked(self._ranking, changes=self._changes)
        ranked.lines = self.load() or []
        before = ranked.first()
        added: list[Line] = []
        removed: list[Line] = []
        for row in rows:
            order = tuple(plain(row[name]) for name in self._orders)
            line = (order, tuple(plain(row[name]) for name in self._columns))
            (added if self.sign(row) > 0 else removed).append(line)
        ranked.change(added, removed)
        self.save(ranked.lines or None)
        again = () if self._ttl_ms is None else _identities(added) & _identities(removed)
        found = differences(self._ranking, before, ranked.first(), again)
        for at, (kind, values, rank) in enumerate(found):
            yield self._row(*values, rank, kind, at)


def _identities(lines: Iterable[Line]) -> set[str]:
    return {identity(row) for _, row in lines}


class JoinChanges(_Keeper):
    """The changes of the pairs of a key. Its rows say their side in the column `SIDE`."""

    def __init__(
        self,
        columns: tuple[Sequence[str], Sequence[str]],
        outer: tuple[bool, bool],
        output: StructType,
        *,
        ttl_ms: int | None,
    ) -> None:
        super().__init__(output, changes=True, ttl_ms=ttl_ms)
        self._columns = columns
        self._outer = outer

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Join a batch's rows of a key, and emit the changes, and which sides have a row."""
        del timerValues
        renews, packed = self._ttl_ms is not None, self.load()
        matches = None not in tuple(key)
        joined = Joined(self._outer, matches=matches, renews=renews)
        if packed is not None:
            joined.unpack(packed)
        given = self.known(rows, packed) if matches else rows  # without a state nothing is forgotten
        changes = [
            (row[SIDE], self.sign(row), tuple(plain(row[name]) for name in self._columns[row[SIDE]]))
            for row in given
        ]
        nothing = tuple((None,) * len(columns) for columns in self._columns)
        found = list(joined.change(changes))
        self.save(None if joined.is_empty else joined.pack())
        for at, (kind, (left, right)) in enumerate(found):
            values = (*(left or nothing[0]), *(right or nothing[1]))
            yield self._row(*values, left is not None, right is not None, kind, at)
