"""Run a pipeline of the newer API."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.options import ClientOptions, SourceOptions
from pyspark_rocketmq.options.declare import with_defaults
from pyspark_rocketmq.streams.api.compat import ConsumerProperty
from pyspark_rocketmq.streams.api.job import Job
from pyspark_rocketmq.streams.api.strategies import CheckpointStrategy
from pyspark_rocketmq.streams.connectors.rocketmq import RecordTime, RocketMQSink, RocketMQSource
from pyspark_rocketmq.streams.plan import nodes as p

__all__ = ["ConsumeFromWhere", "RocketMQStream", "StreamConfig", "TimeType", "Topology"]

E = TypeVar("E", bound=enum.Enum)


class Topology:
    """A complete pipeline."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def plan(self) -> p.Plan:
        """Return the pipeline as data."""
        return self.job.plan()


class StreamConfig(ConsumerProperty):
    """Keys of `RocketMQStream`'s properties."""

    NAMESRV_ADDR = "rocketmq.namesrv.addr"
    ALLOW_LATENESS_MILLISECOND = "allowLatenessMillisecond"
    IDLE_TIME_TO_FIRE_WINDOW = "idleTimeToFireWindow"
    TIME_TYPE = "timeType"
    CONSUME_FROM_WHERE = "consume_from_where"
    CHECKPOINT = "checkpointLocation"


class TimeType(enum.Enum):
    """The source of a value's time, unless ``selectTimestamp`` sets it."""

    EVENT_TIME = "event"
    """The message's born time, by its producer's clock."""

    PROCESS_TIME = "process"
    """The message's store time, used as the processing time: the same if a batch is repeated."""


class ConsumeFromWhere(enum.Enum):
    """The start position of a job without a checkpoint."""

    CONSUME_FROM_FIRST_OFFSET = "earliest"
    CONSUME_FROM_LAST_OFFSET = "latest"


class RocketMQStream:
    """Runs a pipeline of the newer API.

    Parameters
    ----------
    topology : Topology
        The result of ``builder.build()``.
    properties : Mapping, optional
        Keyed as in `StreamConfig`: the name servers, the lateness of all windows, the idle time after which
        windows close (2000 ms, as in RocketMQ Streams), the checkpoint, a `TimeType` (default:
        ``PROCESS_TIME``) and a `ConsumeFromWhere` (default: the first offset), or their names.

    Raises
    ------
    PlanError
        A property or its value is unknown.
    """

    def __init__(self, topology: Topology, properties: Mapping[str, Any] | None = None) -> None:
        self._topology = topology
        self._properties = dict(properties or {})
        known = {value for name, value in vars(StreamConfig).items() if name.isupper()}
        strangers = sorted(set(self._properties) - known)
        if strangers:
            raise PlanError(f"there is no property {strangers[0]!r}; use one of {', '.join(sorted(known))}")
        self._time = _member(TimeType, self._properties.get(StreamConfig.TIME_TYPE))
        where = self._properties.get(StreamConfig.CONSUME_FROM_WHERE)
        self._start = _member(ConsumeFromWhere, where)
        self._query: StreamingQuery | None = None

    def plan(self) -> p.Plan:
        """Return the pipeline with the properties applied."""
        given = self._properties
        idle_s = float(given.get(StreamConfig.IDLE_TIME_TO_FIRE_WINDOW, 2000)) / 1000
        job = replace(self._topology.job, idle_s=idle_s)
        location = given.get(StreamConfig.CHECKPOINT)
        if location is not None:
            CheckpointStrategy(str(location)).apply(job)
        plan = job.plan()
        late_ms = given.get(StreamConfig.ALLOW_LATENESS_MILLISECOND)
        address = given.get(StreamConfig.NAMESRV_ADDR)
        made: dict[p.Node, p.Node] = {}
        for node in plan.nodes():
            made[node] = self._set_start(_with_properties(node, made, address, late_ms))
        sinks = (made[sink] for sink in plan.sinks)
        return replace(plan, sinks=tuple(sink for sink in sinks if isinstance(sink, p.Sink)))

    def _set_start(self, node: p.Node) -> p.Node:
        """Return the step. If it reads a topic, the properties' start position and time type are applied."""
        if not isinstance(node, RocketMQSource):
            return node
        time = RecordTime.BORN if self._time is TimeType.EVENT_TIME else RecordTime.STORE
        begin = {} if self._start is None else {"startingOffsets": self._start.value}
        return replace(node, time=time, options=with_defaults(SourceOptions, node.options, begin))

    def start(self, **trigger: Any) -> StreamingQuery | None:
        """Start the pipeline and return. As in Java, it runs until `stop`."""
        from pyspark_rocketmq.streams.run.launcher import launch  # noqa: PLC0415 - what runs is not needed to write down

        self._query = launch(self._topology.job.spark, self.plan(), trigger=trigger)
        return self._query

    def stop(self) -> None:
        """Stop the pipeline after the current batch. Returns when that batch is committed."""
        from pyspark_rocketmq.streams.run.runner import finish, stop  # noqa: PLC0415

        if self._query is not None:
            stop(self._query)
            finish(self._query)

    def isRunning(self) -> bool:
        """Whether the pipeline is running."""
        return self._query is not None and self._query.isActive

    is_running = isRunning


def _member(kind: type[E], given: E | str | None) -> E | None:
    """Return a property's value, which may be given by name."""
    if given is None or isinstance(given, kind):
        return given
    names = [str(member.name) for member in kind]
    if given not in names:
        raise PlanError(f"{kind.__name__} is one of {', '.join(names)}, not {given!r}")
    return kind[str(given)]


def _with_properties(
    node: p.Node, made: Mapping[p.Node, p.Node], address: str | None, late_ms: Any
) -> p.Node:
    """Return a step with the properties applied to it and to all steps before it."""
    changes: dict[str, Any] = {
        name: made[getattr(node, name)]
        for name in ("input", "left", "right")
        if isinstance(getattr(node, name, None), p.Node)
    }
    if isinstance(node, RocketMQSource | RocketMQSink) and address is not None:
        changes["options"] = with_defaults(ClientOptions, node.options, {"nameServer": address})
    if isinstance(node, p.Windowed | p.KeyJoin) and late_ms is not None:
        changes["watermark_s"] = float(late_ms) / 1000
    return replace(node, **changes) if changes else node
