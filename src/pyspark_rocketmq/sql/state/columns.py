"""The columns of steps with state: as a Python worker gets and gives them.

# Facts (Spark 4.3): a TIMESTAMP comes to a Python worker as its local time: here it is a number of
# microseconds.
"""

from __future__ import annotations

import importlib.util

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
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
from pyspark_rocketmq.sql.state.processors import DIGITS
from pyspark_rocketmq.sql.state.steps import Aggregate, Fold

__all__ = ["plain_column", "plain_types", "require_state", "restored", "result_type"]


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
        return DecimalType(min(DIGITS, given.precision + 4), min(DIGITS, given.scale + 4))
    if isinstance(given, IntegralType):
        return LongType() if aggregate.fold is Fold.SUM else DoubleType()
    if isinstance(given, FractionalType):
        return DoubleType()
    name = "nothing" if given is None else given.simpleString()
    raise OptionError(f"{aggregate.fold}(x) adds numbers, not {name}: CAST(x AS DOUBLE)")
