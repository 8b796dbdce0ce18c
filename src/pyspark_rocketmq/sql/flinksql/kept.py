"""What the state of a query depends on, to find out whether it can continue from a checkpoint.

Spark compares the types of the state, not what they mean: a count would continue from the sum.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from pyspark_rocketmq.errors import SqlError
from pyspark_rocketmq.sql.flinksql.changes import rank_limit, ranked
from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.grammar import WindowTable, parse_query
from pyspark_rocketmq.sql.flinksql.operators.forms import called, conditions_of
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.versions import is_lookup
from pyspark_rocketmq.sql.statements import Query

__all__ = ["describe_state"]

_WINDOW: Final = re.compile(r"\bwindow\s*\(", re.IGNORECASE)
_CALL: Final = "WINDOW__"
_PLACE: Final = "place"
_SIZES: Final = ("size", "slide", "step", "offset")


def describe_state(query: Query, known: Mapping[str, Relation]) -> tuple[str, ...]:
    """Return a description of each part of a query that keeps state if it reads a stream.

    It has what must not change while the state is used: keys, aggregates, windows, what streams are joined
    by, how many rows a Top-N has, and the columns of rows in the state. Conditions, names and all that is
    computed from results may change. Empty if the query cannot be parsed.
    """
    # The grammar takes Spark's function `window` for the clause.
    renamed = replace(query, padded=_WINDOW.sub(f"{_CALL}(", query.padded))
    try:
        tree = parse_query(renamed)
        selects = list(tree.find_all(exp.Select))
        tops = [*selects, *(rows.ranked for rows in known.values() if rows.ranked is not None)]
        ranks = sorted({rank.alias for each in tops if (rank := ranked(each)) is not None})
        found = [*map(_united, tree.find_all(exp.Union))]
        found += ["; ".join(_parts(select, known, ranks)) for select in selects]
    except (ParseError, TokenError, SqlError, RecursionError):  # it may be one of Spark's dialect
        return ()
    return tuple(text.upper().replace(f"{_CALL}(", "WINDOW(") for text in found if text)


def _parts(select: exp.Select, known: Mapping[str, Relation], ranks: Sequence[str]) -> Iterator[str]:
    joins = select.args.get("joins") or ()
    tables = [part.this for part in [select.args.get("from_"), *joins] if part is not None]
    sources = {table.alias_or_name.lower(): known.get(table.name.lower(), Relation()) for table in tables}
    joined = [join for join in joins if _reads_stream(join.this, sources)]
    if joined:
        _number_tables(select, [tables[0], *(join.this for join in joined)])
    for table in select.find_all(WindowTable):
        if table.find_ancestor(exp.Select) is select:
            sizes = (table.args[name] for name in _SIZES if table.args.get(name))
            yield f"{table.args['kind']} of {', '.join(map(_text, [table.args['column'], *sizes]))}"
    if select.args.get("distinct"):
        yield f"distinct {', '.join(_text(item.unalias()) for item in select.expressions)}"
    group = select.args.get("group")
    if group is not None:
        yield f"group by {_text(_resolved(group, select))}"
    if calls := dict.fromkeys(map(_text, _calls(select))):
        yield ", ".join(calls)
    yield from map(_text, select.args.get("windows") or ())
    limits = (rank_limit(select, name) for name in ranks)
    yield from (f"{limit} rows" for limit in limits if limit is not None)
    for join in joined:
        condition = join.args.get("on")
        using = ", ".join(map(_text, join.args.get("using") or ()))
        yield f"{join.side} join on {using if condition is None else _text(condition)}".strip()
    as_they_are = {join.this.alias_or_name.lower() for join in joins if join not in joined}
    if joined and (equal := [_text(part) for part in _equal_columns(select, as_they_are)]):
        yield f"where {' and '.join(equal)}"
    if kept := _kept_columns(select, as_they_are, joins=bool(joined)):
        yield f"keeps {', '.join(kept)}"


def _number_tables(select: exp.Select, streams: Iterable[exp.Expr]) -> None:
    """Note in each column of a join whose it is: the state has the rows of each side."""
    numbers = {table.alias_or_name.lower(): f"t{place}" for place, table in enumerate(streams, 1)}
    for column in select.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is select:
            column.meta[_PLACE] = numbers.get(column.table.lower())


def _united(union: exp.Union) -> str:
    """Return the columns of the rows that a UNION keeps, to have each once; nothing of UNION ALL."""
    if not union.args.get("distinct"):
        return ""
    sides = (union.left.unnest(), union.right.unnest())
    return f"union of {' and '.join(map(_columns_of, sides))}"


def _columns_of(rows: exp.Expr) -> str:
    if isinstance(rows, exp.SetOperation):
        return " and ".join(_columns_of(side.unnest()) for side in (rows.left, rows.right))
    return ", ".join(_text(item.unalias()) for item in rows.selects) if isinstance(rows, exp.Query) else ""


def _equal_columns(select: exp.Select, as_they_are: Collection[str]) -> Iterator[exp.Expr]:
    """Return the conditions of WHERE by which Spark joins streams, too: values of columns are equal."""
    where = select.args.get("where")
    for part in () if where is None else conditions_of(where.this):
        if not isinstance(part, exp.EQ) or not (part.left.find(exp.Column) and part.right.find(exp.Column)):
            continue
        if not any(column.table.lower() in as_they_are for column in part.find_all(exp.Column)):
            yield part


def _kept_columns(select: exp.Select, as_they_are: Collection[str], *, joins: bool) -> list[str]:
    """Return the columns of the rows that a Top-N, OVER or a join of streams keeps, without their names.

    A join keeps them in the order of the tables, and leaves out those of tables that are read as they are.
    """
    rank = ranked(select)
    if rank is not None:
        return [_text(item.unalias()) for item in select.expressions if item is not rank]
    if not joins and not any(item.find(exp.Window) for item in select.expressions):
        return []
    found = {
        _text(column): None
        for item in select.expressions
        for column in item.find_all(exp.Column, exp.Star)
        if column.find_ancestor(exp.Select, exp.Window) is select
        and not (isinstance(column, exp.Column) and column.table.lower() in as_they_are)
    }
    return sorted(found) if joins else list(found)


def _reads_stream(table: exp.Expression, sources: Mapping[str, Relation]) -> bool:
    """Whether a join keeps rows: a table that is read as it is has none."""
    if not isinstance(table, exp.Table):
        return isinstance(table, exp.Subquery | WindowTable)
    looks_up = table.args.get("version") is not None and is_lookup(table, sources)
    return sources[table.alias_or_name.lower()].stream and not looks_up


def _calls(select: exp.Select) -> Iterator[exp.Expression]:
    """Return the aggregates and the windows of a query, without those of its inner queries."""
    for item in [*select.expressions, select.args.get("having"), select.args.get("qualify")]:
        for found in () if item is None else item.find_all(exp.Anonymous, exp.Window):
            if found.find_ancestor(exp.Select, exp.Window) is not select:
                continue
            if isinstance(found, exp.Window) or _aggregates(found):
                yield found.parent if isinstance(found.parent, exp.Filter) else found


def _aggregates(call: exp.Expression) -> bool:
    name = called(call)
    return name in AGGREGATES or issubclass(exp.FUNCTION_BY_NAME.get(name, exp.Func), exp.AggFunc)


def _resolved(group: exp.Group, select: exp.Select) -> exp.Expression:
    """Return the keys of a query, those that are a number or another name as what they stand for."""
    items: list[Any] = select.expressions
    named: dict[str, Any] = {item.alias.lower(): item.unalias() for item in items if item.alias}

    def resolve(key: Any) -> Any:
        if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(items):
            return items[int(key.name) - 1].unalias().copy()
        if isinstance(key, exp.Column) and not key.table and key.name.lower() in named:
            return named[key.name.lower()].copy()
        return key

    copied = group.copy()
    copied.set("expressions", [resolve(key) for key in copied.expressions])
    return copied


def _text(part: exp.Expr) -> str:
    """Return a part as text, with the places of tables for their names, which may change."""
    copied = part.copy()
    for column in copied.find_all(exp.Column):
        place = column.meta.get(_PLACE)
        column.set("table", None if place is None else exp.to_identifier(place))
    for name in copied.find_all(exp.Identifier):
        name.set("quoted", False)
    text = copied.sql(dialect="spark", comments=False)
    return text.removeprefix("GROUP BY ").strip()
