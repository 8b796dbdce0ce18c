"""Topics of an MQTT broker. Needs the extra ``mqtt``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.connectors.base import (
    BatchWriter,
    RecordSource,
    TopicSink,
    has_watermark,
    text_value,
)
from pyspark_rocketmq.streams.connectors.mqtt_source import MqttAddress, MqttSource, publish
from pyspark_rocketmq.streams.frame.extras import require
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import BEAT, TIME
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Plan

__all__ = ["MqttTopicSink", "MqttTopicSource"]

_BEAT_MS: Final = "1000"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MqttTopicSource(RecordSource):
    """MQTT topics. A record's time is its arrival time."""

    system = "mqtt"

    @property
    def endless_because(self) -> str | None:
        """Why it cannot be read up to an end that a trigger sets."""
        return "an MQTT broker does not report its number of messages"

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow."""
        require("paho.mqtt", "mqtt", self.name)
        if plan.on_error == "dead-letters":
            raise PlanError(
                "onError('dead-letters') reads the source twice, which MQTT does not allow: use "
                "onError('skip'), which counts malformed records",
                step=self.name,
            )
        self._check_others(plan)
        options = dict(self.options)
        beats = has_watermark(analysis)
        if beats:
            options.setdefault("heartbeatMs", _BEAT_MS)
        else:
            options.pop("heartbeatMs", None)
        spark.dataSource.register(MqttSource)
        df = spark.readStream.format(MqttSource.name()).options(**options).load()
        columns = [F.col("time").alias(TIME), text_value("payload")]
        if beats:
            columns.append(F.col("topic").isNull().alias(BEAT))
        return Flow(df.select(*columns), self.shape, beats=beats)

    def _check_others(self, plan: Plan) -> None:
        journal, client = self.options["journal"], self.options["clientId"]
        sources = [node for node in plan.nodes() if isinstance(node, MqttTopicSource) and node is not self]
        if any(node.options["journal"] == journal for node in sources):
            raise PlanError(
                "two MQTT sources of a job have one journal, and each would read the messages of both: set "
                "journal='/a/file' for one of them",
                step=self.name,
                journal=journal,
            )
        if any(
            (node.options["url"], node.options["clientId"]) == (self.options["url"], client)
            for node in sources
        ):
            raise PlanError(
                "two MQTT sources of a job have one client id, and the broker closes the connection of each "
                "when the other one connects: give them different ids",
                step=self.name,
                client=client,
            )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MqttTopicSink(TopicSink):
    """An MQTT topic."""

    system = "mqtt"

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that publishes a batch. A repeated batch is published again."""
        del plan, checkpoint, numbered
        require("paho.mqtt", "mqtt", self.name)
        function = publish(MqttAddress.of(self.options), self.topic)
        return lambda df, _: df.select("value").foreachPartition(function)
