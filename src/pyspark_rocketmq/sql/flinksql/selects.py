"""What one SELECT groups by and returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.expressions import called
from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES
from pyspark_rocketmq.sql.flinksql.relations import WINDOW, Relation
from pyspark_rocketmq.sql.statements import Query

__all__ = [
    "by_spark_window",
    "hidden_column",
    "is_aggregation",
    "of_processing_time",
    "processing_time",
    "spark_windows",
    "untranslated",
    "window_names",
]

_SPARK_WINDOWS: Final = frozenset({"WINDOW", "SESSION_WINDOW"})


def untranslated(query: Query, known: Mapping[str, Relation]) -> Relation:
    """Return what is known of the rows of a query that only Spark can read."""
    named = [known[name] for name in query.names & known.keys()]
    return Relation(
        stream=any(rows.stream for rows in named), changelog=any(rows.changelog for rows in named)
    )


def hidden_column(source: str) -> exp.Column:
    """Return the hidden column of a source."""
    return exp.column(WINDOW, table=None if source.startswith("#") else source)


def window_names(select: exp.Select) -> dict[str, str]:
    """Return the parts of a window that a query with a star returns."""
    return (
        {"window_start": "start", "window_end": "end"}
        if any(item.is_star for item in select.expressions)
        else {}
    )


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


def by_spark_window(select: exp.Select, sources: Mapping[str, Relation]) -> bool:
    """Whether a query groups by Spark's own window, in GROUP BY or from a query in it."""
    group = select.args.get("group")
    made = frozenset().union(*(rows.spark_windows for rows in sources.values()))
    return any(
        called(key) in _SPARK_WINDOWS or (isinstance(key, exp.Column) and key.name.lower() in made)
        for key in (group.expressions if group else [])
    )


def spark_windows(select: exp.Select, sources: Mapping[str, Relation]) -> frozenset[str]:
    """Return the columns of the result that Spark's own window has made."""
    made = frozenset().union(*(rows.spark_windows for rows in sources.values()))
    found = set(made if any(item.is_star for item in select.expressions) else ())
    for item in select.expressions:
        value = item.unalias()
        if called(value) in _SPARK_WINDOWS or (isinstance(value, exp.Column) and value.name.lower() in made):
            found.add(item.alias_or_name.lower() or "window")
    return frozenset(found)


def of_processing_time(sources: Mapping[str, Relation]) -> bool:
    """Whether rows change only because their windows are of the time of processing."""
    return all(rows.window for rows in sources.values() if rows.changes)


def processing_time(select: exp.Select, sources: Mapping[str, Relation]) -> frozenset[str]:
    """Return the columns of the result that are the time of processing."""
    found = {
        item.alias.lower()
        for item in select.expressions
        if item.alias and called(item.unalias()) == "CURRENT_TIMESTAMP"
    }
    for item in select.expressions:
        for rows in sources.values():
            if item.is_star:
                found |= rows.processing_time
            elif (
                isinstance(item.unalias(), exp.Column) and item.unalias().name.lower() in rows.processing_time
            ):
                found.add(item.alias_or_name.lower())
    return frozenset(found)
