"""Plan a job's queries with Spark, without a broker: nothing is started, created or written.

# Facts (Spark 4.0 to 4.3): a query's start asks `UnsupportedOperationChecker` whether Spark can run its plan
# in an output mode. A Python data source tells its columns without its reader: a plan needs no broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from pyspark_rocketmq.options import OutputMode
from pyspark_rocketmq.sql.check import with_name_server
from pyspark_rocketmq.sql.error_positions import failures_at
from pyspark_rocketmq.sql.flink.connectors import ConnectorKind, ConnectorTable
from pyspark_rocketmq.sql.flink.jdbc import no_rows
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.plan.planner import Planner, plan_text
from pyspark_rocketmq.sql.settings import first_settings
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

__all__ = ["PlannedQuery", "plan_job"]

_DEFINED: Final = re.compile(r"(?i)\b(?:TABLE|VIEW|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?([\w.`]+)")


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query of a job that Spark has planned.

    Parameters
    ----------
    position : Position
    name : str
        The table that an INSERT writes; empty for other queries.
    rows : DataFrame
    spark_sql : str
        What Spark is given instead of the query; empty if nothing is translated.
    """

    position: Position
    name: str
    rows: DataFrame
    spark_sql: str = ""

    def explain(self) -> str:
        """Return Spark's plan: of a stream the analyzed one, which has no offsets yet."""
        return plan_text(self.rows)


def plan_job(
    spark: SparkSession,
    text: str,
    *,
    checkpoint_location: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> tuple[PlannedQuery, ...]:
    """Plan the queries of a job, and check whether Spark can run its streams.

    Statements that would change Spark's catalog or its tables are only parsed. Queries over tables that such
    a statement creates, or whose columns come from a sample, are not planned.

    Raises
    ------
    SqlError
        A statement is invalid. The error has its line and column.
    """
    planning = _Planning(spark, first_settings(settings, checkpoint_location))
    for statement in parse_statements(text):
        with failures_at(statement.position, text):
            planning.run(statement)
    return tuple(planning.queries)


class _DryPlanner(Planner):
    """Does not connect: tables have a stand-in for a missing name server, and no columns from samples."""

    def declare(self, declared: CreateTable) -> Table:
        table = Table.of(declared, default_format=self.options.default_format, infer=False)
        given = replace(table.given, read=with_name_server(table.given.read))
        return replace(table, given=given)

    def read_connector(self, table: ConnectorTable, *, streaming: bool) -> DataFrame:
        if table.kind is ConnectorKind.JDBC:
            return no_rows(self._spark, table.declared)
        return super().read_connector(table, streaming=streaming)


class _Planning:
    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        self.queries: list[PlannedQuery] = []
        self._spark = spark
        self._planner = _DryPlanner(spark, settings)
        self._unknown: set[str] = set()  # defined by statements that are not run, or by samples

    def run(self, statement: Statement) -> None:
        planner = self._planner
        match statement:
            case CreateFunction():
                self._unknown.add(statement.name.key)  # its module may be only where the job will run
            case CreateTable() | CreateView():
                self._create(statement)
            case DropTable():
                if not planner.drop(statement):
                    self._parse(statement.whole)
            case Insert():
                self._insert(statement)
            case Set():
                planner.set(statement.name, statement.value)
            case Reset():
                planner.reset(statement.name)
            case SparkStatement():
                self._spark_statement(statement)
            case _:
                assert_never(statement)

    def _create(self, statement: CreateTable | CreateView) -> None:
        key = statement.name.key
        if isinstance(statement, CreateTable):
            self._planner.create_table(statement)
            table = self._planner.tables.get(key)
            known = table is None or not table.options.infer_schema
        else:
            known = self._is_known(statement.query)
            if known:
                self._planner.create_view(statement)
        if not known:
            self._unknown.add(key)

    def _insert(self, insert: Insert) -> None:
        self._planner.insert_begins()
        if not self._is_known(insert.query):
            return
        write = self._planner.insert(insert, known_target=insert.target.key not in self._unknown)
        if write is None:
            self._parse(insert.whole)
            return
        self.queries.append(
            PlannedQuery(insert.position, insert.target.text, write.rows, self._planner.last_spark_sql)
        )
        _require_runnable(write.rows, write.mode)

    def _spark_statement(self, statement: SparkStatement) -> None:
        self._planner.refuse(statement)
        if not statement.is_query:
            self._parse(statement.whole)
            self._unknown |= {name.strip("`").lower() for name in _DEFINED.findall(statement.whole.text)}
        elif self._is_known(statement.whole):
            rows = self._planner.query(statement.whole)
            self.queries.append(PlannedQuery(statement.position, "", rows, self._planner.last_spark_sql))

    def _is_known(self, query: Query) -> bool:
        return not query.names & self._unknown

    def _parse(self, query: Query) -> None:
        """Check the syntax of a statement that is not run."""
        if not is_remote():
            session: Any = self._spark
            session._jsparkSession.sessionState().sqlParser().parsePlan(query.padded)  # noqa: SLF001


def _require_runnable(rows: DataFrame, mode: OutputMode) -> None:
    """Check what Spark checks when a stream starts.

    Raises
    ------
    AnalysisException
        Spark cannot run the query in this output mode.
    """
    if not rows.isStreaming or is_remote():
        return
    frame: Any = rows
    jvm = frame.sparkSession._jvm  # noqa: SLF001 - PySpark has no other way
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    java_mode = {
        OutputMode.APPEND: modes.Append,
        OutputMode.UPDATE: modes.Update,
        OutputMode.COMPLETE: modes.Complete,
    }[mode]()
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), java_mode)  # noqa: SLF001
