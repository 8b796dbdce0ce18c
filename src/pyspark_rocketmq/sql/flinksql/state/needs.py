"""Which queries take back rows, so that they need steps with state."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import called, comparisons_of, conditions_of
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.selects import (
    by_spark_window,
    groups_by_processing_time,
    is_aggregation,
    keys_of_all_rows,
    window_part,
)
from pyspark_rocketmq.sql.statements import Query

__all__ = [
    "NeedsStateError",
    "StateRules",
    "drops_keys",
    "groups_by_window",
    "needs_state",
    "require_final_results",
    "shown_rank",
    "shows_rank",
]


class NeedsStateError(Exception):
    """A query takes back rows: it is translated again, with steps that keep state."""


@dataclass(frozen=True, slots=True)
class StateRules:
    """When a query has steps that keep state.

    Parameters
    ----------
    allowed : bool
        Not if the job sets the output mode.
    always : bool
        Also where Spark's own aggregations suffice, which have no time to live.
    numbers : iterator of int
        For the names of steps.
    """

    allowed: bool = True
    always: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        """Return the name of the next step."""
        return f"__state{next(self.numbers)}"


_GENERATORS: Final = frozenset({"EXPLODE", "POSEXPLODE", "INLINE"})
_WINDOWS: Final = frozenset({"TUMBLE", "HOP", "SESSION"})


def groups_by_window(select: exp.Select, sources: Mapping[str, Relation]) -> bool:
    """Whether the rows of a query's groups are final when their window ends."""
    group = select.args.get("group")
    if group is None:
        return False
    keys = keys_of_all_rows(group)
    return by_spark_window(select, sources) or any(
        called(key) in _WINDOWS or window_part(key, sources) for key in keys
    )


def require_final_results(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> None:
    """Check that results of a window of the time of processing do not leave a query while they change.

    Raises
    ------
    SqlError
    """
    of_now = {name: rows for name, rows in sources.items() if rows.changes and rows.window}
    if groups_by_window(select, sources):
        if any(rows.keeps_state for rows in of_now.values()):
            position_of(query, select).fail(
                "an aggregation or a Top-N of a stream cannot read an aggregation over windows of "
                "PROCTIME(): its results change until the window ends. Use a window of event time"
            )
        if of_now or groups_by_processing_time(select, sources):
            _require_final_groups(select, query)
        return
    if any(rows.ranks > 1 for rows in of_now.values()) and not shown_rank(select, sources):
        position_of(query, select).fail(
            "the rows of a Top-N of a window of PROCTIME() change until it ends, and one that leaves it "
            "would stay: return its rank, or use a window of event time"
        )
    changing = {name: rows for name, rows in of_now.items() if rows.keeps_state}  # and not single rows
    clause, what = _dropping(select, changing), "a join or UNNEST drops"
    where = select.args.get("where")
    if where is not None and _moving(where, changing):
        clause, what = where, "stops meeting WHERE"
    elif select.args.get("distinct") and changing and not _returns_fixed(select, changing):
        clause, what = select, "DISTINCT has seen"
    if clause is not None and changing:
        position_of(query, clause).fail(
            f"the results of a window of PROCTIME() change until it ends, and one that {what} would stay: "
            "use a window of event time, only columns of GROUP BY, or HAVING COUNT(…) > a number or MAX(…) > "
            "a number in the query of the window"
        )


def _require_final_groups(select: exp.Select, query: Query) -> None:
    having = select.args.get("having")
    if having is None:
        return
    for part in conditions_of(_without_names(having.this, select)):
        if _is_monotone(part) or not _aggregates(part):
            continue
        position_of(query, having.this).fail(
            "the results of a window of PROCTIME() change until it ends, and one that stops meeting HAVING "
            "would stay: use a window of event time, or HAVING COUNT(…) > a number or MAX(…) > a number"
        )


def _without_names(condition: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return a condition with the results that it names, as Spark's HAVING may."""
    named = {item.alias.lower(): item.unalias() for item in select.expressions if _aggregates(item)}

    def result(node: exp.Expr) -> exp.Expr:
        found = named.get(node.name.lower()) if isinstance(node, exp.Column) and not node.table else None
        return node if found is None else found.copy()

    return condition.transform(result)


def _aggregates(part: exp.Expr) -> bool:
    return any(called(call) in AGGREGATES for call in part.find_all(exp.Anonymous))


def needs_state(select: exp.Select, sources: Mapping[str, Relation]) -> bool:
    """Whether a query of a stream takes back rows that Spark's own operators cannot."""
    if any(map(is_of_database, sources.values())):
        return False
    changing = {name: rows for name, rows in sources.items() if rows.changes and not rows.window}
    if changing and sum(rows.stream for rows in sources.values()) > 1:
        return True
    if is_aggregation(select) or select.args.get("distinct"):
        having = select.args.get("having")
        return (
            bool(changing)
            or any(rows.keeps_state for rows in sources.values() if rows.stream)
            or (having is not None and not _is_monotone(having.this))
        )
    if any(rows.ranks > 1 for rows in changing.values()) and not shown_rank(select, sources):
        return True
    if changing and _dropping(select, changing) is not None:
        return True
    where = select.args.get("where")
    ranks = {rows.rank for rows in changing.values() if rows.rank}
    return bool(changing) and where is not None and not _is_of_ranks(where.this, ranks)


def _returns_fixed(select: exp.Select, changing: Mapping[str, Relation]) -> bool:
    return not any(item.is_star or _moving(item, changing) for item in select.expressions)


def _moving(part: exp.Expr, changing: Mapping[str, Relation]) -> bool:
    """Whether a part of a query reads a value that a row and the one that replaces it may not share."""
    fixed = _fixed(changing)
    inner = {id(column) for query in part.find_all(exp.Select) for column in query.find_all(exp.Column)}
    return any(
        column.table.lower() in (changing if id(column) in inner else {"", *changing})
        for column in part.find_all(exp.Column)
        if column.name.lower() not in fixed
    )


def _fixed(changing: Mapping[str, Relation]) -> frozenset[str]:
    return frozenset[str]().union(*(rows.fixed for rows in changing.values()))


def _dropping(select: exp.Select, changing: Mapping[str, Relation]) -> exp.Expression | None:
    """Return what a query joins with rows that change, and may drop one that replaces another."""
    for join in select.args.get("joins") or []:
        if _loses_rows(join, changing):
            return cast("exp.Expression", join.this)
    generators = [view for view in select.args.get("laterals") or [] if not view.args.get("outer")]
    generators += [item.unalias() for item in select.expressions if called(item.unalias()) in _GENERATORS]
    return next((each for each in generators if _moving(each, changing)), None)


def _loses_rows(join: exp.Join, changing: Mapping[str, Relation]) -> bool:
    """Whether a join with a table may drop a row that replaces one that it has kept.

    A column without its table, compared with values that both rows have, is of the other table.
    """
    if join.side and join.kind not in {"SEMI", "ANTI"}:
        return False
    if isinstance(join.this, exp.Lateral) and _moving(join.this.this, changing):
        return True
    fixed = _fixed(changing)
    if join.method or any(name.name.lower() not in fixed for name in join.args.get("using") or []):
        return True
    on = join.args.get("on")
    for part in () if on is None else conditions_of(on):
        sides = (part.left, part.right) if isinstance(part, exp.EQ) else (part,)
        own = [
            [column for column in side.find_all(exp.Column) if column.table.lower() in {"", *changing}]
            for side in sides
        ]
        moving = [[column for column in columns if column.name.lower() not in fixed] for columns in own]
        by_key = any(columns and not others for columns, others in zip(own, moving, strict=True))
        if any(not by_key or column.table for columns in moving for column in columns):
            return True
    return False


def is_of_database(rows: Relation) -> bool:
    """Whether rows are the changes of a database, whose updates may lack the old row."""
    return rows.changelog and not rows.keeps_state


def drops_keys(outer: exp.Select, rank: exp.Alias) -> bool:
    """Whether a query of the first row of each key returns neither the keys nor the rank."""
    window = rank.this
    keys = window.args.get("partition_by") or [] if isinstance(window, exp.Window) else []
    return not shows_rank(outer, rank.alias) and not _returns(outer, keys)


def _returns(select: exp.Select, keys: Iterable[exp.Expression]) -> bool:
    """Whether a query returns all keys, by which its rows replace each other."""
    items = [item.unalias() for item in select.expressions]
    names = {item.name.lower() for item in items if isinstance(item, exp.Column)}
    texts = {item.sql() for item in items}
    return all(
        key.name.lower() in names if isinstance(key, exp.Column) else key.sql() in texts or key.is_int
        for key in keys
    )


def _is_of_ranks(condition: exp.Expr, ranks: Collection[str]) -> bool:
    """Whether a condition only compares ranks with numbers."""
    for part in comparisons_of(condition):
        if not isinstance(part, exp.LTE | exp.LT | exp.EQ | exp.GTE | exp.GT):
            return False
        sides = {type(part.this), type(part.expression)}
        column = part.this if isinstance(part.this, exp.Column) else part.expression
        if sides != {exp.Column, exp.Literal} or column.name.lower() not in ranks:
            return False
    return True


_GROWING: Final = frozenset({"COUNT", "MAX"})


def _is_monotone(condition: exp.Expr) -> bool:
    """Whether a group that meets a condition of its results will always do, if no row is taken back."""
    if isinstance(condition, exp.And):
        return all(_is_monotone(each) for each in condition.flatten())
    match condition:
        case exp.GT() | exp.GTE():
            call, bound = condition.this, condition.expression
        case exp.LT() | exp.LTE():
            call, bound = condition.expression, condition.this
        case exp.Paren():
            return _is_monotone(condition.this)
        case _:
            return False
    return called(call) in _GROWING and isinstance(bound, exp.Literal)


def shows_rank(select: exp.Select, rank: str) -> bool:
    """Whether a query returns the ranks of the rows that it reads."""
    return any(
        item.is_star or any(column.name.lower() == rank.lower() for column in item.find_all(exp.Column))
        for item in select.expressions
    )


def shown_rank(select: exp.Select, sources: Mapping[str, Relation]) -> str:
    """Return the column of the result that is a rank; empty without one."""
    for rows in sources.values():
        for item in select.expressions if rows.rank else []:
            if item.is_star:
                return rows.rank
            value = item.unalias()
            if isinstance(value, exp.Column) and value.name.lower() == rows.rank:
                return str(item.alias_or_name.lower())
    return ""
