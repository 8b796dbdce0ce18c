"""The queries of a job: whether they are Flink's, and what is known of the tables and views in them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import TokenType

from pyspark_rocketmq.options import JobOptions, RuntimeMode, SqlDialect
from pyspark_rocketmq.sql.dialect import BOUNDED, CONNECTORS, WRITE_ONLY, JobDialect
from pyspark_rocketmq.sql.flinksql.kept import describe_state
from pyspark_rocketmq.sql.flinksql.relations import Relation, Versions
from pyspark_rocketmq.sql.flinksql.state.needs import StateRules
from pyspark_rocketmq.sql.flinksql.translate import (
    Translated,
    translate,
    translate_expression,
)
from pyspark_rocketmq.sql.flinksql.unnest import nested_columns
from pyspark_rocketmq.sql.formats.flink_options import changelog_of
from pyspark_rocketmq.sql.statements import (
    Column,
    ComputedColumn,
    CreateTable,
    CreateView,
    Name,
    Position,
    Query,
)

__all__ = ["JobQueries", "explained"]

_EXPLAIN: Final = re.compile(r"EXPLAIN\s+(?:(?:EXTENDED|CODEGEN|COST|FORMATTED)\s+)?", re.IGNORECASE)
_FLINKS_CALLS: Final = frozenset(
    {
        *("CUMULATE", "DESCRIPTOR", "MATCH_RECOGNIZE", "PROCTIME", "TUMBLE"),
        *(f"{kind}_{end}" for kind in ("TUMBLE", "HOP", "SESSION") for end in ("START", "END", "ROWTIME")),
    }
)
_IS_PROCTIME: Final = re.compile(r"PROCTIME\(\s*\)", re.IGNORECASE)


def explained(statement: Query) -> Query | None:
    """Return the query that an EXPLAIN explains, in its place; None for other statements."""
    found = _EXPLAIN.match(statement.text)
    if found is None:
        return None
    before = len(statement.padded) - len(statement.text)
    return replace(
        statement, padded=statement.padded[:before] + " " * found.end() + statement.text[found.end() :]
    )


class JobQueries:
    """Translates the queries of a job in their order."""

    def __init__(self) -> None:
        self._flink = False
        self._numbers = itertools.count()
        self._views: dict[str, Relation] = {}
        self._kept: dict[str, tuple[str, ...]] = {}  # what the state of views depends on
        self._tables: dict[str, Relation] = {}

    def table(self, declared: CreateTable, options: JobOptions) -> CreateTable:
        """Note a table of the job, and return it with its computed columns translated.

        A table in Flink's syntax makes the job's queries Flink's.

        Raises
        ------
        SqlError
        """
        self._flink |= declared.flink
        self._views.pop(declared.name.key, None)
        self._tables[declared.name.key] = _rows_of(declared)
        if not self.is_flink(options):
            return declared
        return replace(declared, columns=tuple(map(_translated, declared.columns)))

    def query(
        self, query: Query, tables: Iterable[str], options: JobOptions, *, takes_back: bool = False
    ) -> Translated:
        """Translate a query, unless its dialect is Spark's.

        Parameters
        ----------
        query : Query
        tables : iterable of str
            The names of the job's tables, in lower case.
        options : JobOptions
        takes_back : bool
            Whether its target needs the rows that are replaced.

        Raises
        ------
        SqlError
        """
        return self._translate(
            explained(query) or query, tables, options, hidden=False, takes_back=takes_back
        )

    def view(self, view: CreateView, tables: Iterable[str], options: JobOptions) -> Translated:
        """Translate the query of a view, and note the view.

        Raises
        ------
        SqlError
        """
        found = self._translate(view.query, tables, options, hidden=True, columns=view.columns)
        self._views[view.name.key] = found.rows
        self._kept[view.name.key] = found.state
        return found

    def forget_view(self, key: str) -> None:
        """Forget a view that is dropped."""
        self._views.pop(key, None)

    def _translate(
        self,
        query: Query,
        tables: Iterable[str],
        options: JobOptions,
        *,
        hidden: bool,
        columns: Sequence[Name] = (),
        takes_back: bool = False,
    ) -> Translated:
        stream = options.mode is RuntimeMode.STREAMING
        known = {name: _in_mode(self._tables[name], stream=stream) for name in tables}
        kept: tuple[str, ...] = ()
        if stream:
            kept = describe_state(query, {**known, **self._views})
            kept += tuple(
                text for name in sorted(query.names & self._kept.keys()) for text in self._kept[name]
            )
        if not self.is_flink(options):
            if any(known[name].changelog for name in query.names & known.keys()):
                query.position.fail(
                    "a changelog is read as a stream by Flink's dialect: SET 'dialect' = 'flink', or "
                    "SET 'runtimeMode' = 'batch' to read the rows that remain"
                )
            _refuse_flinks_calls(query)
            return Translated(query.padded, False, Relation(), state=kept)
        allowed = options.output_mode is None
        always = stream and allowed and (takes_back or bool(options.state_ttl_ms))
        rules = StateRules(allowed, always, self._numbers)
        found = translate(query, {**known, **self._views}, hidden=hidden, columns=columns, state=rules)
        return replace(found, state=kept)

    def is_flink(self, options: JobOptions) -> bool:
        """Whether the next query has Flink's meaning."""
        return self._flink if options.dialect is None else options.dialect is SqlDialect.FLINK


def _refuse_flinks_calls(query: Query) -> None:
    """Refuse what Spark would call a syntax error or an unknown function.

    Raises
    ------
    SqlError
    """
    tokens = JobDialect().tokenize(query.padded)
    for token, following in itertools.pairwise(tokens):
        if token.text.upper() in _FLINKS_CALLS and following.token_type == TokenType.L_PAREN:
            Position.of(query.padded, token.start).fail(
                f"{token.text.upper()} is Flink's, and this query is in Spark's dialect: SET 'dialect' = "
                "'flink', or group by Spark's window(time, '1 hour')"
            )


def _rows_of(table: CreateTable) -> Relation:
    """Return what is known of a table's rows, read as a stream."""
    times = (
        column.name.key
        for column in table.columns
        if isinstance(column, ComputedColumn) and _IS_PROCTIME.fullmatch(column.expression.text)
    )
    bounded = table.connector in BOUNDED
    return Relation(
        stream=not bounded,
        changelog=any(map(changelog_of, table.options)),
        processing_time=frozenset(times),
        event_time=frozenset({table.watermark.column.key} if table.watermark else ()),
        nested=nested_columns(table.columns),
        messages=table.connector not in CONNECTORS,
        files=table.connector == "filesystem",
        versions=None if bounded else _versions(table),
        write_only=table.connector if table.connector in WRITE_ONLY else "",
    )


def _in_mode(rows: Relation, *, stream: bool) -> Relation:
    """Return a table's rows as this job reads them: of a changelog, a batch has the rows that remain."""
    if stream:
        return rows
    return replace(rows, stream=False, changelog=False, versions=None if rows.changelog else rows.versions)


def _versions(declared: CreateTable) -> Versions | None:
    if declared.watermark is None or not declared.primary_key:
        return None
    return Versions(tuple(name.text for name in declared.primary_key), declared.watermark.column.text)


def _translated(column: Column) -> Column:
    """Return a column whose expression, if it has one, is Spark's."""
    if not isinstance(column, ComputedColumn):
        return column
    text = translate_expression(column.expression)
    if text == column.expression.text:
        return column
    return replace(column, expression=replace(column.expression, padded=text))
