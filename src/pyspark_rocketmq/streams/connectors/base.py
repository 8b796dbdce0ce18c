"""The base of connectors: a source that returns a `Flow`, or a sink that writes one.

To add a system, add one module here with its node and implementation, and the method of ``streams.api`` that
creates the node. Compiling and running ask a node what it can do, and know no connector by its name.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.spark.boundary import called_for_batches
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.frame.python_steps import VALUE
from pyspark_rocketmq.streams.plan.analysis import WATERMARKED, Analysis
from pyspark_rocketmq.streams.plan.nodes import Plan, Shape, Sink, Source

__all__ = [
    "BatchWriter",
    "RecordSource",
    "SinkConnector",
    "SourceConnector",
    "TopicSink",
    "group_key",
    "has_watermark",
    "keyed_texts",
    "option_texts",
    "own_name",
    "plain_rows",
    "read_source",
    "sink_of",
    "sinks_alike",
    "text_value",
    "texts",
]

S = TypeVar("S", bound=Sink)

_NULL: Final = "<null>"

BatchWriter: TypeAlias = Callable[[DataFrame, int], None]
"""Writes a batch, given its DataFrame and number."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SourceConnector(Source):
    """A source that can be read."""

    @abstractmethod
    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow: event time and text, or columns.

        Raises
        ------
        PlanError
            The source, or a required library, is missing.
        """
        raise NotImplementedError

    def without_errors(self, flow: Flow, guard: Guard) -> Flow:
        """Return the rows without those that the source itself knows to be malformed."""
        del guard
        return flow

    def follow(self, spark: SparkSession) -> contextlib.AbstractContextManager[None]:
        """Do what this system needs while a job runs. A job calls it for its first source of each system."""
        del spark
        return contextlib.nullcontext()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecordSource(SourceConnector):
    """A source of messages. A record is the body's text, or its JSON object.

    Parameters
    ----------
    system : str
        What ``explain`` calls the topic's system.
    topic : str
        The topic, by the other system's name.
    json : bool
        Whether the bodies are JSON objects.
    options : Mapping
        Options of the Spark source that reads it. They may contain secrets.
    """

    system: ClassVar[str]

    topic: str
    json: bool
    options: Mapping[str, str] = field(repr=False)

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"{self.system} {self.topic} as {self.shape.value}"

    @property
    def shape(self) -> Shape:
        """The shape of its records."""
        return Shape.COLUMNS if self.schema is not None else Shape.JSON if self.json else Shape.TEXT

    @property
    def test_name(self) -> str:
        """The key of its rows in ``test``."""
        return self.topic


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SinkConnector(Sink):
    """A sink that can be written."""

    @property
    def needs_columns(self) -> bool:
        """Whether the records' fields must be known."""
        return False

    def rows(self, flow: Flow, plan: Plan) -> DataFrame:
        """Return the DataFrame for `batch_writer`."""
        del plan
        return plain_rows(flow)

    def check_target(self, checkpoint: str, *, numbered: bool) -> None:
        """Raise an error if this run's batches would be taken for others that the target has already.

        Parameters
        ----------
        checkpoint : str
        numbered : bool
            Whether `batch_writer` writes them.
        """

    @abstractmethod
    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that writes a batch.

        Parameters
        ----------
        plan : Plan
        checkpoint : str, optional
            The query's checkpoint. None for a plan with bounded sources.
        numbered : bool
            Whether a repeated batch has the same number. It then replaces its earlier result, if the other
            system supports that. Messages are repeated.
        """
        raise NotImplementedError

    def start(self, writer: DataStreamWriter, plan: Plan, checkpoint: str) -> StreamingQuery:
        """Start a query with this as its only sink. Its rows are final, not updates."""
        return self.start_batches(writer, plan, checkpoint)

    def start_batches(self, writer: DataStreamWriter, plan: Plan, checkpoint: str) -> StreamingQuery:
        """Start a query that writes each batch with `batch_writer`."""
        write = self.batch_writer(plan, checkpoint, numbered=True)
        return writer.foreachBatch(called_for_batches(write)).start()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopicSink(SinkConnector):
    """A topic of messages. Results of groups have the group as their key."""

    system: ClassVar[str]

    topic: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"{self.system} {self.topic}"

    def rows(self, flow: Flow, plan: Plan) -> DataFrame:
        """Return texts and, for results of groups, the group."""
        del plan
        return keyed_texts(flow)


def read_source(spark: SparkSession, node: Source, analysis: Analysis, plan: Plan, guard: Guard) -> Flow:
    """Return a source's flow, with its fields parsed if its schema declares them."""
    assert isinstance(node, SourceConnector), node
    flow = node.without_errors(node.read(spark, analysis, plan), guard)
    if node.schema is not None and flow.shape is Shape.COLUMNS and VALUE in flow.df.columns:
        record = Flow(flow.df, Shape.JSON, beats=flow.beats, exact=analysis.exact)
        return record.with_schema(node.schema, guard, node)
    return flow


def sink_of(node: Sink) -> SinkConnector:
    """Return a plan's sink with its type."""
    assert isinstance(node, SinkConnector), node
    return node


def sinks_alike(sink: S, plan: Plan, place: Callable[[S], Hashable]) -> list[S]:
    """Return the sinks of a plan that are of this one's kind and write to its place, with it."""
    return [each for each in plan.sinks if isinstance(each, type(sink)) and place(each) == place(sink)]


def own_name(name: str, sink: S, plan: Plan, place: Callable[[S], Hashable] = lambda _: None) -> str:
    """Return a sink's name of its progress, which no other of its place has. The first keeps the name."""
    (number,) = [at for at, each in enumerate(sinks_alike(sink, plan, place), 1) if each is sink]
    return name if number == 1 else f"{name}/{number}"


def has_watermark(analysis: Analysis) -> bool:
    """Whether a step waits for a watermark. Only then an idle source must advance the time."""
    return any(isinstance(node, WATERMARKED) for node in analysis.nodes)


def plain_rows(flow: Flow) -> DataFrame:
    """Return the records' columns if their fields are known, else their text as ``value``."""
    if flow.shape is not Shape.COLUMNS:
        return texts(flow)
    return flow.df.select(*map(column, flow.columns))


def texts(flow: Flow) -> DataFrame:
    """Return each record's text as ``value``."""
    return flow.df.select(flow.text().alias("value"))


def text_value(name: str) -> Column:
    """Return a column of a source as the record's text. Functions cannot get bytes that are not UTF-8."""
    return F.make_valid_utf8(F.col(name).cast("string")).alias(VALUE)


def group_key(flow: Flow) -> list[Column]:
    """Return the identity of group results, as texts. Empty for other records."""
    if not flow.identity or not set(flow.identity) <= set(flow.df.columns):
        return []
    return [_key_part(column(name).cast("string")) for name in flow.identity]


def _key_part(text: Column) -> Column:
    """Return a text without the separator, and different from any other's and from that of null."""
    escaped = F.replace(F.replace(text, F.lit("%"), F.lit("%25")), F.lit("|"), F.lit("%7C"))
    is_like_null = text == _NULL
    return F.coalesce(F.when(is_like_null, F.lit("%3Cnull>")).otherwise(escaped), F.lit(_NULL))


def keyed_texts(flow: Flow) -> DataFrame:
    """Return texts (``value``), and the group (``key``) if they are results of groups."""
    key = group_key(flow)
    columns = [flow.text().alias("value"), *([F.concat_ws("|", *key).alias("key")] if key else [])]
    return flow.df.select(*columns)


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options in Spark's format."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
