"""Queries of rows that change: those of a changelog carry their kind of change in a hidden column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import fill
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, WITHOUT_OLD_ROW, Relation
from pyspark_rocketmq.sql.flinksql.selects import is_aggregation, of_processing_time
from pyspark_rocketmq.sql.statements import Query

__all__ = ["WITHOUT_WINDOW", "has_changes", "pass_changes", "refuse_changelog"]

WITHOUT_WINDOW: Final = "its results change with every row, and Spark's streams cannot take back a row"

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
    change: exp.Expression = exp.column(CHANGE, table=None if name.startswith("#") else name)
    where = select.args.get("where")
    if where is not None and not sources[name].keeps_state:
        change = _remove_unselected(where, change)
    select.append("expressions", exp.alias_(change, CHANGE))
    return Relation(stream=True, changelog=True, keeps_state=sources[name].keeps_state)


def _remove_unselected(where: exp.Where, change: exp.Expression) -> exp.Expression:
    """Let changes without an old row pass a condition, in place, and return what removes their row then.

    The row that they replace may have met the condition.
    """
    position = f"{change.sql(dialect='spark')}.position"
    alone = f"{position}.index = {WITHOUT_OLD_ROW}"
    removed = f"named_struct('op', '-U', 'position', {position})"
    condition = where.this
    where.set("this", fill(f"_1 OR {alone}", [condition]))
    form = f"CASE WHEN {alone} AND NOT coalesce(_1, FALSE) THEN {removed} ELSE _2 END"
    return fill(form, [condition, change])


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


def has_changes(
    select: exp.Select, sources: Mapping[str, Relation], query: Query, *, aggregated: bool, by_window: bool
) -> bool:
    """Whether the rows of a query replace each other.

    Raises
    ------
    SqlError
        It needs rows that other rows replace.
    """
    changing = any(rows.changes for rows in sources.values())
    streams = sum(rows.stream for rows in sources.values())
    what = "an aggregation" if aggregated else "a join" if streams > 1 else ""
    if changing and what and not (by_window and of_processing_time(sources)):
        position_of(query, select).fail(
            f"{what} of a stream cannot read an aggregation or a Top-N without a window: "
            f"{WITHOUT_WINDOW}. Use a window, or SET 'execution.runtime-mode' = 'batch'"
        )
    return changing or (streams > 0 and aggregated and not by_window)
