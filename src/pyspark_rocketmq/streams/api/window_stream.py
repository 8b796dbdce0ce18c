"""Windows of the fluent API: their groups, results and options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from pyspark.sql import Column

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.arguments import (
    check_accumulator,
    check_names,
    check_seconds,
    check_window,
)
from pyspark_rocketmq.streams.api.compat import ResultNames, WindowNames
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import AggregateKind, FireMode, Numeric, choices_of
from pyspark_rocketmq.streams.plan.emission import ONCE, Firing
from pyspark_rocketmq.streams.plan.times import WINDOW_FIELDS, Time, Window, with_time_field

__all__ = ["OverWindowStream", "WindowStream"]

S = TypeVar("S")
"""The type of the resulting stream: `DataStream`, which creates windows and imports this module."""


@dataclass(frozen=True, slots=True)
class _Settings:
    window: Window
    keys: tuple[str, ...] = ()
    aggregates: tuple[p.Aggregate, ...] = ()
    watermark_s: float = 0
    numeric: Numeric = "double"
    having: Column | str | None = None
    firing: Firing = ONCE


class WindowStream(ResultNames[S], WindowNames):
    """Records in windows.

    A result row has the group's fields, the named results, and ``start_time``, ``end_time`` and ``fire_time``
    (the end plus the watermark's delay) as ``yyyy-MM-dd HH:mm:ss`` in the session's time zone. It is emitted
    once, when the watermark has passed the window's end. A record whose window was already emitted is late
    and dropped.
    """

    def __init__(self, job: Job, node: p.Node, window: Window, stream: Callable[[Job, p.Node], S]) -> None:
        self._job = job
        self._node = node
        self._stream = stream
        check_window(window, "window")
        self._settings = _Settings(window)

    def _with(self, **changes: Any) -> Self:
        self._settings = replace(self._settings, **changes)
        return self

    def _result(self, kind: AggregateKind, field: str | None, alias: str, value: Any = None) -> Self:
        check_names([alias if field is None else field, alias], kind, "window")
        taken = {item.alias.lower() for item in self._settings.aggregates}
        if alias.lower() in taken:
            raise PlanError(f"two results are called {alias!r}", step="window")
        found = p.Aggregate(kind, field, alias, value)
        return self._with(aggregates=(*self._settings.aggregates, found))

    def groupBy(self, *fieldNames: str) -> Self:
        """Group by fields. Without it a window is one group."""
        check_names(fieldNames, "groupBy", "window")
        return self._with(keys=fieldNames)

    def group(self) -> Self:
        """Put all records of a window into one group, as without `groupBy`."""
        return self._with(keys=())

    # --- results ------------------------------------------------------------------------------

    def count(self, asName: str = "count") -> Self:
        """Count the rows."""
        return self._result("count", None, asName)

    def sum(self, fieldName: str, asName: str | None = None) -> Self:
        """Sum a field. Numeric texts count as numbers, other texts are ignored."""
        return self._result("sum", fieldName, asName or fieldName)

    def avg(self, fieldName: str, asName: str | None = None) -> Self:
        """Average a field."""
        return self._result("avg", fieldName, asName or fieldName)

    def min(self, fieldName: str, asName: str | None = None) -> Self:
        """Return the minimum. Texts are compared as numbers if all of them are numeric."""
        return self._result("min", fieldName, asName or fieldName)

    def max(self, fieldName: str, asName: str | None = None) -> Self:
        """Return the maximum. Texts are compared as numbers if all of them are numeric."""
        return self._result("max", fieldName, asName or fieldName)

    def first(self, fieldName: str, asName: str | None = None) -> Self:
        """Return the value of the earliest record that has one."""
        return self._result("first", fieldName, asName or fieldName)

    def last(self, fieldName: str, asName: str | None = None) -> Self:
        """Return the value of the latest record that has one."""
        return self._result("last", fieldName, asName or fieldName)

    def concat(self, fieldName: str, asName: str | None = None, separator: str = ",") -> Self:
        """Concatenate the values in the order of their times."""
        return self._result("concat", fieldName, asName or fieldName, separator)

    def distinct(self, fieldName: str, asName: str | None = None) -> Self:
        """Return the distinct values as a sorted list."""
        return self._result("distinct", fieldName, asName or fieldName)

    def count_distinct(self, fieldName: str, asName: str | None = None) -> Self:
        """Count the distinct values exactly."""
        return self._result("count_distinct", fieldName, asName or fieldName)

    def count_distinct_large(self, fieldName: str, asName: str | None = None) -> Self:
        """Count the distinct values with an error of about 1 percent and little state."""
        return self._result("count_distinct_large", fieldName, asName or fieldName)

    def agg(self, **columns: Column | str) -> Self:
        """Add results computed by Spark aggregates, by name."""
        for name, value in columns.items():
            self._result("column", None, name, value)
        return self

    def aggregate(self, accumulator: Any, asName: str = "value", *, incremental: bool = False) -> Self:
        """Run an `Accumulator` (either API's) over each group's records, in the order of their times.

        Parameters
        ----------
        incremental : bool
            Run it for each batch's records and keep its state (which must be picklable). Records then come in
            the order of batches, and of times within a batch. Needs the extra ``state``. Otherwise all
            records of a window are kept, and it runs once, when the window closes.
        """
        check_accumulator(accumulator, "window")
        self._incremental(incremental)
        return self._result("accumulate", None, asName, accumulator)

    def reduce(
        self, function: Callable[[Any, Any], Any], asName: str = "value", *, incremental: bool = False
    ) -> S:
        """Reduce each group's records by a function of two records, in the order of their times.

        Parameters
        ----------
        incremental : bool
            See `aggregate`.
        """
        if not callable(function):
            raise PlanError(f"reduce takes a function, not {type(function).__name__}", step="window")
        self._incremental(incremental)
        return self._result("reduce", None, asName, function).toDataStream()

    def _incremental(self, wanted: bool) -> None:
        if wanted:
            self._firing(incremental=True)

    def having(self, condition: Column | str) -> Self:
        """Keep the results for which a condition on them is true."""
        return self._with(having=condition)

    # --- options ------------------------------------------------------------------------------

    def timeField(self, fieldName: str) -> Self:
        """Take the event time from a field: a timestamp, or milliseconds since the epoch."""
        return self._with(window=with_time_field(self._settings.window, fieldName))

    def waterMark(self, seconds: float) -> Self:
        """Set how many seconds windows wait for late records."""
        check_seconds(seconds, "waterMark", "window")
        return self._with(watermark_s=seconds)

    def numeric(self, kind: Numeric) -> Self:
        """Compute sums and averages of texts as ``"double"``, or as ``"decimal"``, equal in every run.

        A decimal is less than 10^28 and an average of them less than 10^24. A larger number is a record with
        an error; a larger result is null and counted, or fails the query with ``onError("fail")``.
        """
        if kind not in choices_of(Numeric):
            raise PlanError(f"numeric is double or decimal, not {kind!r}", step="window")
        return self._with(numeric=kind)

    def fireMode(self, mode: FireMode) -> Self:
        """Set when results are emitted. Modes 1 and 2 are for tumbling and hopping windows.

        Modes 1 and 2 keep state in Python workers, which is slower, and need the extra ``state``.

        Parameters
        ----------
        mode : {0, 1, 2}
            0: one result, after ``waterMark`` has passed as well. 1 and 2: a first result at the window's
            end. Rows that arrive within ``waterMark`` after it give separate results (1), or the result
            again, including all earlier rows (2).

        Raises
        ------
        PlanError
            The mode does not exist. ``toDataStream`` raises it if the mode conflicts with other settings.
        """
        if mode not in choices_of(FireMode):
            raise PlanError(f"fireMode is 0, 1 or 2, not {mode!r}", step="window")
        return self._firing(mode=mode)

    def emitBeforeFire(self, every: Time, *, strict: bool = False) -> Self:
        """Emit early results at an interval before the window's final result. The last one counts.

        Parameters
        ----------
        every : Time
        strict : bool
            Measure the interval in event time, from the window's start. An interval without changes gives no
            result. If several intervals pass in one batch, the first one due gives the result. Strict results
            keep state in Python workers and need the extra ``state``. If not strict, Spark emits the changed
            windows in each batch, and batches run at this interval.
        """
        return self._firing(before=_length(every, "emitBeforeFire"), strict=strict)

    def emitAfterFire(self, every: Time) -> Self:
        """Emit the result again at an interval after the window's final result, while late rows change it.

        Rows are dropped an hour after the result, as in RocketMQ Streams. The state is kept for that hour in
        Python workers, and needs the extra ``state``.
        """
        return self._firing(after=_length(every, "emitAfterFire"))

    def _firing(self, **changes: Any) -> Self:
        return self._with(firing=replace(self._settings.firing, **changes))

    def setMaxMsgGap(self, seconds: float) -> Self:
        """Set after how many seconds without messages windows close (180 with a time field, else 1)."""
        check_seconds(seconds, "setMaxMsgGap", "window")
        self._job.idle_s = seconds
        return self

    def setLocalStorageOnly(self, localOnly: bool) -> Self:
        """Allow local storage only, or (False) require shared storage.

        ``True`` changes nothing: state and progress are in RocksDB and a checkpoint on this machine, or where
        ``with_(CheckpointStrategy...)`` puts the checkpoint. With ``False`` a job does not start without
        ``with_(CheckpointStrategy.remote(uri))``.
        """
        self._job.local_only = localOnly
        return self

    def toDataStream(self) -> S:
        """Return the results as a stream. The name is RocketMQ Streams'.

        Raises
        ------
        PlanError
            The window has no result, or one has the name of a field of the group or of the window.
        """
        name = self._job.step("window")
        found = self._settings
        if not found.aggregates:
            raise PlanError("a window needs a result: count(), sum(...) and so on", step=name)
        own = {each.lower() for each in (*found.keys, *WINDOW_FIELDS)}
        for item in found.aggregates:
            if item.alias.lower() in own:
                raise PlanError(
                    f"{item.alias!r} is a field of the results already: use another name", step=name
                )
        found.firing.check(found.window, name)
        node = p.Windowed(
            name=name,
            input=self._node,
            window=found.window,
            keys=found.keys,
            aggregates=found.aggregates,
            watermark_s=found.watermark_s,
            numeric=found.numeric,
            having=found.having,
            firing=found.firing,
        )
        return self._stream(self._job, node)

    group_by = groupBy
    time_field = timeField
    water_mark = waterMark
    fire_mode = fireMode
    emit_before_fire = emitBeforeFire
    emit_after_fire = emitAfterFire
    set_max_msg_gap = setMaxMsgGap
    set_local_storage_only = setLocalStorageOnly
    to_data_stream = toDataStream


def _length(value: Time, step: str) -> Time:
    if not isinstance(value, Time):
        raise PlanError(f"{step} takes a Time, such as Time.seconds(5), not {value!r}", step="window")
    return value


class OverWindowStream(ResultNames[S]):
    """The first rows of each window and group."""

    def __init__(  # noqa: PLR0917 - what topN says
        self,
        job: Job,
        node: p.Node,
        rank: str,
        count: int,
        keys: tuple[str, ...],
        stream: Callable[[Job, p.Node], S],
    ) -> None:
        self._job = job
        self._node = node
        self._stream = stream
        self._rank = rank
        self._count = count
        self._keys = keys
        self._order: tuple[tuple[str, bool], ...] = ()

    def setRowNumName(self, name: str) -> Self:
        """Set the name of the rank column. Ranks start at 1."""
        self._rank = name
        return self

    def setTopN(self, count: int) -> Self:
        """Set the number of rows."""
        self._count = count
        return self

    def groupBy(self, *fieldNames: str) -> Self:
        """Set the fields within which rows are ranked, in addition to the window."""
        check_names(fieldNames, "groupBy", "topN")
        self._keys = fieldNames
        return self

    def addOrderByFieldName(self, fieldName: str, isAsc: bool = True) -> Self:
        """Rank rows by a field. Earlier calls take precedence over later ones.

        Numeric texts are compared as numbers, and come before other texts. Rows without the field come last,
        in ascending and descending order.
        """
        check_names([fieldName], "addOrderByFieldName", "topN")
        self._order = (*self._order, (fieldName, isAsc))
        return self

    def toDataStream(self) -> S:
        """Return the rows as a stream.

        Raises
        ------
        PlanError
            No order is set.
        """
        name = self._job.step("topN")
        if not self._order or not isinstance(self._count, int) or self._count < 1:
            raise PlanError("topN needs a count of at least 1 and addOrderByFieldName(...)", step=name)
        node = p.TopN(
            name=name,
            input=self._node,
            rank=self._rank,
            count=self._count,
            keys=self._keys,
            order=self._order,
        )
        return self._stream(self._job, node)

    set_row_num_name = setRowNumName
    set_top_n = setTopN
    group_by = groupBy
    add_order_by_field_name = addOrderByFieldName
    to_data_stream = toDataStream
