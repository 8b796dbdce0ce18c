"""Top-N and de-duplication, and distinct aggregates, of streams: as aggregations, which Spark's streams have.

The state of a Top-N is bounded: N rows for each key.
"""

from __future__ import annotations

from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.expressions import called, fill
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import WINDOW
from pyspark_rocketmq.sql.statements import Query

__all__ = ["RANK", "distinct_aggregates", "ranked", "top_select", "unpacked"]

RANK: Final = "__top"
_LARGEST: Final = "CAST('99999999999999999999999999999' AS DECIMAL(38, 9))"
_NEGATED: Final = (
    "coalesce(CASE WHEN typeof(_1) IN ('timestamp', 'timestamp_ntz', 'date') "
    "THEN -CAST(unix_micros(CAST(_1 AS TIMESTAMP)) AS DECIMAL(38, 9)) "
    "WHEN typeof(_1) = 'string' THEN raise_error('ORDER BY of a Top-N mixes ASC and DESC, and has a text') "
    f"ELSE -CAST(_1 AS DECIMAL(38, 9)) END, {_LARGEST})"
)


def ranked(select: exp.Select) -> exp.Alias | None:
    """Return the item of a query that is ``ROW_NUMBER() OVER (…) AS name``."""
    for item in select.expressions:
        window = item.this if isinstance(item, exp.Alias) else None
        if isinstance(window, exp.Window) and called(window.this) == "ROW_NUMBER":
            return cast("exp.Alias", item)
    return None


def top_select(outer: exp.Select, inner: exp.Select, rank: exp.Alias, query: Query) -> exp.Select:
    """Return a query with the rows of a ranked query up to the rank that the outer query selects.

    Raises
    ------
    SqlError
        The outer query selects no constant number of ranks.
    """
    window = cast("exp.Window", rank.this)
    limit = _limit(outer, rank.alias)
    if limit is None:
        position_of(query, rank).fail(
            f"ROW_NUMBER of a stream needs a constant bound in the query around it: WHERE {rank.alias} <= 10"
        )
    items = [item.copy() for item in inner.expressions if item is not rank]
    row = exp.Anonymous(this="struct", expressions=items)
    call, order = _order(window, query)
    arguments = [row, order, exp.Literal.number(limit)]
    top = exp.select(exp.alias_(exp.Anonymous(this=call, expressions=arguments), RANK))
    for name in ("from_", "joins", "where", "laterals", "with_"):
        if inner.args.get(name) is not None:
            part = inner.args[name]
            top.set(name, [each.copy() for each in part] if isinstance(part, list) else part.copy())
    keys = window.args.get("partition_by") or []
    top.set("group", exp.Group(expressions=[key.copy() for key in keys] or [exp.Anonymous(this="array")]))
    return top


def unpacked(top: exp.Select, name: str, *, window: bool) -> exp.Select:
    """Return the query that turns the arrays of `top_select` to rows with their rank."""
    rank = fill("CAST(__position + 1 AS BIGINT)", [])
    items = [exp.Column(this=exp.Star(), table=exp.to_identifier("__row")), exp.alias_(rank, name)]
    rows = exp.select(*items, *([WINDOW] if window else [])).from_(top.subquery("__tops"))
    view = exp.Lateral(
        this=exp.Anonymous(this="posexplode", expressions=[exp.column(RANK)]),
        view=True,
        alias=exp.TableAlias(
            this=exp.to_identifier("__ranks"),
            columns=[exp.to_identifier("__position"), exp.to_identifier("__row")],
        ),
    )
    rows.append("laterals", view)
    return rows


def _limit(outer: exp.Select, name: str) -> int | None:
    where = outer.args.get("where")
    for condition in (
        where.this.flatten() if where and isinstance(where.this, exp.And) else [where and where.this]
    ):
        match condition:
            case exp.LTE() | exp.EQ() | exp.LT():
                column, number = condition.this, condition.expression
            case exp.GTE() | exp.GT():
                column, number = condition.expression, condition.this
            case _:
                continue
        if isinstance(column, exp.Column) and column.name.lower() == name.lower() and number.is_int:
            return int(number.name) - isinstance(condition, exp.LT | exp.GT)
    return None


def _order(window: exp.Window, query: Query) -> tuple[str, exp.Expression]:
    order = window.args.get("order")
    if order is None:
        position_of(query, window).fail("ROW_NUMBER() needs ORDER BY")
    down = [bool(key.args.get("desc")) for key in order.expressions]
    call = "max_by" if any(down) else "min_by"
    keys = [
        key.this.copy() if falls or not any(down) else fill(_NEGATED, [key.this])
        for key, falls in zip(order.expressions, down, strict=True)
    ]
    return call, exp.Anonymous(this="struct", expressions=keys)  # in a struct, a NULL is a value


def distinct_aggregates(select: exp.Select, query: Query) -> None:
    """Translate ``COUNT(DISTINCT …)`` of a stream, which Spark's streams do not have, in place.

    Raises
    ------
    SqlError
        It is another aggregate of distinct values.
    """
    for distinct in list(select.find_all(exp.Distinct)):
        call = distinct.parent
        if not isinstance(call, exp.Anonymous) or distinct.find_ancestor(exp.Select) is not select:
            continue
        values = distinct.expressions
        form = {"COUNT": "CAST(size(_1) AS BIGINT)", "SUM": "aggregate(_1, 0L, (s, x) -> s + x)"}.get(
            called(call)
        )
        if form is None or (len(values) > 1 and called(call) == "SUM"):
            position_of(query, call).fail(
                f"{call.name}(DISTINCT …) of a stream is not supported: use COUNT(DISTINCT …)"
            )
        value = values[0]
        if len(values) > 1:
            absent = exp.or_(*(each.copy().is_(exp.null()) for each in values))
            row = exp.Anonymous(this="struct", expressions=[each.copy() for each in values])
            value = exp.Case(ifs=[exp.If(this=exp.Not(this=exp.Paren(this=absent)), true=row)])
        found: exp.Expression = exp.Anonymous(this="collect_set", expressions=[value.copy()])
        place: exp.Expression = call
        if isinstance(call.parent, exp.Filter):
            place = call.parent
            found = exp.Filter(this=found, expression=call.parent.expression.copy())
        place.replace(fill(form, [found]))
