"""Translate queries of Flink SQL to Spark SQL, as trees, from the inner queries to the outer one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.changes import (
    checked_limit,
    distinct_aggregates,
    rank_limit,
    ranked,
    reads_rank,
    top_select,
    unpacked,
)
from pyspark_rocketmq.sql.flinksql.grammar import WindowTable, position_of
from pyspark_rocketmq.sql.flinksql.relations import LOOKUP, Relation
from pyspark_rocketmq.sql.flinksql.row_changes import (
    WITHOUT_WINDOW,
    has_changes,
    pass_changes,
    refuse_changelog,
)
from pyspark_rocketmq.sql.flinksql.selects import (
    by_spark_window,
    event_time,
    groups_by_processing_time,
    is_aggregation,
    is_distinct,
    processing_time,
    spark_windows,
    window_outputs,
    without_default_database,
    without_flink_hints,
)
from pyspark_rocketmq.sql.flinksql.state.changing import join_step, joins_changes
from pyspark_rocketmq.sql.flinksql.state.full_joins import keep_nulls_apart
from pyspark_rocketmq.sql.flinksql.state.needs import (
    NeedsStateError,
    StateRules,
    drops_keys,
    groups_by_window,
    is_of_database,
    needs_state,
    require_final_results,
    shown_rank,
)
from pyspark_rocketmq.sql.flinksql.state.overs import over_calls, over_step, refuse_over
from pyspark_rocketmq.sql.flinksql.state.replaced import fixed_of_ranks, fixed_outputs, fixed_union
from pyspark_rocketmq.sql.flinksql.state.rewrite import distinct_step, group_by_all, group_step, rank_step
from pyspark_rocketmq.sql.flinksql.state.temporal import version_step, versioned_joins
from pyspark_rocketmq.sql.flinksql.unnest import nested_outputs, unnest
from pyspark_rocketmq.sql.flinksql.versions import (
    is_lookup,
    is_of_rows,
    join_versions,
    read_as_it_is,
    require_versions,
)
from pyspark_rocketmq.sql.flinksql.windows.hidden import group_by_window, hide_windows, join_windows
from pyspark_rocketmq.sql.flinksql.windows.tables import group_windows, session_select, window_table
from pyspark_rocketmq.sql.state.steps import Step
from pyspark_rocketmq.sql.statements import Query

__all__ = ["Translator"]

_Known: TypeAlias = Mapping[str, Relation]
"""What is read, by the name that columns or queries use."""


class Translator:
    """Translates a query, from the inner queries to the outer one.

    Attributes
    ----------
    tree : Expression
        The query: translated in place, or replaced.
    changed : bool
        Whether something had to be translated.
    steps : list of Step
        What keeps state for it.
    """

    def __init__(self, query: Query, tree: exp.Expression, state: StateRules) -> None:
        self.tree = tree
        self.changed = False
        self.steps: list[Step] = []
        self._query = query
        self._state = state

    def _fail(self, node: exp.Expression, message: str) -> None:
        position_of(self._query, node).fail(message)

    def rows(self, known: _Known, *, hidden: bool) -> Relation:
        """Translate the query, and return what is known of its rows."""
        ranking = self.ranking(self.tree, known) if hidden else None
        return ranking or self.query(self.tree, known, top=not hidden)

    def rows_without_state(self, known: _Known, *, hidden: bool) -> Relation | None:
        """Translate the query without steps, as `rows`; None if it takes back rows."""
        try:
            return self.rows(known, hidden=hidden)
        except NeedsStateError:
            return None

    # --- queries ----------------------------------------------------------------------------

    def ranking(self, tree: exp.Expression, known: _Known) -> Relation | None:
        """Return what is known of a query that ranks a stream: it is translated where it is read."""
        if isinstance(tree, exp.Select) and ranked(tree) is not None and self._reads_stream(tree, known):
            return Relation(stream=True, ranked=tree)
        return None

    def query(self, tree: exp.Expression, known: _Known, *, top: bool) -> Relation:
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
                if self._state.allowed and is_distinct(tree) and all(side.stream for side in sides):
                    return self._distinct_union(tree, sides)
                return Relation(
                    stream=any(side.stream for side in sides),
                    changes=any(side.changes for side in sides),
                    fixed=fixed_union(tree.this, tree.expression, sides),
                    keeps_state=any(side.keeps_state for side in sides),
                )
            case exp.Select():
                return self._select(tree, known, top=top)
        return Relation()

    def _select(self, select: exp.Select, known: _Known, *, top: bool) -> Relation:
        sources = self._read(select, known)
        stream = any(rows.stream for rows in sources.values())
        calls = over_calls(select) if stream else []
        if not calls and (found := self._with_state(select, sources)):
            self.changed = True
            return found
        if found := pass_changes(select, sources, self._query):
            self.changed = True
            return found
        if calls:
            return self._over(select, sources, calls)
        before = select.sql()
        distinct = self._state.allowed and stream and is_distinct(select)
        of_now = stream and groups_by_processing_time(select, sources)
        grouped = group_windows(select, sources, self._query)
        join_windows(select, sources, self._query)
        by_window = grouped is not None or group_by_window(select, sources, self._query)
        aggregated = is_aggregation(select)
        if stream and aggregated:
            distinct_aggregates(select, self._query)
        by_any = by_window or by_spark_window(select, sources)
        changes = of_now | has_changes(select, sources, self._query, aggregated=aggregated, by_window=by_any)
        window: dict[str, str] = {}
        if by_window if aggregated else any(rows.window for rows in sources.values()):
            window = {"": "", **window_outputs(select, sources), **(grouped or {})}
            hide_windows(select, sources, aggregated=aggregated, top=top and not distinct)
        found = Relation(
            stream,
            changes,
            window,
            processing_time(select, sources),
            event_time(select, sources),
            spark_windows(select, sources),
            nested=nested_outputs(select, sources),
            rank=shown_rank(select, sources),
            ranks=max(rows.ranks for rows in sources.values()) if sources else 0,
            fixed=fixed_outputs(select, sources) if changes else frozenset(),
            cumulative=next((rows.cumulative for rows in sources.values() if rows.cumulative), ""),
            keeps_state=distinct or by_any or any(rows.keeps_state for rows in sources.values()),
        )
        if distinct:
            self.steps.append(distinct_step(select, self._state.name(), window=bool(window) and top))
        self.changed |= select.sql() != before
        return found

    def _read(self, select: exp.Select, known: _Known) -> dict[str, Relation]:
        """Translate what a query reads, and the queries in its conditions and items; return what it reads."""
        sources = self._versioned(select, self._sources(select, known))
        self.changed |= without_flink_hints(select)
        self.changed |= unnest(select, sources, self._query)
        self._subqueries(select, known)
        if self._state.always and joins_changes(select, sources):
            step, sources = join_step(select, sources, self._state.name(), self._query)
            self.steps.append(step)
        self.changed |= keep_nulls_apart(select, sources, self._query)
        return sources

    def _with_state(self, select: exp.Select, sources: _Known) -> Relation | None:
        """Make a query that takes back rows read a step with state; None if it needs none."""
        if not any(rows.stream for rows in sources.values()):
            return None
        if self._state.allowed:
            require_final_results(select, sources, self._query)
        if groups_by_window(select, sources) or any(map(is_of_database, sources.values())):
            return None
        if not self._state.always:
            if self._state.allowed and needs_state(select, sources):
                raise NeedsStateError
            return None
        if any(rows.changes for rows in sources.values()) and is_aggregation(select):
            self._fail(
                select, f"an aggregation of a stream cannot read windows of PROCTIME(): {WITHOUT_WINDOW}"
            )
        if select.args.get("distinct") and any(rows.changelog for rows in sources.values()):
            group_by_all(select)
        if is_aggregation(select):
            self.steps.append(group_step(select, sources, self._state.name(), self._query))
            return Relation(stream=True, changelog=True, keeps_state=True)
        return None

    def _over(self, select: exp.Select, sources: _Known, calls: list[exp.Window]) -> Relation:
        """Make a query with OVER read a step that waits for the watermark."""
        if not self._state.allowed:
            refuse_over(calls, self._query)
        if not self._state.always:
            raise NeedsStateError
        self.steps.append(over_step(select, sources, self._state.name(), self._query))
        self.changed = True
        return Relation(stream=True, keeps_state=True)

    def _distinct_union(self, union: exp.SetOperation, sides: Sequence[Relation]) -> Relation:
        """Make a UNION without ALL read its rows once each."""
        if any(side.changes for side in sides):
            if not self._state.always:
                raise NeedsStateError
            refuse_changelog(union, "UNION", self._query)
        union.set("distinct", False)
        read = exp.Select()
        self.steps.append(distinct_step(union, self._state.name(), into=read))
        self.changed = True
        if union is self.tree:
            self.tree = read
        else:
            union.replace(read)
        return Relation(stream=True, keeps_state=True)

    def _subqueries(self, select: exp.Select, known: _Known) -> None:
        """Translate the queries in conditions and items."""
        for clause in ("expressions", "where", "having"):
            part = select.args.get(clause)
            for root in part if isinstance(part, list) else [part] if part else []:
                for inner in list(root.find_all(exp.Select)):
                    if inner.find_ancestor(exp.Select) is select:
                        rows = self.query(inner, known, top=True)
                        if rows.changelog:
                            refuse_changelog(inner, "a condition", self._query)

    # --- what a query reads -----------------------------------------------------------------

    def _sources(self, select: exp.Select, known: _Known) -> dict[str, Relation]:
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
            found[name] = self._source(select, node, known, found)
        return found

    def _source(self, select: exp.Select, node: exp.Expression, known: _Known, left: _Known) -> Relation:
        match node:
            case exp.Table():
                return self._table(select, node, known, left)
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

    def _table(self, select: exp.Select, node: exp.Table, known: _Known, left: _Known) -> Relation:
        self.changed |= without_default_database(node)
        rows = known.get(node.name.lower(), Relation()) if not node.db else Relation()
        if rows.write_only:
            self._fail(node, f"{node.name} has the connector {rows.write_only!r}, which only writes")
        if rows.ranked is not None:
            inner = rows.ranked.copy()
            subquery = inner.subquery(node.alias_or_name)
            node.replace(subquery)
            return self._source(select, subquery, known, left)
        if node.args.get("version") is not None:
            return self._as_of(select, node, rows, known, left)
        return rows

    def _as_of(
        self, select: exp.Select, table: exp.Table, rows: Relation, known: _Known, left: _Known
    ) -> Relation:
        self.changed = True
        if rows.files and rows.stream and is_lookup(table, left):
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias_or_name)))
            table.set("this", exp.to_identifier(f"{LOOKUP}{table.name.lower()}", quoted=True))
            table.set("version", None)
            return Relation(nested=rows.nested)
        if rows.versions is not None and rows.versions.query is not None:
            source = rows.versions.query.copy()
            inner = self.query(source, known, top=True)
            plain = not inner.changes and not inner.changelog
            rows = replace(
                rows, versions=replace(rows.versions, query=source) if plain else None, changes=False
            )
        if rows.stream:
            require_versions(table, rows, left, self._query)
            if not self._state.allowed:
                self._fail(
                    table, f"FOR SYSTEM_TIME AS OF the stream {table.name}: leave SET 'outputMode' out"
                )
            if not self._state.always:
                raise NeedsStateError
        elif rows.messages or rows.versions is not None:
            join_versions(select, table, rows, left, self._query)
        elif is_of_rows(table, left):
            read_as_it_is(table, left, self._query)
        return rows  # what else has a version is Spark's: a table that keeps its past

    def _versioned(self, select: exp.Select, sources: dict[str, Relation]) -> dict[str, Relation]:
        """Make a join with the versions of a stream read a step; return what the query reads then."""
        for join in versioned_joins(select, sources):
            step, sources = version_step(select, join, sources, self._state.name(), self._query)
            self.steps.append(step)
        return sources

    def _window_table(self, select: exp.Select, node: WindowTable, known: _Known) -> Relation:
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

    def _reads_stream(self, select: exp.Select, known: _Known) -> bool:
        names = {table.name.lower() for table in select.find_all(exp.Table)}
        return any(rows.stream for name, rows in known.items() if name in names)

    def _top(self, outer: exp.Select, node: exp.Subquery, rank: exp.Alias, known: _Known) -> Relation:
        self.changed = True
        inner = cast("exp.Select", node.this)
        name, saved = rank.alias, list(self.steps)
        limit = rank_limit(outer, name, node.alias)
        sources = self._sources(inner.copy(), known)
        self.steps = saved
        if self._state.always:
            if not any(rows.window or is_of_database(rows) for rows in sources.values()):
                return self._rank(outer, inner, rank, known)
        elif self._state.allowed and limit == 1 and drops_keys(outer, rank):
            raise NeedsStateError
        top = top_select(outer, inner, rank, sources, self._query)
        rows = self._select(top, known, top=False)
        node.set("this", unpacked(top, inner, rank, window=bool(rows.window)))
        window = {**window_outputs(inner, sources), "": ""} if rows.window else {}
        fixed = fixed_of_ranks(inner, rank)
        return replace(rows, window=window, rank=name.lower(), ranks=limit or 0, fixed=fixed)

    def _rank(self, outer: exp.Select, inner: exp.Select, rank: exp.Alias, known: _Known) -> Relation:
        """Make a Top-N read its rows from a step with state."""
        limit = checked_limit(outer, inner, rank, self._query)
        sources = self._read(inner, known)
        shows = reads_rank(outer, rank)
        name = self._state.name()
        self.steps.append(rank_step(inner, rank, sources, name, limit=limit, shows_rank=shows))
        return Relation(stream=True, changelog=True, keeps_state=True)
