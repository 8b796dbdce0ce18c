"""The hidden column with a row's window: as a key of groups and joins, and not in results."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.changes import RANK
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import called, conditions_of
from pyspark_rocketmq.sql.flinksql.relations import WINDOW, Relation
from pyspark_rocketmq.sql.flinksql.selects import hidden_column, keys_of_all_rows, window_part
from pyspark_rocketmq.sql.statements import Query

__all__ = ["group_by_window", "hide_windows", "join_windows"]


def group_by_window(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> bool:
    """Add the hidden column to the keys of a query that groups by a window; return whether it does.

    Raises
    ------
    SqlError
        It groups windows that begin together by their start only.
    """
    group = select.args.get("group")
    if group is None:
        return False
    parts = [window_part(key, sources) for key in keys_of_all_rows(group)]
    names = {part[0] for part in parts if part and part[1] in {"start", "end"}}
    for name in sorted(names):
        if sources[name].cumulative and (name, "end") not in parts:
            position_of(query, group).fail(
                "windows of CUMULATE begin together: GROUP BY (or PARTITION BY) window_start, window_end"
            )
        group.append("expressions", hidden_column(name))
    return bool(names)


def join_windows(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> None:
    """Add the equality of windows to the equality of their starts and ends.

    Raises
    ------
    SqlError
        One of them grows by a step, and the other one does not: they have no window in common here.
    """
    where = select.args.get("where")
    clauses = [join for join in select.args.get("joins") or [] if join.args.get("on")]
    for clause, key in [*((join, "on") for join in clauses), *([(where, "this")] if where else [])]:
        condition = clause.args[key]
        equal: dict[tuple[str, str], set[str]] = {}
        for part in conditions_of(condition):
            if isinstance(part, exp.EQ):
                one, other = window_part(part.this, sources), window_part(part.expression, sources)
                if one and other and one[1] == other[1] and one[0] != other[0]:
                    equal.setdefault((min(one[0], other[0]), max(one[0], other[0])), set()).add(one[1])
        for (one_name, other_name), kinds in equal.items():
            if {"start", "end"} <= kinds:
                if sources[one_name].cumulative != sources[other_name].cumulative:
                    position_of(query, condition).fail(
                        "windows are joined with windows of the same kind and size: TUMBLE, HOP or CUMULATE"
                    )
                same = exp.EQ(this=hidden_column(one_name), expression=hidden_column(other_name))
                clause.set(key, exp.and_(clause.args[key], same))


def hide_windows(select: exp.Select, sources: Mapping[str, Relation], *, aggregated: bool, top: bool) -> None:
    """Keep the hidden column out of the result, or in it exactly once."""
    windowed = [name for name, rows in sources.items() if rows.window]
    own = [item for item in select.expressions if item.alias == WINDOW]  # of group_windows
    if top:
        select.set("expressions", [item for item in select.expressions if item not in own])
    shown = [item for item in select.expressions if not aggregated or item.alias == RANK]
    for star in (star for item in shown for star in item.find_all(exp.Star)):
        table = star.parent.table.lower() if isinstance(star.parent, exp.Column) else ""
        is_count = isinstance(star.parent, exp.Anonymous) and called(star.parent) == "COUNT"
        is_inner = star.find_ancestor(exp.Select) is not select
        if (table in windowed if table else windowed) and not is_count and not is_inner:
            star.set("except_", [exp.to_identifier(WINDOW)])
    if not top and not own and windowed:
        select.append("expressions", exp.alias_(hidden_column(windowed[0]), WINDOW))
