"""Numbers with more digits than Spark's widest decimal has: they are errors of a record or of a result.

Spark's own sums would end the query. A record with such a number is a record with an error. A sum or average
of records without an error is null, so that a sink does not keep an earlier value, and is counted with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StringType

from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.plan.choices import Numeric
from pyspark_rocketmq.streams.plan.nodes import Aggregate, Node

__all__ = [
    "DECIMAL",
    "beyond_column",
    "overflows",
    "select_overflows",
    "without_overflow",
    "without_too_long",
]

DECIMAL: Final = "decimal(38,10)"
"""The type of sums with ``numeric("decimal")``."""

_DIGITS: Final = 38
_MORE_DIGITS: Final = 10
"""As many as Spark adds to the type of a sum: enough for 10^10 rows in a group."""

_BEYOND: Final = "__beyond_"


def overflows(item: Aggregate, kind: DataType, numeric: Numeric) -> bool:
    """Return whether a result can have more digits than a decimal."""
    if item.kind not in {"sum", "avg"}:
        return False
    if isinstance(kind, DecimalType):
        return kind.precision + _MORE_DIGITS > _DIGITS
    return _is_converted(kind, numeric)


def _is_converted(kind: DataType, numeric: Numeric) -> bool:
    return numeric == "decimal" and isinstance(kind, StringType | DoubleType | FloatType)


def beyond_column(alias: str) -> str:
    """Return the name of the hidden column that is true where a result has too many digits."""
    return f"{_BEYOND}{alias}"


def select_overflows(flow: Flow, aggregates: Iterable[Aggregate], numeric: Numeric) -> list[Aggregate]:
    """Return the results that can have more digits than a decimal."""
    return [
        item
        for item in aggregates
        if item.field is not None and overflows(item, flow.type_of(item.field), numeric)
    ]


def without_too_long(
    flow: Flow, aggregates: Iterable[Aggregate], numeric: Numeric, guard: Guard, step: Node
) -> Flow:
    """Return the records whose numbers are decimals. The others are records with an error."""
    fields = [item.field for item in select_overflows(flow, aggregates, numeric) if item.field is not None]
    errors = [
        F.when(
            column(name).try_cast("double").isNotNull() & column(name).try_cast(DECIMAL).isNull(),
            F.lit(f"{name} does not fit {DECIMAL}"),
        )
        for name in dict.fromkeys(fields)
        if _is_converted(flow.type_of(name), numeric)
    ]
    if not errors:
        return flow
    error = flow.error_unless_beat(F.coalesce(*errors))
    return replace(flow, df=guard.without_errors(flow.df, error, step))


def without_overflow(flow: Flow, overflowing: Iterable[Aggregate], guard: Guard, step: Node) -> Flow:
    """Return the results. Those that are null because they have too many digits are counted."""
    names = [item.alias for item in overflowing]
    if not names:
        return flow
    errors = [F.when(_is_beyond(name), F.lit(f"{name} has more digits than a decimal")) for name in names]
    advice = "onError('skip') makes it null and counts it"
    counted = guard.count_errors(flow.df, F.coalesce(*errors), step, advice)
    return replace(flow, df=counted.drop(*map(beyond_column, names)))


def _is_beyond(alias: str) -> Column:
    return column(beyond_column(alias))
