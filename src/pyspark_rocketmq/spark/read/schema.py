"""The columns of a read: names, Spark types, and the decoder's columns.

Spark cannot prune the columns of a Python source, so an unused column still has a cost: the default is ten
cheap columns, and others are read on request (``columns``, ``includeProperties``, or a user schema).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.choices import KAFKA_COLUMNS, BodyType, CorruptPolicy
from pyspark_rocketmq.record.decode.arrow import Column

__all__ = [
    "ALIASES",
    "COLUMN_TYPES",
    "DEFAULT_COLUMNS",
    "Projection",
    "read_schema",
    "spark_schema",
    "to_projection",
]

COLUMN_TYPES: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "msgId": StringType(),
    "keys": StringType(),
    "tags": StringType(),
    "body": BinaryType(),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "properties": MapType(StringType(), StringType()),
    "offsetMsgId": StringType(),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "reconsumeTimes": IntegerType(),
    "preparedTransactionOffset": LongType(),
    "bodyCrc": IntegerType(),
    "traceparent": StringType(),
}
"""Every column of a message, in the order of ``columns="*"``."""

DEFAULT_COLUMNS: Final = tuple(COLUMN_TYPES)[:10]

ALIASES: Final[Mapping[str, str]] = {"key": "keys", "offset": "queueOffset", "timestamp": "storeTimestamp"}
"""Column names of rocketmq-spark, and the equivalent columns."""

_EVERY_COLUMN: Final = "*"
_NEVER_NULL: Final = frozenset({"topic", "brokerName", "queueId", "queueOffset"})
_MAY_BE_NULL: Final = frozenset({"keys", "tags", "traceparent"})


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of a read, for the decoder.

    Parameters
    ----------
    columns : tuple of Column
        The user's name and the decoder's column of each field, in order.
    body_as : {"binary", "string"}
    """

    columns: tuple[Column, ...]
    body_as: BodyType


def spark_schema(schema: StructType | pa.Schema) -> StructType:
    """Return a schema as Spark passes it. Sail, another engine, passes Arrow's."""
    if isinstance(schema, StructType):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark needs none of it

    return from_arrow_schema(schema)


def read_schema(
    columns: Sequence[str] | None,
    *,
    include_properties: bool = False,
    body_as: BodyType = "binary",
    with_aliases: bool = False,
) -> StructType:
    """Return the schema of a read without a user schema.

    Parameters
    ----------
    columns : sequence of str, optional
        The names that the user selected; ``"*"`` selects all.
    include_properties : bool
        Add the column ``properties``.
    body_as : {"binary", "string"}
    with_aliases : bool
        Add the aliases ``key``, ``offset`` and ``timestamp`` to the default columns, and to ``"*"``.

    Raises
    ------
    OptionError
        A name is unknown or occurs twice.
    """
    aliases = tuple(ALIASES) if with_aliases else ()
    names = list(columns) if columns else [*DEFAULT_COLUMNS, *aliases]
    if _EVERY_COLUMN in names:
        at = names.index(_EVERY_COLUMN)
        names[at : at + 1] = [name for name in (*COLUMN_TYPES, *aliases) if name not in names]
    if include_properties and "properties" not in names:
        names.append("properties")
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise OptionError(f"columns names {_join_names(twice)} more than once")
    types = {**COLUMN_TYPES, "body": StringType() if body_as == "string" else BinaryType()}
    return StructType([StructField(name, types[_column(name, "columns")]) for name in names])


def to_projection(schema: StructType, *, on_corrupt: CorruptPolicy = CorruptPolicy.FAIL) -> Projection:
    """Check a schema, the user's or the default, and return its columns for the decoder.

    Parameters
    ----------
    schema : StructType
    on_corrupt : CorruptPolicy
        With NULL, every column that a damaged message leaves empty must be nullable.

    Raises
    ------
    OptionError
        A field is unknown, has another type than its column, or forbids nulls.
    """
    if not schema.fields:
        raise OptionError(f"the schema has no column; the columns are {_join_names(COLUMN_TYPES)}")
    columns = tuple(_check_column(field) for field in schema.fields)
    as_string = any(
        column.source == "body" and field.dataType == StringType()
        for field, column in zip(schema.fields, columns, strict=True)
    )
    if on_corrupt is CorruptPolicy.NULL:
        _check_nullable(columns)
    return Projection(columns, "string" if as_string else "binary")


def _check_nullable(columns: Iterable[Column]) -> None:
    """Check that the selected columns may be null for messages that cannot be decoded."""
    for column in columns:
        if column.source not in _NEVER_NULL and not column.nullable:
            raise OptionError(
                "onCorrupt=null puts null where a message does not decode: the column must be nullable",
                column=column.name,
            )


def _check_column(field: StructField) -> Column:
    column = _column(field.name, "the schema")
    expected = COLUMN_TYPES[column]
    if field.dataType != expected and not (column == "body" and field.dataType == StringType()):
        wanted = "binary or string" if column == "body" else expected.simpleString()
        raise OptionError(
            f"column {field.name!r} of the schema is {field.dataType.simpleString()}, but it must be "
            f"{wanted}; convert it with a DataFrame function after the read"
        )
    if column in _MAY_BE_NULL and not field.nullable:
        raise OptionError(f"column {field.name!r} of the schema must be nullable: not every message has it")
    return Column(field.name, column, field.nullable)


def _column(name: str, where: str) -> str:
    """Return the decoder's column for ``name``."""
    column = ALIASES.get(name, name)
    if column in COLUMN_TYPES:
        return column
    known = [*COLUMN_TYPES, *ALIASES]
    nearest = {candidate.lower(): candidate for candidate in known} | KAFKA_COLUMNS
    close = difflib.get_close_matches(name.lower(), nearest, n=1)
    hint = f"did you mean {nearest[close[0]]!r}?" if close else f"there are {_join_names(known)}"
    raise OptionError(f"{where} names {name!r}, which is no column of a message: {hint}")


def _join_names(names: object) -> str:
    return ", ".join(repr(name) for name in sorted(names))  # type: ignore[call-overload]
