"""Which columns a row has in common with the one that replaces it: the keys of its group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.operators.forms import called
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.flinksql.selects import is_aggregation

__all__ = ["fixed_of_ranks", "fixed_outputs", "fixed_union"]

_MOVING: Final = AGGREGATES | {"CURRENT_TIMESTAMP", "CURRENT_DATE", "NOW", "RAND", "RANDN", "UUID"}


def fixed_outputs(select: exp.Select, sources: Mapping[str, Relation]) -> frozenset[str]:
    """Return the columns of a result that changes that are the same in a row and its replacement."""
    if is_aggregation(select):
        keys = _group_keys(select)
        tables: Mapping[str, frozenset[str]] = {}
    else:
        keys = []
        tables = {name: rows.fixed for name, rows in sources.items() if rows.changes}
    return _fixed(select.expressions, keys, tables)


def fixed_of_ranks(inner: exp.Select, rank: exp.Alias) -> frozenset[str]:
    """Return the same for the rows of a Top-N: the keys of its partition, and the rank."""
    window = rank.this
    keys = window.args.get("partition_by") or [] if isinstance(window, exp.Window) else []
    items = [item for item in inner.expressions if item is not rank]
    found = _fixed([item for item in items if not item.is_star], keys, {})
    if any(item.is_star for item in items):
        found |= {key.name.lower() for key in keys if isinstance(key, exp.Column)}
    return frozenset(name for name in found if not name.startswith("#")) | {rank.alias.lower()}


def fixed_union(one: exp.Expression, other: exp.Expression, sides: Iterable[Relation]) -> frozenset[str]:
    """Return the same for the rows of two queries: by the names of the first one."""
    first, second = sides
    found = set()
    for at, (item, matching) in enumerate(zip(one.expressions, other.expressions, strict=False)):
        names = [_name(each, at) for each in (item, matching)]
        if item.is_star or matching.is_star:
            return first.fixed & second.fixed
        if all(not side.changes or name in side.fixed for side, name in zip(sides, names, strict=True)):
            found.add(names[0])
    return frozenset(found)


def _name(item: exp.Expr, at: int) -> str:
    return item.alias_or_name.lower() if isinstance(item, exp.Alias | exp.Column) else f"#{at}"


def _group_keys(select: exp.Select) -> list[exp.Expression]:
    group = select.args.get("group")
    found: list[exp.Expression] = []
    for key in group.expressions if group else []:
        if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube):
            found += key.find_all(exp.Column)
        elif isinstance(key, exp.Literal) and key.is_int and int(key.name) <= len(select.expressions):
            found.append(select.expressions[int(key.name) - 1].unalias())
        else:
            found.append(key)
    return found


def _fixed(
    items: Iterable[exp.Expression], keys: Iterable[exp.Expression], tables: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    texts = {key.sql().lower() for key in keys}
    names = {key.name.lower() for key in keys if isinstance(key, exp.Column)}
    names = names.union(*tables.values())
    found: set[str] = set()
    for at, item in enumerate(items):
        if item.is_star:
            named = item.table.lower() if isinstance(item, exp.Column) else ""
            found |= tables.get(named, frozenset()) if named else names
        elif _is_fixed(item.unalias(), texts, names, tables):
            found.add(_name(item, at))
    return frozenset(found)


def _is_fixed(node: exp.Expr, texts: set[str], names: set[str], tables: Mapping[str, frozenset[str]]) -> bool:
    if node.sql().lower() in texts:
        return True
    if isinstance(node, exp.Column):
        known = tables.get(node.table.lower(), frozenset()) if node.table and tables else names
        return node.name.lower() in known
    if isinstance(node, exp.Query | exp.Window):
        return False
    if isinstance(node, exp.Anonymous) and called(node) in _MOVING:
        return False
    return all(
        _is_fixed(cast("exp.Expression", each), texts, names, tables) for each in node.iter_expressions()
    )
