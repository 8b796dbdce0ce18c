"""Queries whose rows are taken back: a SELECT becomes one that reads the result of a step with state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.changes import AFTER, BEFORE, items_around, packed
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, WINDOW, Relation
from pyspark_rocketmq.sql.flinksql.selects import is_time
from pyspark_rocketmq.sql.flinksql.state.parts import (
    NO_PLACE,
    FoldedAggregates,
    change_column,
    named_item,
    of_source,
    read_step,
)
from pyspark_rocketmq.sql.state.steps import (
    ARGUMENT,
    KEY,
    ORDER,
    RESULT,
    ROW,
    Distinct,
    Grouping,
    Ranking,
    Step,
)
from pyspark_rocketmq.sql.statements import Query

__all__ = ["distinct_step", "group_by_all", "group_step", "inline_queries", "rank_step"]

_NO_VIEWS: Final[Mapping[str, exp.Expression]] = {}

_OF_DISTINCT_ROWS: Final = ("order", "limit", "offset")
"""Clauses that choose from the rows that are left when each comes once."""


def inline_queries(tree: exp.Expression, known: Mapping[str, Relation], query: Query) -> None:
    """Replace the names of common tables, and of views whose rows change, by their queries, in place.

    Raises
    ------
    SqlError
        A common table names the columns of a star.
    """
    views: dict[str, exp.Expression] = {
        name: rows.query for name, rows in known.items() if rows.query is not None
    }
    for with_ in reversed(list(tree.find_all(exp.With))):
        queries: dict[str, exp.Expression] = {}  # only the later ones and the query of this WITH read them
        for cte in with_.expressions:
            _replace_names(cte.this, queries)
            if named := cte.args["alias"].columns:
                position_of(query, named[0]).fail(
                    "name the columns of a common table in its query, without *"
                )
            queries[cte.alias.lower()] = cte.this
        if with_.parent is not None:
            with_.parent.set("with_", None)
            _replace_names(with_.parent, queries)
    _replace_names(tree, views, views=views)


def _replace_names(
    tree: exp.Expr, queries: Mapping[str, exp.Expression], *, views: Mapping[str, exp.Expression] = _NO_VIEWS
) -> None:
    """Replace the names of queries, and in these the names of views that they read, in place."""
    for table in list(tree.find_all(exp.Table)):
        found = queries.get(table.name.lower())
        if found is None or table.db or table.args.get("version") is not None:
            continue
        inner = found.copy()
        if others := {name: query for name, query in views.items() if query is not found}:
            _replace_names(inner, others, views=others)
        subquery = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name)))
        if alias := table.args.get("alias"):
            subquery.set("alias", alias.copy())
        if joins := table.args.get("joins"):
            subquery.set("joins", [join.copy() for join in joins])
        table.replace(subquery)


# --- groups -----------------------------------------------------------------------------------


def group_step(select: exp.Select, sources: Mapping[str, Relation], name: str, query: Query) -> Step:
    """Make an aggregation read its result as a changelog, in place, and return the step that computes it.

    Raises
    ------
    SqlError
        It needs an aggregate that cannot take back a value.
    """
    for clause, what in NO_PLACE.items():
        if select.args.get(clause) is not None:
            position_of(query, select).fail(
                f"{what} in an aggregation whose rows change is not supported: write it in a query around it"
            )
    having = select.args.get("having")
    keys = _keys(select, query)
    items = [named_item(item, at) for at, item in enumerate(select.expressions)]
    folded = FoldedAggregates(query, "of rows that change")
    source = of_source(select)
    condition = exp.Paren(this=having.this) if having else None
    parts = [*items, *([condition] if condition else [])]
    for part in parts:
        folded.replace_calls(part)
        _replace_keys(part, keys, sources)
        _require_grouped(part, folded, query)
    selected = [exp.alias_(key.copy(), f"{KEY}{at}") for at, key in enumerate(keys)]
    arguments = [
        exp.alias_(argument, f"{ARGUMENT}{at}")
        for at, argument in enumerate(folded.arguments)
        if argument is not None
    ]
    changes = change_column(sources)
    source.set("expressions", [*selected, *arguments, *changes] or [exp.alias_(exp.Literal.number(1), KEY)])
    step = Step(
        name,
        source.sql(dialect="spark", comments=False),
        Grouping(len(keys), tuple(folded.aggregates)),
        bool(changes),
    )
    read_step(select, name)
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
    return _text(one) == _text(other)


def _text(part: exp.Expression) -> str:
    """Return a part as text. Names have no case, texts have."""
    copied = part.copy()
    for name in copied.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", False)
    return copied.sql(dialect="spark", comments=False)


def _require_grouped(part: exp.Expression, folded: FoldedAggregates, query: Query) -> None:
    for column in part.find_all(exp.Column):
        if not column.name.startswith((KEY, RESULT)):
            if (inner := column.find_ancestor(exp.Select)) is not None:
                folded.refuse_inner(inner)
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
    before, after = items_around(inner, rank)
    changes = change_column(sources)
    if changes:
        for item in (*before, *after):
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                star.set("except_", [exp.to_identifier(CHANGE)])
    parts = [key for key in window.args.get("partition_by") or [] if not isinstance(key, exp.Literal)]
    keys = [exp.alias_(key.copy(), f"{KEY}{at}") for at, key in enumerate(parts)]
    ordered = window.args["order"].expressions
    orders = [exp.alias_(key.this.copy(), f"{ORDER}{at}") for at, key in enumerate(ordered)]
    row = exp.alias_(packed(before, after), ROW)
    source = of_source(inner)
    source.set("expressions", [*keys, *orders, row, *changes])
    order = tuple((bool(key.args.get("desc")), bool(key.args.get("nulls_first"))) for key in ordered)
    newest = limit == 1 and [down for down, _ in order] == [True] and is_time(ordered[0].this, sources)
    ranking = Ranking(len(keys), order, limit, rank.alias, shows_rank, newest)
    text = source.sql(dialect="spark", comments=False)
    read_step(inner, name)
    place = exp.column(rank.args["alias"].copy())
    items: list[exp.Expression] = [exp.Star()]
    if before and after:
        parts = [exp.column(exp.Star(), table=part) for part in (BEFORE, AFTER)]
        items = [parts[0], place, parts[1], exp.column(CHANGE)]
    elif after:
        items = [place, exp.Star(except_=[place.this.copy()])]
    inner.set("expressions", items)
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
    clauses = {clause: rows.args.pop(clause, None) for clause in _OF_DISTINCT_ROWS}
    step = Step(name, rows.sql(dialect="spark", comments=False), Distinct())
    read_step(read, name)
    for clause, part in clauses.items():
        read.set(clause, part)
    star = exp.Star(except_=[exp.to_identifier(WINDOW)]) if window else exp.Star()
    read.set("expressions", [star])
    return step
