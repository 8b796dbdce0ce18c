"""Top-N and de-duplication, and distinct aggregates, of streams: as aggregations, which Spark's streams have.

The state of a Top-N is bounded: N rows for each key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import IS_WHOLE_CAST, called, comparisons_of, fill
from pyspark_rocketmq.sql.flinksql.relations import WINDOW, Relation
from pyspark_rocketmq.sql.flinksql.selects import is_aggregation, is_processing_time
from pyspark_rocketmq.sql.statements import Position, Query

__all__ = [
    "AFTER",
    "BEFORE",
    "RANK",
    "checked_limit",
    "distinct_aggregates",
    "items_around",
    "packed",
    "rank_limit",
    "ranked",
    "reads_rank",
    "top_select",
    "unpacked",
]

RANK: Final = "__top"
BEFORE: Final = "__before"
AFTER: Final = "__after"
"""The parts of a row before and after its rank."""
_NUMBER: Final = "DECIMAL(38, 9)"
_LARGEST: Final = f"array(CAST('99999999999999999999999999999' AS {_NUMBER}))"
_CHARACTERS: Final = "filter(split(CAST(_1 AS STRING), ''), c -> c <> '')"
_AS: Final = "variant_get(CAST(_1 AS VARIANT), '$', '{}')"
"""A value as one of another type. Spark checks a CAST also in a branch that is never taken."""

_AS_DOUBLE: Final = _AS.format("double")
_HAS_FRACTION: Final = "(typeof(_1) IN ('double', 'float') OR typeof(_1) LIKE 'decimal%')"
_NEGATED: Final = (
    f"CASE WHEN _1 IS NULL THEN {_LARGEST} WHEN {_HAS_FRACTION} "
    f"THEN array(CASE WHEN isnan({_AS_DOUBLE}) THEN CAST(-1 AS {_NUMBER}) ELSE CAST(0 AS {_NUMBER}) END) "
    "WHEN typeof(_1) IN ('timestamp', 'timestamp_ntz', 'date') "
    f"THEN array(-CAST(unix_micros({_AS.format('timestamp')}) AS {_NUMBER})) WHEN typeof(_1) = 'string' THEN "
    f"concat(transform({_CHARACTERS}, c -> CAST(-ascii(c) AS {_NUMBER})), array(CAST(1 AS {_NUMBER}))) "
    f"ELSE array(-{_AS.format(_NUMBER)}) END"
)
"""A value whose order is reversed. A text is its negative code points, and a number above them at its end.

Of a DOUBLE or DECIMAL it is only whether it is NULL or NaN: `_NEGATED_FRACTION` is compared then.
Spark negates the first 34 digits of a DECIMAL.
"""

_OF_FRACTION: Final = "CASE WHEN typeof(_1) LIKE 'decimal%' THEN typeof(_1) ELSE 'double' END"
_AS_FRACTION: Final = f"variant_get(CAST(_1 AS VARIANT), '$', {_OF_FRACTION})"
_NEGATED_FRACTION: Final = f"CASE WHEN {_HAS_FRACTION} AND NOT isnan({_AS_DOUBLE}) THEN -{_AS_FRACTION} END"
_SUM: Final = "aggregate(_1, CAST(NULL AS {0}), (s, x) -> CAST(coalesce(s, CAST(0 AS {0})) + x AS {0}))"
_SUM_OF_COLUMN: Final = (
    "CASE WHEN typeof(_1) IN ('array<tinyint>', 'array<smallint>', 'array<int>', 'array<bigint>') "
    f"THEN {_SUM.format('BIGINT')} ELSE raise_error('SUM(DISTINCT x) of a stream adds whole numbers: "
    "for others write SUM(DISTINCT CAST(x AS DOUBLE)) or SUM(DISTINCT CAST(x AS DECIMAL(p, s)))') END"
)
_WHOLE: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_MOST_DIGITS: Final = 27
"""Of a DECIMAL: the sum has 10 more, and Spark adds exactly below 38."""
_OF_RESULTS: Final = ("distinct", "group", "having", "qualify", "limit", "offset")


def ranked(select: exp.Select) -> exp.Alias | None:
    """Return the item of a query that is ``ROW_NUMBER() OVER (…) AS name``."""
    for item in select.expressions:
        window = item.this if isinstance(item, exp.Alias) else None
        if isinstance(window, exp.Window) and called(window.this) == "ROW_NUMBER":
            return cast("exp.Alias", item)
    return None


def top_select(
    outer: exp.Select, inner: exp.Select, rank: exp.Alias, sources: Mapping[str, Relation], query: Query
) -> exp.Select:
    """Return a query with the rows of a ranked query up to the rank that the outer query selects.

    Raises
    ------
    SqlError
        The outer query selects no constant number of ranks, or the ranked query does more than rank rows.
    """
    limit = checked_limit(outer, inner, rank, query)
    window = cast("exp.Window", rank.this)
    row = packed(*items_around(inner, rank))
    call, order = _order(window)
    (key, *others) = window.args["order"].expressions
    if limit == 1:
        first = exp.Anonymous(this=call, expressions=[row, order])
        if call == "min_by" and not others and is_processing_time(key.this, sources):
            # The rows of a micro-batch have the same time, and of equal ones min_by takes the last.
            first = exp.Anonymous(this="first", expressions=[row])
        rows = exp.Anonymous(this="array", expressions=[first])
    else:  # Spark 4.2
        rows = exp.Anonymous(this=call, expressions=[row, order, exp.Literal.number(limit)])
    top = exp.select(exp.alias_(rows, RANK))
    for name in ("from_", "joins", "where", "laterals", "with_"):
        if inner.args.get(name) is not None:
            part = inner.args[name]
            top.set(name, [each.copy() for each in part] if isinstance(part, list) else part.copy())
    parts = window.args.get("partition_by") or []
    keys = [key for key in parts if not isinstance(key, exp.Literal)]  # a number in GROUP BY is a position
    top.set("group", exp.Group(expressions=[key.copy() for key in keys] or [exp.Anonymous(this="array")]))
    return top


def checked_limit(outer: exp.Select, inner: exp.Select, rank: exp.Alias, query: Query) -> int:
    """Return how many rows of each key a Top-N has.

    Raises
    ------
    SqlError
        As `top_select`.
    """
    _refuse_more_than_rows(inner, query)
    if cast("exp.Window", rank.this).args.get("order") is None:
        position_of(query, rank).fail("ROW_NUMBER() needs ORDER BY")
    limit = rank_limit(outer, rank.alias, source_of(rank))
    if limit is None:
        position_of(query, rank).fail(
            f"ROW_NUMBER of a stream needs a constant bound in the query around it: WHERE {rank.alias} <= 10"
        )
    return limit


def items_around(inner: exp.Select, rank: exp.Alias) -> tuple[list[exp.Expression], list[exp.Expression]]:
    """Return the items of a ranked query before the rank, and those after it."""
    at = next(at for at, item in enumerate(inner.expressions) if item is rank)
    before, after = inner.expressions[:at], inner.expressions[at + 1 :]
    return [item.copy() for item in before], [item.copy() for item in after]


def packed(before: list[exp.Expression], after: list[exp.Expression]) -> exp.Expression:
    """Return a row of a ranked query without its rank: with two parts if the rank is between them."""
    if not (before and after):
        return _struct([*before, *after])
    return _struct([exp.alias_(_struct(before), BEFORE), exp.alias_(_struct(after), AFTER)])


def _struct(items: Sequence[exp.Expr]) -> exp.Expression:
    return exp.Anonymous(this="struct", expressions=list(items))


def unpacked(top: exp.Select, inner: exp.Select, rank: exp.Alias, *, window: bool) -> exp.Select:
    """Return the query that turns the arrays of `top_select` to rows with their rank, in its place."""
    place = exp.alias_(fill("CAST(__position + 1 AS BIGINT)", []), rank.alias)
    before, after = items_around(inner, rank)
    items = [place]
    if before and after:
        items = [_star(BEFORE, "__row"), place, _star(AFTER, "__row")]
    elif before or after:
        items.insert(len(items) if after else 0, _star("__row"))
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


def _star(*names: str) -> exp.Expression:
    return exp.column(exp.Star(), *names)


def _refuse_more_than_rows(inner: exp.Select, query: Query) -> None:
    """Refuse clauses that work on groups or results: the aggregation of a Top-N has no place for them."""
    clause = next((name for name in _OF_RESULTS if inner.args.get(name) is not None), None)
    if clause is None and not is_aggregation(inner):
        return
    node = inner.args.get("group") or inner
    what = "an aggregation" if is_aggregation(inner) else str(clause).upper()
    instead = "SELECT *, ROW_NUMBER() OVER (…) AS n FROM (SELECT …)"
    position_of(query, node).fail(
        f"ROW_NUMBER() and {what} in one query of a stream are not supported: rank an inner query, {instead}"
    )


def source_of(rank: exp.Alias) -> str:
    """Return the name by which a query reads the inner one that ranks; empty without a name."""
    inner = rank.find_ancestor(exp.Select)
    source = None if inner is None else inner.parent
    return source.alias if isinstance(source, exp.Subquery) else ""


def rank_limit(outer: exp.Select, name: str, source: str | None = None) -> int | None:
    """Return the highest rank that a query selects; None without a constant bound.

    A column of another table than the ``source`` of the ranks, if that is given, is none of them.
    """
    bounds = (_bound(condition, name, source) for condition in _conditions(outer))
    return next((bound for bound in bounds if bound is not None), None)


def reads_rank(outer: exp.Select, rank: exp.Alias) -> bool:
    """Whether a query does more with the ranks of rows than to select those up to the highest one."""
    name, source = rank.alias, source_of(rank)
    limit = rank_limit(outer, name, source)
    others = [
        condition
        for condition in _conditions(outer)
        if _bound(condition, name, source) != limit or (isinstance(condition, exp.EQ) and limit != 1)
    ]
    rest = outer.copy()
    rest.set("with_", None)
    rest.set("from_", None)
    rest.set("where", exp.Where(this=exp.and_(*others)) if others else None)
    return any(item.is_star for item in rest.expressions) or any(
        column.name.lower() == name.lower() for column in rest.find_all(exp.Column)
    )


def _conditions(select: exp.Select) -> list[exp.Expr]:
    """Return the conditions of WHERE that all hold."""
    where = select.args.get("where")
    return [] if where is None else list(comparisons_of(where.this))


def _bound(condition: exp.Expr, name: str, source: str | None) -> int | None:
    """Return the highest rank that meets a condition; None if it has no constant bound."""
    match condition:
        case exp.LTE() | exp.EQ() | exp.LT():
            column, number = condition.this, condition.expression
        case exp.GTE() | exp.GT():
            column, number = condition.expression, condition.this
        case _:
            return None
    if not isinstance(column, exp.Column):
        return None
    if source is not None and column.table.lower() not in {"", source.lower()}:
        return None
    if column.name.lower() == name.lower() and number.is_int:
        return int(number.name) - isinstance(condition, exp.LT | exp.GT)
    return None


def _order(window: exp.Window) -> tuple[str, exp.Expression]:
    order = window.args["order"]
    falling = any(key.args.get("desc") for key in order.expressions)
    keys = [part for key in order.expressions for part in _key(key, falling=falling)]
    call = "max_by" if falling else "min_by"
    return call, exp.Anonymous(this="struct", expressions=keys)  # in a struct, a NULL is a value


def _key(key: exp.Ordered, *, falling: bool) -> list[exp.Expression]:
    """Return the values that put a key in its order, for the largest (``falling``) or smallest structs.

    NULL is the smallest value, as in Flink: the first if a key ascends, the last if it descends. The other
    place needs one more value.
    """
    down, nulls_first = bool(key.args.get("desc")), bool(key.args.get("nulls_first"))
    values = [key.this.copy()]
    if falling and not down:
        values = [fill(form, [key.this]) for form in (_NEGATED, _NEGATED_FRACTION)]
    if nulls_first is not down:
        return values
    absent = key.this.copy().is_(exp.null())
    return [absent if nulls_first is falling else exp.Not(this=absent), *values]


def distinct_aggregates(select: exp.Select, query: Query) -> None:
    """Translate ``COUNT(DISTINCT …)`` and ``SUM(DISTINCT …)`` of a stream, in place.

    Spark's streams have no distinct aggregates.

    Raises
    ------
    SqlError
        It is another aggregate of distinct values, or adds values that are no numbers.
    """
    for distinct in list(select.find_all(exp.Distinct)):
        call = distinct.parent
        if not isinstance(call, exp.Anonymous) or distinct.find_ancestor(exp.Select) is not select:
            continue
        values = distinct.expressions
        value = values[0]
        match called(call):
            case "COUNT":
                form = "CAST(size(_1) AS BIGINT)"
            case "SUM" if len(values) == 1:
                form = _sum(value, position_of(query, call))
            case name:
                position_of(query, call).fail(
                    f"{name}(DISTINCT …) of a stream is not supported: use COUNT(DISTINCT …)"
                )
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


def _sum(value: exp.Expression, place: Position) -> str:
    """Return the sum of a set; a query without types in it says what it adds by a CAST."""
    inner = value.unnest()
    if inner.meta.get(IS_WHOLE_CAST):
        return _SUM.format("BIGINT")
    if not isinstance(inner, exp.Cast):
        return _SUM_OF_COLUMN
    kind = inner.to.this
    if kind in _WHOLE:
        return _SUM.format("BIGINT")
    if kind in {exp.DType.FLOAT, exp.DType.DOUBLE}:
        return _SUM.format("DOUBLE")
    if kind is not exp.DType.DECIMAL:
        place.fail("SUM(DISTINCT …) adds numbers: cast to BIGINT, DOUBLE or DECIMAL(p, s)")
    if not all(part.name.isdigit() for part in inner.to.expressions):
        place.fail(f"SUM(DISTINCT …) of a stream adds DECIMAL(p, s) with two numbers, not {inner.to.sql()}")
    given = [int(part.name) for part in inner.to.expressions]
    digits, scale = [*given, *(10, 0)[len(given) :]]  # DECIMAL is DECIMAL(10, 0)
    if digits > _MOST_DIGITS:
        place.fail(
            f"SUM(DISTINCT …) of a stream adds decimals of at most {_MOST_DIGITS} digits, not {digits}"
        )
    return _SUM.format(f"DECIMAL({digits + 10}, {scale})")
