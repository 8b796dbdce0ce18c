"""Run a job: its statements in order, its tables as views, its inserts as queries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, assert_never

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import JobOptions, OutputMode, RuntimeMode, SqlDialect
from pyspark_rocketmq.spark.monitor.written_rows import WrittenRows, write_counted
from pyspark_rocketmq.spark.query_end import ends_within, stop_query
from pyspark_rocketmq.spark.session_settings import temporary_settings
from pyspark_rocketmq.spark.stores.file_log import forget_unwritten_start
from pyspark_rocketmq.spark.worker_python import check_worker_python
from pyspark_rocketmq.sql.error_positions import failures_at, reason_of
from pyspark_rocketmq.sql.flinksql import register_function
from pyspark_rocketmq.sql.parse import note_table, parse_statements
from pyspark_rocketmq.sql.plan.bad_records import SentBadRecords
from pyspark_rocketmq.sql.plan.planner import Planner, Write
from pyspark_rocketmq.sql.plan.query_settings import query_settings
from pyspark_rocketmq.sql.plan.state_record import keeping_state_record
from pyspark_rocketmq.sql.plan.targets import DeadLettersTarget
from pyspark_rocketmq.sql.settings import first_settings, query_checkpoint, trigger_of_ttl
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
from pyspark_rocketmq.sql.tables import Table

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
        self._spark = spark
        self._text = text
        self._planner = Planner(spark, settings)
        self._names: set[str] = set()
        self._letters: dict[Table, StreamingQuery] = {}  # what sends bad records of streams
        self._sent = SentBadRecords()  # those of batches
        self._declared: dict[str, CreateTable] = {}
        self._position = Position(1, 1)
        self._started_at: dict[int, Position] = {}

    @property
    def options(self) -> JobOptions:
        """The settings as they are now."""
        return self._planner.options

    @property
    def tables(self) -> dict[str, Table]:
        """The declared tables by name, in lower case."""
        return self._planner.tables

    # --- statements -------------------------------------------------------------------------

    def run(self, statement: Statement) -> None:
        """Run one statement. If it fails, a query that it started is stopped.

        Raises
        ------
        SqlError
        """
        self._position = statement.position
        before = len(self.queries)
        with self.add_position(statement.position):
            try:
                self._run(statement)
            except BaseException:  # a query without that of its bad records would lose them
                self._stop_from(before)
                raise
        note_table(self._declared, statement)

    def run_text(self, text: str, show: Callable[[DataFrame, OutputMode, Position], None]) -> None:
        """Run more statements, in a shell.

        Parameters
        ----------
        text : str
        show : callable
            Called for each statement that returns rows: with its rows, their output mode as a stream, and its
            position.

        Raises
        ------
        SqlError
        """
        statements = parse_statements(text, self._declared)
        self._text = text
        if any(isinstance(statement, Insert) for statement in statements):
            self._letters = {table: query for table, query in self._letters.items() if query.isActive}
            self._sent.begin_text()
        for statement in statements:
            self.run(statement)
            if self.results:
                rows, position = self.results.pop(), self.result_positions.pop()
                show(rows, self._planner.last_mode, position)

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of the declared tables and views, by their names in lower case."""
        return self._planner.columns

    def _run(self, statement: Statement) -> None:
        planner = self._planner
        match statement:
            case CreateFunction():
                self._create_function(statement)
            case CreateTable():
                planner.create_table(statement)
            case CreateView():
                planner.create_view(statement)
            case DropTable():
                if not planner.drop(statement):
                    planner.run(statement.whole)
            case Insert():
                self._insert(statement)
            case Set():
                planner.set(statement.name, statement.value)
            case Reset():
                planner.reset(statement.name)
            case SparkStatement():
                planner.refuse(statement)
                rows = planner.query(statement.whole) if statement.is_query else planner.run(statement.whole)
                if self.options.mode is RuntimeMode.BATCH and not rows.isStreaming:
                    self._start_dead_letters(statement.whole, streaming=False)
                if statement.is_query:
                    self.results.append(rows)
                    self.result_positions.append(statement.position)
            case _:
                assert_never(statement)

    def _create_function(self, statement: CreateFunction) -> None:
        if statement.of_spark is not None and self.options.dialect is SqlDialect.SPARK:
            self._planner.run(statement.of_spark)
        else:
            register_function(self._spark, statement)

    # --- inserts ----------------------------------------------------------------------------

    def _insert(self, insert: Insert) -> None:
        write = self._planner.insert(insert)
        if write is None:
            self._planner.insert_in_spark(insert)
        else:
            self._write(write)
        self._planner.insert_begins()
        if write is not None:
            self._start_dead_letters(insert.query, streaming=write.rows.isStreaming)

    def _write(self, write: Write) -> None:
        if write.rows.isStreaming:
            self._start(write)
        else:
            self.written.append(WrittenRows(write.name, write_counted(write.rows, write.target.write)))

    def _start(self, write: Write) -> None:
        """Start a query with its own name, and so its own checkpoint."""
        name = self._unique(self.options.query_name or write.name)
        try:
            query = self._start_named(name, write)
        except BaseException:
            self._names.discard(name)  # for the same statement later
            raise
        self.queries.append(query)
        self._started_at[id(query)] = self._position

    def _start_named(self, name: str, write: Write) -> StreamingQuery:
        options = self.options
        checkpoint = query_checkpoint(options, name)
        every_ms = options.trigger_ms
        if self._planner.keeps_state and options.state_ttl_ms:
            every_ms = trigger_of_ttl(options)
        trigger: dict[str, Any] = {"availableNow": True}
        if every_ms is not None:
            trigger = {"processingTime": f"{every_ms} milliseconds"}
        writer = write.rows.writeStream.outputMode(write.mode.value).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint).trigger(**trigger)
        settings = query_settings(keeps_state=self._planner.keeps_state)
        forget_unwritten_start(checkpoint)
        record = keeping_state_record(checkpoint, name, write.state)
        with contextlib.ExitStack() as unless_recorded:
            with record, temporary_settings(self._spark, settings):
                query = write.target.start(writer, write.mode, checkpoint)
                unless_recorded.callback(stop_query, query)
            unless_recorded.pop_all()
        return query

    def _unique(self, name: str) -> str:
        number = 1
        unique = name
        while unique in self._names:
            number += 1
            unique = f"{name}-{number}"
        self._names.add(unique)
        return unique

    def _start_dead_letters(self, query: Query, *, streaming: bool) -> None:
        """Send bad records of the tables that a query reads to their topics, with queries besides it."""
        for table in self._planner.tables_with_dead_letters(query):
            if not streaming:
                for part in self._sent.unsent(self._spark, table):
                    self._write_dead_letters(table, streaming=False, read=part.read)
                    self._sent.add(table, part)
            elif table not in self._letters:
                self._write_dead_letters(table, streaming=True)
                self._letters[table] = self.queries[-1]

    def _write_dead_letters(
        self, table: Table, *, streaming: bool, read: Mapping[str, str] | None = None
    ) -> None:
        rows = table.dead_letters(self._spark, streaming=streaming, read=read)
        name = f"{table.name}-bad-records"
        self._write(Write(rows, DeadLettersTarget(table), name, OutputMode.APPEND))

    # --- the end ----------------------------------------------------------------------------

    def _stop_from(self, first: int) -> None:
        """Stop the queries from there on, and forget them and their names."""
        failed = self.queries[first:]
        del self.queries[first:]
        for query in failed:
            self._names.discard(query.name)
            stop_query(query)

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
            # Before their errors: a query that fails after its error was looked for is still active here.
            active = [query for query in self.queries if query.isActive]
            for query in self.queries:
                failure = query.exception()
                if failure is not None:
                    self.stop()
                    place = self._started_at.get(id(query), Position(1, 1))
                    raise RocketMQError(
                        f"{place}: query {query.name} failed: {reason_of(failure)}"
                    ) from failure
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

    def add_position(self, position: Position) -> contextlib.AbstractContextManager[None]:
        """Add the position in the text to errors of options and of Spark, see `failures_at`."""
        return failures_at(position, self._text)
