"""Numbers that users write: 64-bit ones, and times in milliseconds."""

from __future__ import annotations

from typing import Final

__all__ = ["parse_long", "parse_milliseconds"]

_MAX_LONG: Final = (1 << 63) - 1
_CENTURY_MS: Final = range(946_684_800_000, 4_102_444_800_000)
"""2000 to 2100."""


def parse_long(number: int) -> int:
    """Return a number that fits into 64 bits.

    Raises
    ------
    ValueError
    """
    if number > _MAX_LONG:
        raise ValueError(f"{number} is not a 64-bit number")
    return number


def parse_milliseconds(number: int) -> int:
    """Return a time in milliseconds since the epoch.

    A time of 2000 to 2100 in another unit would be one of 1970, or after all messages: a query would silently
    read everything, or nothing.

    Raises
    ------
    ValueError
    """
    in_units = (
        ("seconds", number * 1000),
        ("microseconds", number // 1000),
        ("nanoseconds", number // 10**6),
    )
    for unit, milliseconds in in_units:
        if milliseconds in _CENTURY_MS:
            raise ValueError(f"{number} is a time in {unit}: write {milliseconds}")
    return parse_long(number)
