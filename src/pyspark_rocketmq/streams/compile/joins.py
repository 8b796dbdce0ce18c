"""Joins: of two streams, in a window or an interval; of keyed streams; of a stream and a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    DataType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.frame.python_steps import (
    ADVICE,
    BEAT,
    TAG,
    TIME,
    VALUE,
    describe_error,
    to_json,
)
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.expressions import compare_fields, comparisons
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.plan.times import HoppingWindow, SessionWindow, TumblingWindow, Window

__all__ = ["PairOfValues", "join_by_key", "join_dimension", "join_streams", "join_table", "tell_apart"]

_RIGHT: Final = "__right_"
_WINDOW: Final = "__join_window"
_OTHER: Final = "__other"
_MERGED: Final = "__merged"
_OF_TEXTS: Final = frozenset({"like", "rlike"})
_EQUALITY: Final = frozenset({"=", "<>"})
_READ_AS_TEXT: Final = (StringType, VariantType)


def join_streams(left: Flow, right: Flow, node: p.StreamJoin) -> Flow:
    """Return the pairs that meet the condition. Right fields that the left also has are ``right_<name>``."""
    _check_columns(left, right, node)
    left_df, right_df = _prepare_side(left, node), _prepare_side(right, node)
    marked = right_df.select(*(F.col(quote(name)).alias(_RIGHT + name) for name in right_df.columns))
    on, equal = _parse_condition(left, right, node)
    on = on & _compare_times(node)
    how = "left_outer" if node.outer else "inner"
    joined = left_df.join(marked, on, how)
    if node.window is not None:
        joined = joined.withColumn(TIME, F.window_time(_WINDOW))
    made = Flow(df=joined, shape=Shape.COLUMNS, columns=left.columns, watermarked=True)
    return _select_pairs(made, left, right, equal)


def join_table(left: Flow, right: Flow, node: p.TableJoin) -> Flow:
    """Return the pairs of a stream's records and a table's rows, of which one side is each."""
    _check_columns(left, right, node)
    on, equal = _parse_condition(left, right, node)
    left_name, _, right_name = comparisons(node.condition, step=node.name)[0]
    if p.ends(node.left):
        stream, found = right, column(left_name).isNotNull()
        rows, table = _select_side(right, _RIGHT, right.hidden), _select_side(left, "", [])
    else:
        stream, found = left, column(_RIGHT + right_name).isNotNull()
        rows, table = _select_side(left, "", left.hidden), _select_side(right, _RIGHT, [])
    joined = _join_matches(replace(stream, df=rows), table, on, found, outer=node.outer)
    return _select_pairs(replace(stream, df=joined, shares_identity=True), left, right, equal)


def _select_side(flow: Flow, prefix: str, hidden: list[str]) -> DataFrame:
    """Return a side of a table's join, the names of its fields with a prefix."""
    return flow.df.select(*hidden, *(column(name).alias(prefix + name) for name in flow.columns))


def _select_pairs(joined: Flow, left: Flow, right: Flow, equal: set[str]) -> Flow:
    """Return the fields of both sides; right ones that the left has too are ``right_<name>``."""
    others = [name for name in right.columns if name not in equal]
    names = tell_apart(left.columns, others, "right_")
    columns = [column(_RIGHT + name).alias(shown) for name, shown in zip(others, names, strict=True)]
    return joined.select([*map(column, left.columns), *columns], [*left.columns, *names])


def tell_apart(left: Iterable[str], right: Sequence[str], prefix: str) -> list[str]:
    """Return the names of right fields beside left ones: with a prefix, or several, if another has the name.

    A right field that the left does not have keeps its name.
    """
    ours = {name.lower() for name in left}
    taken = ours | {name.lower() for name in right}
    shown = []
    for name in right:
        free = name
        while name.lower() in ours and free.lower() in taken:
            free = prefix + free
        taken.add(free.lower())
        shown.append(free)
    return shown


def _join_matches(flow: Flow, table: DataFrame, on: Column, found: Column, *, outer: bool) -> DataFrame:
    """Return a stream's records with the rows of a table that match.

    Parameters
    ----------
    found : Column
        Whether there is a match. False for heartbeats, which are kept without one.
    """
    keeps_all = outer or flow.beats
    joined = flow.df.join(table, on, "left_outer" if keeps_all else "inner")
    return joined.where(F.col(BEAT) | found) if keeps_all and not outer else joined


def join_by_key(left: Flow, right: Flow, node: p.KeyJoin, guard: Guard) -> Flow:
    """Return a function's value of every pair with equal keys in a window."""
    sides = [_prepare_keyed_side(flow, node) for flow in (left, right)]
    marked = sides[1].select(*(F.col(name).alias(_RIGHT + name) for name in sides[1].columns))
    on = (F.col(TAG) == F.col(_RIGHT + TAG)) & (F.col(_WINDOW) == F.col(_RIGHT + _WINDOW))
    joined = sides[0].join(marked, on, "left_outer" if node.outer else "inner")
    pairs = joined.select(F.window_time(_WINDOW).alias(TIME), VALUE, F.col(_RIGHT + VALUE).alias(_OTHER))
    texts = [StructField(VALUE, StringType()), StructField("__error", StringType())]
    schema = StructType([pairs.schema[TIME], *texts])
    df = pairs.mapInArrow(PairOfValues(node.name, node.function, strict=guard.mode == "fail"), schema)
    df = guard.without_errors(df, F.col("__error"), node)
    return Flow(df=df.select(TIME, VALUE), shape=Shape.JSON, checked=True, watermarked=True)


class PairOfValues:
    """The function for ``mapInArrow`` that maps a pair to one value."""

    def __init__(self, step: str, function: Any, *, strict: bool) -> None:
        self._step = step
        self._function = function
        self._strict = strict

    def __call__(self, batches: Any) -> Any:
        """Return batches of the pairs' values and errors."""
        import json  # noqa: PLC0415 - pickled by value where a script defines the pipeline

        import pyarrow as pa  # noqa: PLC0415

        for batch in batches:
            made: list[str | None] = []
            errors: list[str | None] = []
            for left, right in zip(
                *(batch.column(name).to_pylist() for name in (VALUE, _OTHER)), strict=True
            ):
                try:
                    pair = json.loads(left), None if right is None else json.loads(right)
                    made.append(to_json(self._function(*pair)))
                    errors.append(None)
                except Exception as error:
                    if self._strict:
                        error.add_note(f"at a pair, in {self._step}: {ADVICE}")
                        raise
                    made.append(left)
                    errors.append(describe_error(error))
            yield pa.RecordBatch.from_arrays(
                [batch.column(TIME), pa.array(made, pa.string()), pa.array(errors, pa.string())],
                names=[TIME, VALUE, "__error"],
            )


def join_dimension(
    spark: SparkSession, flow: Flow, node: p.DimensionJoin, guard: Guard, wanted: frozenset[str] | None
) -> Flow:
    """Return the records with the table's columns.

    Parameters
    ----------
    wanted : frozenset of str, optional
        The fields that later steps name. The result has them as columns, and a column of the table that the
        record already has is ``dim_<name>``. None for JSON that is passed on as a whole: the table's columns
        are added to it and replace the record's own, as in RocketMQ Streams.
    """
    pairs = comparisons(node.condition, step=node.name)
    own = set(node.table.columns)
    strangers = [right for _, _, right in pairs if right not in own]
    if strangers:
        raise PlanError(
            f"the table has no column {strangers[0]!r}; its columns are {', '.join(node.table.columns)}",
            step=node.name,
        )
    needed = [left for left, _, _ in pairs]
    if flow.shape is Shape.JSON and wanted is not None:
        told_apart = {name for name in own if f"{p.TABLE_PREFIX}{name}" in wanted}
        fields = {name for name in wanted - own if not name.startswith(p.TABLE_PREFIX)}
        needed += sorted(fields | told_apart)
    flow = flow.with_fields(dict.fromkeys(needed), guard, node)
    if flow.shape is Shape.JSON and wanted is not None:
        flow = flow.without_text()
    table = node.table.frame(spark)
    marked = table.select(*(F.col(quote(name)).alias(_RIGHT + name) for name in table.columns))
    on = F.lit(True)
    for left, operator, right in pairs:
        on = on & _compare(left, operator, right, flow.type_of(left), StringType())
    found = column(_RIGHT + pairs[0][2]).isNotNull()
    joined = _join_matches(flow, F.broadcast(marked), on, found, outer=node.outer)
    made = replace(flow, df=joined, shares_identity=True)
    if flow.shape is Shape.JSON:
        return _merge_json(made, node, found, guard)
    names = tell_apart(flow.columns, node.table.columns, p.TABLE_PREFIX)
    added = [
        column(_RIGHT + name).alias(shown) for name, shown in zip(node.table.columns, names, strict=True)
    ]
    return made.select([*map(column, flow.columns), *added], [*flow.columns, *names])


def _merge_json(flow: Flow, node: p.DimensionJoin, found: Column, guard: Guard) -> Flow:
    """Return the records' JSON with the columns of the rows that were found; other records as they are."""
    names = node.table.columns
    values = F.struct(*(column(_RIGHT + name).alias(name) for name in names))
    added = F.to_json(values, {"ignoreNullFields": "false"})
    fields = F.from_json(VALUE, "map<string, variant>")
    kept = F.to_json(F.map_filter(fields, lambda name, _: ~name.isin(*names)))
    # Two texts, and not a map of both: a record may have a name twice, which a map of Spark's may not.
    begun = F.when(kept == "{}", kept.substr(1, 1)).otherwise(
        F.concat(kept.substr(F.lit(1), F.length(kept) - 1), F.lit(","))
    )
    both = F.concat(begun, added.substr(F.lit(2), F.length(added)))
    df = flow.df.withColumn(_MERGED, F.when(found, both).otherwise(F.col(VALUE)))
    error = F.when(F.col(_MERGED).isNull(), F.lit("malformed JSON"))
    df = guard.without_errors(df, flow.error_unless_beat(error), node).withColumn(VALUE, F.col(_MERGED))
    return replace(flow, df=df, checked=True).select([], [])


def _check_columns(left: Flow, right: Flow, node: p.Node) -> None:
    for side, flow in (("left", left), ("right", right)):
        if flow.shape is not Shape.COLUMNS:
            raise PlanError(
                f"the fields of the {side} side are not known: use selectFields(...) or schema= first",
                step=node.name,
            )


def _prepare_side(flow: Flow, node: p.StreamJoin) -> DataFrame:
    """Return a side with its watermark and its window or time, without heartbeats."""
    df = flow.with_watermark(node.watermark_s).without_beats().df
    columns = [column(name) for name in flow.columns]
    if node.window is None:
        return df.select(TIME, *columns)
    return df.select(_assign_window(node.window, node), *columns)


def _assign_window(window: Window, node: p.Node) -> Column:
    """Return the window in which rows are joined.

    It replaces the time, because Spark rejects two columns with a watermark after a join. The time of a pair
    is that of its window.
    """
    match window:
        case TumblingWindow(size=size):
            return F.window(TIME, str(size)).alias(_WINDOW)
        case HoppingWindow(size=size, slide=slide):
            return F.window(TIME, str(size), str(slide)).alias(_WINDOW)
        case SessionWindow():
            raise PlanError("streams are joined in tumbling or hopping windows", step=node.name)
    assert_never(window)


def _parse_condition(left: Flow, right: Flow, node: p.StreamJoin | p.TableJoin) -> tuple[Column, set[str]]:
    """Return the condition, and the right fields that equal left fields of the same name."""
    on, equal, equates = F.lit(True), set(), False
    for left_name, operator, right_name in comparisons(node.condition, step=node.name):
        for name, flow, side in ((left_name, left, "left"), (right_name, right, "right")):
            if name not in flow.columns:
                raise PlanError(
                    f"the {side} side has no field {name!r}; its fields are {', '.join(flow.columns)}",
                    step=node.name,
                )
        types = left.type_of(left_name), right.type_of(right_name)
        on = on & _compare(left_name, operator, right_name, *types)
        if operator == "=" and left_name == right_name:
            equal.add(right_name)
        equates = equates or operator == "="
    if not equates:
        raise PlanError("a join needs at least one (left,==,right)", step=node.name)
    return on, equal


def _compare(left: str, operator: str, right: str, left_kind: DataType, right_kind: DataType) -> Column:
    """Return a comparison of fields. A text that is no value of the other field's type does not match.

    Spark would fail the query at such a text.
    """
    ours, theirs = _operand(left, left_kind), _operand(_RIGHT + right, right_kind)
    match isinstance(left_kind, _READ_AS_TEXT), isinstance(right_kind, _READ_AS_TEXT):
        case True, True:
            return F.expr(compare_fields(ours, operator, theirs))
        case True, False if operator not in _OF_TEXTS:
            ours = f"try_cast({ours} AS {_common_type(right_kind, operator)})"
        case False, True if operator not in _OF_TEXTS:
            theirs = f"try_cast({theirs} AS {_common_type(left_kind, operator)})"
    return F.expr(f"{ours} {operator} {theirs}")


def _operand(name: str, kind: DataType) -> str:
    return f"CAST({quote(name)} AS STRING)" if isinstance(kind, VariantType) else quote(name)


def _common_type(kind: DataType, operator: str) -> str:
    """Return the type in which a value and a text are compared."""
    if not isinstance(kind, NumericType):
        return kind.simpleString()
    return "BIGINT" if isinstance(kind, IntegralType) and operator in _EQUALITY else "DOUBLE"


def _compare_times(node: p.StreamJoin) -> Column:
    if node.window is not None:
        return F.col(_WINDOW) == F.col(_RIGHT + _WINDOW)
    assert node.interval is not None
    before, after = (F.expr(f"INTERVAL {ms} MILLISECONDS") for ms in node.interval)
    left, right = F.col(TIME), F.col(_RIGHT + TIME)
    return (right >= left - before) & (right <= left + after)


def _prepare_keyed_side(flow: Flow, node: p.KeyJoin) -> DataFrame:
    """Return a side of a key join, as window, key and text."""
    if not flow.tagged:
        raise PlanError("both sides of a join need a key: where(...).equalTo(...)", step=node.name)
    df = flow.with_watermark(node.watermark_s).without_beats().df
    return df.select(_assign_window(node.window, node), TAG, VALUE)
