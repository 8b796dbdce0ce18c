"""The newer API: values, keys and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.job import CheckpointStrategy, Job
from pyspark_rocketmq.streams.api.naming import twins
from pyspark_rocketmq.streams.api.output import StreamOutput
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSink, RocketMQSource
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.emission import Firing
from pyspark_rocketmq.streams.plan.times import Window

__all__ = [
    "GroupedStream",
    "JoinedStream",
    "RStream",
    "RocketMQStream",
    "StreamConfig",
    "Topology",
    "WindowedStream",
]

_KEY: Final = "key"
_VALUE: Final = "value"
_LATE_S: Final = 2.0
"""RocketMQ Streams' ``allowLatenessMillisecond``."""

Selector = Callable[[Any], Any]


@twins
class RStream(StreamOutput):
    """A stream of values: whatever JSON can hold."""

    def _apply(self, how: str, function: Selector, schema: str | None = None) -> p.Apply:
        if not callable(function):
            raise PlanError(f"{how} takes a function", step=how)
        return p.Apply(name=self._job.step(how), input=self._node, how=how, function=function, schema=schema)

    def selectTimestamp(self, timestampSelector: Selector) -> RStream:
        """Take the event time from the value: a function that returns milliseconds since the epoch."""
        return RStream(self._job, self._apply("time", timestampSelector))

    def map(self, mapperAction: Selector) -> RStream:
        """Make a new value of each one; None drops it."""
        return RStream(self._job, self._apply("map", mapperAction))

    def flatMap(self, mapper: Selector) -> RStream:
        """Make any number of values of each one."""
        return RStream(self._job, self._apply("flatMap", mapper))

    def filter(self, predictor: Selector) -> RStream:
        """Keep values."""
        return RStream(self._job, self._apply("filter", predictor))

    def foreach(self, action: Selector) -> RStream:
        """Call a function with each value and hand it on."""
        return RStream(self._job, self._apply("forEach", action))

    def keyBy(self, selectAction: Selector) -> GroupedStream:
        """Group values by a key, which becomes text."""
        return GroupedStream(self._job, self._apply("key", selectAction))

    def join(self, rightStream: RStream) -> JoinedStream:
        """Pair values of two streams."""
        return JoinedStream(self, rightStream, outer=False)

    def leftJoin(self, rightStream: RStream) -> JoinedStream:
        """Pair values of two streams; the function gets None for a missing right one."""
        return JoinedStream(self, rightStream, outer=True)

    def print(self) -> RStream:
        """Print each value as JSON."""
        return self.toPrint()

    def sink(
        self, topicName: str, serializer: Callable[[Any], bytes] | None = None, **options: Any
    ) -> RStream:
        """Send each value to a topic, at least once.

        Parameters
        ----------
        serializer : Callable, optional
            Makes a body's text or bytes of a value; JSON when absent.
        **options
            Of `DataStream.toRocketmq`.
        """
        if serializer is None:
            return self.toRocketmq(topicName, **options)
        made = RStream(self._job, self._apply("map", _Encode(serializer)))
        made.toRocketmq(topicName, **options)
        return self


class _Encode:
    """A serializer as a function that gives text."""

    def __init__(self, serializer: Callable[[Any], Any]) -> None:
        self._serializer = serializer

    def __call__(self, value: Any) -> Any:
        made = self._serializer(value)
        return made.decode() if isinstance(made, bytes) else made


class _Keyed:
    """What groups with and without windows share: results of the values of a key."""

    _job: Job
    _node: p.Node

    def _result(self, kind: str, selector: Selector | str | None) -> RStream:
        raise NotImplementedError

    def _selected(self, selector: Selector | str | None) -> tuple[p.Node, str | None]:
        """Return the values that are aggregated, and the field that they are in."""
        if selector is None or isinstance(selector, str):
            return self._node, selector
        node = p.Apply(
            name=self._job.step("map"),
            input=self._node,
            how="map",
            function=_Number(selector),
            schema=f"{_VALUE} double",
        )
        return node, _VALUE


class _Number:
    """Puts what a selector gives into a record."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector

    def __call__(self, value: Any) -> Any:
        return {_VALUE: self._selector(value)}


@twins
class GroupedStream(_Keyed):
    """Values by key; a result goes out whenever it has changed, as ``{"key": ..., "value": ...}``."""

    def __init__(self, job: Job, node: p.Node) -> None:
        self._job = job
        self._node = node

    def _result(
        self, kind: str, selector: Selector | str | None, value: Any = None, *, incremental: bool = False
    ) -> RStream:
        node, field = self._selected(selector)
        aggregate = p.Aggregate(kind, field, _VALUE, value)
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
        """Count the values, or those that the selector gives something for."""
        return ResultStream(self._result("count", selectAction))

    def sum(self, selectAction: Selector | str) -> ResultStream:
        """Add up what the selector (a function, or a field's name) gives."""
        return ResultStream(self._result("sum", selectAction))

    def min(self, selectAction: Selector | str) -> ResultStream:
        """Return the least."""
        return ResultStream(self._result("min", selectAction))

    def max(self, selectAction: Selector | str) -> ResultStream:
        """Return the greatest."""
        return ResultStream(self._result("max", selectAction))

    def aggregate(self, accumulator: Any, *, incremental: bool = False) -> ResultStream:
        """Run an `Accumulator` over all values of a key; all of them stay in the state.

        Parameters
        ----------
        incremental : bool
            Keep what the accumulator holds (which must be picklable) in place of the values; it sees each one
            once, by their times within a batch. Needs the extra ``state``.
        """
        return ResultStream(self._result("accumulate", None, accumulator, incremental=incremental))

    def filter(self, predictor: Selector) -> GroupedStream:
        """Keep values."""
        return GroupedStream(self._job, RStream(self._job, self._node)._apply("filter", predictor))  # noqa: SLF001

    def map(self, valueMapperAction: Selector) -> GroupedStream:
        """Make a new value of each one, under the same key."""
        return GroupedStream(self._job, RStream(self._job, self._node)._apply("map", valueMapperAction))  # noqa: SLF001

    def window(self, windowInfo: Window) -> WindowedStream:
        """Put values into windows."""
        return WindowedStream(self._job, self._node, windowInfo)

    def toRStream(self) -> RStream:
        """Return the values without their keys."""
        return RStream(self._job, self._node)


@twins
class WindowedStream(_Keyed):
    """Values by key and window; a result goes out when the window closes."""

    def __init__(self, job: Job, node: p.Node, window: Window) -> None:
        self._job = job
        self._node = node
        self._window = window
        self._late_s = _LATE_S

    def waterMark(self, seconds: float) -> WindowedStream:
        """Wait so many seconds for late values; 2 unless it is said."""
        self._late_s = seconds
        return self

    def _result(
        self, kind: str, selector: Selector | str | None, value: Any = None, *, incremental: bool = False
    ) -> RStream:
        node, field = self._selected(selector)
        aggregate = p.Aggregate(kind, field, _VALUE, value)
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

    def count(self) -> ResultStream:
        """Count the values."""
        return ResultStream(self._result("count", None))

    def avg(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Average the values, or what the selector gives."""
        return ResultStream(self._result("avg", selectAction or _itself))

    def sum(self, selectAction: Selector | str | None = None) -> ResultStream:
        """Add up the values, or what the selector gives."""
        return ResultStream(self._result("sum", selectAction or _itself))

    def aggregate(self, accumulator: Any, *, incremental: bool = False) -> ResultStream:
        """Run an `Accumulator` over the values, once, when the window closes.

        Parameters
        ----------
        incremental : bool
            As of `GroupedStream.aggregate`.
        """
        return ResultStream(self._result("accumulate", None, accumulator, incremental=incremental))

    def filter(self, predictor: Selector) -> WindowedStream:
        """Keep values."""
        node = RStream(self._job, self._node)._apply("filter", predictor)  # noqa: SLF001
        return WindowedStream(self._job, node, self._window).waterMark(self._late_s)

    def map(self, mapperAction: Selector) -> WindowedStream:
        """Make a new value of each one."""
        node = RStream(self._job, self._node)._apply("map", mapperAction)  # noqa: SLF001
        return WindowedStream(self._job, node, self._window).waterMark(self._late_s)


def _itself(value: Any) -> Any:
    return value


@twins
class ResultStream(RStream):
    """Results of groups: records with ``key`` and ``value``, in windows also their times."""

    def __init__(self, stream: RStream) -> None:
        super().__init__(stream._job, stream._node)  # noqa: SLF001

    def toRStream(self) -> RStream:
        """Return the results as a stream."""
        return RStream(self._job, self._node)


@twins
class JoinedStream:
    """Two streams that are about to be joined: ``where(f).equalTo(g).window(w).apply(fn)``."""

    def __init__(self, left: RStream, right: RStream, *, outer: bool) -> None:
        self._left = left
        self._right = right
        self._outer = outer
        self._keys: list[Selector] = []
        self._window: Window | None = None
        self._late_s = _LATE_S

    def where(self, leftSelectAction: Selector) -> JoinedStream:
        """Say the left side's key."""
        self._keys = [leftSelectAction]
        return self

    def equalTo(self, rightSelectAction: Selector) -> JoinedStream:
        """Say the right side's key."""
        self._keys = [*self._keys[:1], rightSelectAction]
        return self

    def window(self, windowInfo: Window) -> JoinedStream:
        """Pair values of one window."""
        self._window = windowInfo
        return self

    def waterMark(self, seconds: float) -> JoinedStream:
        """Wait so many seconds for late values."""
        self._late_s = seconds
        return self

    def apply(self, joinAction: Callable[[Any, Any], Any]) -> RStream:
        """Make a value of each pair.

        Without a window each value meets the latest one of the other side, whose state is kept for ever: in
        Python workers, with the extra ``state``.

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


class Topology:
    """A pipeline that is written down."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def plan(self) -> p.Plan:
        """Return it as data."""
        return self.job.plan()


class StreamConfig:
    """Keys of `RocketMQStream`'s properties."""

    NAMESRV_ADDR = "rocketmq.namesrv.addr"
    ALLOW_LATENESS_MILLISECOND = "allowLatenessMillisecond"
    IDLE_TIME_TO_FIRE_WINDOW = "idleTimeToFireWindow"
    CHECKPOINT = "checkpointLocation"


@twins
class RocketMQStream:
    """Runs a pipeline of the newer API.

    Parameters
    ----------
    topology : Topology
        Of ``builder.build()``.
    properties : Mapping, optional
        By the keys of `StreamConfig`: the name servers, the lateness of all windows, how long a silence
        closes windows (2000 ms, as in RocketMQ Streams), and the checkpoint.

    Raises
    ------
    PlanError
        A property is unknown.
    """

    def __init__(self, topology: Topology, properties: Mapping[str, Any] | None = None) -> None:
        self._topology = topology
        self._properties = dict(properties or {})
        known = {value for name, value in vars(StreamConfig).items() if name.isupper()}
        strangers = sorted(set(self._properties) - known)
        if strangers:
            raise PlanError(f"there is no property {strangers[0]!r}; there are {', '.join(sorted(known))}")
        self._query: StreamingQuery | None = None

    def plan(self) -> p.Plan:
        """Return the pipeline with the properties in it."""
        job, given = self._topology.job, self._properties
        job.idle_s = float(given.get(StreamConfig.IDLE_TIME_TO_FIRE_WINDOW, 2000)) / 1000
        location = given.get(StreamConfig.CHECKPOINT)
        if location is not None:
            CheckpointStrategy(str(location)).apply(job)
        plan = job.plan()
        late_ms = given.get(StreamConfig.ALLOW_LATENESS_MILLISECOND)
        address = given.get(StreamConfig.NAMESRV_ADDR)
        made: dict[p.Node, p.Node] = {}
        for node in plan.nodes():
            made[node] = _with_properties(node, made, address, late_ms)
        sinks = (made[sink] for sink in plan.sinks)
        return replace(plan, sinks=tuple(sink for sink in sinks if isinstance(sink, p.Sink)))

    def start(self, **trigger: Any) -> StreamingQuery | None:
        """Start it and return; as in Java, it runs until `stop`."""
        from pyspark_rocketmq.streams.run.runner import start  # noqa: PLC0415 - what runs is not needed to write down

        self._query = start(self._topology.job.spark, self.plan(), trigger=trigger)
        return self._query

    def stop(self) -> None:
        """Stop it after the running batch, and return when that is committed."""
        from pyspark_rocketmq.streams.run.runner import finish  # noqa: PLC0415

        if self._query is not None:
            self._query.stop()
            finish(self._query)

    def isRunning(self) -> bool:
        """Whether it runs."""
        return self._query is not None and self._query.isActive


def _with_properties(
    node: p.Node, made: Mapping[p.Node, p.Node], address: str | None, late_ms: Any
) -> p.Node:
    """Return a step with the properties in it, and with steps before it that have them."""
    changes: dict[str, Any] = {
        name: made[getattr(node, name)]
        for name in ("input", "left", "right")
        if isinstance(getattr(node, name, None), p.Node)
    }
    if isinstance(node, RocketMQSource | RocketMQSink) and address is not None:
        changes["options"] = {"nameServer": address, **node.options}
    if isinstance(node, p.Windowed | p.KeyJoin) and late_ms is not None:
        changes["watermark_s"] = float(late_ms) / 1000
    return replace(node, **changes) if changes else node
