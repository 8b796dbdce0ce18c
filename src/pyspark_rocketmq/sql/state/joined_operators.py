"""Joins whose rows are taken back, as Spark's operators."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pyspark_rocketmq.sql.state.columns import (
    FlatColumns,
    change_of_op,
    key_columns,
    key_names,
    plain_types,
    require_state,
)
from pyspark_rocketmq.sql.state.processors import AT, JoinChanges
from pyspark_rocketmq.sql.state.steps import CHANGE, OP, SIDE, Joining

__all__ = ["join_changes"]

_HAS: Final = ("__has_left", "__has_right")


def join_changes(left: DataFrame, right: DataFrame, join: Joining, ttl_ms: int | None) -> DataFrame:
    """Return the pairs of two sides, with their change."""
    require_state()
    sides = (left, right)
    flat = [
        FlatColumns(rows, kept, f"__{at}f")
        for at, (rows, kept) in enumerate(zip(sides, join.kept, strict=True))
    ]
    parts = []
    for at, rows in enumerate(sides):
        op = F.col(f"{CHANGE}.op") if CHANGE in rows.columns else F.lit("+I")
        values = (
            [*flat[0].values(), *flat[1].nothing()] if at == 0 else [*flat[0].nothing(), *flat[1].values()]
        )
        parts.append(rows.select(*key_columns(rows, join.keys), F.lit(at).alias(SIDE), op.alias(OP), *values))
    found = StructType(
        [
            *flat[0].fields,
            *flat[1].fields,
            *(StructField(name, BooleanType()) for name in _HAS),
            StructField(OP, StringType()),
            StructField(AT, LongType()),
        ]
    )
    processor = JoinChanges(
        (flat[0].names, flat[1].names), join.outer, StructType(found.fields[:-2]), ttl_ms=ttl_ms
    )
    mode = "none" if ttl_ms is None else "processingTime"
    grouped = parts[0].union(parts[1]).groupBy(*key_names(join.keys))
    pairs = grouped.transformWithState(processor, plain_types(found), "append", mode)
    return pairs.select(*flat[0].restored(F.col(_HAS[0])), *flat[1].restored(F.col(_HAS[1])), change_of_op())
