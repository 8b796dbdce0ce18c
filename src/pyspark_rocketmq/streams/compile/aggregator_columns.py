"""A group's results as folds: their input columns and types.

Spark converts texts to numbers and determines types, so a fold returns the same as Spark's aggregate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.compile import aggregators as folds
from pyspark_rocketmq.streams.compile.aggregates import Accumulator, aggregate_columns, number_of
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.frame.python_steps import TIME, VALUE
from pyspark_rocketmq.streams.plan.nodes import Aggregate

__all__ = ["Folded", "fold_groups"]

USER: Final = frozenset({"reduce", "accumulate"})
_RESULT: Final = "__result_"
_ORDERED: Final = frozenset({"min", "max", "first", "last", "distinct", "count_distinct"})


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
    _places: dict[tuple[str, str | None], int] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for workers, without columns, which belong to the driver's JVM."""
        return {
            "keys": self.keys,
            "folds": self.folds,
            "aliases": self.aliases,
            "user": self.user,
            "outputs": self.outputs,
            "_places": self._places,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        self.inputs = []
        for name, value in state.items():
            setattr(self, name, value)

    def input(self, kind: str, name: str | None, value: Column) -> int:
        """Return an input's index in a row. Equal inputs share one."""
        place = self._places.get((kind, name))
        if place is None:
            place = self.keys + len(self.inputs)
            self._places[kind, name] = place
            self.inputs.append(value.alias(f"__in_{len(self.inputs)}"))
        return place

    def finished(self) -> list[Column]:
        """Return the final results."""
        return [
            (F.try_parse_json(field.name) if is_user else F.col(field.name)).alias(alias)
            for field, alias, is_user in zip(self.outputs, self.aliases, self.user, strict=True)
        ]

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
        """Return the results so far."""
        return [fold.result(state) for fold, state in zip(self.folds, states, strict=True)]

    def shown(self, states: list[Any]) -> dict[str, Any]:
        """Return the results by name, for readers of the state."""
        return dict(zip(self.aliases, self.results(states), strict=True))

    def pack(self, states: list[Any]) -> list[Any]:
        """Return states in a picklable form."""
        return [fold.pack(state) for fold, state in zip(self.folds, states, strict=True)]

    def unpack(self, packed: list[Any]) -> list[Any]:
        """Return the states from their picklable form."""
        return [fold.unpack(state) for fold, state in zip(self.folds, packed, strict=True)]


def fold_groups(
    flow: Flow, keys: Iterable[str], aggregates: Iterable[Aggregate], numeric: str, step: str
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
                f"agg({item.alias}=...) is an aggregate of Spark's, which computes it in its own windows "
                "only: take it out, or have one result a window (fireMode 0, no emitAfterFire, nothing "
                "strict or incremental)",
                step=step,
            )
    expressions = aggregate_columns(flow, aggregates, numeric, step)
    types = flow.df.groupBy(*map(column, keys)).agg(*expressions).schema.fields[-len(aggregates) :]
    inputs = {found.name.lower(): found.dataType for found in flow.df.schema.fields}
    made = Folded(keys=2)
    for item, native in zip(aggregates, types, strict=True):
        of_user = item.kind in USER
        name = f"{_RESULT}{len(made.folds)}"
        made.outputs.append(StructField(name, StringType() if of_user else native.dataType))
        made.aliases.append(item.alias)
        made.user.append(of_user)
        made.folds.append(_fold(made, item, types=inputs, result=native.dataType, numeric=numeric, step=step))
    return made


def _fold(
    made: Folded, item: Aggregate, *, types: dict[str, DataType], result: DataType, numeric: str, step: str
) -> folds.Fold:
    if item.kind in USER:
        made.input("time", None, F.unix_micros(TIME))
        at = made.input("text", None, F.col(VALUE))
        if item.kind == "reduce":
            return folds.Reduce(item.value, at)
        newer = isinstance(item.value, Accumulator)
        return folds.User(item.value, at) if newer else folds.ClassicUser(item.value, at)
    if item.kind == "count" and item.field is None:
        return folds.Count(None)
    assert item.field is not None
    value, kind = column(item.field), types[item.field.lower()]
    if item.kind in _ORDERED and isinstance(kind, StructType | MapType | ArrayType):
        raise PlanError(
            f"{item.kind}({item.field!r}) compares values, and {kind.simpleString()} has no order outside "
            "Spark's own windows",
            step=step,
        )
    scale = result.scale if isinstance(result, DecimalType) else None

    def time() -> int:
        return made.input("time", None, F.unix_micros(TIME))

    def plain() -> int:
        return made.input("value", item.field, value)

    def number() -> int:
        return made.input("number", item.field, number_of(value, kind, numeric))

    def shown() -> int:
        return made.input("shown", item.field, value.cast("string"))

    known: dict[str, Callable[[], folds.Fold]] = {
        "count": lambda: folds.Count(plain()),
        "sum": lambda: folds.Sum(number(), scale),
        "avg": lambda: folds.Average(number(), scale),
        "min": lambda: _extreme(plain, number, kind, least=True),
        "max": lambda: _extreme(plain, number, kind, least=False),
        "first": lambda: folds.ByTime(plain(), time(), earliest=True),
        "last": lambda: folds.ByTime(plain(), time(), earliest=False),
        "concat": lambda: folds.Concat(shown(), time(), str(item.value)),
        "distinct": lambda: folds.Different(plain(), counted=False),
        "count_distinct": lambda: folds.Different(plain(), counted=True),
        "count_distinct_large": lambda: folds.NearlyDifferent(shown()),
    }
    return known[item.kind]()


def _extreme(
    plain: Callable[[], int], number: Callable[[], int], kind: DataType, *, least: bool
) -> folds.Fold:
    if isinstance(kind, StringType):
        return folds.NumberOrText(plain(), number(), least=least)
    return folds.Extreme(plain(), least=least)
