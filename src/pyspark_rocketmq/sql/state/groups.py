"""The state of one group: aggregates that can take back values. No I/O, and no Spark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq.sql.state.steps import Aggregate, Fold, Grouping

__all__ = ["Group", "identity", "order", "same"]


class _Array(tuple[Any, ...]):
    """An array as a key of a dict. States have the names of this class and the next."""

    __slots__ = ()


class _Fields(dict[Any, Any]):
    """A map, or a row within an array, as a key of a dict."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(slots=True)
class _Kept:
    """What an aggregate keeps.

    Parameters
    ----------
    count : int
        Of values that are not NULL; of rows without an argument.
    total : number, optional
        Their sum, without NaN and infinite values, which could not be taken back from it.
    values : Counter
        The values, where they are needed to find the next one or the distinct ones; of a sum those that
        are not in its total.
    best : optional
        The smallest or largest value, if no value is ever taken back.
    """

    count: int = 0
    total: Any = None
    values: Counter[Any] = field(default_factory=Counter)
    best: Any = None


class Group:
    """The aggregates of a group.

    Parameters
    ----------
    grouping : Grouping
    changes : bool
        Whether rows are taken back.
    """

    def __init__(self, grouping: Grouping, *, changes: bool) -> None:
        self.rows = 0
        self.kept = [_Kept() for _ in grouping.aggregates]
        self._grouping = grouping
        self._changes = changes

    def add(self, sign: int, values: Sequence[Any]) -> None:
        """Add a row, or take it back if ``sign`` is -1."""
        self.rows += sign
        for aggregate, kept, value in zip(self._grouping.aggregates, self.kept, values, strict=True):
            if value is not None or not aggregate.argument:
                _add(aggregate, kept, sign, value, changes=self._changes)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no row, and so no result."""
        return self.rows <= 0 and self._grouping.keys > 0

    def results(self) -> tuple[Any, ...]:
        """Return the results, in the order of the aggregates."""
        pairs = zip(self._grouping.aggregates, self.kept, strict=True)
        return tuple(_result(aggregate, kept, changes=self._changes) for aggregate, kept in pairs)

    def pack(self) -> tuple[Any, ...]:
        """Return the state as plain values."""
        return self.rows, *((kept.count, kept.total, dict(kept.values), kept.best) for kept in self.kept)

    def unpack(self, packed: tuple[Any, ...]) -> None:
        """Restore a state."""
        self.rows, *kept = packed
        self.kept = [
            _Kept(count, total, Counter({same(value): times for value, times in values.items()}), best)
            for count, total, values, best in kept
        ]


def same(value: Any) -> Any:
    """Return one key of a dict for all values that are equal in SQL: a dict finds NaN by its identity."""
    match value:
        case float() if math.isnan(value):
            return math.nan
        case bytearray():
            return bytes(value)
        case list() | _Array():
            return _Array(map(same, value))
        case tuple():
            return tuple(map(same, value))
        case dict():
            return _Fields({same(key): same(each) for key, each in value.items()})
    return value


def _value(key: Any) -> Any:
    """Return the value of a key that `same` made."""
    match key:
        case _Array():
            return list(map(_value, key))
        case tuple():
            return tuple(map(_value, key))
        case _Fields():
            return {_value(name): _value(each) for name, each in key.items()}
    return key


def identity(value: Any) -> str:
    """Return a text that values share if they are equal in SQL: a MAP has no order, and -0.0 is 0.0."""
    return repr(_unordered(value))


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {"map": sorted((identity(key), identity(each)) for key, each in value.items())}
    if isinstance(value, list | tuple):
        return tuple(map(_unordered, value))
    return value + 0.0 if isinstance(value, float) else value


def order(value: Any) -> tuple[bool, Any]:
    """Return what a value is compared by, as in Spark: NaN is above all others, and NULL in values below."""
    if isinstance(value, list | tuple | dict):
        parts = value.values() if isinstance(value, dict) else value
        return False, [(each is not None, None if each is None else order(each)) for each in parts]
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


_OF_VALUES: Final = frozenset({Fold.MIN, Fold.MAX})


def _add(aggregate: Aggregate, kept: _Kept, sign: int, value: Any, *, changes: bool) -> None:
    if aggregate.fold is Fold.ANY_VALUE:
        return
    if aggregate.fold in _OF_VALUES and not changes:
        better = max if aggregate.fold is Fold.MAX else min
        kept.best = value if kept.best is None else better(kept.best, value, key=order)
        return
    if aggregate.distinct or aggregate.fold in _OF_VALUES:
        value = same(value)
        before = kept.values[value]
        kept.values[value] += sign
        if not kept.values[value]:
            del kept.values[value]
        sign = (before + sign > 0) - (before > 0)  # whether it is another distinct value
        if not sign:
            return
    kept.count += sign
    if aggregate.fold not in {Fold.SUM, Fold.AVG}:
        return
    if _is_finite(value):
        kept.total = sign * value if kept.total is None else kept.total + sign * value
    elif not aggregate.distinct:
        value = same(value)
        kept.values[value] += sign
        if not kept.values[value]:
            del kept.values[value]


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _result(aggregate: Aggregate, kept: _Kept, *, changes: bool) -> Any:
    if aggregate.fold is Fold.COUNT:
        return kept.count
    if aggregate.fold in _OF_VALUES:
        if not changes:
            return kept.best
        there = [value for value, count in kept.values.items() if count > 0]
        return _value((max if aggregate.fold is Fold.MAX else min)(there, default=None, key=order))
    if aggregate.fold is Fold.ANY_VALUE or not kept.count:
        return None
    endless = [value for value, count in kept.values.items() if count > 0 and not _is_finite(value)]
    total = sum(endless, kept.total or 0.0) if endless else kept.total
    return total if aggregate.fold is Fold.SUM else total / kept.count
