"""Windows with state that we keep: for results by fire mode, or record by record.

Spark's windows emit one result, or changed results in each batch. These run on ``transformWithState``, with
state per window and group, and timers in event time. Each batch makes a few calls to the state store for
each window and group of its rows.

# Facts (Spark 4.3: WatermarkSupport.watermarkExpression, EventTimeWatermark.delayKey, TimerStateImpl)
# A stateful operator drops rows whose column with the key `spark.watermarkDelayMs` in its metadata is at or
# below the previous batch's watermark, compared as microseconds. With a window as the column, rows are late
# by window, as in Spark's windows. Timers fire at or below the batch's own watermark, after the batch's rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import Column, Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_rocketmq.spark.task_client import spare_collections
from pyspark_rocketmq.streams.compile.aggregator_columns import Folded, fold_groups
from pyspark_rocketmq.streams.compile.stateful import pack_key, unpack_key
from pyspark_rocketmq.streams.frame.extras import require_state
from pyspark_rocketmq.streams.frame.flow import TIME_FORMAT, WINDOW_ID, Flow, window_id
from pyspark_rocketmq.streams.frame.python_steps import TIME, to_json
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.emission import Schedule
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.plan.times import SessionWindow, to_milliseconds

__all__ = ["FiredWindows", "emit_windows", "make_schedule"]

UNTIL: Final = "__until"
KEY: Final = "__key"
FIRE: Final = "__fire"
NUMBER: Final = "__number"
_DELAY_KEY: Final = "spark.watermarkDelayMs"

_STATE: Final = StructType(
    [
        StructField("fires", IntegerType()),
        StructField("final", BooleanType()),
        StructField("changed", BooleanType()),
        StructField("folds", BinaryType()),
        StructField("results", StringType()),
    ]
)
STATE_NAME: Final = "windows"


def make_schedule(node: p.Windowed) -> Schedule:
    """Return the schedule of a window's results."""
    assert not isinstance(node.window, SessionWindow)  # `Firing.check`
    firing = node.firing
    return Schedule(
        size_ms=node.window.size.length_ms,
        delay_ms=to_milliseconds(node.watermark_s),
        mode=firing.mode,
        before_ms=firing.before.length_ms if firing.before else None,
        after_ms=firing.after.length_ms if firing.after else None,
    )


def emit_windows(flow: Flow, node: p.Windowed, window: Column) -> Flow:
    """Return the results of windows, with state that we keep.

    Parameters
    ----------
    flow : Flow
        Rows with a watermark and their window.
    window : Column
        The window.

    Raises
    ------
    PlanError
        A result cannot be computed this way, or ``protobuf`` is missing.
    """
    require_state(node.name)
    schedule = make_schedule(node)
    results = fold_groups(flow, node.keys, node.aggregates, node.numeric, node.name)
    until = F.unix_micros(window["end"]) + schedule.keep_ms * 1000
    df = flow.df.select(
        until.alias(UNTIL, metadata={_DELAY_KEY: 0}),
        pack_key(flow, node.keys).alias(KEY),
        *results.inputs,
    )
    schema = StructType(
        [
            StructField(UNTIL, LongType()),
            StructField(KEY, StringType()),
            StructField(FIRE, LongType()),
            StructField(NUMBER, IntegerType()),
            *results.fields,
        ]
    )
    processor = FiredWindows(schedule, results)
    df = df.groupBy(UNTIL, KEY).transformWithState(processor, schema, "append", "eventTime")
    end = F.timestamp_micros(F.col(UNTIL) - schedule.keep_ms * 1000)
    start = F.timestamp_micros(F.col(UNTIL) - (schedule.keep_ms + schedule.size_ms) * 1000)
    times = {"start_time": start, "end_time": end, "fire_time": F.timestamp_millis(F.col(FIRE))}
    named = {name: time for name, time in times.items() if name not in node.keys}
    shown = [F.date_format(time, TIME_FORMAT).alias(name) for name, time in named.items()]
    time = (end - F.expr("INTERVAL 1 MICROSECOND")).alias(TIME)
    df = df.select(
        time, NUMBER, window_id(start), *unpack_key(flow, node.keys, KEY), *results.select_results(), *shown
    )
    return Flow(
        df=df,
        shape=Shape.COLUMNS,
        columns=(*node.keys, *(item.alias for item in node.aggregates), *named),
        watermarked=True,
        shares_identity=node.firing.repeats and node.firing.mode != 1,
        identity=(*node.keys, WINDOW_ID, *([NUMBER] if node.firing.mode == 1 else [])),
    )


@dataclass(slots=True)
class _Kept:
    """The state of a window and group."""

    states: list[Any]
    fires: int = 0
    final: bool = False
    changed: bool = False
    is_new: bool = True


class FiredWindows(StatefulProcessor):
    """The rows of windows and groups, and their timers.

    Parameters
    ----------
    schedule : Schedule
    results : Folded
    """

    def __init__(self, schedule: Schedule, results: Folded) -> None:
        self._schedule = schedule
        self._results = results
        self._row = Row(UNTIL, KEY, FIRE, NUMBER, *(field.name for field in results.fields))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        spare_collections()
        self._handle = handle
        self._state = handle.getValueState(STATE_NAME, _STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Add a batch's rows of a window and group, and emit a result if one is already due."""
        schedule, watermark = self._schedule, timerValues.getCurrentWatermarkInMs()
        end = key[0] // 1000 - schedule.keep_ms
        kept = self._load() or _Kept(self._results.empty())
        self._results.add(kept.states, rows)
        if watermark >= schedule.first(end) and (schedule.mode != 0 or not kept.final):
            now = schedule.first(end) if not kept.final else watermark
            yield self._emit(key, kept, schedule.fire_time(now))
            self._settle(kept, end, watermark)
            return
        if kept.is_new:
            self._set_timer(schedule.first(end))
        if not kept.changed:
            partial = schedule.next_partial(end, watermark)
            if partial is not None:
                self._set_timer(partial)
        kept.changed = True
        self._save(kept)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Emit the result that is due."""
        schedule, watermark = self._schedule, timerValues.getCurrentWatermarkInMs()
        due = expiredTimerInfo.getExpiryTimeInMs()
        end = key[0] // 1000 - schedule.keep_ms
        kept = self._load()
        if kept is None:  # its result was emitted with rows of this batch, and it is closed
            return
        first = schedule.first(end)
        if not kept.final and watermark >= first:
            yield self._emit(key, kept, schedule.fire_time(first))
        elif not kept.final and schedule.before_ms is None:
            self._set_timer(first)  # this one is of a run with a longer delay, or with partial results
            return
        elif kept.changed and (not kept.final or due > first):
            yield self._emit(key, kept, schedule.fire_time(due))
        self._settle(kept, end, watermark)

    def _emit(self, key: Any, kept: _Kept, fire_ms: int) -> Row:
        kept.fires += 1
        kept.changed = False
        row = self._row(key[0], key[1], fire_ms, kept.fires, *self._results.results(kept.states))
        if self._schedule.mode == 1:
            kept.states = self._results.empty()
        return row

    def _settle(self, kept: _Kept, end: int, watermark: int) -> None:
        """Keep or delete the window's state after a result."""
        over = self._schedule.over(end)
        if watermark >= over:
            if not kept.is_new:
                self._state.clear()
            return
        if not kept.final and watermark >= self._schedule.first(end):
            kept.final = True
            self._set_timer(over)
        self._save(kept)

    def _set_timer(self, due: int) -> None:
        self._handle.registerTimer(due)

    def _load(self) -> _Kept | None:
        found = self._state.get()
        if found is None:
            return None
        fires, final, changed, folds, _ = found
        states = self._results.unpack(pickle.loads(folds))  # noqa: S301 - what we wrote ourselves
        return _Kept(states, fires, final, changed, is_new=False)

    def _save(self, kept: _Kept) -> None:
        # Unlike pickle, cloudpickle supports classes defined in a user's script.
        folds = cloudpickle.dumps(self._results.pack(kept.states))  # type: ignore[no-untyped-call]
        shown = to_json(self._results.describe(kept.states))
        self._state.update((kept.fires, kept.final, kept.changed, folds, shown))
