"""The columns of steps with state: as a Python worker gets and gives them.

# Facts (Spark 4.3): a TIMESTAMP comes to a Python worker as its local time: here it is a number of
# microseconds.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FractionalType,
    IntegralType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.sql.state.processors import AT, DIGITS, REMOVALS
from pyspark_rocketmq.sql.state.steps import CHANGE, KEY, OP, Aggregate, Fold

__all__ = [
    "FlatColumns",
    "change_of_op",
    "key_columns",
    "key_names",
    "plain_column",
    "plain_types",
    "require_state",
    "restored",
    "result_type",
]

_DIGITS_OF_AVG: Final = 6
"""After the point of an average of decimals, at least: as in Flink."""


def require_state() -> None:
    """Check that Spark can keep state in Python workers.

    Raises
    ------
    OptionError
    """
    what = "a query of a stream with separate state keeps it in Python workers, which"
    FEATURES.require("4.1", what, "use that release")
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise OptionError(
            "the query keeps state in Python workers, for which Spark needs protobuf: "
            'pip install "pyspark-rocketmq[state]"'
        )


def plain_column(value: Column, field: StructField) -> Column:
    """Return a column as it is given to a worker: without a watermark, and times as microseconds."""
    if isinstance(field.dataType, TimestampType):
        value = F.unix_micros(value)
    return value.alias(field.name, metadata={})


def plain_types(schema: StructType) -> StructType:
    """Return the types of columns as a worker gives them."""
    return StructType(
        [
            StructField(f.name, LongType() if isinstance(f.dataType, TimestampType) else f.dataType)
            for f in schema.fields
        ]
    )


def restored(field: StructField) -> Column:
    """Return a column that a worker gives with its type."""
    value = F.col(field.name)
    if isinstance(field.dataType, TimestampType):
        value = F.timestamp_micros(value)
    return value.alias(field.name)


def result_type(aggregate: Aggregate, given: DataType | None) -> DataType:
    """Return the type of an aggregate's result.

    Raises
    ------
    OptionError
        It adds what is no number.
    """
    match aggregate.fold:
        case Fold.COUNT:
            return LongType()
        case Fold.MIN | Fold.MAX | Fold.ANY_VALUE:
            assert given is not None
            return given
    if isinstance(given, DecimalType):
        if aggregate.fold is Fold.SUM:
            return DecimalType(min(DIGITS, given.precision + 10), given.scale)
        return DecimalType(DIGITS, max(_DIGITS_OF_AVG, given.scale))
    if isinstance(given, IntegralType):
        return LongType() if aggregate.fold is Fold.SUM else DoubleType()
    if isinstance(given, FractionalType):
        return DoubleType()
    name = "nothing" if given is None else given.simpleString()
    raise OptionError(f"{aggregate.fold}(x) adds numbers, not {name}: CAST(x AS DOUBLE)")


def key_names(count: int) -> list[str]:
    """Return the names of `key_columns`."""
    return [f"{KEY}{at}" for at in range(count)] or [KEY]


def key_columns(rows: DataFrame, count: int) -> list[Column]:
    """Return the keys; a number if there is none."""
    names = [f"{KEY}{at}" for at in range(count)]
    return [plain_column(F.col(name), rows.schema[name]) for name in names] or [F.lit(0).alias(KEY)]


def change_of_op() -> Column:
    """Return the column `CHANGE` of what a worker gives: old rows come before new ones."""
    is_new = (~F.col(OP).isin(*REMOVALS)).cast("long")
    position = F.struct(is_new.alias("queueOffset"), F.col(AT).cast("int").alias("index"))
    return F.struct(F.col(OP).alias("op"), position.alias("position")).alias(CHANGE)


class FlatColumns:
    """Columns that pass a worker: the fields of structs as single columns, under other names.

    Parameters
    ----------
    rows : DataFrame
    names : sequence of str
        Of the columns.
    prefix : str
        How the other names begin.
    """

    def __init__(self, rows: DataFrame, names: Sequence[str], prefix: str) -> None:
        self.fields: list[StructField] = []
        self._values: list[Column] = []
        self._shape: list[tuple[str, list[tuple[str, StructField]] | None, StructField]] = []
        self._present: dict[str, StructField] = {}
        """Whether a struct that may be NULL is not."""
        for name in names:
            kind = rows.schema[name].dataType
            inner = [StructField(name, kind)]
            if isinstance(kind, StructType):
                inner = kind.fields
            made = []
            for field in inner:
                value = F.col(f"`{name}`.`{field.name}`" if isinstance(kind, StructType) else f"`{name}`")
                new = StructField(f"{prefix}{len(self.fields)}", field.dataType)
                self.fields.append(new)
                self._values.append(plain_column(value, new))
                made.append((field.name, new))
            if isinstance(kind, StructType) and rows.schema[name].nullable:
                self._present[name] = StructField(f"{prefix}{len(self.fields)}", BooleanType())
                self.fields.append(self._present[name])
                self._values.append(F.col(f"`{name}`").isNotNull().alias(self._present[name].name))
            self._shape.append((name, made if isinstance(kind, StructType) else None, self.fields[-1]))

    @property
    def names(self) -> list[str]:
        """The other names."""
        return [field.name for field in self.fields]

    def values(self) -> list[Column]:
        """Return the columns for the worker."""
        return self._values

    def nothing(self) -> list[Column]:
        """Return columns of the same types without values."""
        return [
            F.lit(None).cast(field.dataType).alias(field.name)
            for field in plain_types(StructType(self.fields))
        ]

    def restored(self, present: Column | None = None) -> list[Column]:
        """Return the columns as they were, from what the worker gives. Absent structs are NULL."""
        found = []
        for name, inner, field in self._shape:
            if inner is None:
                found.append(restored(field).alias(name))
                continue
            value = F.struct(*(restored(new).alias(old) for old, new in inner))
            given = F.col(self._present[name].name) if name in self._present else present
            found.append((value if given is None else F.when(given, value)).alias(name))
        return found
