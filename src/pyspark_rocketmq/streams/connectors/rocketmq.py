"""RocketMQ topics."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.options import ClientOptions, Guarantee, SinkOptions, SourceOptions
from pyspark_rocketmq.options.declare import given_value, list_spellings, with_defaults
from pyspark_rocketmq.spark.monitor.listener import RocketMQQueryListener
from pyspark_rocketmq.spark.session_settings import add_session_settings
from pyspark_rocketmq.spark.write.update_mode import message_writer
from pyspark_rocketmq.streams.connectors.base import (
    BatchWriter,
    RecordSource,
    SinkConnector,
    group_key,
    has_watermark,
    own_name,
)
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import BEAT, TIME, VALUE
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Apply, Node, Plan, Shape, TimeSelect, Windowed
from pyspark_rocketmq.streams.plan.times import to_milliseconds

__all__ = ["IDLE_BY_FIELD_MS", "IDLE_BY_STORE_TIME_MS", "RecordTime", "RocketMQSink", "RocketMQSource"]

IDLE_BY_STORE_TIME_MS: Final = 1_000
IDLE_BY_FIELD_MS: Final = 180_000
"""The older API's ``msgMaxGapSecond``."""

_CONNECTION: Final = list_spellings(ClientOptions) - list_spellings(
    ClientOptions,
    {"nameServer", "namespace"},  # which are in the query's offsets
)
_OWN_OPTIONS: Final[Mapping[str, str]] = {
    "columns": "",
    "bodyAs": "string",
    "includeProperties": "false",
    "includeAlignedTimestamp": "false",
}
"""The options of the rows, and the values that change nothing."""

_OWN: Final = frozenset(name.lower() for name in _OWN_OPTIONS)

_NOTIFIED_S: Final = 0.5
_SPACES: Final[Mapping[str, str]] = {" ": "%20", "\t": "%09", "\n": "%0A"}
_EMPTY: Final = "<empty>"
"""The key of a group of the empty text: a message cannot have an empty one."""


class RecordTime(enum.Enum):
    """The source of a record's time, unless a step sets it."""

    STORE = "store"
    BORN = "born"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RocketMQSource(RecordSource):
    """RocketMQ topics.

    Parameters
    ----------
    time : RecordTime
        A record's time: the store time, or the born time at the producer.
    """

    system = "topic"

    time: RecordTime = RecordTime.STORE

    def __post_init__(self) -> None:
        """Check that no option is given that the pipeline sets.

        Raises
        ------
        PlanError
        """
        for name, own in _OWN_OPTIONS.items():
            if (given_value(SourceOptions, self.options, name) or own).strip().lower() != own:
                raise PlanError(
                    f"a pipeline reads the text of a body and the message's time, so {name} has no effect: "
                    "remove it, or read the other columns with spark.readStream and from_(df)",
                    step=self.name,
                )

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow."""
        defaults = {"startingOffsets": "earliest", "eventTimeAlignment": self.time.value}
        options = with_defaults(SourceOptions, add_session_settings(spark, self.options), defaults)
        given = given_value(SourceOptions, options, "heartbeatInterval")
        # Without a watermark they would only cause empty batches, each with an empty output file.
        beats = given != "off" if given is not None else has_watermark(analysis)
        if not beats:
            options = {name: value for name, value in options.items() if name.lower() != "heartbeatinterval"}
        elif given is None:
            idle_ms = IDLE_BY_FIELD_MS if any(map(_by_field, analysis.nodes)) else IDLE_BY_STORE_TIME_MS
            if plan.idle_s is not None:
                idle_ms = to_milliseconds(plan.idle_s)
            options["heartbeatInterval"] = f"{idle_ms}ms"
        time = f"{self.time.value}Timestamp"
        options = {name: value for name, value in options.items() if name.lower() not in _OWN}
        options |= {"columns": f"topic,body,{time}", "bodyAs": "string"}
        if plan.on_error != "fail":
            # Without a body, JSON is malformed, which the next step counts. A text has no such step.
            corrupt = {"onCorrupt": "skip" if self.shape is Shape.TEXT else "null"}
            options = with_defaults(SourceOptions, options, corrupt)
        df = spark.readStream.format("rocketmq").options(**options).load()
        columns = [F.col(time).alias(TIME), F.col("body").alias(VALUE)]
        if beats:
            columns.append(F.col("topic").isNull().alias(BEAT))
        return Flow(df.select(*columns), self.shape, beats=beats)

    @contextlib.contextmanager
    def follow(self, spark: SparkSession) -> Iterator[None]:
        """Commit the last batch for the group when the query stops."""
        connection: dict[str, Any] = {
            name: value for name, value in self.options.items() if name.lower() in _CONNECTION
        }
        listener = RocketMQQueryListener(**connection)
        spark.streams.addListener(listener)
        try:
            yield
        finally:
            # Listeners are notified shortly after the end: keep this one until then.
            SYSTEM_CLOCK.sleep(_NOTIFIED_S)
            spark.streams.removeListener(listener)
            listener.close()


def _by_field(node: Node) -> bool:
    """Whether a step takes the event time from a field of the record."""
    if isinstance(node, Windowed):
        return node.window.time_field is not None
    return isinstance(node, TimeSelect) or (isinstance(node, Apply) and node.how == "time")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RocketMQSink(SinkConnector):
    """A RocketMQ topic, with JSON bodies. Results of groups have the group as their key."""

    options: Mapping[str, str] = field(repr=False)

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"topic {self.options.get('topic')}"

    def rows(self, flow: Flow, plan: Plan) -> DataFrame:
        """Return rows for the sink."""
        columns = [flow.text().alias("body")]
        key = group_key(flow)
        if key:
            # A space separates the keys of a message.
            joined = F.concat_ws("|", *key)
            for space, escape in _SPACES.items():
                joined = F.replace(joined, F.lit(space), F.lit(escape))
            joined = F.when(joined == "", _EMPTY).when(joined == _EMPTY, "%3Cempty>").otherwise(joined)
            columns.append(joined.alias("keys"))
            guarantee = given_value(SinkOptions, self.options, "deliveryGuarantee") or ""
            once = guarantee.strip().lower() == Guarantee.EFFECTIVELY_ONCE.value
            if once and not (flow.updates or flow.shares_identity):
                columns.append(F.sha2(F.concat_ws("|", F.lit(self._job(plan)), *key), 256).alias("writeId"))
        return flow.df.select(*columns)

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that sends a batch. A repeated batch is sent again."""
        del checkpoint, numbered
        return message_writer(self._job(plan), self.options)

    def start(self, writer: DataStreamWriter, plan: Plan, checkpoint: str) -> StreamingQuery:
        """Start a query with this as its only sink."""
        del plan, checkpoint
        return writer.format("rocketmq").options(**self.options).start()

    def _job(self, plan: Plan) -> str:
        """Return the job by which repeats of this sink's rows are known, and of no other sink's."""
        return own_name(plan.job, self, plan)
