"""Steps with state per key: a user's processor, latest values of two streams, incremental groups.

All run on ``transformWithState``, in Python workers, and need the extra ``state``. A key of fields is stored
as one JSON text, so that timers return keys unchanged.
"""

from __future__ import annotations

import json
import operator
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES
from pyspark_rocketmq.spark.task_client import spare_collections
from pyspark_rocketmq.streams.compile.aggregator_columns import Folded, fold_groups
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.extras import require_state
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.frame.python_steps import (
    ADVICE,
    BEAT,
    ERROR,
    TAG,
    TIME,
    VALUE,
    describe_error,
    to_json,
)
from pyspark_rocketmq.streams.frame.row_counts import with_ends
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.nodes import Shape

__all__ = ["aggregate_incrementally", "join_latest", "pack_key", "run_processor", "unpack_key"]

EVENT_TIME: Final = "event_time"
"""The field with a record's time for a processor in event time."""

_KEY: Final = "__key"
_AT: Final = "__at"
_SIDE: Final = "__side"


def pack_key(flow: Flow, names: tuple[str, ...]) -> Column:
    """Return fields as one text, which is equal for values that Spark groups together."""
    if not names:
        return F.lit("{}")
    fields = [_without_sign_of_zero(flow, name).alias(name) for name in names]
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false", **EXACT_TIMES})


def _without_sign_of_zero(flow: Flow, name: str) -> Column:
    kind = flow.type_of(name)
    is_float = isinstance(kind, DoubleType | FloatType)
    return (column(name) + F.lit(0.0)).cast(kind) if is_float else column(name)


def unpack_key(flow: Flow, names: tuple[str, ...], text: str) -> list[Column]:
    """Return the fields of such a text, with their types."""
    if not names:
        return []
    fields = [StructField(name, flow.type_of(name)) for name in names]
    parsed = F.from_json(text, StructType(fields), EXACT_TIMES)
    return [parsed.getField(name).alias(name) for name in names]


# --- a user's processor -----------------------------------------------------------------------


def run_processor(flow: Flow, node: p.Process, schema: StructType, guard: Guard) -> Flow:
    """Return the results of a user's processor.

    Raises
    ------
    PlanError
        The records' fields are not known, or one has the name of the event time field.
    """
    require_state(node.name)
    if flow.shape is not Shape.COLUMNS:
        raise PlanError(
            "a processor gets records as rows: set their fields by selectFields(...) or schema=",
            step=node.name,
        )
    flow = flow.with_fields(node.keys, guard, node)
    columns = [column(name) for name in flow.columns]
    if isinstance(node, p.TimedProcess):
        if EVENT_TIME in flow.columns:
            raise PlanError(
                f"with event time the field {EVENT_TIME!r} is reserved for the record's time", step=node.name
            )
        first = flow.df.isStreaming and not flow.watermarked
        flow = flow.with_watermark(node.watermark_s).without_beats()
        if first:
            flow = replace(flow, df=with_ends(flow.df, F.col(TIME), node.name))
        columns.append(F.col(TIME).alias(EVENT_TIME))
    df = _drop_beats(flow).select(*columns)
    groups = df.groupBy(*map(column, node.keys))
    df = groups.transformWithState(node.processor, schema, "append", node.time_mode)
    names = tuple(schema.names)
    df = df.select(F.current_timestamp().alias(TIME), *map(column, names))
    return Flow(df=df, shape=Shape.COLUMNS, columns=names, watermarked=True)


def _drop_beats(flow: Flow) -> DataFrame:
    return flow.df.where(~F.col(BEAT)) if flow.beats else flow.df


# --- groups without a window ------------------------------------------------------------------


def aggregate_incrementally(flow: Flow, node: p.Group) -> Flow:
    """Return the results of groups. A user's function gets each record once."""
    require_state(node.name)
    results = fold_groups(flow, node.keys, node.aggregates, node.numeric, node.name)
    df = _drop_beats(flow).select(
        F.unix_micros(TIME).alias(_AT), pack_key(flow, node.keys).alias(_KEY), *results.inputs
    )
    schema = StructType([StructField(_AT, LongType()), StructField(_KEY, StringType()), *results.fields])
    df = df.groupBy(_KEY).transformWithState(GrowingGroups(results), schema, "append", "none")
    df = df.select(
        F.timestamp_micros(_AT).alias(TIME), *unpack_key(flow, node.keys, _KEY), *results.select_results()
    )
    names = (*node.keys, *(item.alias for item in node.aggregates))
    return Flow(df=df, shape=Shape.COLUMNS, columns=names, shares_identity=True, identity=node.keys)


class GrowingGroups(StatefulProcessor):
    """The records of groups, batch by batch."""

    def __init__(self, results: Folded) -> None:
        self._results = results
        self._row = Row(_AT, _KEY, *(field.name for field in results.fields))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        spare_collections()
        schema = StructType([StructField("folds", BinaryType()), StructField("results", StringType())])
        self._state = handle.getValueState("groups", schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Add a batch's rows of a group and emit the updated result."""
        del timerValues
        found, its = self._state.get(), list(rows)
        # Data that we wrote. Unlike pickle, cloudpickle supports classes defined in a user's script.
        states = self._results.empty() if found is None else self._results.unpack(pickle.loads(found[0]))  # noqa: S301
        self._results.add(states, iter(its))
        packed = cloudpickle.dumps(self._results.pack(states))  # type: ignore[no-untyped-call]
        shown = to_json(self._results.describe(states))
        self._state.update((packed, shown))
        yield self._row(max(row[0] for row in its), key[0], *self._results.results(states))


# --- latest values ----------------------------------------------------------------------------


def join_latest(left: Flow, right: Flow, node: p.LatestJoin, guard: Guard) -> Flow:
    """Return a function's value of each new value and the latest of the other side, by key."""
    require_state(node.name)
    sides = []
    for number, flow in enumerate((left, right)):
        if not flow.tagged:
            raise PlanError("both sides of a join need a key: where(...).equalTo(...)", step=node.name)
        sides.append(
            _drop_beats(flow).select(TAG, F.unix_micros(TIME).alias(_AT), F.lit(number).alias(_SIDE), VALUE)
        )
    pairs = LatestPairs(node, strict=guard.mode == "fail")
    schema = StructType(
        [StructField(_AT, LongType()), StructField(VALUE, StringType()), StructField(ERROR, StringType())]
    )
    df = sides[0].unionByName(sides[1]).groupBy(TAG).transformWithState(pairs, schema, "append", "none")
    df = guard.without_errors(df, F.col(ERROR), node)
    return Flow(df=df.select(F.timestamp_micros(_AT).alias(TIME), VALUE), shape=Shape.JSON, checked=True)


class LatestPairs(StatefulProcessor):
    """The latest value of each side per key.

    # Facts (rocketmq-streams core: JoinAggregateSupplier): a value is stored as its side's latest, and joined
    # with the other side's. Without one, a left value is emitted alone in a left join, a right value never.
    """

    def __init__(self, node: p.LatestJoin, *, strict: bool) -> None:
        self._name = node.name
        self._function = node.function
        self._outer = node.outer
        self._strict = strict
        self._row = Row(_AT, VALUE, ERROR)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        spare_collections()
        schema = StructType([StructField("value", StringType())])
        self._states = [handle.getValueState(name, schema) for name in ("left", "right")]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Process a batch's values of a key in the order of their times, and emit a value for each pair."""
        del key, timerValues
        found = [state.get() for state in self._states]
        latest: list[str | None] = [None if value is None else value[0] for value in found]
        changed = set()
        for _, at, side, text in sorted(rows, key=operator.itemgetter(1, 2, 3)):
            latest[side] = text
            changed.add(side)
            if latest[0] is not None and (latest[1] is not None or self._outer):
                yield self._join_pair(at, latest[0], latest[1])
        for side in changed:
            self._states[side].update((latest[side],))

    def _join_pair(self, at: int, left: str, right: str | None) -> Row:
        try:
            value = self._function(json.loads(left), None if right is None else json.loads(right))
            return self._row(at, to_json(value), None)
        except Exception as error:  # a user's function may raise anything
            if self._strict:
                error.add_note(f"at a pair, in {self._name}: {ADVICE}")
                raise
            return self._row(at, left, describe_error(error))
