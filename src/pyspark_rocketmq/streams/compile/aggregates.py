"""Results of a group as Spark expressions.

Numeric texts (fields of untyped JSON) count as numbers: sums and averages are doubles, or decimals with
``numeric="decimal"``. Typed columns follow Spark's rules. First and last are by event time, then by value.
Every result is independent of how Spark splits the rows into batches and tasks, except for the last digits
of sums of doubles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final, Protocol, assert_never, runtime_checkable

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import DataType, DoubleType, FloatType, StringType

from pyspark_rocketmq.streams.compile.decimals import DECIMAL, beyond_column, overflows, select_overflows
from pyspark_rocketmq.streams.frame.flow import Flow, column, parse_result
from pyspark_rocketmq.streams.frame.python_steps import TIME, VALUE, to_json
from pyspark_rocketmq.streams.plan.choices import OVER_RECORDS, Numeric
from pyspark_rocketmq.streams.plan.nodes import Aggregate

__all__ = [
    "Accumulator",
    "ClassicAccumulator",
    "aggregate_columns",
    "overflow_columns",
    "select_result",
    "to_number",
]

_LARGE_ERROR: Final = 0.01
_COLLECTED: Final = "__records_"


@runtime_checkable
class Accumulator(Protocol):
    """A user's aggregate in the newer API. Each group and window gets a new ``clone()``."""

    def addValue(self, value: Any) -> None:
        """Add a record."""

    def result(self, context: Any) -> Any:
        """Return the result. The context is the group's key."""

    def clone(self) -> Any:
        """Return a new, empty accumulator."""


@runtime_checkable
class ClassicAccumulator(Protocol):
    """A user's aggregate in the older API, as ``IAccumulator``."""

    def createAccumulator(self) -> Any:
        """Return an empty state."""

    def accumulate(self, accumulator: Any, value: Any) -> Any:
        """Add a record. A returned state replaces the given one."""

    def getValue(self, accumulator: Any) -> Any:
        """Return the result."""


def aggregate_columns(flow: Flow, aggregates: Iterable[Aggregate], numeric: Numeric) -> list[Column]:
    """Return the expressions of a group's results."""
    types = {field.name.lower(): field.dataType for field in flow.df.schema.fields}
    return [_expression(item, types, numeric).alias(_column_name(item)) for item in aggregates]


def overflow_columns(flow: Flow, aggregates: Iterable[Aggregate], numeric: Numeric) -> list[Column]:
    """Return the expressions that are true where such a result has too many digits."""
    types = {field.name.lower(): field.dataType for field in flow.df.schema.fields}
    return [
        _overflow(item, types, numeric).alias(beyond_column(item.alias))
        for item in select_overflows(flow, aggregates, numeric)
    ]


def _overflow(item: Aggregate, types: dict[str, DataType], numeric: Numeric) -> Column:
    assert item.field is not None
    number = to_number(column(item.field), types[item.field.lower()], numeric)
    return (F.count(number) > 0) & _expression(item, types, numeric).isNull()


def select_result(item: Aggregate) -> Column:
    """Return the final result. Functions of all records run now, once per group."""
    name = _column_name(item)
    match item.kind:
        case "reduce":
            return _compute_at_end(lambda values: reduce(item.value, values), name).alias(item.alias)
        case "accumulate":
            return _compute_at_end(_run_accumulator(item.value), name).alias(item.alias)
        case "min" | "max" if item.is_number:
            text = column(name)
            numbers = (text.try_cast(kind).cast("variant") for kind in ("long", "double"))
            return F.coalesce(*numbers).alias(item.alias)
        case _:
            return column(item.alias)


def _column_name(item: Aggregate) -> str:
    return f"{_COLLECTED}{item.alias}" if item.kind in OVER_RECORDS else item.alias


def _expression(  # noqa: C901, PLR0912 - a case for each kind
    item: Aggregate, types: dict[str, DataType], numeric: Numeric
) -> Column:
    match item.kind:
        case "count" if item.field is None:
            return F.count(F.lit(1))
        case "column":
            return item.value if isinstance(item.value, Column) else F.expr(item.value)
        case "reduce" | "accumulate":
            return F.transform(F.array_sort(F.collect_list(F.struct(TIME, VALUE))), lambda row: row[VALUE])
    assert item.field is not None
    value, kind = column(item.field), types[item.field.lower()]
    number = to_number(value, kind, numeric)
    timed = F.when(value.isNotNull(), F.struct(F.col(TIME), value))
    match item.kind:
        case "count":
            return F.count(value)
        case "sum":
            return F.try_sum(number) if overflows(item, kind, numeric) else F.sum(number)
        case "avg":
            return F.try_avg(number) if overflows(item, kind, numeric) else F.avg(number)
        case "min":
            return _extreme(value, number, F.min, F.min_by) if isinstance(kind, StringType) else F.min(value)
        case "max":
            return _extreme(value, number, F.max, F.max_by) if isinstance(kind, StringType) else F.max(value)
        case "first":
            return F.min_by(value, timed)
        case "last":
            return F.max_by(value, timed)
        case "concat":
            return _concat(value, str(item.value))
        case "distinct":
            return F.array_sort(_distinct(value, kind))
        case "count_distinct":
            return F.size(_distinct(value, kind)).cast("long")
        case "count_distinct_large":
            return F.approx_count_distinct(value, _LARGE_ERROR)
        case other:
            assert_never(other)


def _distinct(value: Column, kind: DataType) -> Column:
    """Return the set of the values. Spark before 4.2 keeps each NaN in it."""
    found = F.collect_set(value)
    return F.array_distinct(found) if isinstance(kind, FloatType | DoubleType) else found


def _concat(value: Column, separator: str) -> Column:
    """Return the values as texts, in the order of their times."""
    texts = F.array_sort(F.collect_list(F.struct(F.col(TIME), value.cast("string").alias("v"))))
    return F.array_join(F.transform(texts, lambda row: row["v"]), separator)


def to_number(value: Column, kind: DataType, numeric: Numeric) -> Column:
    """Return a field's value as the number for sums and averages."""
    if isinstance(kind, StringType):
        return value.try_cast(DECIMAL if numeric == "decimal" else "double")
    if numeric == "decimal" and kind.simpleString() in {"double", "float"}:
        return value.try_cast(DECIMAL)
    return value


def _extreme(
    value: Column, number: Column, plain: Callable[[Column], Column], by: Callable[[Column, Column], Column]
) -> Column:
    """Compare texts as numbers if all texts of a group are numeric, else as texts."""
    order = F.when(value.isNotNull(), F.struct(number, _spell(value)))
    return F.when(F.count(value) == F.count(number), by(value, order)).otherwise(plain(value))


def _spell(value: Column) -> Column:
    """Return texts in the order of their numbers, where these are the same double.

    A text, and no decimal, because windows of earlier releases have one in their state.
    """
    exact = value.try_cast(DECIMAL)
    digits = F.lpad(F.abs(exact).cast("string"), 40, "0")
    falling = F.translate(digits, "0123456789", "9876543210")
    sign = F.when(exact.isNull(), " ").when(exact < 0, "-").otherwise("0")
    number = F.when(exact.isNull(), "").when(exact < 0, falling).otherwise(digits)
    return F.concat(sign, number, F.lit(" "), value)


def _compute_at_end(function: Callable[[list[Any]], Any], name: str) -> Column:
    def compute(groups: pd.Series) -> pd.Series:
        return pd.Series([to_json(function([json.loads(text) for text in group])) for group in groups])

    arrow = pandas_udf(compute, returnType=StringType())  # type: ignore[call-overload]
    return parse_result(arrow(column(name)))


def _run_accumulator(accumulator: Any) -> Callable[[list[Any]], Any]:
    """Return a function of all records of a group for an accumulator of either API."""

    def newer(values: list[Any]) -> Any:
        state = accumulator.clone()
        for value in values:
            state.addValue(value)
        return state.result(None)

    def older(values: list[Any]) -> Any:
        state = accumulator.createAccumulator()
        for value in values:
            after = accumulator.accumulate(state, value)
            state = state if after is None else after
        return accumulator.getValue(state)

    return newer if isinstance(accumulator, Accumulator) else older
