"""Queries whose rows are taken back: a SELECT becomes one that reads the result of a step with state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.expressions import called
from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, WINDOW, Relation
from pyspark_rocketmq.sql.state.steps import (
    ARGUMENT,
    KEY,
    ORDER,
    RESULT,
    ROW,
    Aggregate,
    Distinct,
    Fold,
    Grouping,
    Ranking,
    Step,
)
from pyspark_rocketmq.sql.statements import Query

__all__ = ["distinct_step", "group_by_all", "group_step", "inline_queries", "rank_step"]

_SOURCE: Final = ("from_", "joins", "where", "laterals")
_FOLDS: Final = frozenset(fold.value for fold in Fold)
_NO_PLACE: Final = {"distinct": "DISTINCT", "order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}


def inline_queries(tree: exp.Expression, known: Mapping[str, Relation]) -> None:
    """Replace the names of common tables, and of views whose rows change, by their queries, in place."""
    queries: dict[str, exp.Expression] = {
        name: rows.query for name, rows in known.items() if rows.query is not None
    }
    for with_ in reversed(list(tree.find_all(exp.With))):
        for cte in with_.expressions:
            _replace_names(cte.this, queries)
            alias = cte.args["alias"]
            if not alias.columns:
                queries[cte.alias.lower()] = cte.this
        kept = [cte for cte in with_.expressions if cte.args["alias"].columns]
        with_.set("expressions", kept)
        if not kept and with_.parent is not None:
            with_.parent.set("with_", None)
    _replace_names(tree, queries)


def _replace_names(tree: exp.Expression, queries: Mapping[str, exp.Expression]) -> None:
    for table in list(tree.find_all(exp.Table)):
        found = queries.get(table.name.lower())
        if found is None or table.db:
            continue
        inner = found.copy()
        _replace_names(inner, {name: query for name, query in queries.items() if query is not found})
        subquery = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name)))
        if alias := table.args.get("alias"):
            subquery.set("alias", alias.copy())
        if joins := table.args.get("joins"):
            subquery.set("joins", [join.copy() for join in joins])
        table.replace(subquery)


def _alias(value: exp.Expression, name: str) -> exp.Expression:
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))


def _of_source(select: exp.Select) -> exp.Select:
    """Return a query without items that reads what another one reads."""
    source = exp.Select()
    for name in _SOURCE:
        part = select.args.get(name)
        if part is not None:
            source.set(name, [each.copy() for each in part] if isinstance(part, list) else part.copy())
    return source


def _read_step(select: exp.Select, name: str) -> None:
    """Make a query read the result of a step."""
    for part in (*_SOURCE, "group", "having", "distinct", "hint"):
        select.set(part, None)
    select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(name))))


def _change(sources: Mapping[str, Relation]) -> list[exp.Expression]:
    """Return the column `CHANGE` of a source that has it."""
    return [
        _alias(exp.column(CHANGE, table=None if name.startswith("#") else name), CHANGE)
        for name, rows in sources.items()
        if rows.changelog
    ]


# --- groups -----------------------------------------------------------------------------------


def group_step(select: exp.Select, sources: Mapping[str, Relation], name: str, query: Query) -> Step:
    """Make an aggregation read its result as a changelog, in place, and return the step that computes it.

    Raises
    ------
    SqlError
        It needs an aggregate that cannot take back a value.
    """
    for clause, what in _NO_PLACE.items():
        if select.args.get(clause) is not None:
            position_of(query, select).fail(
                f"{what} in an aggregation whose rows change is not supported: write it in a query around it"
            )
    having = select.args.get("having")
    keys = _keys(select, query)
    items = [_named(item, at) for at, item in enumerate(select.expressions)]
    folded = _Aggregates(query)
    source = _of_source(select)
    condition = exp.Paren(this=having.this) if having else None
    parts = [*items, *([condition] if condition else [])]
    for part in parts:
        folded.replace_calls(part)
        _replace_keys(part, keys, sources)
        _require_grouped(part, query)
    selected = [exp.alias_(key.copy(), f"{KEY}{at}") for at, key in enumerate(keys)]
    arguments = [
        exp.alias_(argument, f"{ARGUMENT}{at}")
        for at, argument in enumerate(folded.arguments)
        if argument is not None
    ]
    changes = _change(sources)
    source.set("expressions", [*selected, *arguments, *changes] or [exp.alias_(exp.Literal.number(1), KEY)])
    step = Step(
        name,
        source.sql(dialect="spark", comments=False),
        Grouping(len(keys), tuple(folded.aggregates)),
        bool(changes),
    )
    _read_step(select, name)
    select.set("expressions", [*items, exp.column(CHANGE)])
    if condition is not None:
        select.set("where", exp.Where(this=condition))
    return step


def group_by_all(select: exp.Select) -> None:
    """Turn the DISTINCT of a query to GROUP BY, in place."""
    if not any(item.is_star for item in select.expressions):
        select.set("group", exp.Group(expressions=[item.unalias().copy() for item in select.expressions]))
        select.set("distinct", None)


def _keys(select: exp.Select, query: Query) -> list[exp.Expression]:
    group = select.args.get("group")
    found = []
    for key in group.expressions if group else []:
        if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube):
            position_of(query, key).fail(
                "GROUPING SETS, ROLLUP and CUBE of rows that change are not supported: write each grouping "
                "with its own INSERT"
            )
        is_place = isinstance(key, exp.Literal) and key.is_int
        found.append((select.expressions[int(key.name) - 1].unalias() if is_place else key).copy())
    return found


def _named(item: exp.Expression, at: int) -> exp.Expression:
    """Return an item with a name; without one it has Flink's."""
    if isinstance(item, exp.Alias):
        return item.copy()
    if isinstance(item, exp.Column):
        return _alias(item.copy(), item.name)
    return _alias(item.copy(), f"EXPR${at}")


class _Aggregates:
    """The aggregates of a query."""

    def __init__(self, query: Query) -> None:
        self.aggregates: list[Aggregate] = []
        self.arguments: list[exp.Expression | None] = []
        self._query = query
        self._found: dict[str, int] = {}

    def replace_calls(self, part: exp.Expression) -> None:
        """Replace the calls of aggregates in an item by the columns with their results."""
        for call in list(part.find_all(exp.Anonymous)):
            if called(call) not in AGGREGATES:
                continue
            whole: exp.Expression = call.parent if isinstance(call.parent, exp.Filter) else call
            number = self._found.setdefault(whole.sql(dialect="spark"), len(self.aggregates))
            if number == len(self.aggregates):
                self._add(call, whole)
            whole.replace(exp.column(f"{RESULT}{number}"))

    def _add(self, call: exp.Anonymous, whole: exp.Expression) -> None:
        name = called(call)
        around = call.parent
        is_type = name == "ANY_VALUE" and isinstance(around, exp.Anonymous) and called(around) == "TYPEOF"
        if name not in _FOLDS or (name == "ANY_VALUE" and not is_type):
            position_of(self._query, call).fail(
                f"{name} of rows that change is not supported: it cannot take back a row. COUNT, SUM, AVG, "
                "MIN and MAX can; SET 'execution.runtime-mode' = 'batch' runs it once"
            )
        values = call.expressions
        distinct = bool(values) and isinstance(values[0], exp.Distinct)
        if distinct:
            values = values[0].expressions
        if len(values) > 1:
            position_of(self._query, call).fail(f"{name} of rows that change takes one argument")
        argument: exp.Expression | None = None if not values or values[0].is_star else values[0].copy()
        if isinstance(whole, exp.Filter):
            given = argument or exp.Literal.number(1)
            argument = exp.Case(ifs=[exp.If(this=whole.expression.this.copy(), true=given)])
        self.aggregates.append(Aggregate(Fold(name), argument is not None, distinct))
        self.arguments.append(argument)


def _replace_keys(part: exp.Expression, keys: list[exp.Expression], sources: Collection[str]) -> None:
    for at, key in enumerate(keys):
        for node in list(part.find_all(type(key))):
            if _same(node, key, sources):
                node.replace(exp.column(f"{KEY}{at}"))


def _same(one: exp.Expression, other: exp.Expression, sources: Collection[str]) -> bool:
    """Whether two expressions of a query are the same; ``t.a`` is ``a`` if ``t`` is what it reads."""
    if isinstance(one, exp.Column) and isinstance(other, exp.Column):
        tables = {column.table.lower() for column in (one, other)}
        is_named = len(tables) < 2 or (len(tables - {""}) < 2 and tables - {""} <= set(sources))
        return one.name.lower() == other.name.lower() and is_named
    return one.sql(dialect="spark").lower() == other.sql(dialect="spark").lower()


def _require_grouped(part: exp.Expression, query: Query) -> None:
    for column in part.find_all(exp.Column):
        if not column.name.startswith((KEY, RESULT)):
            position_of(query, column).fail(
                f"{column.name} is neither in GROUP BY nor in an aggregate: add it to GROUP BY"
            )


# --- the first rows of a key, and each row once -------------------------------------------------


def rank_step(
    inner: exp.Select,
    rank: exp.Alias,
    sources: Mapping[str, Relation],
    name: str,
    *,
    limit: int,
    shows_rank: bool,
) -> Step:
    """Make a query with ``ROW_NUMBER()`` read its first rows as a changelog, in place; return the step."""
    assert isinstance(rank.this, exp.Window)
    window = rank.this
    items = [item.copy() for item in inner.expressions if item is not rank]
    changes = _change(sources)
    if changes:
        for item in items:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                star.set("except_", [exp.to_identifier(CHANGE)])
    parts = [key for key in window.args.get("partition_by") or [] if not isinstance(key, exp.Literal)]
    keys = [exp.alias_(key.copy(), f"{KEY}{at}") for at, key in enumerate(parts)]
    ordered = window.args["order"].expressions
    orders = [exp.alias_(key.this.copy(), f"{ORDER}{at}") for at, key in enumerate(ordered)]
    row = exp.alias_(exp.Anonymous(this="struct", expressions=items), ROW)
    source = _of_source(inner)
    source.set("expressions", [*keys, *orders, row, *changes])
    order = tuple((bool(key.args.get("desc")), bool(key.args.get("nulls_first"))) for key in ordered)
    ranking = Ranking(len(keys), order, limit, rank.alias, shows_rank)
    text = source.sql(dialect="spark", comments=False)
    _read_step(inner, name)
    inner.set("expressions", [exp.Star()])
    return Step(name, text, ranking, bool(changes))


def distinct_step(
    rows: exp.Query, name: str, *, window: bool = False, into: exp.Select | None = None
) -> Step:
    """Make a query read each of its rows once, in place or ``into`` another one; return the step.

    ``window`` leaves the hidden column with a window out of the result.
    """
    read = into
    if read is None:
        assert isinstance(rows, exp.Select)
        rows.set("distinct", None)
        read = rows
    step = Step(name, rows.sql(dialect="spark", comments=False), Distinct())
    _read_step(read, name)
    star = exp.Star(except_=[exp.to_identifier(WINDOW)]) if window else exp.Star()
    read.set("expressions", [star])
    return step
