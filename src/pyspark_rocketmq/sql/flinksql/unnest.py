"""``UNNEST`` in joins, as Spark's ``LATERAL VIEW``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import fill
from pyspark_rocketmq.sql.flinksql.relations import Relation, rows_of
from pyspark_rocketmq.sql.statements import Column, PhysicalColumn, Query

__all__ = ["nested_columns", "nested_outputs", "unnest"]

_MAP: Final = "map"
_ROWS: Final = "rows"
_NUMBERED: Final = "transform(_1, (e, i) -> struct(e, i + 1))"


def nested_columns(columns: Iterable[Column]) -> dict[str, str]:
    """Return which columns of a table are maps or arrays of rows, by their names in lower case."""
    found = {}
    for column in columns:
        if isinstance(column, PhysicalColumn):
            if column.type.upper().startswith("MAP<"):
                found[column.name.key] = _MAP
            elif column.type.upper().startswith("ARRAY<STRUCT<"):
                found[column.name.key] = _ROWS
    return found


def nested_outputs(select: exp.Select, sources: Mapping[str, Relation]) -> dict[str, str]:
    """Return which columns of a query's result are maps or arrays of rows."""
    found: dict[str, str] = {}
    for item in select.expressions:
        if item.is_star:
            for rows in rows_of(item, sources):
                found |= rows.nested
        elif kind := _kind(item.unalias(), sources):
            found[item.alias_or_name.lower()] = kind
    return found


def _kind(node: exp.Expression, sources: Mapping[str, Relation]) -> str | None:
    if not isinstance(node, exp.Column):
        return None
    found = (rows.nested.get(node.name.lower()) for rows in rows_of(node, sources))
    return next((kind for kind in found if kind), None)


def unnest(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> bool:
    """Translate the joins with UNNEST of a query; return whether it has any.

    A left join keeps the rows whose array or map is empty.

    Raises
    ------
    SqlError
        Spark has no such join.
    """
    views: list[exp.Lateral] = []
    others = []
    for join in select.args.get("joins") or []:
        if not isinstance(join.this, exp.Unnest):
            if _is_after(join, views):
                position_of(query, join.this).fail(
                    "Spark joins before UNNEST: write UNNEST in an inner query, FROM (SELECT … CROSS JOIN "
                    "UNNEST(…)) AS a, and join that"
                )
            others.append(join)
            continue
        if join.side not in {"", "LEFT"}:
            position_of(query, join.this).fail("UNNEST is joined by CROSS JOIN, JOIN or LEFT JOIN")
        if _is_filter(join):
            position_of(query, join.this).fail("UNNEST is joined ON TRUE: write other conditions in WHERE")
        views.append(_view(join.this, sources, query, outer=bool(join.side)))
        select.append("laterals", views[-1])
    if views:
        _keep_order_of_star(select, query)
        select.set("joins", others or None)
    return bool(views)


def _keep_order_of_star(select: exp.Select, query: Query) -> None:
    """Name the tables of a star in their order, in place: Spark has those of UNNEST last.

    Raises
    ------
    SqlError
        A table has no name, or shares columns with another one.
    """
    joins = select.args["joins"]
    stars = [item for item in select.expressions if isinstance(item, exp.Star)]
    are_views = [isinstance(join.this, exp.Unnest) for join in joins]
    if not stars or are_views == sorted(are_views):
        return
    tables = [select.args["from_"].this, *(join.this for join in joins)]
    unnamed = any(not table.alias_or_name or table.args.get("joins") for table in tables)
    if unnamed or any(join.args.get("using") or join.method for join in joins):
        position_of(query, tables[1 + are_views.index(True)]).fail(
            "Spark returns the columns of UNNEST last: name the columns instead of *, or write UNNEST in an "
            "inner query"
        )
    for star in stars:
        names = [exp.to_identifier(table.alias_or_name) for table in tables]
        named = [exp.Column(this=star.copy(), table=name) for name in names]
        at = next(at for at, item in enumerate(select.expressions) if item is star)
        select.set("expressions", [*select.expressions[:at], *named, *select.expressions[at + 1 :]])


def _is_after(join: exp.Join, views: list[exp.Lateral]) -> bool:
    """Whether a join is not the same before these views, which Spark reads last, or reads their columns."""
    if join.side in {"RIGHT", "FULL"} or join.method:
        return bool(views)
    read = join.this if isinstance(join.this, exp.Lateral) else join.args.get("on")
    columns = [exp.column(each.name) for each in join.args.get("using") or []]
    columns += read.find_all(exp.Column) if read else []
    return any(_is_of(column, view) for column in columns for view in views)


def _is_of(column: exp.Column, view: exp.Lateral) -> bool:
    if column.table:
        return column.table.lower() == view.alias.lower()
    return column.name.lower() in {each.name.lower() for each in view.args["alias"].columns}


def _is_filter(join: exp.Join) -> bool:
    """Whether a join drops pairs, or columns."""
    on = join.args.get("on")
    is_true = on is None or (isinstance(on, exp.Boolean) and on.this)
    return not is_true or bool(join.args.get("using") or join.method) or join.kind in {"SEMI", "ANTI"}


def _view(node: exp.Unnest, sources: Mapping[str, Relation], query: Query, *, outer: bool) -> exp.Lateral:
    if len(node.expressions) != 1:
        position_of(query, node).fail("UNNEST takes one array or map")
    (value,) = node.expressions
    alias, number = node.args.get("alias"), node.args.get("offset")
    columns = list(alias.columns) if alias else []
    kind = _kind(value, sources)
    name = "inline" if kind == _ROWS or (kind is None and len(columns) > 2) else "explode"
    if number:
        if kind is not None or len(columns) > 1:
            position_of(query, node).fail(
                "WITH ORDINALITY of rows or of a map is not supported: UNNEST an array of values"
            )
        if not columns or number is True:  # else it is the last of the names
            position_of(query, node).fail("WITH ORDINALITY needs names: UNNEST(…) … AS t (value, number)")
        name, value = "inline", fill(_NUMBERED, [value])
        columns = [*columns, number]
    table = alias.this if alias and alias.this else exp.to_identifier("__unnested")
    return exp.Lateral(
        this=exp.Anonymous(this=name, expressions=[value.copy()]),
        view=True,
        outer=outer,
        alias=exp.TableAlias(this=table.copy(), columns=[column.copy() for column in columns]),
    )
