"""Queries of rows that change: those of a changelog carry their kind of change in a hidden column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, Relation
from pyspark_rocketmq.sql.flinksql.selects import is_aggregation
from pyspark_rocketmq.sql.statements import Query

__all__ = ["pass_changes", "refuse_changelog", "refuse_over"]

_CLAUSES: Final = {"distinct": "DISTINCT", "order": "ORDER BY", "limit": "LIMIT", "having": "HAVING"}


def pass_changes(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> Relation | None:
    """Let a query's rows carry the changes of the changelog that it reads, as the last column.

    Returns
    -------
    Relation, optional
        What is known of its rows; None if the query reads no changelog.

    Raises
    ------
    SqlError
        The query needs the rows that an update or a delete takes back.
    """
    names = [name for name, rows in sources.items() if rows.changelog]
    if not names:
        return None
    (name, *others) = names
    if others or any(rows.stream for other, rows in sources.items() if other != name):
        refuse_changelog(select, "a join of streams", query)
    if is_aggregation(select):
        refuse_changelog(select, "an aggregation", query)
    for clause, what in _CLAUSES.items():
        if select.args.get(clause) is not None:
            refuse_changelog(select, what, query)
    if any(item.find(exp.Window) for item in select.expressions):
        refuse_changelog(select, "OVER", query)
    for item in select.expressions:
        if item.is_star and not (isinstance(item, exp.Column) and item.table.lower() != name):
            star = item.this if isinstance(item, exp.Column) else item
            star.set("except_", [exp.to_identifier(CHANGE)])
    change = exp.column(CHANGE, table=None if name.startswith("#") else name)
    select.append("expressions", exp.alias_(change, CHANGE))
    return Relation(stream=True, changelog=True, keeps_state=sources[name].keeps_state)


def refuse_changelog(node: exp.Expression, what: str, query: Query) -> None:
    """Refuse to read a changelog.

    Raises
    ------
    SqlError
    """
    position_of(query, node).fail(
        f"{what} cannot read a changelog as a stream: its rows are updated and deleted, and Spark's streams "
        "cannot take back a row. SET 'execution.runtime-mode' = 'batch' reads the rows that remain"
    )


def refuse_over(select: exp.Select, query: Query) -> None:
    """Refuse ``OVER`` in a query of a stream.

    Raises
    ------
    SqlError
    """
    for item in select.expressions:
        for window in item.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is select:
                position_of(query, window).fail(
                    "OVER of a stream is supported only as ROW_NUMBER() in a query whose outer query has a "
                    "bound (WHERE rank <= 10): use a window and GROUP BY, or SET 'execution.runtime-mode' = "
                    "'batch'"
                )
