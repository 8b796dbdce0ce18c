"""Joins of streams whose rows are taken back: as a step that keeps the rows of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.state.needs import is_of_database
from pyspark_rocketmq.sql.flinksql.state.pairs import equal_values, read_structs, struct_of
from pyspark_rocketmq.sql.flinksql.state.parts import change_column, hidden_alias
from pyspark_rocketmq.sql.state.steps import KEPT, KEY, Joining, Step
from pyspark_rocketmq.sql.statements import Query

__all__ = ["join_step", "joins_changes"]

_WHAT: Final = "a join of streams whose rows change"
_OUTER: Final = {"": (False, False), "LEFT": (True, False), "RIGHT": (False, True), "FULL": (True, True)}


def joins_changes(select: exp.Select, sources: Mapping[str, Relation]) -> bool:
    """Whether a query joins streams, and the rows of one are taken back."""
    streams = [rows for rows in sources.values() if rows.stream]
    changing = any(rows.changelog for rows in streams)
    return len(streams) > 1 and changing and not any(map(is_of_database, streams)) and "joins" in select.args


def join_step(
    select: exp.Select, sources: Mapping[str, Relation], name: str, query: Query
) -> tuple[Step, dict[str, Relation]]:
    """Make such a join read its result from a step, in place.

    Returns
    -------
    Step
    dict of str to Relation
        What the query reads then.

    Raises
    ------
    SqlError
        It is no join of two sides by equal values.
    """
    joins = select.args["joins"]
    join = joins[-1]
    right = join.this.alias_or_name
    left = {each: rows for each, rows in sources.items() if each != right.lower()}
    if not right or any(each.startswith("#") for each in left):
        _fail(join.this, "needs a name for each side: FROM (SELECT …) AS a JOIN (SELECT …) AS b", query)
    if not any(rows.stream for rows in left.values()) or not sources[right.lower()].stream:
        _fail(join.this, "has a stream on both sides: join other tables in a query around it", query)
    if len(left) > 1 and any(rows.changelog for rows in left.values()):
        _fail(
            join.this,
            "joins two sides: write the first join in an inner query, (SELECT …) AS ab JOIN c",
            query,
        )
    if any(rows.changes for rows in sources.values()):
        _fail(join.this, "cannot read windows of PROCTIME(): write their result to a topic first", query)
    if join.args.get("using") or join.method or join.kind in {"SEMI", "ANTI"}:
        _fail(join.this, "is JOIN … ON, or LEFT, RIGHT or FULL JOIN … ON", query)
    outer = _OUTER[join.side]
    equal, others = _conditions(select, join, right)
    if not equal:
        _fail(join.this, f"needs equal values in ON: … = {right}.…", query)
    if others and any(outer):
        _fail(join.this, "has no other conditions in an outer join than equal values: use WHERE", query)
    kept = {each: f"{KEPT}{at}" for at, each in enumerate([*left, right])}
    keys = [value for value, _ in equal.values()]
    of_left = exp.Select(
        from_=select.args["from_"].copy(), joins=[each.copy() for each in joins[:-1]] or None
    )
    of_left.set(
        "expressions",
        [
            *(hidden_alias(key.copy(), f"{KEY}{at}") for at, key in enumerate(keys)),
            *(hidden_alias(struct_of(each, left[each]), kept[each]) for each in left),
            *change_column(left),
        ],
    )
    of_right = exp.Select(from_=exp.From(this=join.this.copy()))
    of_right.set(
        "expressions",
        [
            *(hidden_alias(exp.column(key, table=right), f"{KEY}{at}") for at, key in enumerate(equal)),
            hidden_alias(struct_of(right, sources[right.lower()]), kept[right]),
            *change_column({right: sources[right.lower()]}),
        ],
    )
    texts = [each.sql(dialect="spark", comments=False) for each in (of_left, of_right)]
    read_structs(select, kept, name)
    if others:
        select.where(*others, copy=False)
    structs = (tuple(kept[each] for each in left), (kept[right],))
    read = {each: replace(rows, window={}, stream=False, changelog=False) for each, rows in sources.items()}
    read["#join"] = Relation(stream=True, changelog=True, keeps_state=True)
    return Step(name, texts[0], Joining(len(keys), texts[1], structs, outer)), read


def _fail(node: exp.Expression, message: str, query: Query) -> NoReturn:
    position_of(query, node).fail(f"{_WHAT} {message}")


def _conditions(
    select: exp.Select, join: exp.Join, right: str
) -> tuple[dict[str, tuple[exp.Expression, exp.Expression]], list[exp.Expression]]:
    """Return the equal values and the other conditions, of ON or, for tables after a comma, of WHERE."""
    on, where = join.args.get("on"), select.args.get("where")
    if on is None and where is not None:
        on = where.this
        select.set("where", None)
    return equal_values(on, right) if on is not None else ({}, [])
