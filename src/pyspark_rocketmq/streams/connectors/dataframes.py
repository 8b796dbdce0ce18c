"""Anything that Spark reads and writes: DataFrames, Python data sources, functions, catalog tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.stores.file_log import check_new_batches, check_readable, table_folder
from pyspark_rocketmq.streams.connectors.base import BatchWriter, SinkConnector, SourceConnector
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.event_times import event_time
from pyspark_rocketmq.streams.frame.flow import Flow, column
from pyspark_rocketmq.streams.frame.python_steps import TIME
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Plan, Shape

__all__ = ["CustomSink", "FrameSource", "TableSink"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FrameSource(SourceConnector):
    """A user's DataFrame or Python data source. ``time`` is its column of event times."""

    frame: DataFrame | DataSource
    time: str | None = None

    @property
    def shape(self) -> Shape:
        """The shape of its records."""
        return Shape.COLUMNS

    @property
    def bounded(self) -> bool:
        """Whether it is bounded."""
        return not (self.frame.isStreaming if isinstance(self.frame, DataFrame) else _streams(self.frame))

    @property
    def takes_test_rows(self) -> bool:
        """Whether ``test`` can replace it with texts."""
        return False

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow."""
        del analysis, plan
        df = self.frame if isinstance(self.frame, DataFrame) else _load(spark, self.frame)
        time = F.current_timestamp()
        if self.time:
            value = _time_column(df, self.time)
            time = event_time(value, df.select(value).schema.fields[0].dataType)
        return Flow(df.select(time.alias(TIME), "*"), Shape.COLUMNS, tuple(df.columns))

    def without_errors(self, flow: Flow, guard: Guard) -> Flow:
        """Return the rows that have a time. The others are counted, or fail the query."""
        if self.time is None:
            return flow
        error = F.when(F.col(TIME).isNull(), F.lit(f"no time in {self.time}"))
        return replace(flow, df=guard.without_errors(flow.df, error, self))


def _time_column(df: DataFrame, name: str) -> Column:
    """Return a column by its exact name, which may have dots, or by Spark's name of a field in a struct."""
    is_exact = name.lower() in {each.lower() for each in df.columns}
    return column(name) if is_exact else F.col(name)


def _load(spark: SparkSession, source: DataSource) -> DataFrame:
    spark.dataSource.register(type(source))
    reader = spark.readStream if _streams(source) else spark.read
    return reader.format(type(source).name()).options(**source.options).load()


def _streams(source: DataSource) -> bool:
    """Whether a data source has a stream reader, of either kind."""
    names = ("streamReader", "simpleStreamReader")
    return any(getattr(type(source), name) is not getattr(DataSource, name) for name in names)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CustomSink(SinkConnector):
    """A function of a batch's DataFrame and number."""

    function: Callable[[DataFrame, int], None]

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return the function."""
        del plan, checkpoint, numbered
        return self.function


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableSink(SinkConnector):
    """A table in Spark's catalog."""

    table: str

    @property
    def needs_columns(self) -> bool:
        """Whether the records' fields must be known."""
        return True

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"table {self.table}"

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that appends a batch. It cannot detect a repeated batch.

        Raises
        ------
        PlanError
            Another sink has the results, too, or they change.
        RocketMQError
            A stream has written the table, and readers would not see this batch.
        """
        del plan, checkpoint
        if numbered:
            raise PlanError(
                "toTable must be the only sink of its job, and takes final rows only: send results "
                "that change (groups without a window, emitBeforeFire) to toDB(key=...) or toRocketmq",
                step=self.name,
            )
        if (folder := self._folder()) is not None:
            check_readable(f"table {self.table}", folder)
        return lambda df, _: df.write.mode("append").saveAsTable(self.table)

    def check_target(self, checkpoint: str, *, numbered: bool) -> None:
        """Raise an error if Spark would not write the first batches, or hide the table's rows.

        Raises
        ------
        RocketMQError
            The table's folder has batches that the checkpoint does not know, or files of others.
        """
        if not numbered and (folder := self._folder()) is not None:
            check_new_batches(f"table {self.table}", folder, checkpoint)

    def _folder(self) -> str | None:
        return table_folder(SparkSession.active(), self.table)

    def start(self, writer: DataStreamWriter, plan: Plan, checkpoint: str) -> StreamingQuery:
        """Start a query with this as its only sink."""
        del plan, checkpoint
        return writer.toTable(self.table)
