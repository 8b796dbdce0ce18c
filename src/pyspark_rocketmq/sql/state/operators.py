"""Steps with state as Spark's operators: ``transformWithState`` in Python workers.

# Facts (Spark 4.3, each seen): operators of ``transformWithState`` in append mode can follow each other and
# joins of streams. Their input has at most one column with a watermark, also in its metadata only. They need
# the RocksDB state store. A time to live needs ``processingTime``.
# A TIMESTAMP comes to a Python worker as its local time: here it is a number of microseconds.
"""

from __future__ import annotations

import importlib.util
from typing import Final, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
)
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FractionalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.sql.state.processors import AT, DIGITS, OP, REMOVALS, GroupChanges, RankChanges
from pyspark_rocketmq.sql.state.steps import (
    ARGUMENT,
    CHANGE,
    KEY,
    RESULT,
    ROW,
    Aggregate,
    Distinct,
    Fold,
    Grouping,
    Ranking,
    Step,
)

__all__ = ["run_step"]

_COLUMN: Final = "__c"


def run_step(rows: DataFrame, step: Step, ttl_ms: int | None) -> DataFrame:
    """Return the result of a step.

    Parameters
    ----------
    rows : DataFrame
        What it reads.
    step : Step
    ttl_ms : int, optional
        How long the state of a key is kept after its last row.

    Raises
    ------
    OptionError
        Spark is too old, or a library is missing.
    """
    match step.operation:
        case Distinct():
            return rows.dropDuplicates()
        case Grouping():
            return _grouped(rows, step, step.operation, ttl_ms)
        case Ranking():
            return _ranked(rows, step, step.operation, ttl_ms)
        case _:
            assert_never(step.operation)


def _require_state() -> None:
    what = "a query of a stream whose rows are taken back keeps state in Python workers, which"
    FEATURES.require("4.1", what, "use that release")
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise OptionError(
            "the query keeps state in Python workers, for which Spark needs protobuf: "
            'pip install "pyspark-rocketmq[state]"'
        )


def _keep(  # noqa: PLR0917 - of one step
    rows: DataFrame,
    step: Step,
    keys: int,
    processor: StatefulProcessor,
    output: StructType,
    ttl_ms: int | None,
) -> DataFrame:
    """Run a processor; return its rows with the column `CHANGE`, the last."""
    _require_state()
    columns = [_plain(rows, field) for field in rows.schema.fields if field.name != CHANGE]
    if step.changes:
        columns.append(F.col(f"{CHANGE}.op").alias(OP))
    names = [f"{KEY}{at}" for at in range(keys)]
    given = rows.select(*columns)
    if not names:
        given, names = given.withColumn(KEY, F.lit(0)), [KEY]
    schema = StructType([*output.fields, StructField(OP, StringType()), StructField(AT, LongType())])
    mode = "none" if ttl_ms is None else "processingTime"
    found = given.groupBy(*names).transformWithState(processor, _plain_types(schema), "append", mode)
    is_new = (~F.col(OP).isin(*REMOVALS)).cast("long")
    position = F.struct(is_new.alias("queueOffset"), F.col(AT).cast("int").alias("index"))
    change = F.struct(F.col(OP).alias("op"), position.alias("position")).alias(CHANGE)
    return found.select(*(_restored(field) for field in output.fields), change)


def _plain(rows: DataFrame, field: StructField) -> Column:
    value = rows[field.name]
    if isinstance(field.dataType, TimestampType):
        value = F.unix_micros(value)
    return value.alias(field.name, metadata={})  # without a watermark


def _plain_types(schema: StructType) -> StructType:
    return StructType(
        [
            StructField(f.name, LongType() if isinstance(f.dataType, TimestampType) else f.dataType)
            for f in schema.fields
        ]
    )


def _restored(field: StructField) -> Column:
    value = F.col(field.name)
    if isinstance(field.dataType, TimestampType):
        value = F.timestamp_micros(value)
    return value.alias(field.name)


# --- groups -----------------------------------------------------------------------------------


def _grouped(rows: DataFrame, step: Step, grouping: Grouping, ttl_ms: int | None) -> DataFrame:
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    fields = [StructField(f"{KEY}{at}", kinds[f"{KEY}{at}"]) for at in range(grouping.keys)]
    for at, aggregate in enumerate(grouping.aggregates):
        given = kinds.get(f"{ARGUMENT}{at}")
        fields.append(StructField(f"{RESULT}{at}", _result_type(aggregate, given)))
    processor = GroupChanges(grouping, StructType(fields), changes=step.changes, ttl_ms=ttl_ms)
    return _keep(rows, step, grouping.keys, processor, StructType(fields), ttl_ms)


def _result_type(aggregate: Aggregate, given: DataType | None) -> DataType:
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


# --- rankings ---------------------------------------------------------------------------------


def _ranked(rows: DataFrame, step: Step, ranking: Ranking, ttl_ms: int | None) -> DataFrame:
    inner = rows.schema[ROW].dataType
    assert isinstance(inner, StructType)
    columns = [f"{_COLUMN}{at}" for at in range(len(inner.fields))]
    parts = [
        F.col(f"{ROW}.`{field.name}`").alias(name) for field, name in zip(inner.fields, columns, strict=True)
    ]
    others = [name for name in rows.columns if name != ROW]
    given = rows.select(*others, *parts)
    fields = [StructField(name, field.dataType) for field, name in zip(inner.fields, columns, strict=True)]
    output = StructType([*fields, StructField(ranking.rank, LongType())])
    processor = RankChanges(ranking, columns, output, changes=step.changes, ttl_ms=ttl_ms)
    found = _keep(given, step, ranking.keys, processor, output, ttl_ms)
    return found.toDF(*(field.name for field in inner.fields), ranking.rank, CHANGE)
