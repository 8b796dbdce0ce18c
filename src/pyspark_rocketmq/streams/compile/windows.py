"""Steps on several records: windows, groups, top rows, distinct records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DateType, IntegralType, NumericType, TimestampType, VariantType

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.streams.compile.aggregates import aggregate_columns, overflow_columns, select_result
from pyspark_rocketmq.streams.compile.decimals import (
    DECIMAL,
    beyond_column,
    select_overflows,
    without_overflow,
    without_too_long,
)
from pyspark_rocketmq.streams.compile.stateful import aggregate_incrementally
from pyspark_rocketmq.streams.compile.window_state import emit_windows, make_schedule
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.event_times import event_time
from pyspark_rocketmq.streams.frame.flow import TIME_FORMAT, WINDOW_ID, Flow, column, parse_result, window_id
from pyspark_rocketmq.streams.frame.python_steps import BEAT, TAG, TIME, WINDOW
from pyspark_rocketmq.streams.frame.row_counts import with_ends
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import OVER_RECORDS
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.plan.times import (
    WINDOW_FIELDS,
    HoppingWindow,
    SessionWindow,
    TumblingWindow,
    to_milliseconds,
)

__all__ = [
    "aggregate_groups",
    "aggregate_windows",
    "check_time_field",
    "drop_duplicates",
    "rank_rows",
    "take_time_field",
]

_DELAY: Final = "spark.watermarkDelayMs"
_SESSION: Final = "spark.sessionWindow"
_FIXED: Final = "spark.timeWindow"

KEY: Final = "key"
"""The newer API's name of a group's key."""


def take_time_field(flow: Flow, field: str, guard: Guard, step: p.Node) -> Flow:
    """Return a flow with a field as event time: a timestamp, milliseconds, or a text of either."""
    flow = flow.with_fields([field], guard, step)
    time = event_time(column(field), flow.type_of(field))
    if flow.beats:
        time = F.when(F.col(BEAT), F.col(TIME)).otherwise(time)
    df = flow.df.withColumn("__new_time", time)
    error = F.when(F.col("__new_time").isNull(), F.lit(f"no time in {field}"))
    df = guard.without_errors(df, flow.error_unless_beat(error), step)
    return replace(flow, df=df.withColumn(TIME, F.col("__new_time")).drop("__new_time"))


def check_time_field(flow: Flow, field: str, step: p.Node) -> None:
    """Raise a PlanError for a stream that has a watermark: Spark would miss it in the new time."""
    if flow.watermarked:
        raise PlanError(
            f"a step before it waits for a watermark, of another time: use selectTimestamp({field!r}) "
            "before that step, and windows without a field",
            step=step.name,
        )


def aggregate_windows(flow: Flow, node: p.Windowed, guard: Guard, *, streaming: bool) -> Flow:
    """Return the results of windows."""
    flow = _parse_inputs(flow, node.keys, node.aggregates, guard, node)
    if node.window.time_field is not None:
        if streaming:
            check_time_field(flow, node.window.time_field, node)
        flow = take_time_field(flow, node.window.time_field, guard, node)
    flow = without_too_long(flow, node.aggregates, node.numeric, guard, node)
    overflowing = select_overflows(flow, node.aggregates, node.numeric)
    if streaming and isinstance(node.window, SessionWindow) and node.firing.updates:
        raise PlanError("session windows emit no results before their end", step=node.name)
    flow = _take_key(flow, node.keys)
    # Rows can be late only in the first step with state, and only in streams.
    first = flow.df.isStreaming and not flow.watermarked
    flow = flow.with_watermark(node.watermark_s).without_beats()
    df, window = _assign_windows(flow, node, first=first)
    if node.firing.stateful and flow.df.isStreaming:  # bounded: one result in every mode
        made = without_overflow(emit_windows(replace(flow, df=df), node, window), overflowing, guard, node)
        return _filter_results(made, node.having)
    df = df.groupBy(window, *map(column, node.keys)).agg(*_results_of(flow, node))
    if isinstance(node.window, SessionWindow):
        df = _end_sessions(df)
    results = [select_result(item) for item in node.aggregates]
    results += [column(beyond_column(item.alias)) for item in overflowing]
    end = F.col(f"{WINDOW}.end")
    fire = end + F.expr(f"INTERVAL {to_milliseconds(node.watermark_s)} MILLISECONDS")
    times = [F.col(f"{WINDOW}.start"), end, fire]
    named = {  # a window's time stays unchanged if later windows group by it
        name: time for name, time in zip(WINDOW_FIELDS, times, strict=True) if name not in node.keys
    }
    shown = [F.date_format(time, TIME_FORMAT).alias(name) for name, time in named.items()]
    names = [*node.keys, *(item.alias for item in node.aggregates), *named]
    number = window_id(F.col(f"{WINDOW}.start"))
    df = df.select(
        F.window_time(WINDOW).alias(TIME),
        WINDOW,
        number,
        *(column(key) for key in node.keys),
        *results,
        *shown,
    )
    made = Flow(
        df=df,
        shape=Shape.COLUMNS,
        columns=tuple(names),
        watermarked=True,
        windowed=True,
        updates=node.firing.updates,
        identity=(*node.keys, WINDOW_ID),
    )
    return _filter_results(without_overflow(made, overflowing, guard, node), node.having)


def _results_of(flow: Flow, node: p.Windowed | p.Group) -> list[Column]:
    return [
        *aggregate_columns(flow, node.aggregates, node.numeric),
        *overflow_columns(flow, node.aggregates, node.numeric),
    ]


def aggregate_groups(flow: Flow, node: p.Group, guard: Guard) -> Flow:
    """Return the results of groups without a window, again at each change."""
    flow = _parse_inputs(flow, node.keys, node.aggregates, guard, node)
    flow = without_too_long(flow, node.aggregates, node.numeric, guard, node)
    overflowing = select_overflows(flow, node.aggregates, node.numeric)
    flow = _take_key(flow, node.keys)
    if flow.beats:
        flow = replace(flow, df=flow.df.where(~F.col(BEAT)).drop(BEAT), beats=False)
    if node.incremental and flow.df.isStreaming:
        return without_overflow(aggregate_incrementally(flow, node), overflowing, guard, node)
    df = flow.df.groupBy(*map(column, node.keys)).agg(*_results_of(flow, node), F.max(TIME).alias(TIME))
    results = [select_result(item) for item in node.aggregates]
    results += [column(beyond_column(item.alias)) for item in overflowing]
    df = df.select(TIME, *(column(key) for key in node.keys), *results)
    names = (*node.keys, *(item.alias for item in node.aggregates))
    made = Flow(df=df, shape=Shape.COLUMNS, columns=names, updates=True, identity=node.keys)
    return without_overflow(made, overflowing, guard, node)


def rank_rows(flow: Flow, node: p.TopN, guard: Guard, *, streaming: bool) -> Flow:
    """Return the first rows of each window and group, numbered from 1."""
    if streaming and not flow.windowed:
        raise PlanError(
            "topN of a stream needs a window before it: without one it has no final result", step=node.name
        )
    names = [*node.keys, *(name for name, _ in node.order)]
    flow = flow.with_fields(names, guard, node)
    if node.rank.lower() in {name.lower() for name in flow.columns}:
        raise PlanError(
            f"{node.rank!r} is a field of the records already: use another name for the rank", step=node.name
        )
    order = [_order(flow, name, ascending) for name, ascending in node.order]
    variants = flow.variants  # Spark cannot order or group by them: rows have their JSON, keys their text
    shown = [
        F.to_json(column(name)).alias(name) if name in variants else column(name) for name in flow.columns
    ]
    whole = F.struct(*shown, *map(column, flow.hidden_identity))
    # Sorting is ascending: the first row must have the smallest key. Ties are ordered by the rows' content.
    row = F.struct(*(key.alias(f"o{at}") for at, key in enumerate(order)), whole.alias("row"))
    keys = [_text_of_variant(flow, key) for key in node.keys]
    hidden = [F.col(WINDOW)] if flow.windowed else []
    top = F.slice(F.array_sort(F.collect_list(row)), 1, node.count)
    df = flow.df.groupBy(*hidden, *keys).agg(top.alias("__top"))
    time = F.window_time(WINDOW) if flow.windowed else F.current_timestamp()
    df = df.select(time.alias(TIME), *hidden, F.posexplode("__top").alias("__at", "__row"))
    df = df.withColumns({name: F.col(f"__row.row.{name}") for name in flow.hidden_identity})
    found = {name: F.col(f"__row.row.{quote(name)}") for name in flow.columns}
    columns = [
        (parse_result(value) if name in variants else value).alias(name) for name, value in found.items()
    ]
    made = replace(flow, df=df, shape=Shape.COLUMNS, beats=False, tagged=False)
    rank = (F.col("__at") + 1).alias(node.rank)
    identity = (*flow.identity, node.rank)
    return made.select([*columns, rank], [*flow.columns, node.rank], identity=identity)


def _text_of_variant(flow: Flow, name: str) -> Column:
    value = column(name)
    return value.cast("string").alias(name) if isinstance(flow.type_of(name), VariantType) else value


def drop_duplicates(flow: Flow, node: p.Distinct, guard: Guard, *, lateness_s: float | None) -> Flow:
    """Return the first of the records with equal fields.

    Parameters
    ----------
    lateness_s : float, optional
        How late records may be at later steps, if this is less than the step's time. None if no later step
        waits for a watermark.
    """
    flow = flow.with_fields(node.fields, guard, node)
    within_s = node.within.length_ms / 1000
    flow = flow.with_watermark(within_s if lateness_s is None else min(within_s, lateness_s)).without_beats()
    if not flow.df.isStreaming:
        return replace(flow, df=flow.df.dropDuplicates(list(node.fields)))
    return replace(flow, df=_drop_repeats(flow.df, node))


def _drop_repeats(df: DataFrame, node: p.Distinct) -> DataFrame:
    """Drop repeats within the step's time, which may be longer than records may be late."""
    # Facts (Spark 4.0 to 4.3, StreamingDeduplicateWithinWatermarkExec): a value is remembered for the delay
    # in the metadata of a column, of which only one may have one; the watermark comes from its own step.
    marks = {field.name: field.metadata for field in df.schema.fields if _DELAY in field.metadata}
    others = {name: {key: mark[key] for key in mark if key != _DELAY} for name, mark in marks.items()}
    marked = _mark_columns(df, {**others, TIME: {**others.get(TIME, {}), _DELAY: node.within.length_ms}})
    return _mark_columns(marked.dropDuplicatesWithinWatermark(list(node.fields)), marks)


def _mark_columns(df: DataFrame, marks: Mapping[str, dict[str, Any]]) -> DataFrame:
    """Replace the metadata of some columns."""
    return df.select(
        *(
            column(name).alias(name, metadata=marks[name]) if name in marks else column(name)
            for name in df.columns
        )
    )


def _parse_inputs(
    flow: Flow, keys: tuple[str, ...], aggregates: tuple[p.Aggregate, ...], guard: Guard, node: p.Node
) -> Flow:
    """Return the flow with the fields of keys and results, and records' texts for functions of them."""
    if any(item.kind in OVER_RECORDS for item in aggregates):
        flow = flow.with_text()  # while it has the fields' JSON types
    names = [name for name in keys if not (flow.keyed and name == KEY)]
    names += [item.field for item in aggregates if item.field is not None]
    return flow if flow.shape is Shape.TEXT and not names else flow.with_fields(names, guard, node).plain()


def _take_key(flow: Flow, keys: tuple[str, ...]) -> Flow:
    """Return the flow with the key of the newer API in place of a field of its name.

    To be called when the records' text is made: users' functions get records with their own fields.
    """
    if not (flow.keyed and KEY in keys):
        return flow
    names = [name for name in flow.columns if name.lower() != KEY]
    return replace(flow, df=flow.df.withColumn(KEY, F.col(TAG)), columns=(*names, KEY))


def _assign_windows(flow: Flow, node: p.Windowed, *, first: bool) -> tuple[DataFrame, Column]:
    """Return rows prepared for grouping by window, and the grouping columns. Late rows are counted."""
    match node.window:
        case TumblingWindow(size=size):
            df = flow.df.withColumn(WINDOW, F.window(TIME, str(size)))
        case HoppingWindow(size=size, slide=slide):
            df = flow.df.withColumn(WINDOW, F.window(TIME, str(size), str(slide)))
        case SessionWindow(gap=gap):
            end = F.col(TIME) + F.expr(f"INTERVAL {gap.length_ms} MILLISECONDS")
            df = with_ends(flow.df, end, node.name) if first else flow.df
            return df, F.session_window(TIME, str(gap)).alias(WINDOW)
        case other:
            assert_never(other)
    if first:
        keep = F.expr(f"INTERVAL {make_schedule(node).keep_ms} MILLISECONDS")
        df = with_ends(df, F.col(f"{WINDOW}.end") + keep, node.name)
    return df, F.col(WINDOW)


def _end_sessions(df: DataFrame) -> DataFrame:
    """Return sessions that are over as windows of fixed times.

    # Facts (Spark 4.0 to 4.3, AggUtils): a later group by a column with the mark of sessions merges those
    # that overlap, of any key, and is refused in a stream if it has no other column.
    """
    mark = {key: value for key, value in df.schema[WINDOW].metadata.items() if key != _SESSION}
    return _mark_columns(df, {WINDOW: {**mark, _FIXED: True}})


def _filter_results(flow: Flow, condition: Column | str | None) -> Flow:
    return flow if condition is None else replace(flow, df=flow.df.where(condition))


def _order(flow: Flow, name: str, ascending: bool) -> Column:
    """Return an ascending sort key: numbers first, then texts, then rows without the field."""
    kind = flow.type_of(name)
    value = column(name)
    if isinstance(kind, NumericType):
        parts = [_number_order(value, kind, ascending)]
    elif isinstance(kind, TimestampType | DateType):
        micros = F.unix_micros(value.cast("timestamp"))
        parts = [micros if ascending else -micros]
    else:
        text = value.cast("string")
        number = text.try_cast("double")
        exact = text.try_cast(DECIMAL)  # of numbers that are the same double
        parts = [number.isNull(), *((number, exact) if ascending else (-number, -exact))]
        parts.append(F.when(number.isNull(), text if ascending else _reverse_order(text)))
    return F.struct(*(part.alias(f"p{at}") for at, part in enumerate([value.isNull(), *parts])))


def _number_order(value: Column, kind: NumericType, ascending: bool) -> Column:
    if ascending:
        return value
    return -value.cast("decimal(20,0)") if isinstance(kind, IntegralType) else -value


def _reverse_order(text: Column) -> Column:
    """Return a text with the reverse sort order: its bytes' complements, and a greater terminator."""
    return F.concat(F.translate(F.hex(text), "0123456789ABCDEF", "FEDCBA9876543210"), F.lit("~"))
