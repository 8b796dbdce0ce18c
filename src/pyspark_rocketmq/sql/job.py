"""Run a job: its statements in order, its tables as views, its inserts as queries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self, assert_never

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import RocketMQError, SqlError
from pyspark_rocketmq.options import BadRecords, JobOptions, OutputMode, RuntimeMode
from pyspark_rocketmq.spark.monitor.written_rows import WrittenRows, write_counted
from pyspark_rocketmq.spark.query_end import ends_within, stop_query
from pyspark_rocketmq.spark.worker_python import check_worker_python
from pyspark_rocketmq.spark.write.update_mode import message_writer
from pyspark_rocketmq.sql.error_positions import place_of, reason_of
from pyspark_rocketmq.sql.flinksql import JobQueries, Translated, register_function
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.settings import Settings, first_settings, require_checkpoint, spark_setting
from pyspark_rocketmq.sql.statements import (
    CreateFunction,
    CreateTable,
    CreateView,
    DropTable,
    Insert,
    Position,
    Query,
    Reset,
    Set,
    SparkStatement,
    Statement,
)
from pyspark_rocketmq.sql.tables import SOURCE, Table, quote

__all__ = ["SqlJob", "execute"]

_POLL_S: Final = 0.5


def execute(
    spark: SparkSession,
    text: str,
    *,
    checkpoint_location: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SqlJob:
    """Run the statements of a job and start its streaming queries.

    The whole text is parsed before anything runs. If a statement fails, the queries started before it are
    stopped.

    Parameters
    ----------
    spark : SparkSession
        Tables become its temporary views.
    text : str
        Statements, separated by semicolons.
    checkpoint_location : str, optional
        Same as ``SET 'checkpointLocation'`` at the beginning.
    settings : mapping of str to str, optional
        More settings, as in ``SET``.

    Returns
    -------
    SqlJob
        The running job. A write has the promise of ``writeStream.format("rocketmq")``: at least once.

    Raises
    ------
    SqlError
        A statement is invalid. The error has its line and column.
    OptionError
        A setting is invalid.
    RocketMQError
        The interpreter of Spark's workers lacks this package.

    Examples
    --------
    >>> job = execute(spark, Path("job.sql").read_text(), checkpoint_location="/var/job")  # doctest: +SKIP
    >>> job.await_termination()  # doctest: +SKIP
    """
    statements = parse_statements(text)
    check_worker_python(spark)
    job = SqlJob(spark, text, first_settings(settings, checkpoint_location))
    try:
        for statement in statements:
            job.run(statement)
    except BaseException:
        job.stop()
        raise
    return job


class SqlJob:
    """A running job. As a context manager it stops its queries at the end.

    Attributes
    ----------
    queries : list of StreamingQuery
        One per ``INSERT``, and one per table whose bad records go to a topic.
    results : list of DataFrame
        The results of the statements that return rows, in order.
    result_positions : list of Position
        The positions of these statements.
    written : list of WrittenRows
        What each ``INSERT`` of a batch has written, in order.
    tables : dict of str to Table
    """

    def __init__(self, spark: SparkSession, text: str, settings: Mapping[str, str]) -> None:
        self.queries: list[StreamingQuery] = []
        self.results: list[DataFrame] = []
        self.result_positions: list[Position] = []
        self.written: list[WrittenRows] = []
        self.tables: dict[str, Table] = {}
        self._spark = spark
        self._text = text
        self._settings = Settings()
        self._queries = JobQueries()
        self._viewed: dict[str, RuntimeMode] = {}
        self._views: set[str] = set()
        self._refused: set[str] = set()  # tables whose bad records already have a query
        self._names: set[str] = set()
        self._position = Position(1, 1)
        self._started_at: dict[int, Position] = {}
        for name, value in settings.items():
            self._set(name, value)

    @property
    def options(self) -> JobOptions:
        """The settings as they are now."""
        return self._settings.options

    # --- statements -------------------------------------------------------------------------

    def run(self, statement: Statement) -> None:
        """Run one statement.

        Raises
        ------
        SqlError
        """
        self._position = statement.position
        with self.add_position(statement.position):
            match statement:
                case CreateFunction():
                    register_function(self._spark, statement)
                case CreateTable():
                    self._create_table(statement)
                case CreateView():
                    self._create_view(statement)
                case DropTable():
                    self._drop(statement)
                case Insert():
                    self._insert(statement)
                case Set():
                    self._set(statement.name, statement.value)
                case Reset():
                    self._reset(statement.name)
                case SparkStatement():
                    rows = self._spark_statement(statement)
                    if statement.is_query:
                        self.results.append(rows)
                        self.result_positions.append(statement.position)
                case _:
                    assert_never(statement)

    def _create_table(self, declared: CreateTable) -> None:
        key = declared.name.key
        there = self.tables.get(key)
        if declared.keeps(None if there is None else there.declared):
            return
        self._viewed.pop(key, None)
        declared = self._queries.table(declared, self.options)
        self.tables[key] = Table.of(declared, default_format=self.options.default_format)

    def _create_view(self, view: CreateView) -> None:
        if view.keeps(view.name.key in self._views | self.tables.keys()):
            return
        translated = self._queries.view(view, self.tables, self.options)
        self._query(view.query, translated).createOrReplaceTempView(quote(view.name))
        self._views.add(view.name.key)

    def _drop(self, statement: DropTable) -> None:
        if statement.name.key not in self.tables:
            self._query(statement.whole)
            return
        del self.tables[statement.name.key]
        if self._viewed.pop(statement.name.key, None):
            self._spark.catalog.dropTempView(statement.name.text)

    def _spark_statement(self, statement: SparkStatement) -> DataFrame:
        translated = None
        if statement.is_query:
            translated = self._queries.query(statement.whole, self.tables, self.options)
        return self._query(statement.whole, translated)

    def _query(self, query: Query, translated: Translated | None = None) -> DataFrame:
        """Run a query in Spark, after registering its tables as views."""
        mode = self.options.mode
        for key in sorted(query.names & self.tables.keys()):
            table = self.tables[key]
            if self._viewed.get(key) is not mode:
                rows = table.read(self._spark, streaming=mode is RuntimeMode.STREAMING)
                rows.createOrReplaceTempView(quote(table.declared.name))
                self._viewed[key] = mode
            if table.options.bad_records is BadRecords.DEAD_LETTER and key not in self._refused:
                self._refused.add(key)
                self._start_dead_letters(table)
        return self._spark.sql(query.padded if translated is None else translated.text)

    # --- settings ---------------------------------------------------------------------------

    def _set(self, name: str, value: str) -> None:
        spark_name = spark_setting(name)
        if spark_name is None:
            self._settings.set(name, value)
        else:
            self._spark.conf.set(spark_name, value)

    def _reset(self, name: str | None) -> None:
        spark_name = None if name is None else spark_setting(name)
        if spark_name is None:
            self._settings.reset(name)
        else:
            self._spark.conf.unset(spark_name)

    # --- inserts ----------------------------------------------------------------------------

    def _insert(self, insert: Insert) -> None:
        table = self.tables.get(insert.target.key)
        if table is None:
            self._insert_into_spark(insert)
            return
        insert.require_append()
        columns = table.target_columns(insert.columns, insert.target.position)
        translated = self._queries.query(insert.query, self.tables, self.options)
        rows = self._query(insert.query, translated)
        if table.format is not None and len(rows.columns) != len(columns):
            insert.query.position.fail(
                f"the query has {len(rows.columns)} columns, but {table.name} is given {len(columns)}: "
                f"{', '.join(column.name.text for column in columns)}"
            )
        messages = table.messages(rows, columns)
        mode = self._output_mode(translated)
        self._write(messages, table.sink_options(), table.name, mode)

    def _insert_into_spark(self, insert: Insert) -> None:
        """Insert into a Spark table. A stream gets a separate query."""
        key = insert.target.text
        translated = self._queries.query(insert.query, self.tables, self.options)
        if insert.overwrite or not insert.query.names & self.tables.keys() | self._views & insert.query.names:
            self._query(insert.whole, translated.within(insert))
            return
        rows = self._query(insert.query, translated)
        if not rows.isStreaming:
            self._write_batch(rows, key, lambda df: df.write.mode("append").insertInto(key))
            return
        writer, _ = self._writer(rows, key, self._output_mode(translated))
        self._add_query(writer.toTable(key))

    def _output_mode(self, translated: Translated) -> OutputMode:
        return self.options.output_mode or (
            OutputMode.UPDATE if translated.rows.changes else OutputMode.APPEND
        )

    def _write(
        self, messages: DataFrame, options: Mapping[str, str], name: str, mode: OutputMode = OutputMode.APPEND
    ) -> None:
        if not messages.isStreaming:

            def send(rows: DataFrame) -> None:
                rows.write.format(SOURCE).mode("append").options(**options).save()

            self._write_batch(messages, name, send)
            return
        writer, checkpoint = self._writer(messages, name, mode)
        if mode is OutputMode.UPDATE:
            self._add_query(writer.foreachBatch(message_writer(checkpoint, options)).start())
        else:
            self._add_query(writer.format(SOURCE).options(**options).start())

    def _write_batch(self, rows: DataFrame, name: str, write: Callable[[DataFrame], None]) -> None:
        self.written.append(WrittenRows(name, write_counted(rows, write)))

    def _writer(self, rows: DataFrame, name: str, mode: OutputMode) -> tuple[DataStreamWriter, str]:
        """Return the writer of a query with its own name, and so its own checkpoint."""
        name = self._unique(self.options.query_name or name)
        self._settings.insert_begins()
        location = require_checkpoint(self.options)
        trigger = self.options.trigger_ms
        writer = rows.writeStream.outputMode(mode.value).queryName(name)
        checkpoint = f"{location.rstrip('/')}/{name}"
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger is None:
            return writer.trigger(availableNow=True), checkpoint
        return writer.trigger(processingTime=f"{trigger} milliseconds"), checkpoint

    def _add_query(self, query: StreamingQuery) -> None:
        self.queries.append(query)
        self._started_at[id(query)] = self._position

    def _unique(self, name: str) -> str:
        number = 1
        unique = name
        while unique in self._names:
            number += 1
            unique = f"{name}-{number}"
        self._names.add(unique)
        return unique

    def _start_dead_letters(self, table: Table) -> None:
        """Send a table's bad records to their topic, with a query besides those that read the table."""
        streaming = self.options.mode is RuntimeMode.STREAMING
        letters = table.dead_letters(self._spark, streaming=streaming)
        self._write(letters, table.given.connection, f"{table.name}-bad-records")

    # --- the end ----------------------------------------------------------------------------

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until every query has ended.

        Parameters
        ----------
        timeout_s : float, optional
            Maximum time to wait.

        Returns
        -------
        bool
            Whether all queries have ended.

        Raises
        ------
        RocketMQError
            A query failed. The others are stopped.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            for query in self.queries:
                failure = query.exception()
                if failure is not None:
                    self.stop()
                    place = self._started_at.get(id(query), Position(1, 1))
                    raise RocketMQError(
                        f"{place}: query {query.name} failed: {reason_of(failure)}"
                    ) from failure
            active = [query for query in self.queries if query.isActive]
            if not active:
                return True
            left = _POLL_S if end is None else min(_POLL_S, end - time.monotonic())
            if left <= 0:
                return False
            with contextlib.suppress(PySparkException):  # checked above
                ends_within(active[0], left)

    def stop(self) -> None:
        """Stop every query."""
        for query in self.queries:
            stop_query(query)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @contextlib.contextmanager
    def add_position(self, position: Position) -> Iterator[None]:
        """Add the position in the text to errors of options and of Spark.

        Raises
        ------
        SqlError
        """
        try:
            yield
        except SqlError:
            raise
        except RocketMQError as error:
            raise SqlError(error.message, line=position.line, column=position.column) from error
        except PySparkException as error:
            at = place_of(error, self._text) or position
            raise SqlError(reason_of(error), line=at.line, column=at.column) from error
