"""Convert messages to rows and back, with rocketmq-flink's names.

The ``Simple…`` schemas are Spark expressions. A user's subclass runs in Python, row by row, through
``mapInArrow``: slower, for conversions that no expression can do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.features import utc_arrow_schema

__all__ = [
    "KeyValueDeserializationSchema",
    "KeyValueSerializationSchema",
    "NativeReader",
    "NativeWriter",
    "Row",
    "SimpleKeyValueDeserializationSchema",
    "SimpleKeyValueSerializationSchema",
    "SimpleStringDeserializationSchema",
    "SimpleTupleDeserializationSchema",
    "deserialize_rows",
    "text_of",
]

Row: TypeAlias = Mapping[str, Any]
"""A row in Python: its values by column."""


class KeyValueDeserializationSchema(ABC):
    """Converts a message's keys and body to a row.

    Examples
    --------
    >>> class Lengths(KeyValueDeserializationSchema):
    ...     def deserializeKeyAndValue(self, key, value):
    ...         return {"id": key.decode(), "bytes": len(value)}
    ...
    ...     def getProducedType(self):
    ...         return "id STRING, bytes INT"
    """

    @abstractmethod
    def deserializeKeyAndValue(self, key: bytes | None, value: bytes) -> Row | Sequence[Any] | None:
        """Return the row, by column or in the columns' order. None drops the message."""

    @abstractmethod
    def getProducedType(self) -> StructType | str:
        """Return the row's schema, or its Spark DDL."""


class KeyValueSerializationSchema(ABC):
    """Converts a row to a message's keys and body."""

    @abstractmethod
    def serializeKey(self, row: Row) -> bytes | None:
        """Return the keys, as UTF-8."""

    @abstractmethod
    def serializeValue(self, row: Row) -> bytes | None:
        """Return the body."""


@runtime_checkable
class NativeReader(Protocol):
    """A schema of Spark expressions on ``keys`` and ``body``."""

    def columns(self) -> Sequence[Column]:
        """Return the row's columns."""


@runtime_checkable
class NativeWriter(Protocol):
    """A schema of Spark expressions on the row's columns."""

    def key_column(self) -> Column:
        """Return the keys."""

    def value_column(self) -> Column:
        """Return the body."""


class SimpleKeyValueDeserializationSchema(KeyValueDeserializationSchema):
    """The keys and the body as two text columns.

    Parameters
    ----------
    keyField, valueField : str, optional
        The column names. None omits a column.
    """

    def __init__(self, keyField: str | None = "key", valueField: str | None = "value") -> None:
        if keyField is None and valueField is None:
            raise OptionError("a row needs columns: set keyField or valueField")
        self.keyField = keyField
        self.valueField = valueField

    def deserializeKeyAndValue(self, key: bytes | None, value: bytes) -> Row:
        """Return both as texts."""
        parts = ((self.keyField, key), (self.valueField, value))
        return {name: None if part is None else part.decode() for name, part in parts if name is not None}

    def getProducedType(self) -> StructType:
        """Return one or two text columns."""
        names = [name for name in (self.keyField, self.valueField) if name is not None]
        return StructType([StructField(name, StringType()) for name in names])

    def columns(self) -> Sequence[Column]:
        """Return the same values as expressions."""
        parts = ((self.keyField, F.col("keys")), (self.valueField, F.col("body").cast("string")))
        return [column.alias(name) for name, column in parts if name is not None]


class SimpleTupleDeserializationSchema(SimpleKeyValueDeserializationSchema):
    """The keys and the body as ``Tuple2``: columns ``f0`` and ``f1``."""

    def __init__(self) -> None:
        super().__init__("f0", "f1")


class SimpleStringDeserializationSchema(SimpleKeyValueDeserializationSchema):
    """The body as text, in the column ``value``."""

    def __init__(self) -> None:
        super().__init__(None, "value")


class SimpleKeyValueSerializationSchema(KeyValueSerializationSchema):
    """The keys and body from two columns.

    Parameters
    ----------
    keyField, valueField : str, optional
        The column names. Without ``keyField`` messages have no keys.
    """

    def __init__(self, keyField: str | None = "key", valueField: str = "value") -> None:
        self.keyField = keyField
        self.valueField = valueField

    def serializeKey(self, row: Row) -> bytes | None:
        """Return the key column's text."""
        return None if self.keyField is None else _bytes_of(row.get(self.keyField))

    def serializeValue(self, row: Row) -> bytes | None:
        """Return the value column's text."""
        return _bytes_of(row.get(self.valueField))

    def key_column(self) -> Column:
        """Return the same value as an expression."""
        return (F.lit(None) if self.keyField is None else F.col(quote(self.keyField))).cast("string")

    def value_column(self) -> Column:
        """Return the same value as an expression."""
        return F.col(quote(self.valueField)).cast("string").cast("binary")


def deserialize_rows(messages: DataFrame, schema: KeyValueDeserializationSchema) -> DataFrame:
    """Return the rows of messages with the columns ``keys`` and ``body``."""
    if isinstance(schema, NativeReader):
        return messages.select(*schema.columns())
    made = schema.getProducedType()
    produced = StructType.fromDDL(made) if isinstance(made, str) else made
    if not isinstance(produced, StructType):
        raise OptionError(f"getProducedType() must give columns, not {produced.simpleString()}")
    arrow = utc_arrow_schema(produced)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, bodies = batch.column("keys").to_pylist(), batch.column("body").to_pylist()
            found = [
                _by_name(row, arrow.names)
                for key, body in zip(keys, bodies, strict=True)
                if (row := schema.deserializeKeyAndValue(None if key is None else key.encode(), body))
                is not None
            ]
            yield pa.RecordBatch.from_pylist(found, schema=arrow)

    return messages.select("keys", "body").mapInArrow(rows, produced)


def _by_name(row: Row | Sequence[Any], names: Sequence[str]) -> Row:
    return row if isinstance(row, Mapping) else dict(zip(names, row, strict=True))


def text_of(value: object) -> str | None:
    """Return the text to which Spark casts a value, where Python's text differs."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode()
        case _:
            return str(value)


def _bytes_of(value: object) -> bytes | None:
    text = text_of(value)
    return None if text is None else text.encode()
