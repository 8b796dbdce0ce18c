"""Database tables: read added rows, and write results with their progress in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.spark.stores.checkpoint_log import CheckpointLog
from pyspark_rocketmq.streams.connectors.base import (
    BatchWriter,
    RecordSource,
    SinkConnector,
    own_name,
    text_value,
)
from pyspark_rocketmq.streams.connectors.database_source import TablesSource
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSource
from pyspark_rocketmq.streams.frame.extras import require
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import TIME
from pyspark_rocketmq.streams.plan.analysis import Analysis
from pyspark_rocketmq.streams.plan.nodes import Plan

__all__ = ["AddedRowsSource", "DatabaseSink"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AddedRowsSource(RecordSource):
    """Rows of the tables that match a pattern. A record's time is the time of reading."""

    system = "tables"

    def read(self, spark: SparkSession, analysis: Analysis, plan: Plan) -> Flow:
        """Return the source's flow."""
        del analysis, plan
        require("sqlalchemy", "sql", self.name)
        spark.dataSource.register(TablesSource)
        df = spark.readStream.format(TablesSource.name()).options(**self.options).load()
        return Flow(df.select(F.current_timestamp().alias(TIME), text_value("row")), self.shape)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DatabaseSink(SinkConnector):
    """A database table. Rows and progress are written in one transaction."""

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...]

    @property
    def needs_columns(self) -> bool:
        """Whether the records' fields must be known."""
        return True

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return f"table {self.table}"

    def batch_writer(self, plan: Plan, checkpoint: str | None, *, numbered: bool) -> BatchWriter:
        """Return a function that writes rows and progress in one transaction, so each batch counts once."""
        from pyspark_rocketmq.spark.stores.foreach_batch import (  # noqa: PLC0415
            transactional_writer,
            write_in_turn,
        )
        from pyspark_rocketmq.spark.stores.sql_rows import append_to, upsert_into  # noqa: PLC0415 - an extra
        from pyspark_rocketmq.spark.stores.sql_store import SqlOffsetStore  # noqa: PLC0415 - an extra

        del numbered
        write = upsert_into(self.table, key=self.key) if self.key else append_to(self.table)
        store = SqlOffsetStore(self.url, job=self._progress_name(plan))
        if checkpoint is None:

            def whole(df: DataFrame, _: int) -> None:
                with store.transaction() as transaction:
                    write(transaction.handle, df)
                store.close()

            return whole
        location = checkpoint
        if any(isinstance(node, RocketMQSource) for node in plan.nodes()):
            return transactional_writer(checkpoint=location, store=store, write=write)

        def by_number(df: DataFrame, number: int) -> None:
            identity = CheckpointLog(df.sparkSession, location).batch_id(number)
            write_in_turn(store, identity, (), df, write)

        return by_number

    def _progress_name(self, plan: Plan) -> str:
        """Return the name under which the database has this sink's progress.

        With one name for several sinks of a table, the rows of all but the first would seem to be written.
        """
        return own_name(f"{plan.job}/{self.table}", self, plan, lambda sink: (sink.url, sink.table))
