"""The declared columns of a table: those that an INSERT fills, computed ones, and the watermark's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.spark.body_formats import quote as quoted_text
from pyspark_rocketmq.sql.metadata import metadata_of
from pyspark_rocketmq.sql.statements import (
    ComputedColumn,
    CreateTable,
    MetadataColumn,
    Name,
    PhysicalColumn,
    Position,
)

__all__ = ["Writable", "add_computed", "mark_watermark", "quote", "required", "writable_columns"]

Writable: TypeAlias = PhysicalColumn | MetadataColumn


def quote(name: Name) -> str:
    """Return a name quoted for Spark."""
    return quoted_text(name.text)


def add_computed(declared: CreateTable, rows: DataFrame) -> DataFrame:
    """Add the computed columns, and put all columns in the order of the declaration. Others come last."""
    computed = [column for column in declared.columns if isinstance(column, ComputedColumn)]
    for column in computed:
        rows = rows.withColumn(column.name.text, F.expr(column.expression.padded))
    names = {column.name.key for column in declared.columns}
    others = [quoted_text(name) for name in rows.columns if name.lower() not in names]
    return rows.select(*(F.col(quote(column.name)) for column in declared.columns), *others)


def mark_watermark(declared: CreateTable, rows: DataFrame) -> DataFrame:
    """Set the table's watermark, if it has one."""
    mark = declared.watermark
    return rows if mark is None else rows.withWatermark(quote(mark.column), mark.delay)


def writable_columns(declared: CreateTable, names: Sequence[Name], at: Position) -> tuple[Writable, ...]:
    """Return the columns that an INSERT fills, in its order.

    Parameters
    ----------
    declared : CreateTable
        The table.
    names : sequence of Name
        The columns that the INSERT names. Empty for all writable columns.
    at : Position
        The position of the table's name in the INSERT.

    Raises
    ------
    SqlError
        A column cannot be written, does not exist, or must not be omitted.
    """
    table = declared.name.text
    able = [column for column in declared.columns if not isinstance(column, ComputedColumn)]
    writable = {
        column.name.key: column for column in able if isinstance(column, PhysicalColumn) or not column.virtual
    }
    for column in writable.values():
        if isinstance(column, MetadataColumn) and metadata_of(column).sink is None:
            there = column.name.position
            at.fail(
                f"column {column.name.text!r} of {table}, declared at line {there.line}, column "
                f"{there.column}, is metadata that can only be read: declare it VIRTUAL"
            )
    if not names:
        return tuple(writable.values())
    for name in names:
        if name.key not in writable:
            name.position.fail(
                f"{table} has no column {name.text!r} that can be written; these can: "
                f"{', '.join(column.name.text for column in writable.values())}"
            )
    left_out = writable.keys() - {name.key for name in names}
    for key in left_out:
        column = writable[key]
        if isinstance(column, PhysicalColumn) and not column.nullable:
            at.fail(f"column {column.name.text!r} of {table} is NOT NULL and gets no value")
    return tuple(writable[name.key] for name in names)


def required(column: Writable, table: str, value: Column, removed: Column | None = None) -> Column:
    """Return the value of a column of a row that is written: of a column NOT NULL, it fails for NULL.

    Parameters
    ----------
    column : PhysicalColumn or MetadataColumn
    table : str
        The table's name, for the error.
    value : Column
    removed : Column, optional
        Whether the row is a deleted one, which may have its key only.
    """
    if isinstance(column, MetadataColumn) or column.nullable:
        return value
    able = value.isNotNull() if removed is None else value.isNotNull() | removed
    why = F.lit(f"column {column.name.text!r} of {table} is NOT NULL, and a row has NULL for it")
    return F.when(able, value).otherwise(F.raise_error(why))
