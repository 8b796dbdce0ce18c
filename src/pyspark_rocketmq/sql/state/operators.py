"""Steps with state as Spark's operators: ``transformWithState`` in Python workers.

# Facts (Spark 4.3, each seen): operators of ``transformWithState`` in append mode can follow each other and
# joins of streams. Their input has at most one column with a watermark, also in its metadata only. They need
# the RocksDB state store. A time to live needs ``processingTime``.
"""

from __future__ import annotations

from typing import Final, assert_never

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
)
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_rocketmq.sql.state.columns import (
    change_of_op,
    plain_column,
    plain_types,
    require_state,
    restored,
    result_type,
)
from pyspark_rocketmq.sql.state.joined_operators import join_changes
from pyspark_rocketmq.sql.state.processors import AT, GroupChanges, RankChanges
from pyspark_rocketmq.sql.state.steps import (
    ARGUMENT,
    CHANGE,
    KEY,
    OP,
    RESULT,
    ROW,
    Distinct,
    Grouping,
    Joining,
    Over,
    Ranking,
    Step,
    Versioned,
)
from pyspark_rocketmq.sql.state.timed_operators import join_versions, run_over

__all__ = ["run_step"]

_COLUMN: Final = "__c"


def run_step(rows: DataFrame, step: Step, ttl_ms: int | None, other: DataFrame | None = None) -> DataFrame:
    """Return the result of a step.

    Parameters
    ----------
    rows : DataFrame
        What it reads.
    step : Step
    ttl_ms : int, optional
        How long the state of a key is kept after its last row.
    other : DataFrame, optional
        What a join reads besides.

    Raises
    ------
    OptionError
        Spark is too old, a library is missing, or a time has no watermark.
    """
    match step.operation:
        case Distinct():
            return rows.dropDuplicates()
        case Grouping():
            return _grouped(rows, step, step.operation, ttl_ms)
        case Ranking():
            return _ranked(rows, step, step.operation, ttl_ms)
        case Over():
            return run_over(rows, step.operation)
        case Versioned():
            assert other is not None
            return join_versions(rows, other, step.operation)
        case Joining():
            assert other is not None
            return join_changes(rows, other, step.operation, ttl_ms)
        case _:
            assert_never(step.operation)


def _keep(  # noqa: PLR0917 - of one step
    rows: DataFrame,
    step: Step,
    keys: int,
    processor: StatefulProcessor,
    output: StructType,
    ttl_ms: int | None,
) -> DataFrame:
    """Run a processor; return its rows with the column `CHANGE`, the last."""
    require_state()
    columns = [plain_column(rows[field.name], field) for field in rows.schema.fields if field.name != CHANGE]
    if step.changes:
        columns.append(F.col(f"{CHANGE}.op").alias(OP))
    names = [f"{KEY}{at}" for at in range(keys)]
    given = rows.select(*columns)
    if not names:
        given, names = given.withColumn(KEY, F.lit(0)), [KEY]
    schema = StructType([*output.fields, StructField(OP, StringType()), StructField(AT, LongType())])
    mode = "none" if ttl_ms is None else "processingTime"
    found = given.groupBy(*names).transformWithState(processor, plain_types(schema), "append", mode)
    return found.select(*(restored(field) for field in output.fields), change_of_op())


# --- groups -----------------------------------------------------------------------------------


def _grouped(rows: DataFrame, step: Step, grouping: Grouping, ttl_ms: int | None) -> DataFrame:
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    fields = [StructField(f"{KEY}{at}", kinds[f"{KEY}{at}"]) for at in range(grouping.keys)]
    for at, aggregate in enumerate(grouping.aggregates):
        given = kinds.get(f"{ARGUMENT}{at}")
        fields.append(StructField(f"{RESULT}{at}", result_type(aggregate, given)))
    processor = GroupChanges(grouping, StructType(fields), changes=step.changes, ttl_ms=ttl_ms)
    return _keep(rows, step, grouping.keys, processor, StructType(fields), ttl_ms)


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
