"""Sources as DataFrames with the hidden columns of a `Flow`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import DataSource

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.connectors.external import foreign_flow
from pyspark_rocketmq.streams.frame.flow import Flow, Guard
from pyspark_rocketmq.streams.frame.python_steps import BEAT, TIME, VALUE, to_json
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import WATERMARKED, Analysis, Shape

__all__ = ["bounded", "source_flow", "text_of"]

IDLE_BY_STORE_TIME_MS: Final = 1_000
IDLE_BY_FIELD_MS: Final = 180_000
"""The older API's ``msgMaxGapSecond``."""

_DEFAULTS: Final[Mapping[str, str]] = {"startingOffsets": "earliest", "eventTimeAlignment": "store"}


def bounded(node: p.Source) -> bool:
    """Whether a source ends."""
    match node:
        case p.RocketMQSource() | p.ForeignSource():
            return False
        case p.FileSource(tail=tail):
            return not tail
        case p.FrameSource(frame=frame):
            return not (frame.isStreaming if isinstance(frame, DataFrame) else _streams(frame))
    return True


def source_flow(spark: SparkSession, node: p.Source, analysis: Analysis, plan: p.Plan, guard: Guard) -> Flow:
    """Return what a source gives."""
    match node:
        case p.RocketMQSource():
            flow = _rocketmq(spark, node, analysis, plan)
        case p.ForeignSource():
            flow = foreign_flow(spark, node, analysis, plan)
        case p.FileSource():
            flow = _files(spark, node)
        case p.RowsSource():
            flow = _rows(spark, node)
        case p.FrameSource():
            return _frame(spark, node)
        case _:
            raise PlanError("there is no such source", step=node.name)
    if flow.shape is Shape.COLUMNS and VALUE in flow.df.columns:
        assert node.schema is not None
        return Flow(flow.df, Shape.JSON, beats=flow.beats).with_schema(node.schema, guard, node)
    return flow


def _rocketmq(spark: SparkSession, node: p.RocketMQSource, analysis: Analysis, plan: p.Plan) -> Flow:
    by_field = any(_by_field(step) for step in analysis.nodes)
    options = {**_DEFAULTS, **node.options}
    given = _value(options, "heartbeatInterval")
    # Without a watermark they would only make empty batches, each with an empty file at its end.
    beats = given != "off" if given is not None else any(isinstance(n, WATERMARKED) for n in analysis.nodes)
    if not beats:
        options = {name: value for name, value in options.items() if name.lower() != "heartbeatinterval"}
    elif given is None:
        idle_ms = IDLE_BY_FIELD_MS if by_field else IDLE_BY_STORE_TIME_MS
        if plan.idle_s is not None:
            idle_ms = int(plan.idle_s * 1000)
        options["heartbeatInterval"] = f"{idle_ms}ms"
    options["columns"] = "topic,body,storeTimestamp"
    options["bodyAs"] = "string"
    df = spark.readStream.format("rocketmq").options(**options).load()
    columns = [F.col("storeTimestamp").alias(TIME), F.col("body").alias(VALUE)]
    if beats:
        columns.append(F.col("topic").isNull().alias(BEAT))
    return Flow(df.select(*columns), analysis.shapes[node], beats=beats)


def _by_field(node: p.Node) -> bool:
    if isinstance(node, p.Windowed):
        return node.window.time_field is not None
    return isinstance(node, p.TimeSelect) or (isinstance(node, p.Apply) and node.how == "time")


def _value(options: Mapping[str, str], wanted: str) -> str | None:
    return next((value for name, value in options.items() if name.lower() == wanted.lower()), None)


def _files(spark: SparkSession, node: p.FileSource) -> Flow:
    now = F.current_timestamp().alias(TIME)
    if node.kind == "csv":
        options = {"header": "true", **node.options}
        if node.tail:
            if node.schema is None:
                raise PlanError("a csv folder that is followed needs schema=", step=node.name)
            df = spark.readStream.schema(node.schema).options(**options).csv(node.path)
        else:
            reader = spark.read.schema(node.schema) if node.schema else spark.read
            df = reader.options(**options).csv(_there(node))
        return Flow(df.select(now, "*"), Shape.COLUMNS, tuple(df.columns))
    if node.tail:
        df = spark.readStream.options(**node.options).text(node.path)
    else:
        df = spark.read.options(**node.options).text(_there(node))
    lines = df.where(F.trim("value") != "").select(now, F.col("value").alias(VALUE))
    if node.schema is not None:
        return Flow(lines, Shape.COLUMNS)
    return Flow(lines, Shape.JSON if node.kind == "json" else Shape.TEXT)


def _there(node: p.FileSource) -> str:
    if "://" not in node.path and not os.path.exists(node.path):  # noqa: PTH110 - may be a pattern of Spark
        raise PlanError(f"there is no file {node.path}", step=node.name)
    return node.path


def _rows(spark: SparkSession, node: p.RowsSource) -> Flow:
    shape = _rows_shape(node.rows)
    texts = [(text_of(row),) for row in node.rows]
    df = spark.createDataFrame(texts, f"{VALUE} string").select(F.current_timestamp().alias(TIME), VALUE)
    return Flow(df, Shape.COLUMNS if node.schema is not None else shape)


def _rows_shape(rows: Sequence[Any]) -> Shape:
    return Shape.TEXT if all(isinstance(row, str | bytes) for row in rows) else Shape.JSON


def text_of(row: Any) -> str:
    """Return a value as a message's body: texts as they are, others as JSON."""
    if isinstance(row, bytes):
        return row.decode()
    return row if isinstance(row, str) else to_json(row)


def _frame(spark: SparkSession, node: p.FrameSource) -> Flow:
    df = node.frame if isinstance(node.frame, DataFrame) else _load(spark, node.frame)
    time = F.col(node.time).cast("timestamp") if node.time else F.current_timestamp()
    return Flow(df.select(time.alias(TIME), "*"), Shape.COLUMNS, tuple(df.columns))


def _load(spark: SparkSession, source: DataSource) -> DataFrame:
    spark.dataSource.register(type(source))
    reader = spark.readStream if _streams(source) else spark.read
    return reader.format(type(source).name()).options(**source.options).load()


def _streams(source: DataSource) -> bool:
    """Whether a data source has a stream reader of either kind."""
    names = ("streamReader", "simpleStreamReader")
    return any(getattr(type(source), name) is not getattr(DataSource, name) for name in names)
