"""Steps with state as Spark's operators: ``transformWithState`` in Python workers.

# Facts (Spark 4.3, each seen): operators of ``transformWithState`` in append mode can follow each other and
# joins of streams. Their input has at most one column with a watermark, also in its metadata only. They need
# the RocksDB state store. A time to live needs ``processingTime``.
# A TIMESTAMP comes to a Python worker as its local time: here it is a number of microseconds.
"""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any, Final, assert_never

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import (
    BinaryType,
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
from pyspark_rocketmq.sql.flinksql.relations import CHANGE
from pyspark_rocketmq.sql.flinksql.state.steps import (
    ARGUMENT,
    KEY,
    ORDER,
    RESULT,
    ROW,
    Aggregate,
    Distinct,
    Fold,
    Grouping,
    Ranking,
    Step,
)
from pyspark_rocketmq.sql.plan.state.groups import Group
from pyspark_rocketmq.sql.plan.state.rankings import Line, Ranked, differences

__all__ = ["STATE_SETTINGS", "run_step"]

STATE_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""What a query with such steps needs when it starts."""

_OP: Final = "__op"
_AT: Final = "__at"
_COLUMN: Final = "__c"
_REMOVALS: Final = frozenset({"-U", "-D"})
_DIGITS: Final = 38
_STATE: Final = StructType([StructField("state", BinaryType())])


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
        columns.append(F.col(f"{CHANGE}.op").alias(_OP))
    names = [f"{KEY}{at}" for at in range(keys)]
    given = rows.select(*columns)
    if not names:
        given, names = given.withColumn(KEY, F.lit(0)), [KEY]
    schema = StructType([*output.fields, StructField(_OP, StringType()), StructField(_AT, LongType())])
    mode = "none" if ttl_ms is None else "processingTime"
    found = given.groupBy(*names).transformWithState(processor, _plain_types(schema), "append", mode)
    is_new = (~F.col(_OP).isin(*_REMOVALS)).cast("long")
    position = F.struct(is_new.alias("queueOffset"), F.col(_AT).cast("int").alias("index"))
    change = F.struct(F.col(_OP).alias("op"), position.alias("position")).alias(CHANGE)
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
            return DecimalType(min(_DIGITS, given.precision + 10), given.scale)
        return DecimalType(min(_DIGITS, given.precision + 4), min(_DIGITS, given.scale + 4))
    if isinstance(given, IntegralType):
        return LongType() if aggregate.fold is Fold.SUM else DoubleType()
    if isinstance(given, FractionalType):
        return DoubleType()
    name = "nothing" if given is None else given.simpleString()
    raise OptionError(f"{aggregate.fold}(x) adds numbers, not {name}: CAST(x AS DOUBLE)")


class _Keeper(StatefulProcessor):
    """Keeps one value for each key, and gives the changes of its result.

    Parameters
    ----------
    output : StructType
    changes : bool
        Whether rows are taken back.
    ttl_ms : int, optional
    """

    def __init__(self, output: StructType, *, changes: bool, ttl_ms: int | None) -> None:
        self._changes = changes
        self._ttl_ms = ttl_ms
        self._row = Row(*(field.name for field in output.fields), _OP, _AT)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("key", _STATE, self._ttl_ms)

    def load(self) -> Any:
        """Return what is kept; None for a new key."""
        found = self._state.get()
        return None if found is None else pickle.loads(found[0])  # noqa: S301 - what we wrote ourselves

    def save(self, kept: Any) -> None:
        """Keep a value. None forgets the key."""
        if kept is None:
            self._state.clear()
        else:
            self._state.update((pickle.dumps(kept),))

    def sign(self, row: Row) -> int:
        """Return -1 for a row that is taken back, otherwise 1."""
        return -1 if self._changes and row[_OP] in _REMOVALS else 1


class GroupChanges(_Keeper):
    """The changes of groups' results. A batch gives at most one change of a group."""

    def __init__(self, grouping: Grouping, output: StructType, *, changes: bool, ttl_ms: int | None) -> None:
        super().__init__(output, changes=changes, ttl_ms=ttl_ms)
        self._grouping = grouping
        kinds = [field.dataType for field in output.fields[grouping.keys :]]
        self._scales = [kind.scale if isinstance(kind, DecimalType) else None for kind in kinds]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Add a batch's rows of a group, and emit the change of its result."""
        del timerValues
        group, packed = Group(self._grouping, changes=self._changes), self.load()
        with localcontext(prec=2 * _DIGITS):
            if packed is not None:
                group.unpack(packed)
            old = None if packed is None or group.is_empty else self._results(group)
            names = [
                f"{ARGUMENT}{at}" if aggregate.argument else None
                for at, aggregate in enumerate(self._grouping.aggregates)
            ]
            for row in rows:
                group.add(self.sign(row), [None if name is None else _value(row[name]) for name in names])
            new = None if group.is_empty else self._results(group)
        keys = tuple(key) if self._grouping.keys else ()
        forgotten = new is None and group.rows == 0
        self.save(None if forgotten else group.pack())
        if old is not None and repr(old) != repr(new):
            yield self._row(*keys, *old, "-D" if new is None else "-U", 0)
        if new is not None and repr(old) != repr(new):
            yield self._row(*keys, *new, "+I" if old is None else "+U", 1)

    def _results(self, group: Group) -> tuple[Any, ...]:
        return tuple(
            value if scale is None or value is None else Decimal(value).quantize(Decimal(1).scaleb(-scale))
            for value, scale in zip(group.results(), self._scales, strict=True)
        )


def _value(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


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


class RankChanges(_Keeper):
    """The changes of the first rows of a key."""

    def __init__(
        self,
        ranking: Ranking,
        columns: Sequence[str],
        output: StructType,
        *,
        changes: bool,
        ttl_ms: int | None,
    ) -> None:
        super().__init__(output, changes=changes, ttl_ms=ttl_ms)
        self._ranking = ranking
        self._columns = tuple(columns)
        self._orders = tuple(f"{ORDER}{at}" for at in range(len(ranking.order)))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Rank a batch's rows of a key, and emit the changes of its first rows."""
        del key, timerValues
        ranked = Ranked(self._ranking, changes=self._changes)
        ranked.lines = self.load() or []
        before = ranked.first()
        added: list[Line] = []
        removed: list[Line] = []
        for row in rows:
            order = tuple(_value(row[name]) for name in self._orders)
            line = (order, tuple(_value(row[name]) for name in self._columns))
            (added if self.sign(row) > 0 else removed).append(line)
        ranked.change(added, removed)
        self.save(ranked.lines or None)
        for at, (kind, values, rank) in enumerate(differences(self._ranking, before, ranked.first())):
            yield self._row(*values, rank, kind, at)
