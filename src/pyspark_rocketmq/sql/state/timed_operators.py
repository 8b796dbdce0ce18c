"""Steps that wait for the watermark as Spark's operators.

# Facts (Spark 4.3, each seen): the input of ``transformWithState`` has one column with a watermark, and the
# union of two streams waits for both of their watermarks. The fields of a struct need no watermark. A row
# without a value in the column with the watermark is never late.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BooleanType, StructField, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.sql.state.columns import (
    FlatColumns,
    key_columns,
    key_names,
    plain_column,
    plain_types,
    require_state,
    restored,
    result_type,
)
from pyspark_rocketmq.sql.state.steps import ARGUMENT, KEY, OP, POSITION, RESULT, VERSION, Over, Versioned
from pyspark_rocketmq.sql.state.timers import TIME, JoinVersions, OverRows

__all__ = ["join_versions", "run_over"]

_MARK: Final = "spark.watermarkDelayMs"
_CLOCK: Final = "__clock"
"""The column with the watermark."""
_POSITION_TYPE: Final = "array<bigint>"
_HAS_VERSION: Final = "__has_version"


def run_over(rows: DataFrame, over: Over) -> DataFrame:
    """Return rows with the aggregates of the rows before them.

    Raises
    ------
    OptionError
        Their time has no watermark.
    """
    _require_watermark(rows, "ORDER BY of OVER of a stream", "the column of WATERMARK FOR, or window_time")
    kept = FlatColumns(
        rows, [name for name in rows.columns if not name.startswith((KEY, ARGUMENT, TIME))], "__f"
    )
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    results = [
        StructField(f"{RESULT}{at}", result_type(aggregate, kinds.get(f"{ARGUMENT}{at}")))
        for at, aggregate in enumerate(over.aggregates)
    ]
    arguments = [
        plain_column(F.col(field.name), field)
        for field in rows.schema.fields
        if field.name.startswith(ARGUMENT)
    ]
    given = rows.select(*key_columns(rows, over.keys), *_times(), *arguments, *kept.values())
    output = StructType([*kept.fields, *results])
    found = _wait(given, over.keys, OverRows(over, kept.names, output), output)
    return found.select(*kept.restored(), *map(restored, results))


def join_versions(rows: DataFrame, versions: DataFrame, join: Versioned) -> DataFrame:
    """Return rows with the versions that were valid at their times.

    Raises
    ------
    OptionError
        A time has no watermark.
    """
    for side in (rows, versions):
        _require_watermark(
            side, "FOR SYSTEM_TIME AS OF a stream", "the column of WATERMARK FOR, on both sides"
        )
    has_key = " AND ".join(f"{name} IS NOT NULL" for name in key_names(join.keys))  # NULL equals nothing
    rows = rows if join.outer else rows.where(has_key)
    versions = versions.where(has_key)
    left, right = FlatColumns(rows, join.kept, "__f"), FlatColumns(versions, [VERSION], "__v")
    of_rows = rows.select(
        *key_columns(rows, join.keys),
        *_times(),
        F.lit(None).cast("string").alias(OP),
        F.lit(None).cast(_POSITION_TYPE).alias(POSITION),
        *left.values(),
        *right.nothing(),
    )
    of_versions = versions.select(
        *key_columns(versions, join.keys),
        _micros(),
        # A version is never late: a table that is read in parts has old versions after new ones.
        F.lit(None).cast("timestamp").alias(_CLOCK),
        F.col(OP),
        F.col(POSITION).cast(_POSITION_TYPE),
        *left.nothing(),
        *right.values(),
    )
    output = StructType([*left.fields, *right.fields, StructField(_HAS_VERSION, BooleanType())])
    processor = JoinVersions(left.names, right.names, output, outer=join.outer)
    found = _wait(of_rows.union(of_versions), join.keys, processor, output)
    return found.select(*left.restored(), *right.restored(F.col(_HAS_VERSION)))


def _require_watermark(rows: DataFrame, what: str, times: str) -> None:
    if _MARK not in rows.schema[TIME].metadata:
        raise OptionError(f"{what} needs a time with a watermark: {times}")


def _times() -> list[Column]:
    """Return the time as a number, and with its watermark."""
    return [_micros(), F.col(TIME).alias(_CLOCK)]


def _micros() -> Column:
    return F.unix_micros(TIME).alias(TIME, metadata={})


def _wait(rows: DataFrame, keys: int, processor: StatefulProcessor, output: StructType) -> DataFrame:
    require_state()
    grouped = rows.groupBy(*key_names(keys))
    return grouped.transformWithState(processor, plain_types(output), "append", "eventTime")
