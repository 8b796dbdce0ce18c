"""The fluent API: steps on records, joins and windows. Sinks are in `output`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.spark.stores.database_url import database_url
from pyspark_rocketmq.streams.api.arguments import all_options, check_names
from pyspark_rocketmq.streams.api.compat import DataStreamNames
from pyspark_rocketmq.streams.api.job import Job, Strategy
from pyspark_rocketmq.streams.api.join_stream import JoinStream
from pyspark_rocketmq.streams.api.output import StreamOutput
from pyspark_rocketmq.streams.api.window_stream import OverWindowStream, WindowStream
from pyspark_rocketmq.streams.connectors.dimension import DimensionTable
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import FunctionKind, OnError, TimeMode, choices_of
from pyspark_rocketmq.streams.plan.expressions import (
    condition_sql,
    names_in,
    quoted_names,
    script_lines,
)
from pyspark_rocketmq.streams.plan.times import Time, Window

__all__ = ["DataStream", "SplitStream"]

Schema = str | StructType | None
_DISTINCT_S: Final = 3_600


class DataStream(StreamOutput, DataStreamNames):
    """A stream of records.

    Every method returns a new stream; nothing runs before ``start()``. Each camelCase name has a snake_case
    alias. Functions that only rearrange fields are computed by Spark, all others by Python workers:
    ``explain()`` shows which.
    """

    def _next(self, node: p.Node) -> DataStream:
        return DataStream(self._job, node)

    def _apply(self, how: FunctionKind, function: Callable[..., Any], schema: Schema = None) -> DataStream:
        if not callable(function):
            raise PlanError(
                f"{how} takes a function, not {type(function).__name__}", step=self._job.step(how)
            )
        name = self._job.step(how)
        return self._next(p.Apply(name=name, input=self._node, how=how, function=function, schema=schema))

    def map(
        self, function: Callable[[Any], Any] | Mapping[str, Column | str], schema: Schema = None
    ) -> DataStream:
        """Map each record to a new one, by a function or by a mapping of names to columns or SQL.

        Parameters
        ----------
        function : Callable or Mapping
            A function that returns None drops the record.
        schema : str or StructType, optional
            The types of the fields that the function returns. Without it fields are read from its JSON.
        """
        if isinstance(function, Mapping):
            return self._columns(function)
        return self._apply("map", function, schema)

    def _columns(self, columns: Mapping[str, Column | str]) -> DataStream:
        fields = frozenset().union(*map(names_in, columns.values()))
        name = self._job.step("map")
        return self._next(p.ColumnsMap(name=name, input=self._node, columns=dict(columns), fields=fields))

    def flatMap(self, function: Callable[[Any], Any], schema: Schema = None) -> DataStream:
        """Map each record to any number of records. None among them is no record."""
        return self._apply("flatMap", function, schema)

    def filter(self, condition: Callable[[Any], Any] | Column | str) -> DataStream:
        """Keep the records for which a function, a Column, or an SQL expression is true."""
        if isinstance(condition, Column | str):
            return self._where(condition, names_in(condition))
        return self._apply("filter", condition)

    def _where(self, condition: Column | str, fields: frozenset[str]) -> DataStream:
        name = self._job.step("filter")
        return self._next(p.Where(name=name, input=self._node, condition=condition, fields=fields))

    def filterByExpression(self, expression: str) -> DataStream:
        """Keep records by comparisons: ``(city,==,Paris)&(age,>,17)``, also with ``|`` and parentheses.

        The right side is a number or a text, with or without single quotes, or a field in backquotes. An
        optional type says how both sides are compared: ``(age,>,int,17)``.
        """
        sql = condition_sql(expression, step=f"filterByExpression({expression})")
        return self._where(sql, quoted_names(sql))

    def forEach(self, function: Callable[[Any], Any]) -> DataStream:
        """Call a function with each record and pass the record on. Calls may repeat after a failure."""
        return self._apply("forEach", function)

    def script(self, script: str) -> DataStream:
        """Add columns by statements ``name=expression`` in Spark SQL, separated by semicolons.

        Functions are Spark's, and those registered with ``spark.udf.register``.
        """
        lines = script_lines(script, step="script")
        made: set[str] = set()
        fields: set[str] = set()
        for name, value in lines:
            fields |= names_in(value) - made
            made.add(name)
        return self._next(
            p.Script(name=self._job.step("script"), input=self._node, lines=lines, fields=frozenset(fields))
        )

    def selectFields(self, *fieldNames: str) -> DataStream:
        """Keep some fields."""
        if not fieldNames:
            raise PlanError("selectFields needs at least one field", step="selectFields")
        check_names(fieldNames, "selectFields", "selectFields")
        return self._next(
            p.SelectFields(name=self._job.step("selectFields"), input=self._node, fields=fieldNames)
        )

    def selectTimestamp(self, time: Callable[[Any], Any] | str) -> DataStream:
        """Set the event time: a field's name, a function that returns milliseconds or an aware datetime.

        Call it before windows, joins and ``distinct``. After them, a field is refused if a later step waits
        for the watermark, and records to which a function gives an older time than the watermark are late:
        `late_rows` does not count them.
        """
        if isinstance(time, str):
            name = self._job.step("time")
            return self._next(p.TimeSelect(name=name, input=self._node, field=time))
        return self._apply("time", time)

    # --- several streams ----------------------------------------------------------------------

    def union(self, other: DataStream) -> DataStream:
        """Merge the records of another stream into this one.

        A field that is text on one side only, and of another type on the other, keeps both in JSON.
        Without a window before it, the event time is the newest of both: of a stream that is behind, records
        are late. One source of several topics (``fromRocketmq("a,b", ...)``) reads them in step.
        """
        name = self._job.step("union")
        return self._next(p.Union(name=name, left=self._node, right=other._node))

    def split(self, label: Callable[[Any], Any]) -> SplitStream:
        """Give each record a label for ``select``."""
        return SplitStream(self._job, self._apply("label", label)._node)  # noqa: SLF001

    def join(self, other: DataStream) -> JoinStream[DataStream]:
        """Join the records of two streams. All pairs are results, not only the last.

        A side that ends, such as a file without ``tail``, is a table: its rows are joined with each record of
        the other side, whatever their times.
        """
        return JoinStream(self._job, self._node, other._node, DataStream, outer=False)

    def leftJoin(self, other: DataStream) -> JoinStream[DataStream]:
        """Join the records of two streams, and keep records of this stream without a match."""
        return JoinStream(self._job, self._node, other._node, DataStream, outer=True)

    def dimJoin(self, *table: Any) -> JoinStream[DataStream]:
        """Join a table's columns to each record that has a match.

        In a JSON record a column replaces the field of the same name. If the record's fields are known, by
        ``selectFields`` or ``schema=``, the column is named ``dim_<name>`` instead.

        Parameters
        ----------
        *table
            A file (CSV with header, or JSON lines) and the minutes after which it is reloaded; or a
            database's URL (JDBC or SQLAlchemy), user, password, table or query, and the minutes.
        """
        return self._dimension(table, outer=False)

    def dimLeftJoin(self, *table: Any) -> JoinStream[DataStream]:
        """Join a table's columns to each record.

        Without a match they are null; a JSON record stays as it is.
        """
        return self._dimension(table, outer=True)

    def _dimension(self, table: Sequence[Any], *, outer: bool) -> JoinStream[DataStream]:
        match tuple(table):
            case (str() as path, int() | float() as minutes):
                found = DimensionTable.load(path, None, minutes * 60, "dimJoin")
            case (str() as url, user, password, str() as query, int() | float() as minutes):
                found = DimensionTable.load(database_url(url, user, password), query, minutes * 60, "dimJoin")
            case _:
                raise PlanError(
                    "dimJoin takes (file, minutes) or (url, user, password, table or query, minutes)",
                    step="dimJoin",
                )
        return JoinStream(self._job, self._node, found, DataStream, outer=outer)

    # --- many records together ----------------------------------------------------------------

    def window(self, window: Window) -> WindowStream[DataStream]:
        """Group records into time windows."""
        return WindowStream(self._job, self._node, window, DataStream)

    def distinct(self, *fieldNames: str, windowSizeSecond: float = _DISTINCT_S) -> DataStream:
        """Drop records that repeat the fields of an earlier one, for at least this long.

        Windows after it close later: by their length or by this time, whichever is less. Records that are
        older than all open windows are late here; without windows, those that are older than this time.
        """
        if not fieldNames:
            raise PlanError("distinct needs at least one field", step="distinct")
        check_names(fieldNames, "distinct", "distinct")
        name, within = self._job.step("distinct"), Time.seconds(windowSizeSecond)
        return self._next(p.Distinct(name=name, input=self._node, fields=fieldNames, within=within))

    def topN(
        self, asRowNumFieldName: str, topN: int, *groupByFieldNames: str
    ) -> OverWindowStream[DataStream]:
        """Keep the first rows of each window and group, in the order of ``addOrderByFieldName``."""
        return OverWindowStream(self._job, self._node, asRowNumFieldName, topN, groupByFieldNames, DataStream)

    def process(
        self,
        key: str | Sequence[str],
        processor: StatefulProcessor,
        schema: str | StructType,
        timeMode: TimeMode = "none",
        *,
        waterMark: float = 0,
    ) -> DataStream:
        """Run a stateful processor per key, with values, lists, maps, timers and times to live.

        The processor is a PySpark ``StatefulProcessor`` as for ``transformWithState``: ``handleInputRows``
        gets the records' fields as Rows (``selectFields(...)`` or ``schema=`` must precede it) and yields
        Rows. It runs in Python workers and needs the extra ``state``. A batch commits state changes and
        results together: each record counts once.

        Parameters
        ----------
        key : str or sequence of str
            The fields of the key.
        schema : str or StructType
            The schema of the yielded Rows.
        timeMode : {"none", "processingTime", "eventTime"}
            The time of timers. Times to live need ``processingTime``, with which Spark runs a batch at every
            trigger: one per second by default. With ``eventTime`` rows have the field ``event_time``, and
            rows not newer than the watermark are late and dropped.
        waterMark : float
            With event time, how many seconds records may be late.

        Raises
        ------
        PlanError
            An argument is of the wrong kind.
        """
        name = self._job.step("process")
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            raise PlanError("process needs at least one key field", step=name)
        if not isinstance(processor, StatefulProcessor):
            raise PlanError(
                f"process takes a StatefulProcessor object, not {type(processor).__name__}", step=name
            )
        if timeMode not in choices_of(TimeMode):
            raise PlanError(
                f"timeMode is one of {', '.join(choices_of(TimeMode))}, not {timeMode!r}", step=name
            )
        if waterMark < 0 or (waterMark and timeMode != "eventTime"):
            raise PlanError(
                "waterMark must be at least 0 seconds, and requires timeMode='eventTime'", step=name
            )
        timed = functools.partial(p.TimedProcess, watermark_s=waterMark)
        step = timed if timeMode == "eventTime" else p.Process
        return self._next(
            step(
                name=name,
                input=self._node,
                keys=keys,
                processor=processor,
                schema=schema,
                time_mode=timeMode,
            )
        )

    # --- the job ------------------------------------------------------------------------------

    def with_(self, *strategies: Strategy) -> DataStream:
        """Configure how the job runs."""
        for strategy in strategies:
            strategy.apply(self._job)
        return self

    def onError(
        self, mode: OnError, topic: str | None = None, namesrvAddr: str | None = None, **options: Any
    ) -> DataStream:
        """Set the handling of records that are malformed, or whose function raises.

        Parameters
        ----------
        mode : {"skip", "fail", "dead-letters"}
            Skipped records are counted: see ``skipped_rows(query)``. Dead letters are found by a second query
            over the same source.
        topic, namesrvAddr : str, optional
            The dead letters' topic. A dead letter is the record's text with the property ``deadLetterCause``.
        **options
            Any option of the sink, such as ``accessKey``: those of the source are not those of this topic.
        """
        own = {"topic": topic, "nameServer": namesrvAddr}
        self._job.set_errors(mode, all_options("onError", own, options, SinkOptions))
        return self

    flat_map = flatMap
    filter_by_expression = filterByExpression
    for_each = forEach
    select_fields = selectFields
    select_timestamp = selectTimestamp
    left_join = leftJoin
    dim_join = dimJoin
    dim_left_join = dimLeftJoin
    top_n = topN
    on_error = onError


class SplitStream:
    """A stream of labeled records."""

    def __init__(self, job: Job, node: p.Node) -> None:
        self._job = job
        self._node = node

    def select(self, *labels: Any) -> DataStream:
        """Return the records with one of the labels."""
        if not labels:
            raise PlanError("select needs at least one label", step="select")
        name = self._job.step("select")
        return DataStream(self._job, p.Select(name=name, input=self._node, labels=labels))
