"""Running a pipeline of the newer API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.job import CheckpointStrategy, Job
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSink, RocketMQSource
from pyspark_rocketmq.streams.plan import nodes as p

__all__ = ["RocketMQStream", "StreamConfig", "Topology"]


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
            made[node] = _with_properties(node, made, address, late_ms)
        sinks = (made[sink] for sink in plan.sinks)
        return replace(plan, sinks=tuple(sink for sink in sinks if isinstance(sink, p.Sink)))

    def start(self, **trigger: Any) -> StreamingQuery | None:
        """Start it and return; as in Java, it runs until `stop`."""
        from pyspark_rocketmq.streams.run.launcher import launch  # noqa: PLC0415 - what runs is not needed to write down

        self._query = launch(self._topology.job.spark, self.plan(), trigger=trigger)
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

    is_running = isRunning


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
