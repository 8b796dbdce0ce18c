"""Check a job without Spark: its statements, settings and options, and how its queries begin."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, assert_never

from sqlglot import Token, TokenType

from pyspark_rocketmq.errors import OptionError, SqlError
from pyspark_rocketmq.options import (
    ClientOptions,
    Options,
    RuntimeMode,
    SinkOptions,
    SourceOptions,
    list_spellings,
)
from pyspark_rocketmq.sql.declared_columns import writable_columns
from pyspark_rocketmq.sql.dialect import BOUNDED, CONNECTORS, JobDialect
from pyspark_rocketmq.sql.flink.connectors import ConnectorTable
from pyspark_rocketmq.sql.flinksql import JobQueries
from pyspark_rocketmq.sql.parse import parse_statements
from pyspark_rocketmq.sql.refusals.table_statements import refuse_on_tables
from pyspark_rocketmq.sql.settings import Settings, first_settings, query_checkpoint, spark_setting
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
    TableOption,
)
from pyspark_rocketmq.sql.tables import Table

__all__ = ["check_job", "with_name_server"]

_STREAM_SHOWN: Final = "a query without INSERT INTO needs batch mode: SET 'runtimeMode' = 'batch' before it"

_NAME_SERVER: Final = list_spellings(ClientOptions, {"nameServer"})
_QUERY_STARTS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "("})
_STARTS: Final = _QUERY_STARTS | {
    *("ADD", "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "COMMENT", "CREATE", "DECLARE", "DELETE"),
    *("DESC", "DESCRIBE", "DFS", "DROP", "EXECUTE", "EXPLAIN", "EXPORT", "GRANT", "IMPORT", "INSERT", "LIST"),
    *("LOAD", "LOCK", "MERGE", "MSCK", "REFRESH", "REPAIR", "REPLACE", "RESET", "REVOKE", "SET", "SHOW"),
    *("TRUNCATE", "UNCACHE", "UNLOCK", "UPDATE", "USE"),
}
"""The first words of queries and of all statements in the grammar of Spark's SQL."""


def check_job(
    text: str, *, checkpoint_location: str | None = None, settings: Mapping[str, str] | None = None
) -> int:
    """Check a job as far as this is possible without Spark and RocketMQ.

    Checks every statement that is ours, each option of a table that is read or written, each setting except
    Spark's. Of queries, the first word and the parentheses are checked, and in Flink's dialect what has no
    counterpart in Spark; the rest is known to Spark only.

    Returns
    -------
    int
        The number of statements.

    Raises
    ------
    SqlError
        A statement is invalid. The error has its line and column.
    OptionError
        A setting is invalid.
    """
    statements = parse_statements(text)
    check = _Check()
    for name, value in first_settings(settings, checkpoint_location).items():
        check.set(name, value)
    for statement in statements:
        try:
            check.statement(statement)
        except OptionError as error:
            at = statement.position
            raise SqlError(error.message, line=at.line, column=at.column) from error
    return len(statements)


class _Check:
    def __init__(self) -> None:
        self._settings = Settings()
        self._tables: dict[str, Table] = {}
        self._connectors: dict[str, ConnectorTable] = {}
        self._queries = JobQueries()
        self._streams: set[str] = set()  # views that read a table as a stream
        self._views: set[str] = set()

    def set(self, name: str, value: str) -> None:
        if spark_setting(name) is None:
            self._settings.set(name, value)

    def statement(self, statement: Statement) -> None:
        match statement:
            case CreateFunction():
                pass  # its module may be only where the job will run
            case CreateTable():
                self._create_table(statement)
            case CreateView():
                self._create_view(statement)
            case DropTable():
                self._drop(statement)
            case Insert():
                self._insert(statement)
            case Set():
                self.set(statement.name, statement.value)
            case Reset():
                if statement.name is None or spark_setting(statement.name) is None:
                    self._settings.reset(statement.name)
            case SparkStatement():
                declared = {key: table.declared for key, table in self._tables.items()}
                declared |= {key: table.declared for key, table in self._connectors.items()}
                is_stream = self._settings.options.mode is RuntimeMode.STREAMING
                refuse_on_tables(statement, declared, streaming=is_stream)
                streaming = self._query(statement.whole, _STARTS)
                if streaming and statement.whole.text.split(maxsplit=1)[0].upper() in _QUERY_STARTS:
                    statement.position.fail(_STREAM_SHOWN)
                if statement.is_query:
                    self._queries.query(statement.whole, self._names, self._settings.options)
            case _:
                assert_never(statement)

    def _drop(self, statement: DropTable) -> None:
        key = statement.name.key
        if statement.is_view:
            self._queries.forget_view(key)
            self._views.discard(key)
            self._streams.discard(key)
        else:
            self._tables.pop(key, None)
            self._connectors.pop(key, None)

    def _create_table(self, declared: CreateTable) -> None:
        key = declared.name.key
        there = self._tables.get(key) or self._connectors.get(key)
        if declared.keeps(None if there is None else there.declared):
            return
        options = self._settings.options
        declared = self._queries.table(declared, options)
        self._tables.pop(key, None)
        self._connectors.pop(key, None)
        if declared.connector in CONNECTORS:
            self._connectors[key] = ConnectorTable.of(declared)
        else:
            self._tables[key] = Table.of(declared, default_format=options.default_format, infer=False)

    @property
    def _names(self) -> AbstractSet[str]:
        return self._tables.keys() | self._connectors.keys()

    def _create_view(self, view: CreateView) -> None:
        if view.keeps(view.name.key in self._views | self._names):
            return
        self._views.add(view.name.key)
        self._streams.discard(view.name.key)
        if self._query(view.query):
            self._streams.add(view.name.key)
        self._queries.view(view, self._names, self._settings.options)

    def _insert(self, insert: Insert) -> None:
        table = self._tables.get(insert.target.key)
        if table is not None:
            insert.require_append()
            if not table.options.infer_schema:
                table.writable(insert.columns, insert.target.position)
            _parse(table, SinkOptions, table.given.write)
        connector = self._connectors.get(insert.target.key)
        if table is not None or connector is not None:
            insert.refuse_clauses()
        if connector is not None:
            writable_columns(connector.declared, insert.columns, insert.target.position)
        if self._query(insert.query):
            options = self._settings.options
            query_checkpoint(options, options.query_name or insert.target.text)
        self._queries.query(insert.query, self._names, self._settings.options)
        self._settings.insert_begins()

    def _query(self, query: Query, starts: frozenset[str] = _QUERY_STARTS) -> bool:
        """Check a query and the tables that it names; return whether it is a stream."""
        _check_words(query, starts)
        for key in sorted(query.names & self._tables.keys()):
            _parse(self._tables[key], SourceOptions, self._tables[key].given.read)
        streaming = self._settings.options.mode is RuntimeMode.STREAMING
        bounded = {key for key, table in self._connectors.items() if table.declared.connector in BOUNDED}
        return bool(query.names & self._streams) or (streaming and bool(query.names & self._names - bounded))


def with_name_server(given: Mapping[str, str]) -> dict[str, str]:
    """Return a table's options with a name server, which may come from where the job will run."""
    names = {name.lower() for name in given}
    return {**({} if names & _NAME_SERVER else {"nameServer": "name-server:9876"}), **given}


def _parse(table: Table, cls: type[Options], given: Mapping[str, str]) -> None:
    """Parse a table's options. Name server and time zone may come from where the job will run."""
    names = {name.lower() for name in given}
    stand_in = {}
    if cls is SourceOptions and "timezone" not in names:
        stand_in["timeZone"] = "UTC"
    at = TableOption("", "", table.declared.position)
    table.given.parse(cls, {**stand_in, **with_name_server(given)}, at)


def _check_words(query: Query, starts: frozenset[str]) -> None:
    """Check how a query begins, and its parentheses. The rest of its syntax is known to Spark only."""
    tokens = JobDialect().tokenize(query.padded)
    first = tokens[0]
    word = first.text.upper().partition(" ")[0]  # ADD JAR is one token
    near = [] if word in starts else difflib.get_close_matches(word, starts, 1, cutoff=0.75)
    if near:  # others may belong to an extension of Spark's SQL
        query.position.fail(f"no statement begins with {first.text!r}: did you mean {near[0]}?")
    opened: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type == TokenType.R_PAREN:
            if not opened:
                Position.of(query.padded, token.start).fail("no parenthesis is open here, found ')'")
            opened.pop()
    if opened:
        Position.of(query.padded, opened[-1].start).fail("this parenthesis is not closed")
