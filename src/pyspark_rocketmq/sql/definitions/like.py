"""``CREATE TABLE … LIKE``: a table's definition with the parts of another one.

# Facts (Flink 1.20 and 2.0, SqlTableLike, MergeTableLikeUtil): without options, LIKE is INCLUDING ALL
OVERWRITING OPTIONS. INCLUDING fails where both tables declare the same, OVERWRITING takes the new table's.
Physical columns are always included, before the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark_rocketmq.sql.statements import (
    Column,
    ComputedColumn,
    CreateTable,
    MetadataColumn,
    Name,
    Position,
    TableOption,
    Watermark,
)

__all__ = ["MERGES", "PARTS", "Like", "Merge", "Parts", "merge_like"]


class Merge(StrEnum):
    """What LIKE does with a part of the other table."""

    INCLUDING = "INCLUDING"
    EXCLUDING = "EXCLUDING"
    OVERWRITING = "OVERWRITING"


MERGES: Final = tuple(merge.value for merge in Merge)

PARTS: Final = ("CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")
"""The parts of a definition that LIKE can include or exclude."""

_WITHOUT_OVERWRITING: Final = frozenset({"CONSTRAINTS", "DISTRIBUTION", "PARTITIONS"})
_DEFAULTS: Final[Mapping[str, Merge]] = {
    **dict.fromkeys(PARTS, Merge.INCLUDING),
    "OPTIONS": Merge.OVERWRITING,
}


@dataclass(frozen=True, slots=True)
class Like:
    """``LIKE source (merge part, …)``.

    Parameters
    ----------
    source : Name
    merges : mapping of str to Merge
        By part, in upper case. ``ALL`` is every part that is not named.
    """

    source: Name
    merges: Mapping[str, Merge]

    def of(self, part: str) -> Merge:
        """Return what becomes of a part."""
        return self.merges.get(part, self.merges.get("ALL", _DEFAULTS[part]))


@dataclass(frozen=True, slots=True)
class Parts:
    """What a definition consists of.

    Parameters
    ----------
    columns : tuple of Column
    watermark : Watermark, optional
    key : tuple of Name
        The columns of ``PRIMARY KEY``.
    options : tuple of TableOption
    partitions : tuple of Name
    """

    columns: tuple[Column, ...]
    watermark: Watermark | None
    key: tuple[Name, ...]
    options: tuple[TableOption, ...]
    partitions: tuple[Name, ...]


def merge_like(own: Parts, like: Like, source: CreateTable) -> Parts:
    """Return a definition with the parts of another one.

    Raises
    ------
    SqlError
        Both declare a part that is included.
    """
    watermark, key, partitions = source.watermark, source.primary_key, source.partitions
    if like.of("WATERMARKS") is Merge.EXCLUDING:
        watermark = None
    if own.watermark is not None:
        if watermark is not None and like.of("WATERMARKS") is Merge.INCLUDING:
            _fail_twice(own.watermark.column.position, "a watermark", like, "WATERMARKS")
        watermark = own.watermark
    if like.of("CONSTRAINTS") is Merge.EXCLUDING:
        key = ()
    if own.key:
        if key:
            _fail_twice(own.key[0].position, "a primary key", like, "CONSTRAINTS")
        key = own.key
    if like.of("PARTITIONS") is Merge.EXCLUDING:
        partitions = ()
    if own.partitions:
        if partitions:
            _fail_twice(own.partitions[0].position, "partitions", like, "PARTITIONS")
        partitions = own.partitions
    return Parts(
        _merge_columns(own.columns, like, source.columns),
        watermark,
        key,
        _merge_options(own.options, like, source.options),
        partitions,
    )


def _merge_columns(own: Sequence[Column], like: Like, others: Sequence[Column]) -> tuple[Column, ...]:
    found: dict[str, Column] = {}
    for column in others:
        part = _part(column)
        if part is None or like.of(part) is not Merge.EXCLUDING:
            found[column.name.key] = column
    for column in own:
        other = found.get(column.name.key)
        part = None if other is None else _part(other)
        if other is not None and (
            part is None or part != _part(column) or like.of(part) is not Merge.OVERWRITING
        ):
            _fail_twice(column.name.position, f"the column {column.name.text!r}", like, part)
        found[column.name.key] = column
    return tuple(found.values())


def _part(column: Column) -> str | None:
    match column:
        case ComputedColumn():
            return "GENERATED"
        case MetadataColumn():
            return "METADATA"
    return None


def _merge_options(
    own: Sequence[TableOption], like: Like, others: Sequence[TableOption]
) -> tuple[TableOption, ...]:
    merge = like.of("OPTIONS")
    if merge is Merge.EXCLUDING:
        return tuple(own)
    given = {option.name.lower(): option for option in own}
    kept = [option for option in others if option.name.lower() not in given]
    if merge is Merge.INCLUDING:
        for option in others:
            if mine := given.get(option.name.lower()):
                _fail_twice(mine.position, f"the option {mine.name!r}", like, "OPTIONS")
    return (*kept, *own)


def _fail_twice(at: Position, what: str, like: Like, part: str | None) -> None:
    instead = "EXCLUDING" if part in _WITHOUT_OVERWRITING else "OVERWRITING"
    how = f": LIKE {like.source.text} ({instead} {part}) uses this one" if part else ""
    at.fail(f"{like.source.text} declares {what}, too{how}")
