"""Kafka topics, through Spark's Kafka connector. The session needs its jar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.connectors.base import (
    BatchWriter,
    RecordSource,
    TopicSink,
    keyed_texts,
    text_value,
)
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import TIME
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Node, Plan, Shape

__all__ = ["KafkaSink", "KafkaSource"]

_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KafkaSource(RecordSource):
    """Kafka topics. A record's time is its Kafka timestamp."""

    system = "kafka"

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow."""
        del analysis, plan
        _require_connector(spark, self)
        df = spark.readStream.format("kafka").options(**self.options).load()
        if self.shape is Shape.TEXT:  # else a record without a value is malformed JSON
            df = df.where(F.col("value").isNotNull())
        return Flow(df.select(F.col("timestamp").alias(TIME), text_value("value")), self.shape)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KafkaSink(TopicSink):
    """A Kafka topic."""

    system = "kafka"

    def rows(self, flow: Flow, plan: Plan) -> DataFrame:
        """Return texts and, for results of groups, the group.

        Raises
        ------
        PlanError
            The session has no connector for Kafka.
        """
        del plan
        _require_connector(flow.df.sparkSession, self)
        return keyed_texts(flow)

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that sends a batch. A repeated batch is sent again."""
        del plan, checkpoint, numbered
        return lambda df, _: df.write.format("kafka").options(**self.options).save()


def _require_connector(spark: SparkSession, step: Node) -> None:
    jvm = spark._jvm  # noqa: SLF001 - Spark itself says only that it fails to find kafka
    assert jvm is not None
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_PROVIDER):
        raise PlanError(
            "Kafka needs Spark's connector: start the session with "
            f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}",
            step=step.name,
        )
