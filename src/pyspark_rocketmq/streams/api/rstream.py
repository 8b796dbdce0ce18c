"""The newer API: values, keys and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.arguments import check_accumulator, check_seconds, check_window
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.api.output import StreamOutput
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import AggregateKind, FunctionKind
from pyspark_rocketmq.streams.plan.emission import Firing
from pyspark_rocketmq.streams.plan.times import Window

__all__ = [
    "GroupedStream",
    "JoinedStream",
    "RStream",
    "WindowedStream",
]

_KEY: Final = "key"
_VALUE: Final = "value"
_LATE_S: Final = 2.0
"""RocketMQ Streams' ``allowLatenessMillisecond``."""

_EXACT: Final = 2**53
"""From this number on, not every whole number can be a double."""

Selector = Callable[[Any], Any]


class RStream(StreamOutput):
    """A stream of values of any JSON type."""

    def _apply(self, how: FunctionKind, function: Selector, schema: str | None = None) -> p.Apply:
        if not callable(function):
            raise PlanError(f"{how} takes a function", step=how)
        return p.Apply(name=self._job.step(how), input=self._node, how=how, function=function, schema=schema)

    def selectTimestamp(self, timestampSelector: Selector) -> RStream:
        """Take the event time from the value: a function that returns milliseconds since the epoch."""
        return RStream(self._job, self._apply("time", timestampSelector))

    def map(self, mapperAction: Selector) -> RStream:
        """Map each value to a new one. None drops it."""
        return RStream(self._job, self._apply("map", mapperAction))

    def flatMap(self, mapper: Selector) -> RStream:
        """Map each value to any number of values. None among them is no value."""
        return RStream(self._job, self._apply("flatMap", mapper))

    def filter(self, predictor: Selector) -> RStream:
        """Keep values."""
        return RStream(self._job, self._apply("filter", predictor))

    def foreach(self, action: Selector) -> RStream:
        """Call a function with each value and pass the value on."""
        return RStream(self._job, self._apply("forEach", action))

    def keyBy(self, selectAction: Selector) -> GroupedStream:
        """Group values by a key. Keys are converted to text."""
        return GroupedStream(self._job, self._apply("key", selectAction))

    def join(self, rightStream: RStream) -> JoinedStream:
        """Join the values of two streams."""
        return JoinedStream(self, rightStream, outer=False)

    def leftJoin(self, rightStream: RStream) -> JoinedStream:
        """Left join the values of two streams. The function gets None for a missing right value."""
        return JoinedStream(self, rightStream, outer=True)

    def print(self) -> RStream:
        """Print each value as JSON."""
        return self.toPrint()

    def sink(
        self, topicName: str, serializer: Callable[[Any], bytes | str] | None = None, **options: Any
    ) -> RStream:
        """Send each value to a topic, at least once. A group's results have the group as their key.

        Parameters
        ----------
        serializer : Callable, optional
            Returns the body of a value's message, as bytes or text. Default: JSON.
        **options
            Options of `DataStream.toRocketmq`.
        """
        if serializer is None:
            return self.toRocketmq(topicName, **options)
        made = RStream(self._job, self._apply("serialize", serializer))
        made.toRocketmq(topicName, **options)
        return self

    select_timestamp = selectTimestamp
    flat_map = flatMap
    key_by = keyBy
    left_join = leftJoin


class _Keyed:
    """The shared part of grouped streams with and without windows: results per key."""

    _job: Job
    _node: p.Node

    def _result(self, kind: AggregateKind, selector: Selector | str | None) -> RStream:
        raise NotImplementedError

    def _select(self, kind: AggregateKind, selector: Selector | str | None) -> tuple[p.Node, str | None]:
        """Return the values to aggregate and their field."""
        if isinstance(selector, str) and selector.lower() == _KEY:
            raise PlanError(
                f"the results have the group as {_KEY!r}: select the field {selector!r} by a function, "
                f"lambda value: value[{selector!r}]",
                step=kind,
            )
        if selector is None or isinstance(selector, str):
            return self._node, selector
        extreme = kind in {"min", "max"}
        # Any type can be counted. A text has all digits of a number, which is then compared.
        schema = f"{_VALUE} {'string' if extreme or kind == 'count' else 'double'}"
        function = _SelectedNumber(selector) if extreme else _Selected(selector)
        step = self._job.step("map")
        return p.Apply(name=step, input=self._node, how="map", function=function, schema=schema), _VALUE


class _Selected:
    """Stores a selector's result in a record."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector

    def __call__(self, value: Any) -> Any:
        return {_VALUE: self._selector(value)}


class _SelectedNumber(_Selected):
    """Stores a selector's result, which is a number or a text of one, with all its digits."""

    def __call__(self, value: Any) -> Any:
        found = self._selector(value)
        if found is None or not (text := str(found).strip()):
            return {_VALUE: None}
        try:
            return {_VALUE: int(text)}
        except ValueError:
            number = float(text)
        # RocketMQ Streams writes 2.0 as 2. A text, because JSON has no NaN.
        whole = number.is_integer() and abs(number) < _EXACT
        return {_VALUE: int(number) if whole else str(number)}


class GroupedStream(_Keyed):
    """Values by key. Each change of a result is emitted, as ``{"key": ..., "value": ...}``."""

    def __init__(self, job: Job, node: p.Node) -> None:
        self._job = job
        self._node = node

    def _result(
        self,
        kind: AggregateKind,
        selector: Selector | str | None,
        value: Any = None,
        *,
        incremental: bool = False,
    ) -> RStream:
        node, field = self._select(kind, selector)
        aggregate = p.Aggregate(kind, field, _VALUE, value, is_number=callable(selector))
        return RStream(
            self._job,
            p.Group(
                name=self._job.step(kind),
                input=node,
                keys=(_KEY,),
                aggregates=(aggregate,),
                incremental=incremental,
            ),
        )

    def count(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Count the values, or those for which the selector returns a value."""
        return ResultStream(self._result("count", selectAction))

    def sum(self, selectAction: Selector | str) -> ResultStream:
        """Sum the selector's results. The selector is a function or a field's name."""
        return ResultStream(self._result("sum", selectAction))

    def min(self, selectAction: Selector | str) -> ResultStream:
        """Return the minimum."""
        return ResultStream(self._result("min", selectAction))

    def max(self, selectAction: Selector | str) -> ResultStream:
        """Return the maximum."""
        return ResultStream(self._result("max", selectAction))

    def aggregate(self, accumulator: Any, *, incremental: bool = False) -> ResultStream:
        """Run an `Accumulator` over all values of a key. All of them stay in the state.

        Parameters
        ----------
        incremental : bool
            Keep the accumulator's state (which must be picklable) instead of the values. It gets each value
            once, within a batch in the order of time. Needs the extra ``state``.
        """
        check_accumulator(accumulator, "aggregate")
        return ResultStream(self._result("accumulate", None, accumulator, incremental=incremental))

    def filter(self, predictor: Selector) -> GroupedStream:
        """Keep values."""
        return GroupedStream(self._job, RStream(self._job, self._node)._apply("filter", predictor))  # noqa: SLF001

    def map(self, valueMapperAction: Selector) -> GroupedStream:
        """Map each value to a new one under the same key."""
        return GroupedStream(self._job, RStream(self._job, self._node)._apply("map", valueMapperAction))  # noqa: SLF001

    def window(self, windowInfo: Window) -> WindowedStream:
        """Group values into windows."""
        check_window(windowInfo, "window")
        return WindowedStream(self._job, self._node, windowInfo)

    def toRStream(self) -> RStream:
        """Return the values without their keys."""
        return RStream(self._job, self._node)

    to_r_stream = toRStream


class WindowedStream(_Keyed):
    """Values by key and window. The result is emitted when the window closes."""

    def __init__(self, job: Job, node: p.Node, window: Window) -> None:
        self._job = job
        self._node = node
        self._window = window
        self._late_s = _LATE_S

    def waterMark(self, seconds: float) -> WindowedStream:
        """Set how many seconds windows wait for late values. Default: 2."""
        check_seconds(seconds, "waterMark", "window")
        self._late_s = seconds
        return self

    def _result(
        self,
        kind: AggregateKind,
        selector: Selector | str | None,
        value: Any = None,
        *,
        incremental: bool = False,
    ) -> RStream:
        node, field = self._select(kind, selector)
        aggregate = p.Aggregate(kind, field, _VALUE, value, is_number=callable(selector))
        made = p.Windowed(
            name=self._job.step(kind),
            input=node,
            window=self._window,
            keys=(_KEY,),
            aggregates=(aggregate,),
            watermark_s=self._late_s,
            firing=Firing(incremental=incremental),
        )
        made.firing.check(self._window, made.name)
        return RStream(self._job, made)

    def count(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Count the values, or those for which the selector returns a value."""
        return ResultStream(self._result("count", selectAction))

    def min(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Return the minimum of the values, or of the selector's results."""
        return ResultStream(self._result("min", selectAction or _return_value))

    def max(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Return the maximum of the values, or of the selector's results."""
        return ResultStream(self._result("max", selectAction or _return_value))

    def avg(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Average the values, or the selector's results."""
        return ResultStream(self._result("avg", selectAction or _return_value))

    def sum(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Sum the values, or the selector's results."""
        return ResultStream(self._result("sum", selectAction or _return_value))

    def aggregate(self, accumulator: Any, *, incremental: bool = False) -> ResultStream:
        """Run an `Accumulator` over the values, once, when the window closes.

        Parameters
        ----------
        incremental : bool
            See `GroupedStream.aggregate`.
        """
        check_accumulator(accumulator, "aggregate")
        return ResultStream(self._result("accumulate", None, accumulator, incremental=incremental))

    def filter(self, predictor: Selector) -> WindowedStream:
        """Keep values."""
        node = RStream(self._job, self._node)._apply("filter", predictor)  # noqa: SLF001
        return WindowedStream(self._job, node, self._window).waterMark(self._late_s)

    def map(self, mapperAction: Selector) -> WindowedStream:
        """Map each value to a new one."""
        node = RStream(self._job, self._node)._apply("map", mapperAction)  # noqa: SLF001
        return WindowedStream(self._job, node, self._window).waterMark(self._late_s)

    water_mark = waterMark


def _return_value(value: Any) -> Any:
    return value


class ResultStream(RStream):
    """Results of groups: records with ``key`` and ``value``, and the window's times if there are windows."""

    def __init__(self, stream: RStream) -> None:
        super().__init__(stream._job, stream._node)  # noqa: SLF001

    def toRStream(self) -> RStream:
        """Return the results as a stream."""
        return RStream(self._job, self._node)

    to_r_stream = toRStream


class JoinedStream:
    """A join of two streams under construction: ``where(f).equalTo(g).window(w).apply(fn)``."""

    def __init__(self, left: RStream, right: RStream, *, outer: bool) -> None:
        self._left = left
        self._right = right
        self._outer = outer
        self._keys: list[Selector] = []
        self._window: Window | None = None
        self._late_s = _LATE_S

    def where(self, leftSelectAction: Selector) -> JoinedStream:
        """Set the left side's key."""
        self._keys = [leftSelectAction]
        return self

    def equalTo(self, rightSelectAction: Selector) -> JoinedStream:
        """Set the right side's key."""
        self._keys = [*self._keys[:1], rightSelectAction]
        return self

    def window(self, windowInfo: Window) -> JoinedStream:
        """Join values of the same window."""
        check_window(windowInfo, "join")
        self._window = windowInfo
        return self

    def waterMark(self, seconds: float) -> JoinedStream:
        """Set how many seconds windows wait for late values."""
        check_seconds(seconds, "waterMark", "join")
        self._late_s = seconds
        return self

    def apply(self, joinAction: Callable[[Any, Any], Any]) -> RStream:
        """Map each pair to a value.

        Without a window each value is joined with the latest value of the other side. That state is kept
        forever, in Python workers, and needs the extra ``state``.

        Raises
        ------
        PlanError
            A key is missing.
        """
        job = self._left._job  # noqa: SLF001
        name = job.step("join")
        if len(self._keys) != 2:
            raise PlanError("a join is where(...).equalTo(...)[.window(...)].apply(...)", step=name)
        left, right = (
            side._apply("key", key)  # noqa: SLF001
            for side, key in zip((self._left, self._right), self._keys, strict=True)
        )
        if self._window is None:
            latest = p.LatestJoin(name=name, left=left, right=right, outer=self._outer, function=joinAction)
            return RStream(job, latest)
        return RStream(
            job,
            p.KeyJoin(
                name=name,
                left=left,
                right=right,
                outer=self._outer,
                window=self._window,
                function=joinAction,
                watermark_s=self._late_s,
            ),
        )

    equal_to = equalTo
    water_mark = waterMark
