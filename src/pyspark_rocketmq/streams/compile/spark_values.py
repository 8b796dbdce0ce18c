"""Values as Spark rounds and compares them."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import Any, Final

__all__ = ["EXACT", "choose", "order", "order_number", "order_time", "round_decimal", "same"]

_DIGITS: Final = 38
"""As many as a Spark decimal has at most."""

_PLACES: Final = 10
"""Of the decimals that texts are compared as."""

_NONE: Final = decimal.Decimal("-Infinity")
"""Of texts that are no such decimals: Spark orders null first."""

EXACT: Final = decimal.Context(prec=2 * _DIGITS, rounding=decimal.ROUND_HALF_UP)
"""Enough digits for the sum of any number of Spark decimals."""


def round_decimal(value: Any, scale: int | None) -> Any:
    """Return a decimal of these places, or None if it has too many digits. Others as they are."""
    if value is None or scale is None:
        return value
    found = EXACT.quantize(value, decimal.Decimal(1).scaleb(-scale))
    return found if len(found.as_tuple().digits) <= _DIGITS else None


def same(value: Any) -> Any:
    """Return one value for all that Spark takes for equal: a set finds NaN only by its identity."""
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + 0.0


def choose(known: Any, value: Any, by: Callable[[Any], Any], *, least: bool) -> Any:
    """Return the lesser or the greater of two values, in an order. None is no value."""
    if known is None or value is None:
        return known if value is None else value
    before = by(value) < by(known)
    return value if before == least and by(value) != by(known) else known


def order(value: Any) -> tuple[bool, Any]:
    """Return the place of a value. NaN is above every number."""
    not_a_number = isinstance(value, float) and math.isnan(value)
    return not_a_number, 0 if not_a_number else value


def order_number(pair: tuple[Any, str]) -> tuple[tuple[bool, Any], decimal.Decimal, str]:
    """Return the place of a number and its text."""
    return order(pair[0]), _exact(pair[1]), pair[1]


def _exact(text: str) -> decimal.Decimal:
    """Return the number that tells a text from others of the same double."""
    try:
        found = round_decimal(decimal.Decimal(text.strip()), _PLACES)
    except decimal.InvalidOperation:  # too large, or spelled as Java does
        return _NONE
    return _NONE if found is None or found.is_nan() else found


def order_time(pair: tuple[int, Any]) -> tuple[int, tuple[bool, Any]]:
    """Return the place of a time and its value."""
    return pair[0], order(pair[1])
