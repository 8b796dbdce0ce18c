"""Lightweight stream processing with the API of RocketMQ Streams, compiled to Structured Streaming.

Examples
--------
>>> import json
>>> from pyspark_rocketmq.streams import StreamBuilder, Time, TumblingWindow
>>> source = StreamBuilder.dataStream("namespace", "pipeline")
>>> stream = (  # doctest: +SKIP
...     source.fromRocketmq("topic", "group", False, "127.0.0.1:9876")
...     .map(lambda message: json.loads(message))
...     .window(TumblingWindow.of(Time.seconds(10)))
...     .groupBy("city").sum("price", "revenue").count("total").waterMark(5)
...     .toDataStream().toPrint(1).start())
"""

import pyspark_rocketmq.spark  # noqa: F401 - one sentence, if PySpark is missing or too old

# isort: split
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.api.builder import DataStreamSource, StreamBuilder
from pyspark_rocketmq.streams.api.compat import ShuffleStrategy
from pyspark_rocketmq.streams.api.data_stream import DataStream, SplitStream
from pyspark_rocketmq.streams.api.join_stream import JoinStream
from pyspark_rocketmq.streams.api.rocketmq_stream import (
    ConsumeFromWhere,
    RocketMQStream,
    StreamConfig,
    TimeType,
)
from pyspark_rocketmq.streams.api.rstream import (
    GroupedStream,
    JoinedStream,
    RStream,
    WindowedStream,
)
from pyspark_rocketmq.streams.api.schema_config import SchemaConfig, SchemaType
from pyspark_rocketmq.streams.api.strategies import CheckpointStrategy, WindowStrategy
from pyspark_rocketmq.streams.api.window_stream import OverWindowStream, WindowStream
from pyspark_rocketmq.streams.compile.aggregates import Accumulator, ClassicAccumulator
from pyspark_rocketmq.streams.frame.row_counts import late_rows, skipped_rows
from pyspark_rocketmq.streams.plan.times import (
    HoppingWindow,
    SessionWindow,
    Time,
    TumblingWindow,
    WindowBuilder,
)
from pyspark_rocketmq.streams.run.rescale import rescale
from pyspark_rocketmq.streams.run.state_reader import JobState, state

__all__ = [
    "Accumulator",
    "CheckpointStrategy",
    "ClassicAccumulator",
    "ConsumeFromWhere",
    "DataStream",
    "DataStreamSource",
    "GroupedStream",
    "HoppingWindow",
    "JobState",
    "JoinStream",
    "JoinedStream",
    "OverWindowStream",
    "PlanError",
    "RStream",
    "RocketMQStream",
    "SchemaConfig",
    "SchemaType",
    "SessionWindow",
    "ShuffleStrategy",
    "SplitStream",
    "StatefulProcessor",
    "StatefulProcessorHandle",
    "StreamBuilder",
    "StreamConfig",
    "Time",
    "TimeType",
    "TumblingWindow",
    "WindowBuilder",
    "WindowStrategy",
    "WindowStream",
    "WindowedStream",
    "late_rows",
    "rescale",
    "skipped_rows",
    "state",
]
