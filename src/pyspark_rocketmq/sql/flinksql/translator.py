"""Translate queries of Flink SQL to Spark SQL, as trees, from the inner queries to the outer one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from pyspark_rocketmq.sql.flinksql.changes import distinct_aggregates, ranked, top_select, unpacked
from pyspark_rocketmq.sql.flinksql.expressions import translate_expressions
from pyspark_rocketmq.sql.flinksql.functions import FUNCTIONS, UNKNOWN
from pyspark_rocketmq.sql.flinksql.grammar import WindowTable, parse_query, position_of
from pyspark_rocketmq.sql.flinksql.hidden_windows import group_by_window, hide_windows, join_windows
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.row_changes import pass_changes, refuse_changelog, refuse_over
from pyspark_rocketmq.sql.flinksql.selects import (
    by_spark_window,
    groups_by_processing_time,
    is_aggregation,
    name_columns,
    of_processing_time,
    processing_time,
    spark_windows,
    under_other_names,
    untranslated,
    window_names,
    window_outputs,
    without_default_database,
    without_flink_hints,
)
from pyspark_rocketmq.sql.flinksql.unnest import nested_outputs, unnest
from pyspark_rocketmq.sql.flinksql.versions import join_versions
from pyspark_rocketmq.sql.flinksql.windows import group_windows, session_select, window_table
from pyspark_rocketmq.sql.statements import Insert, Name, Position, Query

__all__ = ["Translated", "translate", "translate_expression"]

_FLINK_ONLY: Final = frozenset({"descriptor", "match_recognize", "tumble", "hop", "cumulate"})
_TRANSLATED: Final = frozenset(name.lower() for name in FUNCTIONS.keys() | UNKNOWN.keys())
_WITHOUT_WINDOW: Final = "its results change with every row, and Spark's streams cannot take back a row"


@dataclass(frozen=True, slots=True)
class Translated:
    """A query in Spark's SQL.

    Parameters
    ----------
    text : str
        Spark's text: the query as written, in its place, if nothing had to be translated.
    changed : bool
    rows : Relation
        What is known of its rows.
    """

    text: str
    changed: bool
    rows: Relation

    def within(self, insert: Insert) -> Translated:
        """Return the whole statement of an INSERT with this query."""
        if not self.changed:
            return replace(self, text=insert.whole.padded)
        padded = insert.query.padded
        start = len(padded) - len(padded.lstrip())
        return replace(self, text=insert.whole.padded[:start] + self.text.lstrip())


def translate(
    query: Query, known: Mapping[str, Relation], *, hidden: bool = False, columns: Sequence[Name] = ()
) -> Translated:
    """Translate a query.

    Parameters
    ----------
    query : Query
    known : mapping of str to Relation
        The tables and views that it may name, by name in lower case.
    hidden : bool
        Keep the hidden column of a window, for a view.
    columns : sequence of Name
        The view's names of the columns. Empty: the query's.

    Raises
    ------
    SqlError
        A construct of Flink's has no counterpart in Spark, or is invalid.
    """
    try:
        tree = parse_query(query)
    except (ParseError, TokenError) as error:
        if query.names & _FLINK_ONLY:
            _place(query, error).fail(_reason(error))
        if functions := query.names & _TRANSLATED:
            _place(query, error).fail(
                f"{_reason(error)}. The query cannot be translated, and {min(functions).upper()} means "
                "something else in Spark: SET 'dialect' = 'spark' passes it unchanged"
            )
        plain = untranslated(query, known)
        if plain.changelog:
            _place(query, error).fail(f"{_reason(error)}. A query of a changelog must be translated")
        return Translated(query.padded, False, plain)  # Spark reports what is wrong
    translator = _Translator(query)
    named = name_columns(tree, columns)
    translator.changed = translate_expressions(tree, query) or named
    ranking = translator.ranking(tree, known) if hidden else None
    rows = ranking or translator.query(tree, known, top=not hidden)
    if columns and not named:
        rows = under_other_names(rows, columns)
    if not translator.changed:
        return Translated(query.padded, False, rows)
    before = "\n" * (query.position.line - 1)  # Spark reports the line of the query
    return Translated(before + tree.sql(dialect="spark", comments=False), True, rows)


def translate_expression(expression: Query) -> str:
    """Translate the expression of a computed column.

    Raises
    ------
    SqlError
    """
    selected = replace(expression, padded=_prefixed(expression))
    return translate(selected, {}).text.strip().removeprefix("SELECT").strip()


def _prefixed(expression: Query) -> str:
    """Return the expression as a query, in its place if there is room before it."""
    text, word = expression.padded, "SELECT "
    start = len(text) - len(text.lstrip())
    room = start >= len(word) and "\n" not in text[start - len(word) : start]
    return (
        f"{text[: start - len(word)]}{word}{text[start:]}" if room else f"{text[:start]}{word}{text[start:]}"
    )


def _place(query: Query, error: ParseError | TokenError) -> Position:
    details = error.errors[0] if isinstance(error, ParseError) and error.errors else {}
    start = details.get("start")
    return query.position if start is None else Position.of(query.padded, int(start))


def _reason(error: ParseError | TokenError) -> str:
    return str(error).partition("\n")[0]


class _Translator:
    def __init__(self, query: Query) -> None:
        self._query = query
        self.changed = False

    def fail(self, node: exp.Expression, message: str) -> None:
        position_of(self._query, node).fail(message)

    # --- queries ----------------------------------------------------------------------------

    def ranking(self, tree: exp.Expression, known: Mapping[str, Relation]) -> Relation | None:
        """Return what is known of a query that ranks a stream: it is translated where it is read."""
        if isinstance(tree, exp.Select) and ranked(tree) is not None and self._reads_stream(tree, known):
            return Relation(stream=True, ranked=tree)
        return None

    def query(self, tree: exp.Expression, known: Mapping[str, Relation], *, top: bool) -> Relation:
        """Translate a query in place, and return what is known of its rows."""
        with_ = tree.args.get("with_")
        for cte in list(with_.expressions) if with_ else []:
            ranking = self.ranking(cte.this, known)
            if ranking is not None:
                cte.pop()
            rows = ranking or self.query(cte.this, known, top=False)
            known = {**known, cte.alias.lower(): rows}
        if with_ and not with_.expressions:
            tree.set("with_", None)
        match tree:
            case exp.Subquery():
                return self.query(tree.this, known, top=top)
            case exp.SetOperation():
                sides = [self.query(side, known, top=True) for side in (tree.this, tree.expression)]
                if any(side.changelog for side in sides):
                    refuse_changelog(tree, tree.key.upper(), self._query)
                return Relation(
                    stream=any(side.stream for side in sides), changes=any(side.changes for side in sides)
                )
            case exp.Select():
                return self._select(tree, known, top=top)
        return Relation()

    def _select(self, select: exp.Select, known: Mapping[str, Relation], *, top: bool) -> Relation:
        sources = self._sources(select, known)
        self.changed |= without_flink_hints(select)
        self.changed |= unnest(select, sources, self._query)
        self._subqueries(select, known)
        if found := pass_changes(select, sources, self._query):
            self.changed = True
            return found
        stream = any(rows.stream for rows in sources.values())
        if stream:
            refuse_over(select, self._query)
        before = select.sql()
        of_now = stream and groups_by_processing_time(select, sources)
        grouped = group_windows(select, self._query)
        join_windows(select, sources)
        by_window = grouped is not None or group_by_window(select, sources)
        aggregated = is_aggregation(select)
        if stream and aggregated:
            distinct_aggregates(select, self._query)
        by_any = by_window or by_spark_window(select, sources)
        changes = self._changes(select, sources, aggregated=aggregated, by_window=by_any, stream=stream)
        changes |= of_now
        window: dict[str, str] = {}
        if by_window if aggregated else any(rows.window for rows in sources.values()):
            window = {"": "", **window_outputs(select, sources), **(grouped or {})}
            hide_windows(select, sources, aggregated=aggregated, top=top)
        self.changed |= select.sql() != before
        return Relation(
            stream,
            changes,
            window,
            processing_time(select, sources),
            spark_windows(select, sources),
            nested=nested_outputs(select, sources),
        )

    def _subqueries(self, select: exp.Select, known: Mapping[str, Relation]) -> None:
        """Translate the queries in conditions and items."""
        for clause in ("expressions", "where", "having"):
            part = select.args.get(clause)
            for root in part if isinstance(part, list) else [part] if part else []:
                for inner in list(root.find_all(exp.Select)):
                    if inner.find_ancestor(exp.Select) is select:
                        rows = self.query(inner, known, top=True)
                        if rows.changelog:
                            refuse_changelog(inner, "a condition", self._query)

    def _changes(
        self,
        select: exp.Select,
        sources: Mapping[str, Relation],
        *,
        aggregated: bool,
        by_window: bool,
        stream: bool,
    ) -> bool:
        changing = any(rows.changes for rows in sources.values())
        what = (
            "an aggregation"
            if aggregated
            else "a join"
            if sum(rows.stream for rows in sources.values()) > 1
            else ""
        )
        if changing and what and not (by_window and of_processing_time(sources)):
            self.fail(
                select,
                f"{what} of a stream cannot read an aggregation or a Top-N without a window: "
                f"{_WITHOUT_WINDOW}. Use a window, or SET 'execution.runtime-mode' = 'batch'",
            )
        return changing or (stream and aggregated and not by_window)

    # --- what a query reads -----------------------------------------------------------------

    def _sources(self, select: exp.Select, known: Mapping[str, Relation]) -> dict[str, Relation]:
        """Translate what a query reads; return it by the name that columns use."""
        found: dict[str, Relation] = {}
        for join in select.args.get("joins") or []:
            if join.kind == "CROSS" and not isinstance(join.this, exp.Unnest | exp.Lateral):
                join.set("kind", "INNER")  # also of a comma; Spark's streams have no CROSS JOIN
        from_ = select.args.get("from_")
        nodes = [from_.this] if from_ else []
        nodes += [join.this for join in select.args.get("joins") or []]
        for node in list(nodes):
            nodes += [join.this for join in node.args.get("joins") or []]
        for number, node in enumerate(nodes):
            name = (node.alias_or_name or f"#{number}").lower()
            found[name] = self._source(select, node, known)
        return found

    def _source(self, select: exp.Select, node: exp.Expression, known: Mapping[str, Relation]) -> Relation:
        match node:
            case exp.Table():
                self.changed |= without_default_database(node)
                rows = known.get(node.name.lower(), Relation()) if not node.db else Relation()
                if rows.write_only:
                    self.fail(node, f"{node.name} has the connector {rows.write_only!r}, which only writes")
                if rows.ranked is not None:
                    inner = rows.ranked.copy()
                    subquery = inner.subquery(node.alias_or_name)
                    node.replace(subquery)
                    return self._source(select, subquery, known)
                if node.args.get("version") is not None:
                    self._as_of(select, node, rows, known)
                return rows
            case WindowTable():
                return self._window_table(select, node, known)
            case exp.Subquery():
                rank = ranked(node.this) if isinstance(node.this, exp.Select) else None
                if rank is not None and self._reads_stream(node.this, known):
                    return self._top(select, node, rank, known)
                return self.query(node.this, known, top=False)
            case exp.Unnest() | exp.Lateral():
                self.changed = True
        return Relation()

    def _as_of(
        self, select: exp.Select, table: exp.Table, rows: Relation, known: Mapping[str, Relation]
    ) -> None:
        if rows.stream:
            self.fail(
                table,
                f"FOR SYSTEM_TIME AS OF reads a table of Spark's, such as files or JDBC, not the stream "
                f"{table.name}: join the streams over an interval of time",
            )
        self.changed = True
        if rows.messages:
            join_versions(select, table, known, self._query)
        else:
            table.set("version", None)

    def _window_table(self, select: exp.Select, node: WindowTable, known: Mapping[str, Relation]) -> Relation:
        self.changed = True
        inner = node.this
        if isinstance(inner, exp.Table):
            rows = known.get(inner.name.lower(), Relation())
        else:
            rows = self.query(inner, known, top=False)
        if rows.changelog:
            refuse_changelog(node, "a window", self._query)
        if node.args["kind"] == "SESSION":
            session_select(select, node, self._query)
            return rows
        subquery, found = window_table(node, rows, self._query)
        if joins := node.args.get("joins"):
            subquery.set("joins", [join.copy() for join in joins])
        node.replace(subquery)
        return found

    def _reads_stream(self, select: exp.Select, known: Mapping[str, Relation]) -> bool:
        names = {table.name.lower() for table in select.find_all(exp.Table)}
        return any(rows.stream for name, rows in known.items() if name in names)

    def _top(
        self, outer: exp.Select, node: exp.Subquery, rank: exp.Alias, known: Mapping[str, Relation]
    ) -> Relation:
        self.changed = True
        inner = cast("exp.Select", node.this)
        name = rank.alias
        top = top_select(outer, inner, rank, self._query)
        rows = self._select(top, known, top=False)
        windowed = bool(rows.window)
        node.set("this", unpacked(top, name, window=windowed))
        return replace(rows, window={**window_names(inner), "": ""} if windowed else {})
