"""Sources and sinks beside RocketMQ: Kafka, MQTT, tables of a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.connectors.mqtt import MqttAddress, MqttSource, publish
from pyspark_rocketmq.streams.connectors.tables import TablesSource
from pyspark_rocketmq.streams.frame.extras import require
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.frame.python_steps import BEAT, TIME, VALUE
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import WATERMARKED, Analysis

__all__ = ["foreign_flow", "foreign_rows", "foreign_writer"]

_KAFKA: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_BEAT_MS: Final = "1000"


def foreign_flow(spark: SparkSession, node: p.ForeignSource, analysis: Analysis, plan: p.Plan) -> Flow:
    """Return what a source gives."""
    shape, options = analysis.shapes[node], dict(node.options)
    match node.kind:
        case "kafka":
            _require_kafka(spark, node)
            df = spark.readStream.format("kafka").options(**options).load()
            return Flow(df.select(F.col("timestamp").alias(TIME), _text("value")), shape)
        case "mqtt":
            require("paho.mqtt", "mqtt", node.name)
            if plan.on_error == "dead-letters":
                raise PlanError(
                    "dead letters are found by reading the source twice, which MQTT does not allow: "
                    "onError('skip') counts them",
                    step=node.name,
                )
            beats = any(isinstance(step, WATERMARKED) for step in analysis.nodes)
            if beats:
                options.setdefault("heartbeatMs", _BEAT_MS)
            else:
                options.pop("heartbeatMs", None)
            spark.dataSource.register(MqttSource)
            df = spark.readStream.format(MqttSource.name()).options(**options).load()
            columns = [F.col("time").alias(TIME), _text("payload")]
            if beats:
                columns.append(F.col("topic").isNull().alias(BEAT))
            return Flow(df.select(*columns), shape, beats=beats)
        case "tables":
            require("sqlalchemy", "sql", node.name)
            spark.dataSource.register(TablesSource)
            df = spark.readStream.format(TablesSource.name()).options(**options).load()
            return Flow(df.select(F.current_timestamp().alias(TIME), _text("row")), shape)
    raise PlanError("there is no such source", step=node.name)


def _text(name: str) -> Column:
    return F.col(name).cast("string").alias(VALUE)


def foreign_rows(flow: Flow) -> DataFrame:
    """Return texts (``value``), and where they are results of groups the group (``key``)."""
    columns = [flow.text().alias("value")]
    if flow.identity and set(flow.identity) <= set(flow.columns):
        parts = [F.coalesce(column(name).cast("string"), F.lit("<null>")) for name in flow.identity]
        columns.append(F.concat_ws("|", *parts).alias("key"))
    return flow.df.select(*columns)


def foreign_writer(sink: p.ForeignSink) -> Callable[[DataFrame, int], None]:
    """Return a function that writes a batch; it writes it again when Spark does."""
    if sink.kind == "kafka":

        def send(df: DataFrame, _: int) -> None:
            _require_kafka(df.sparkSession, sink)
            df.write.format("kafka").options(**sink.options).save()

        return send
    require("paho.mqtt", "mqtt", sink.name)
    function = publish(MqttAddress.of(sink.options), sink.topic)
    return lambda df, _: df.select("value").foreachPartition(function)


def _require_kafka(spark: SparkSession, step: p.Node) -> None:
    jvm = spark._jvm  # noqa: SLF001 - Spark itself says only that it fails to find kafka
    assert jvm is not None
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_KAFKA):
        raise PlanError(
            "Kafka needs Spark's connector: start the session with "
            f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}",
            step=step.name,
        )
