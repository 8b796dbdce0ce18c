"""What a job's statements declare, and the rows of its queries: nothing is started here."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from pyspark_rocketmq.options import BadRecords, JobOptions, OutputMode, RuntimeMode
from pyspark_rocketmq.sql.declared_columns import quote
from pyspark_rocketmq.sql.dialect import CONNECTORS
from pyspark_rocketmq.sql.flink.connectors import ConnectorTable, ConnectorTarget
from pyspark_rocketmq.sql.flink.jdbc import no_rows
from pyspark_rocketmq.sql.flinksql import JobQueries, Translated, explained
from pyspark_rocketmq.sql.flinksql.relations import LOOKUP
from pyspark_rocketmq.sql.plan.state_record import describe_rows
from pyspark_rocketmq.sql.plan.targets import MessagesTarget, SparkTarget, Target, UnknownTarget
from pyspark_rocketmq.sql.plan.upserts import (
    changes_target,
    keeps_key,
    refuse_replaced,
    require_key_of_updates,
)
from pyspark_rocketmq.sql.refusals.table_statements import refuse_on_tables
from pyspark_rocketmq.sql.settings import Settings, spark_setting
from pyspark_rocketmq.sql.state.steps import Distinct
from pyspark_rocketmq.sql.statements import (
    CreateTable,
    CreateView,
    DropTable,
    Insert,
    Query,
    SparkStatement,
)
from pyspark_rocketmq.sql.tables import Table

__all__ = ["Planner", "Write", "plan_text"]

_DESCRIBE: Final = frozenset({"DESCRIBE", "DESC"})


@dataclass(frozen=True, slots=True)
class Write:
    """A planned INSERT.

    Parameters
    ----------
    rows : DataFrame
        A stream or a batch, with the columns of the target.
    target : Target
    name : str
        The target's name.
    mode : OutputMode
        Of a stream.
    state : tuple of str
        What the state of a stream depends on.
    """

    rows: DataFrame
    target: Target
    name: str
    mode: OutputMode
    state: tuple[str, ...] = ()


def plan_text(rows: DataFrame) -> str:
    """Return Spark's plan of rows: of a stream the analyzed one, which has no offsets yet."""
    frame: Any = rows
    if frame.isStreaming and not is_remote():
        return str(frame._jdf.queryExecution().analyzed().toString())  # noqa: SLF001
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):  # PySpark prints it, and has no other way
        frame.explain()
    return printed.getvalue()


def _describes(query: Query) -> bool:
    return query.text.split(maxsplit=1)[0].upper() in _DESCRIBE


class Planner:
    """The tables, views and settings of a job.

    Attributes
    ----------
    tables : dict of str to Table
    connectors : dict of str to ConnectorTable
    last_mode : OutputMode
        That of the last query, as a stream.
    last_spark_sql : str
        What Spark was given instead of the last query; empty if nothing was translated.
    keeps_state : bool
        Whether a query has had steps with state that need the RocksDB state store.
    """

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self.tables: dict[str, Table] = {}
        self.connectors: dict[str, ConnectorTable] = {}
        self.last_mode = OutputMode.APPEND
        self.last_spark_sql = ""
        self.keeps_state = False
        self._spark = spark
        self._settings = Settings()
        self._queries = JobQueries()
        self._viewed: dict[str, tuple[RuntimeMode, int | None]] = {}
        self._views: dict[str, tuple[str, ...]] = {}
        self._read_by: dict[str, Set[Table]] = {}  # the tables that a view reads, also by other views
        self._kept: dict[str, tuple[str, ...]] = {}  # the columns that the steps of a view keep
        self._last_kept: list[str] = []
        for name, value in settings.items():
            self.set(name, value)

    @property
    def options(self) -> JobOptions:
        """The settings as they are now."""
        return self._settings.options

    def set(self, name: str, value: str) -> None:
        """Change a setting.

        Raises
        ------
        OptionError
            The setting is unknown, or the value is not one of its.
        """
        spark_name = spark_setting(name)
        if spark_name is None:
            self._settings.set(name, value)
        else:
            self._spark.conf.set(spark_name, value)

    def reset(self, name: str | None) -> None:
        """Forget a setting, or all."""
        spark_name = None if name is None else spark_setting(name)
        if spark_name is None:
            self._settings.reset(name)
        else:
            self._spark.conf.unset(spark_name)

    def insert_begins(self) -> None:
        """Forget the settings that apply to one INSERT."""
        self._settings.insert_begins()

    # --- tables and views -------------------------------------------------------------------

    def create_table(self, declared: CreateTable) -> None:
        """Declare a table.

        Raises
        ------
        SqlError
        """
        key = declared.name.key
        there = self.tables.get(key) or self.connectors.get(key)
        if declared.keeps(None if there is None else there.declared):
            return
        self._forget(key)
        declared = self._queries.table(declared, self.options)
        if declared.connector in CONNECTORS:
            self.connectors[key] = ConnectorTable.of(declared)
        else:
            self.tables[key] = self.declare(declared)

    def _forget(self, key: str) -> bool:
        """Remove a table, and return whether it was viewed."""
        self.tables.pop(key, None)
        self.connectors.pop(key, None)
        return self._viewed.pop(key, None) is not None

    @property
    def _names(self) -> Set[str]:
        return self.tables.keys() | self.connectors.keys()

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of the tables and views, by their names in lower case."""
        declared = {key: table.declared.columns for key, table in self.tables.items()}
        declared |= {key: table.declared.columns for key, table in self.connectors.items()}
        return self._views | {key: tuple(c.name.text for c in each) for key, each in declared.items()}

    def declare(self, declared: CreateTable) -> Table:
        """Check a declaration.

        Raises
        ------
        SqlError
        """
        return Table.of(declared, default_format=self.options.default_format)

    def create_view(self, view: CreateView) -> None:
        """Create a temporary view.

        Raises
        ------
        SqlError
        """
        if view.keeps(view.name.key in self._views.keys() | self._names):
            return
        translated = self._queries.view(view, self._names, self.options)
        rows = self._translated_rows(view.query, translated)
        if view.columns:
            hidden = [name for name in rows.columns if name.startswith("__")]
            given = [name for name in rows.columns if name not in hidden]
            if len(given) != len(view.columns):
                view.name.position.fail(
                    f"{view.name.text} names {len(view.columns)} columns, and its query has {len(given)}"
                )
            rows = rows.toDF(*(name.text for name in view.columns), *hidden)
        rows.createOrReplaceTempView(quote(view.name))
        self._views[view.name.key] = tuple(name for name in rows.columns if not name.startswith("__"))
        self._read_by[view.name.key] = self._tables_of(view.query)
        self._kept[view.name.key] = self._kept_by(view.query)

    def drop(self, statement: DropTable) -> bool:
        """Drop a table or a view, and return whether it was the job's."""
        if statement.is_view:
            self._queries.forget_view(statement.name.key)
            self._read_by.pop(statement.name.key, None)
            self._kept.pop(statement.name.key, None)
            if self._views.pop(statement.name.key, None) is None:
                return False
            self._spark.catalog.dropTempView(statement.name.text)
            return True
        if statement.name.key not in self._names:
            return False
        if self._forget(statement.name.key):
            self._spark.catalog.dropTempView(statement.name.text)
        return True

    # --- queries ----------------------------------------------------------------------------

    def refuse(self, statement: SparkStatement) -> None:
        """Refuse a statement of Spark's that would change a table of the job.

        Raises
        ------
        SqlError
        """
        declared = {key: table.declared for key, table in self.tables.items()}
        declared |= {key: table.declared for key, table in self.connectors.items()}
        refuse_on_tables(statement, declared, streaming=self.options.mode is RuntimeMode.STREAMING)

    def query(self, query: Query) -> DataFrame:
        """Return a query's rows.

        Raises
        ------
        SqlError, PySparkException
        """
        if _describes(query):
            for key in query.names & self.connectors.keys():
                table = self.connectors[key]
                if not table.is_readable:
                    no_rows(self._spark, table.declared).createOrReplaceTempView(quote(table.declared.name))
                    self._viewed[key] = self.options.mode, self.options.idle_ms
        translated = self._queries.query(query, self._names, self.options)
        self.last_mode = self._mode_of(translated)
        rows = self._translated_rows(query, translated)
        if explained(query) is None:
            return rows
        return self._spark.createDataFrame([(plan_text(rows),)], "plan STRING")

    def _translated_rows(self, query: Query, translated: Translated) -> DataFrame:
        """Return the rows of a translated query, after its steps with state."""
        self.last_spark_sql = translated.spark_sql
        self._last_kept = []
        if translated.steps:
            from pyspark_rocketmq.sql.state.operators import run_step  # noqa: PLC0415 - an extra
        for step in translated.steps:
            other = None if step.other is None else self._rows(query, step.other)
            rows = self._rows(query, step.text)
            if not isinstance(step.operation, Distinct):
                self.keeps_state = True
                self._last_kept += [describe_rows(each) for each in (rows, other) if each is not None]
            found = run_step(rows, step, self.options.state_ttl_ms or None, other)
            found.createOrReplaceTempView(step.name)
        rows = self._rows(query, translated.text)
        for step in translated.steps if not is_remote() else ():  # a remote plan names them until it runs
            self._spark.catalog.dropTempView(step.name)
        return rows

    def _kept_by(self, query: Query) -> tuple[str, ...]:
        """Return the columns that the steps of the last query keep, and those of the views that it reads."""
        views = (text for name in sorted(query.names & self._kept.keys()) for text in self._kept[name])
        return (*self._last_kept, *views)

    def _mode_of(self, translated: Translated) -> OutputMode:
        changes = OutputMode.UPDATE if translated.rows.changes else OutputMode.APPEND
        return self.options.output_mode or changes

    def run(self, statement: Query) -> DataFrame:
        """Run a statement of Spark's."""
        return self._rows(statement, statement.padded)

    def _rows(self, query: Query, text: str) -> DataFrame:
        """Pass a text to Spark, after registering the tables of its query as views."""
        mode = self.options.mode
        reading = mode, self.options.idle_ms
        for key in sorted(query.names & self.tables.keys()):
            table = self.tables[key]
            if self._viewed.get(key) != reading:
                streaming = mode is RuntimeMode.STREAMING
                rows = table.read(self._spark, streaming=streaming, idle_ms=self.options.idle_ms)
                rows.createOrReplaceTempView(quote(table.declared.name))
                self._viewed[key] = reading
        self._view_files(query.names, reading)
        for key in sorted(query.names & self.connectors.keys()):
            if f"{LOOKUP}{key}" in text:
                found = self.read_connector(self.connectors[key], streaming=False)
                found.createOrReplaceTempView(f"`{LOOKUP}{key}`")
        return self._spark.sql(text)

    def tables_with_dead_letters(self, query: Query) -> list[Table]:
        """Return the tables that a query reads, also by views, and whose bad records go to a topic."""
        if _describes(query) or explained(query) is not None:
            return []
        return [
            table
            for table in sorted(self._tables_of(query), key=lambda each: each.name)
            if table.options.bad_records is BadRecords.DEAD_LETTER
        ]

    def _tables_of(self, query: Query) -> Set[Table]:
        """Return the tables of topics that a query reads, also by views."""
        views = (self._read_by.get(name, ()) for name in query.names)
        return frozenset(self.tables[key] for key in query.names & self.tables.keys()).union(*views)

    def _view_files(self, names: Set[str], reading: tuple[RuntimeMode, int | None]) -> None:
        """Register the files and databases that are read as views. Other connectors only write."""
        for key in sorted(names & self.connectors.keys()):
            table = self.connectors[key]
            if table.is_readable and self._viewed.get(key) != reading:
                found = self.read_connector(table, streaming=reading[0] is RuntimeMode.STREAMING)
                found.createOrReplaceTempView(quote(table.declared.name))
                self._viewed[key] = reading

    def read_connector(self, table: ConnectorTable, *, streaming: bool) -> DataFrame:
        """Return the rows of files or of a database.

        Raises
        ------
        SqlError, OptionError
        """
        return table.read(self._spark, streaming=streaming)

    def insert(self, insert: Insert, *, known_target: bool = True) -> Write | None:
        """Plan an INSERT. None: it reads and writes tables of Spark's only.

        Parameters
        ----------
        insert : Insert
        known_target : bool
            Compare the query's columns with those of a Spark table that it writes.

        Raises
        ------
        SqlError, PySparkException
        """
        table = self.tables.get(insert.target.key)
        target: Target
        connector = self.connectors.get(insert.target.key)
        if table is not None or connector is not None:
            insert.refuse_clauses()
        if table is not None:
            target = MessagesTarget(table)
        elif connector is not None:
            target = ConnectorTarget(connector)
        else:
            if insert.overwrite or not insert.query.names & (self._names | self._views.keys()):
                return None
            name = insert.target.text
            target = SparkTarget.of(self._spark, insert) if known_target else UnknownTarget(name)
        translated = self._queries.query(insert.query, self._names, self.options)
        rows = self._translated_rows(insert.query, translated)
        if translated.rows.changes and not keeps_key(target, insert, translated.rows, rows.columns):
            translated = self._queries.query(insert.query, self._names, self.options, takes_back=True)
            if translated.rows.changes:
                refuse_replaced(target, insert)
            rows = self._translated_rows(insert.query, translated)
        if translated.rows.changelog:
            target = changes_target(target, insert)
        rows = target.align(rows, insert)
        mode = self._mode_of(translated)
        if rows.isStreaming and mode is not OutputMode.APPEND:
            require_key_of_updates(target, insert)
        state = (*translated.state, *self._kept_by(insert.query))
        return Write(rows, target, insert.target.text, mode, state)

    def insert_in_spark(self, insert: Insert) -> None:
        """Run an INSERT of which Spark knows both sides."""
        translated = self._queries.query(insert.query, self._names, self.options)
        self._rows(insert.whole, translated.within(insert).text)
