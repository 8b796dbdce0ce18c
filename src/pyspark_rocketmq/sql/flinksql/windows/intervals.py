"""Intervals of windows."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.statements import Query

__all__ = ["interval_micros", "interval_text", "offset_text"]

_MICROS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}


def _parts(node: exp.Expression, query: Query) -> tuple[str, str]:
    """Return the number and the unit of an interval.

    Raises
    ------
    SqlError
        It is no single number with a unit whose length is fixed.
    """
    unit, number = node.args.get("unit"), node.this
    sign = ""
    if isinstance(number, exp.Neg):
        sign, number = "-", number.this
    if isinstance(node, exp.Interval) and isinstance(number, exp.Literal) and isinstance(unit, exp.Var):
        name = unit.name.lower()
        if name.removesuffix("s") in {"month", "quarter", "year"}:
            position_of(query, node).fail(
                f"a window of {name.removesuffix('s')}s has no fixed length: use DAY, or GROUP BY "
                "DATE_FORMAT(time, 'yyyy-MM')"
            )
        return f"{sign}{number.name.strip()}", name
    return position_of(query, node).fail(
        "the interval of a window is a number and a unit: INTERVAL '10' SECOND"
    )


def interval_text(node: exp.Expression, query: Query) -> str:
    """Return an interval as Spark's windows take it.

    Raises
    ------
    SqlError
    """
    return " ".join(_parts(node, query))


def interval_micros(node: exp.Expression, query: Query) -> int:
    """Return an interval in microseconds.

    Raises
    ------
    SqlError
    """
    number, unit = _parts(node, query)
    try:
        return int(Decimal(number) * _MICROS[unit.removesuffix("s")])
    except (InvalidOperation, KeyError, OverflowError, ValueError):  # 'NaN' and 'Infinity' are decimals
        return position_of(query, node).fail(f"{number} {unit} is no interval: INTERVAL '10' SECOND")


def offset_text(offset: exp.Expression, slide: exp.Expression, query: Query) -> str:
    """Return the offset of a window. Spark's is shorter than the window's slide.

    Raises
    ------
    SqlError
    """
    given, every = interval_micros(offset, query), interval_micros(slide, query)
    if every <= 0:
        position_of(query, slide).fail("the interval of a window is positive")
    return interval_text(offset, query) if abs(given) < every else f"{given % every} microseconds"
