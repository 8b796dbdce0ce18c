"""Steps that wait for the watermark as Spark's operators.

# Facts (Spark 4.3, each seen): the input of ``transformWithState`` has one column with a watermark, and the
# union of two streams waits for both of their watermarks. The fields of a struct need no watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BooleanType, StructField, StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.sql.state.columns import plain_column, plain_types, require_state, restored, result_type
from pyspark_rocketmq.sql.state.steps import ARGUMENT, KEY, OP, RESULT, VERSION, Over, Versioned
from pyspark_rocketmq.sql.state.timers import TIME, JoinVersions, OverRows

__all__ = ["join_versions", "run_over"]

_MARK: Final = "spark.watermarkDelayMs"
_CLOCK: Final = "__clock"
"""The column with the watermark."""
_HAS_VERSION: Final = "__has_version"


class _Flat:
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
            found.append((value if present is None else F.when(present, value)).alias(name))
        return found


def run_over(rows: DataFrame, over: Over) -> DataFrame:
    """Return rows with the aggregates of the rows before them.

    Raises
    ------
    OptionError
        Their time has no watermark.
    """
    _require_watermark(rows, "ORDER BY of OVER")
    kept = _Flat(rows, [name for name in rows.columns if not name.startswith((KEY, ARGUMENT, TIME))], "__f")
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
    given = rows.select(*_keys(rows, over.keys), *_times(), *arguments, *kept.values())
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
    _require_watermark(rows, "FOR SYSTEM_TIME AS OF")
    left, right = _Flat(rows, join.kept, "__f"), _Flat(versions, [VERSION], "__v")
    of_rows = rows.select(
        *_keys(rows, join.keys),
        *_times(),
        F.lit(None).cast("string").alias(OP),
        *left.values(),
        *right.nothing(),
    )
    of_versions = versions.select(
        *_keys(versions, join.keys),
        *_times(),
        F.col(OP),
        *left.nothing(),
        *right.values(),
    )
    output = StructType([*left.fields, *right.fields, StructField(_HAS_VERSION, BooleanType())])
    processor = JoinVersions(left.names, right.names, output, outer=join.outer)
    found = _wait(of_rows.union(of_versions), join.keys, processor, output)
    return found.select(*left.restored(), *right.restored(F.col(_HAS_VERSION)))


def _require_watermark(rows: DataFrame, what: str) -> None:
    if _MARK not in rows.schema[TIME].metadata:
        raise OptionError(
            f"{what} of a stream needs a time with a watermark: the column of WATERMARK FOR, or window_time"
        )


def _keys(rows: DataFrame, count: int) -> list[Column]:
    names = [f"{KEY}{at}" for at in range(count)]
    return [plain_column(F.col(name), rows.schema[name]) for name in names] or [F.lit(0).alias(KEY)]


def _times() -> list[Column]:
    """Return the time as a number, and with its watermark."""
    return [F.unix_micros(TIME).alias(TIME, metadata={}), F.col(TIME).alias(_CLOCK)]


def _wait(rows: DataFrame, keys: int, processor: StatefulProcessor, output: StructType) -> DataFrame:
    require_state()
    names = [f"{KEY}{at}" for at in range(keys)] or [KEY]
    grouped = rows.groupBy(*names)
    return grouped.transformWithState(processor, plain_types(output), "append", "eventTime")
