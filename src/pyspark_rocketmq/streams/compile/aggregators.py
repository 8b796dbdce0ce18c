"""Results of a group, record by record: the counterparts of `aggregates` for state that we keep.

A fold has a picklable state, adds rows, and can return its result at any time. Each returns the same as
Spark's aggregate of the same name for the same rows, however they are split into batches. A user's functions
get records batch by batch, and within a batch in the order of their times.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark_rocketmq.streams.compile.hyperloglog import Sketch
from pyspark_rocketmq.streams.compile.spark_values import (
    EXACT,
    choose,
    order,
    order_number,
    order_time,
    round_decimal,
    same,
)
from pyspark_rocketmq.streams.frame.python_steps import to_json

__all__ = [
    "Average",
    "ByTime",
    "ClassicUser",
    "Concat",
    "Count",
    "Different",
    "Extreme",
    "Fold",
    "NearlyDifferent",
    "NumberOrText",
    "Reduce",
    "Sum",
    "User",
]

Row = tuple[Any, ...]


class Fold(ABC):
    """A result that is updated by each row."""

    __slots__ = ()

    @abstractmethod
    def empty(self) -> Any:
        """Return the initial state."""

    @abstractmethod
    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""

    @abstractmethod
    def result(self, state: Any) -> Any:
        """Return the current result."""

    def pack(self, state: Any) -> Any:
        """Return the state in a picklable form."""
        return state

    def unpack(self, packed: Any) -> Any:
        """Return the state from its picklable form."""
        return packed


@dataclass(frozen=True, slots=True)
class Count(Fold):
    """The number of rows, or of rows with a value in a column."""

    at: int | None

    def empty(self) -> int:
        """Return the initial state."""
        return 0

    def add(self, state: int, row: Row) -> int:
        """Return the state after adding a row."""
        return state + 1 if self.at is None or row[self.at] is not None else state

    def result(self, state: int) -> int:
        """Return the current result."""
        return state


@dataclass(frozen=True, slots=True)
class Sum(Fold):
    """A sum of numbers. Sums of decimals have ``scale`` decimal places, and are null beyond 38 digits."""

    at: int
    scale: int | None = None

    def empty(self) -> Any:
        """Return the initial state."""
        return None

    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""
        value = row[self.at]
        if value is None or state is None:
            return state if value is None else value
        return state + value if self.scale is None else EXACT.add(state, value)

    def result(self, state: Any) -> Any:
        """Return the current result."""
        return round_decimal(state, self.scale)


@dataclass(frozen=True, slots=True)
class Average(Fold):
    """A sum and a count."""

    at: int
    scale: int | None = None

    def empty(self) -> tuple[Any, int]:
        """Return the initial state."""
        return None, 0

    def add(self, state: tuple[Any, int], row: Row) -> tuple[Any, int]:
        """Return the state after adding a row."""
        total, count = state
        after = Sum(self.at, self.scale).add(total, row)
        return (after, count + 1) if row[self.at] is not None else state

    def result(self, state: tuple[Any, int]) -> Any:
        """Return the current result."""
        total, count = state
        if not count:
            return None
        return total / count if self.scale is None else round_decimal(EXACT.divide(total, count), self.scale)


@dataclass(frozen=True, slots=True)
class Extreme(Fold):
    """The minimum or maximum. NaN is greater than every number."""

    at: int
    least: bool

    def empty(self) -> Any:
        """Return the initial state."""
        return None

    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""
        return choose(state, row[self.at], order, least=self.least)

    def result(self, state: Any) -> Any:
        """Return the current result."""
        return state


@dataclass(frozen=True, slots=True)
class NumberOrText(Fold):
    """The minimum or maximum of texts: as numbers if all are numeric, else as texts."""

    at: int
    number_at: int
    least: bool

    def empty(self) -> tuple[bool, Any, Any]:
        """Return the initial state."""
        return True, None, None

    def add(self, state: tuple[bool, Any, Any], row: Row) -> tuple[bool, Any, Any]:
        """Return the state after adding a row."""
        text, number = row[self.at], row[self.number_at]
        if text is None:
            return state
        numbers, by_number, by_text = state
        numbers = numbers and number is not None
        by_number = choose(by_number, (number, text), order_number, least=self.least) if numbers else None
        return numbers, by_number, choose(by_text, text, order, least=self.least)

    def result(self, state: tuple[bool, Any, Any]) -> Any:
        """Return the current result."""
        numbers, by_number, by_text = state
        return by_number[1] if numbers and by_number is not None else by_text


@dataclass(frozen=True, slots=True)
class ByTime(Fold):
    """The value of the earliest or latest row that has one. For equal times the minimum or maximum."""

    at: int
    time_at: int
    earliest: bool

    def empty(self) -> Any:
        """Return the initial state."""
        return None

    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""
        found = None if row[self.at] is None else (row[self.time_at], row[self.at])
        return choose(state, found, order_time, least=self.earliest)

    def result(self, state: Any) -> Any:
        """Return the current result."""
        return None if state is None else state[1]


@dataclass(frozen=True, slots=True)
class Concat(Fold):
    """Texts in the order of their times."""

    at: int
    time_at: int
    separator: str

    def empty(self) -> list[tuple[int, str]]:
        """Return the initial state."""
        return []

    def add(self, state: list[tuple[int, str]], row: Row) -> list[tuple[int, str]]:
        """Return the state after adding a row."""
        if row[self.at] is not None:
            state.append((row[self.time_at], row[self.at]))
        return state

    def result(self, state: list[tuple[int, str]]) -> str:
        """Return the current result."""
        return self.separator.join(text for _, text in sorted(state))


@dataclass(frozen=True, slots=True)
class Different(Fold):
    """The distinct values as a sorted list, or their number."""

    at: int
    counted: bool

    def empty(self) -> set[Any]:
        """Return the initial state."""
        return set()

    def add(self, state: set[Any], row: Row) -> set[Any]:
        """Return the state after adding a row."""
        if row[self.at] is not None:
            state.add(same(row[self.at]))
        return state

    def result(self, state: set[Any]) -> Any:
        """Return the current result."""
        return len(state) if self.counted else sorted(state, key=order)

    def unpack(self, packed: set[Any]) -> set[Any]:
        """Return the state from its picklable form."""
        return {same(value) for value in packed}


@dataclass(frozen=True, slots=True)
class NearlyDifferent(Fold):
    """The approximate number of distinct values, in 16 KiB."""

    at: int

    def empty(self) -> Sketch:
        """Return the initial state."""
        return Sketch()

    def add(self, state: Sketch, row: Row) -> Sketch:
        """Return the state after adding a row."""
        if row[self.at] is not None:
            state.add(str(row[self.at]))
        return state

    def result(self, state: Sketch) -> int:
        """Return the current result."""
        return state.count()

    def pack(self, state: Sketch) -> set[int] | bytes:
        """Return the state in a picklable form."""
        return state.pack()

    def unpack(self, packed: set[int] | bytes) -> Sketch:
        """Return the state from its picklable form."""
        return Sketch.of(packed)


@dataclass(frozen=True, slots=True)
class Reduce(Fold):
    """A user's function of two records."""

    function: Callable[[Any, Any], Any]
    at: int

    def empty(self) -> Any:
        """Return the initial state."""
        return None

    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""
        value = json.loads(row[self.at])
        return (value,) if state is None else (self.function(state[0], value),)

    def result(self, state: Any) -> Any:
        """Return the current result."""
        return None if state is None else to_json(state[0])


@dataclass(frozen=True, slots=True)
class User(Fold):
    """A user's accumulator of the newer API. Its state is the object's attributes."""

    accumulator: Any
    at: int

    def empty(self) -> Any:
        """Return the initial state."""
        return self.accumulator.clone()

    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""
        state.addValue(json.loads(row[self.at]))
        return state

    def result(self, state: Any) -> Any:
        """Return the current result."""
        return to_json(state.result(None))

    def pack(self, state: Any) -> Any:
        """Return the object's attributes without its class, which may belong to a script and may change."""
        return state.__getstate__()

    def unpack(self, packed: Any) -> Any:
        """Return an accumulator with the stored attributes."""
        state = self.accumulator.clone()
        if hasattr(state, "__setstate__"):
            state.__setstate__(packed)
            return state
        attributes, slots = packed if isinstance(packed, tuple) else (packed, None)
        for name, value in {**(attributes or {}), **(slots or {})}.items():
            setattr(state, name, value)
        return state


@dataclass(frozen=True, slots=True)
class ClassicUser(Fold):
    """A user's accumulator of the older API."""

    accumulator: Any
    at: int

    def empty(self) -> Any:
        """Return the initial state."""
        return self.accumulator.createAccumulator()

    def add(self, state: Any, row: Row) -> Any:
        """Return the state after adding a row."""
        after = self.accumulator.accumulate(state, json.loads(row[self.at]))
        return state if after is None else after

    def result(self, state: Any) -> Any:
        """Return the current result."""
        return to_json(self.accumulator.getValue(state))
