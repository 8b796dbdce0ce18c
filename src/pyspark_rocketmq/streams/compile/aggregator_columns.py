"""A group's results as folds: their input columns and types.

Spark converts texts to numbers and determines types, so a fold returns the same as Spark's aggregate.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, assert_never

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.compile import aggregators as folds
from pyspark_rocketmq.streams.compile.aggregates import Accumulator, aggregate_columns, to_number
from pyspark_rocketmq.streams.compile.decimals import beyond_column, overflows
from pyspark_rocketmq.streams.frame.flow import Flow, column, parse_result
from pyspark_rocketmq.streams.frame.python_steps import TIME, VALUE, describe_error
from pyspark_rocketmq.streams.plan.choices import OVER_RECORDS, AggregateKind, Numeric
from pyspark_rocketmq.streams.plan.nodes import Aggregate

__all__ = ["Folded", "fold_groups"]

_RESULT: Final = "__result_"

_InputKind: TypeAlias = Literal["time", "text", "value", "number", "shown"]

_ORDERED: Final[frozenset[AggregateKind]] = frozenset(
    {"min", "max", "first", "last", "distinct", "count_distinct"}
)


@dataclass(slots=True)
class Folded:
    """The results of a group.

    Parameters
    ----------
    keys : int
        The number of columns before the inputs in a row.
    """

    keys: int
    inputs: list[Column] = field(default_factory=list)
    outputs: list[StructField] = field(default_factory=list)
    folds: list[folds.Fold] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    user: list[bool] = field(default_factory=list)
    overflowing: list[int] = field(default_factory=list)
    _places: dict[tuple[_InputKind, str | None], int] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for workers, without columns, which belong to the driver's JVM."""
        return {
            "keys": self.keys,
            "folds": self.folds,
            "aliases": self.aliases,
            "user": self.user,
            "outputs": self.outputs,
            "overflowing": self.overflowing,
            "_places": self._places,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.inputs = []
        for name, value in state.items():
            setattr(self, name, value)

    def input(self, kind: _InputKind, name: str | None, value: Column) -> int:
        """Return an input's index in a row. Equal inputs share one."""
        place = self._places.get((kind, name))
        if place is None:
            place = self.keys + len(self.inputs)
            self._places[kind, name] = place
            self.inputs.append(value.alias(f"__in_{len(self.inputs)}"))
        return place

    def time_input(self) -> int:
        """Return the index of the record's time."""
        return self.input("time", None, F.unix_micros(TIME))

    def record_input(self) -> int:
        """Return the index of the record's text. User's functions get records in the order of their times."""
        self.time_input()
        return self.input("text", None, F.col(VALUE))

    @property
    def fields(self) -> list[StructField]:
        """The results, and for each that can have too many digits whether it has."""
        beyond = [StructField(beyond_column(self.aliases[at]), BooleanType()) for at in self.overflowing]
        return [*self.outputs, *beyond]

    def select_results(self) -> list[Column]:
        """Return the final results."""
        results = [
            (parse_result(F.col(field.name)) if is_user else F.col(field.name)).alias(alias)
            for field, alias, is_user in zip(self.outputs, self.aliases, self.user, strict=True)
        ]
        return [*results, *(column(field.name) for field in self.fields[len(results) :])]

    # --- in the workers -----------------------------------------------------------------------

    def empty(self) -> list[Any]:
        """Return the states of no rows."""
        return [fold.empty() for fold in self.folds]

    def add(self, states: list[Any], rows: Iterator[tuple[Any, ...]]) -> None:
        """Add rows."""
        if any(self.user):  # in the order of their times, as when they are collected
            text = self._places["text", None]
            rows = iter(sorted(rows, key=operator.itemgetter(self._places["time", None], text)))
        each = list(enumerate(self.folds))
        for row in rows:
            for at, fold in each:
                states[at] = fold.add(states[at], row)

    def results(self, states: list[Any]) -> list[Any]:
        """Return the results so far, and which of them are null because they have too many digits."""
        found = [fold.result(state) for fold, state in zip(self.folds, states, strict=True)]
        beyond = [found[at] is None and states[at] != self.folds[at].empty() for at in self.overflowing]
        return [*found, *beyond]

    def describe(self, states: list[Any]) -> dict[str, Any]:
        """Return the results by name, for readers of the state.

        A user's function may need more records than there are so far: then its error is shown.
        """
        found: dict[str, Any] = {}
        for alias, fold, state in zip(self.aliases, self.folds, states, strict=True):
            try:
                found[alias] = fold.result(state)
            except Exception as error:  # noqa: BLE001 - the user's code; no result is due yet
                found[alias] = describe_error(error)
        return found

    def pack(self, states: list[Any]) -> list[Any]:
        """Return states in a picklable form."""
        return [fold.pack(state) for fold, state in zip(self.folds, states, strict=True)]

    def unpack(self, packed: list[Any]) -> list[Any]:
        """Return the states from their picklable form."""
        return [fold.unpack(state) for fold, state in zip(self.folds, packed, strict=True)]


def fold_groups(
    flow: Flow, keys: Iterable[str], aggregates: Iterable[Aggregate], numeric: Numeric, step: str
) -> Folded:
    """Return the folds of results.

    Raises
    ------
    PlanError
        A result cannot be computed record by record.
    """
    aggregates = list(aggregates)
    for item in aggregates:
        if item.kind == "column":
            raise PlanError(
                f"agg({item.alias}=...) is a Spark aggregate, which only Spark's own windows can "
                "compute: remove it, or use one result per window (fireMode 0 without emitAfterFire, "
                "strict or incremental)",
                step=step,
            )
    expressions = aggregate_columns(flow, aggregates, numeric)
    types = flow.df.groupBy(*map(column, keys)).agg(*expressions).schema.fields[-len(aggregates) :]
    inputs = {found.name.lower(): found.dataType for found in flow.df.schema.fields}
    made = Folded(keys=2)
    for item, native in zip(aggregates, types, strict=True):
        of_user = item.kind in OVER_RECORDS
        name = f"{_RESULT}{len(made.folds)}"
        made.outputs.append(StructField(name, StringType() if of_user else native.dataType))
        made.aliases.append(item.alias)
        made.user.append(of_user)
        if item.field is not None and overflows(item, inputs[item.field.lower()], numeric):
            made.overflowing.append(len(made.folds))
        made.folds.append(_fold(made, item, types=inputs, result=native.dataType, numeric=numeric, step=step))
    return made


def _fold(  # noqa: C901, PLR0912 - a case for each kind
    made: Folded,
    item: Aggregate,
    *,
    types: dict[str, DataType],
    result: DataType,
    numeric: Numeric,
    step: str,
) -> folds.Fold:
    match item.kind:
        case "reduce":
            return folds.Reduce(item.value, made.record_input())
        case "accumulate" if isinstance(item.value, Accumulator):
            return folds.User(item.value, made.record_input())
        case "accumulate":
            return folds.ClassicUser(item.value, made.record_input())
        case "count" if item.field is None:
            return folds.Count(None)
    assert item.field is not None
    kind = types[item.field.lower()]
    if item.kind in _ORDERED and isinstance(kind, StructType | MapType | ArrayType):
        raise PlanError(
            f"{item.kind}({item.field!r}) compares values, and {kind.simpleString()} has no order outside "
            "Spark's own windows",
            step=step,
        )
    inputs = _FieldInputs(made, item.field, kind, numeric)
    scale = result.scale if isinstance(result, DecimalType) else None
    match item.kind:
        case "count":
            return folds.Count(inputs.value)
        case "sum":
            return folds.Sum(inputs.number, scale)
        case "avg":
            return folds.Average(inputs.number, scale)
        case "min" | "max" if isinstance(kind, StringType):
            return folds.NumberOrText(inputs.value, inputs.number, least=item.kind == "min")
        case "min" | "max":
            return folds.Extreme(inputs.value, least=item.kind == "min")
        case "first" | "last":
            return folds.ByTime(inputs.value, made.time_input(), earliest=item.kind == "first")
        case "concat":
            return folds.Concat(inputs.text, made.time_input(), str(item.value))
        case "distinct" | "count_distinct":
            return folds.Different(inputs.value, counted=item.kind == "count_distinct")
        case "count_distinct_large":
            return folds.NearlyDifferent(inputs.text)
        case "column":  # refused by `fold_groups`
            raise AssertionError(item)
        case other:
            assert_never(other)


@dataclass(frozen=True, slots=True)
class _FieldInputs:
    """The columns of a field that a fold can get. Each is added when a fold first asks for it."""

    made: Folded
    field: str
    kind: DataType
    numeric: Numeric

    @property
    def value(self) -> int:
        return self.made.input("value", self.field, column(self.field))

    @property
    def number(self) -> int:
        return self.made.input("number", self.field, to_number(column(self.field), self.kind, self.numeric))

    @property
    def text(self) -> int:
        return self.made.input("shown", self.field, column(self.field).cast("string"))
