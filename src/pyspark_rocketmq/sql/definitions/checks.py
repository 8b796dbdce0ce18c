"""Checks of a table's definition, once its columns are known."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketmq.sql.statements import Column, Name, PhysicalColumn, Watermark

__all__ = ["check_key", "check_watermark", "refuse_twice"]


def refuse_twice(names: Sequence[Name], what: str) -> None:
    """Check that no name is given twice.

    Raises
    ------
    SqlError
    """
    seen: set[str] = set()
    for name in names:
        if name.key in seen:
            name.position.fail(f"{what} {name.text!r} is given twice")
        seen.add(name.key)


def check_key(key: Sequence[Name], columns: Sequence[Column]) -> tuple[Name, ...]:
    """Check that a primary key names columns of the body, and return it.

    Raises
    ------
    SqlError
    """
    refuse_twice(key, "column of the primary key")
    physical = {column.name.key for column in columns if isinstance(column, PhysicalColumn)}
    for name in key:
        if name.key not in physical:
            name.position.fail(f"the primary key names {name.text!r}, which is no column of the body")
    return tuple(key)


def check_watermark(watermark: Watermark, columns: Sequence[Column]) -> Watermark:
    """Check that a watermark is that of a column, and return it.

    Raises
    ------
    SqlError
    """
    if watermark.column.key not in {column.name.key for column in columns}:
        watermark.column.position.fail(f"the table has no column {watermark.column.text!r}")
    return watermark
