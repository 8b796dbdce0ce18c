"""What one SELECT groups by and returns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.options import CompatibilityWarning
from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import called
from pyspark_rocketmq.sql.flinksql.relations import WINDOW, Relation, rows_of
from pyspark_rocketmq.sql.statements import Name, Query

__all__ = [
    "by_spark_window",
    "event_time",
    "groups_by_processing_time",
    "hidden_column",
    "is_aggregation",
    "is_distinct",
    "is_processing_time",
    "is_time",
    "keys_of_all_rows",
    "name_columns",
    "of_processing_time",
    "processing_time",
    "spark_windows",
    "under_other_names",
    "untranslated",
    "window_outputs",
    "window_part",
    "without_default_database",
    "without_flink_hints",
]

_HINTS: Final[Mapping[str, str]] = {
    "LOOKUP": "",
    "NEST_LOOP": "",
    "STATE_TTL": "SET 'table.exec.state.ttl' bounds the state of aggregations and Top-N",
}
"""Hints of Flink's, and what to say of those that change more than the speed."""

_GROUP_WINDOWS: Final = frozenset({"TUMBLE", "HOP", "SESSION"})
_SPARK_WINDOWS: Final = frozenset({"WINDOW", "SESSION_WINDOW"})


def untranslated(query: Query, known: Mapping[str, Relation]) -> Relation:
    """Return what is known of the rows of a query that only Spark can read."""
    named = [known[name] for name in query.names & known.keys()]
    return Relation(
        stream=any(rows.stream for rows in named), changelog=any(rows.changelog for rows in named)
    )


def without_default_database(table: exp.Table) -> bool:
    """Take Flink's default catalog and database from a table's name; return whether it had them."""
    if table.db.lower() != "default_database" or table.catalog.lower() not in {"", "default_catalog"}:
        return False
    table.set("db", None)
    table.set("catalog", None)
    return True


def without_flink_hints(select: exp.Select) -> bool:
    """Take hints that only Flink has from a query; return whether it had any."""
    hint = select.args.get("hint")
    kept = []
    for each in hint.expressions if hint else []:
        name = each.name.upper()
        if name not in _HINTS:
            kept.append(each)
        elif _HINTS[name]:
            warnings.warn(
                f"hints without effect: {name} ({_HINTS[name]})", CompatibilityWarning, stacklevel=2
            )
    if hint is None or len(kept) == len(hint.expressions):
        return False
    select.set("hint", exp.Hint(expressions=kept) if kept else None)
    return True


def hidden_column(source: str) -> exp.Column:
    """Return the hidden column of a source."""
    return exp.column(WINDOW, table=None if source.startswith("#") else source)


def name_columns(tree: exp.Expression, columns: Sequence[Name]) -> bool:
    """Name the columns of a query as its view does; return whether that is done.

    A star prevents it, and an ORDER BY that would mean another column then.

    Raises
    ------
    SqlError
        The query has another number of columns.
    """
    ordering = _ordering(tree)
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
        ordering += _ordering(tree)
    items = list(tree.expressions) if isinstance(tree, exp.Select) else []
    if not columns or any(item.is_star for item in items):
        return False
    if items and len(items) != len(columns):
        columns[0].position.fail(f"{len(columns)} columns are named, and the query has {len(items)}")
    renamed = [(item.alias_or_name.lower(), name.key) for item, name in zip(items, columns, strict=False)]
    moved = {each for names in renamed if names[0] != names[1] for each in names}
    if any(column.name.lower() in moved for column in ordering):
        return False
    for item, name in zip(items, columns, strict=False):
        alias = exp.to_identifier(name.text, quoted=True)
        item.replace(exp.alias_(item.unalias().copy(), alias))
    return bool(items)


def _ordering(tree: exp.Expression) -> list[exp.Column]:
    """Return the columns without a table in the ORDER BY of a query."""
    order = tree.args.get("order")
    return [column for column in order.find_all(exp.Column) if not column.table] if order else []


def name_inner_columns(tree: exp.Expression, query: Query) -> None:
    """Name the columns of common tables and inner queries in these, in place, unless they have a star.

    Raises
    ------
    SqlError
        One has another number of columns.
    """
    for alias in list(tree.find_all(exp.TableAlias)):
        inner = alias.parent
        if isinstance(inner, exp.CTE | exp.Subquery):
            names = [Name(each.name, position_of(query, each)) for each in alias.columns]
            if name_columns(inner.this, names):
                alias.set("columns", None)


def under_other_names(rows: Relation, columns: Sequence[Name]) -> Relation:
    """Return what is known of rows when a view gives the columns of a query with a star other names.

    Raises
    ------
    SqlError
        The names of a window's columns would be lost.
    """
    if rows.window or rows.ranked is not None:
        columns[0].position.fail(
            "name the columns of a window or of ROW_NUMBER() in the query, without * and without "
            "other names in ORDER BY"
        )
    return Relation(rows.stream, rows.changes, changelog=rows.changelog)


def is_aggregation(select: exp.Select) -> bool:
    """Whether a query aggregates, with or without GROUP BY."""
    if select.args.get("group"):
        return True
    for item in [*select.expressions, *([select.args["having"]] if select.args.get("having") else [])]:
        for call in item.find_all(exp.Anonymous):
            over = call.find_ancestor(exp.Window, exp.Select)
            if called(call) in AGGREGATES and over is select:
                return True
    return False


def is_distinct(tree: exp.SetOperation | exp.Select) -> bool:
    """Whether a query is a UNION without ALL, or a SELECT DISTINCT that does not aggregate."""
    if isinstance(tree, exp.Select):
        return bool(tree.args.get("distinct")) and not is_aggregation(tree)
    return isinstance(tree, exp.Union) and bool(tree.args.get("distinct"))


def keys_of_all_rows(group: exp.Group) -> list[exp.Expression]:
    """Return the keys by which every row of a result is grouped: of GROUPING SETS those of all sets."""
    found: list[exp.Expression] = []
    for key in group.expressions:
        if isinstance(key, exp.GroupingSets):
            each_set = [each.unnest() for each in key.expressions]  # (a) is a in parentheses
            sets = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in each_set]
            found += [part for part in sets[0] if all(part in others for others in sets)]
        elif not isinstance(key, exp.Rollup | exp.Cube):
            found.append(key)
    return found


def by_spark_window(select: exp.Select, sources: Mapping[str, Relation]) -> bool:
    """Whether a query groups by Spark's own window, in GROUP BY or from a query in it."""
    group = select.args.get("group")
    return any(_is_spark_window(key, sources) for key in (group.expressions if group else []))


def _is_spark_window(value: exp.Expression, sources: Mapping[str, Relation]) -> bool:
    if not isinstance(value, exp.Column):
        return called(value) in _SPARK_WINDOWS
    return any(value.name.lower() in rows.spark_windows for rows in rows_of(value, sources))


def groups_by_processing_time(select: exp.Select, sources: Mapping[str, Relation]) -> bool:
    """Whether a query groups by a window, such as ``TUMBLE(t, …)``, of the time of processing."""
    group = select.args.get("group")
    windows = [key for key in (group.expressions if group else []) if called(key) in _GROUP_WINDOWS]
    return any(is_processing_time(time, sources) for key in windows for time in key.expressions[:1])


def is_processing_time(value: exp.Expression, sources: Mapping[str, Relation]) -> bool:
    """Whether a value is the time of processing: ``PROCTIME()``, or a column with it."""
    if not isinstance(value, exp.Column):
        return called(value) == "CURRENT_TIMESTAMP"  # of PROCTIME()
    return any(value.name.lower() in rows.processing_time for rows in rows_of(value, sources))


def spark_windows(select: exp.Select, sources: Mapping[str, Relation]) -> frozenset[str]:
    """Return the columns of the result that Spark's own window has made."""
    found: set[str] = set()
    for item in select.expressions:
        if item.is_star:
            found = found.union(*(rows.spark_windows for rows in rows_of(item, sources)))
        elif _is_spark_window(item.unalias(), sources):
            found.add(item.alias_or_name.lower())
    return frozenset(found)


def of_processing_time(sources: Mapping[str, Relation]) -> bool:
    """Whether rows change only because their windows are of the time of processing."""
    return all(rows.window for rows in sources.values() if rows.changes)


def processing_time(select: exp.Select, sources: Mapping[str, Relation]) -> frozenset[str]:
    """Return the columns of the result that are the time of processing."""
    found: set[str] = set()
    for item in select.expressions:
        if item.is_star:
            found = found.union(*(rows.processing_time for rows in rows_of(item, sources)))
        elif item.output_name and is_processing_time(item.unalias(), sources):
            found.add(item.output_name.lower())
    return frozenset(found)


def event_time(select: exp.Select, sources: Mapping[str, Relation]) -> frozenset[str]:
    """Return the columns of the result that are the time of WATERMARK FOR."""
    found: set[str] = set()
    for item in select.expressions:
        if item.is_star:
            found = found.union(*(rows.event_time for rows in rows_of(item, sources)))
        elif _is_event_time(item.unalias(), sources):
            found.add(item.output_name.lower())
    return frozenset(found)


def is_time(value: exp.Expression, sources: Mapping[str, Relation]) -> bool:
    """Whether a value is the time of a row: that of WATERMARK FOR, or of processing."""
    return is_processing_time(value, sources) or _is_event_time(value, sources)


def _is_event_time(value: exp.Expression, sources: Mapping[str, Relation]) -> bool:
    return isinstance(value, exp.Column) and any(
        value.name.lower() in rows.event_time for rows in rows_of(value, sources)
    )


def window_part(column: exp.Expression | None, sources: Mapping[str, Relation]) -> tuple[str, str] | None:
    """Return the source and the part of its window that a column is."""
    if not isinstance(column, exp.Column):
        return None
    for name, rows in sources.items():
        kind = rows.window.get(column.name.lower())
        if kind and (not column.table or column.table.lower() == name):
            return name, kind
    return None


def window_outputs(select: exp.Select, sources: Mapping[str, Relation]) -> dict[str, str]:
    """Return which columns of the result are parts of a window."""
    found: dict[str, str] = {}
    for item in select.expressions:
        if item.is_star:
            for rows in rows_of(item, sources):
                found |= {key: kind for key, kind in rows.window.items() if key}
        elif part := window_part(item.unalias(), sources):
            found[item.alias_or_name.lower()] = part[1]
    return found
