"""``FOR SYSTEM_TIME AS OF`` a versioned table: in batches, a join with the version that was valid then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.relations import Relation, Versions
from pyspark_rocketmq.sql.flinksql.selects import is_processing_time
from pyspark_rocketmq.sql.statements import Query

__all__ = ["is_lookup", "is_of_rows", "join_versions", "read_as_it_is", "require_versions"]

_UNTIL: Final = "__until"
"""The time of a row's next version; NULL for the last."""


@dataclass(frozen=True, slots=True)
class _Join:
    table: exp.Table
    join: exp.Join
    time: exp.Expression


def join_versions(
    select: exp.Select, table: exp.Table, rows: Relation, left: Mapping[str, Relation], query: Query
) -> None:
    """Join a table of messages with the version that was valid at a time.

    Raises
    ------
    SqlError
        The table has no versions, or is not joined.
    """
    at = _join(table, query)
    versions = _versions(rows, at, query)
    alias = table.alias_or_name
    order = exp.Order(expressions=[exp.Ordered(this=exp.column(versions.time, quoted=True))])
    next_time = exp.Window(
        this=exp.Anonymous(this="lead", expressions=[exp.column(versions.time, quoted=True)]),
        partition_by=[exp.column(name, quoted=True) for name in versions.keys],
        order=order,
    )
    source: exp.Expression = exp.Table(this=exp.to_identifier(table.name, quoted=True))
    if versions.query is not None:
        source = versions.query.subquery("__versions")
    subquery = exp.select("*", exp.alias_(next_time, _UNTIL)).from_(source).subquery(alias)
    until = exp.column(_UNTIL, table=alias)
    last = until.is_(exp.null())
    condition: exp.Condition = last
    if not is_processing_time(at.time, left):
        begun = exp.GTE(this=at.time.copy(), expression=exp.column(versions.time, table=alias, quoted=True))
        ends_later = exp.LT(this=at.time.copy(), expression=until.copy())
        condition = exp.and_(begun, exp.Paren(this=exp.or_(last, ends_later)))
    at.join.set("on", exp.and_(at.join.args["on"], condition))
    for item in select.expressions:
        if item.is_star and not (isinstance(item, exp.Column) and item.table.lower() != alias.lower()):
            star = item.this if isinstance(item, exp.Column) else item
            star.set("except_", [*(star.args.get("except_") or []), until.copy()])
    table.replace(subquery)


def is_lookup(table: exp.Table, left: Mapping[str, Relation]) -> bool:
    """Whether a join with what stands left of a table reads its rows as they are, and no versions."""
    return is_processing_time(table.args["version"].expression, left)


def is_of_rows(table: exp.Table, left: Mapping[str, Relation]) -> bool:
    """Whether a table is joined at a time of rows, and not read as it was at a constant."""
    at = table.args["version"]
    of_rows = at.expression.find(exp.Column) is not None or is_processing_time(at.expression, left)
    return bool(at.name.upper() == "TIMESTAMP" and at.args.get("kind") == "AS OF" and of_rows)


def read_as_it_is(table: exp.Table, left: Mapping[str, Relation], query: Query) -> None:
    """Make a lookup join read a table without versions as it is.

    Raises
    ------
    SqlError
        It is joined at another time than that of processing.
    """
    time = table.args["version"].expression
    if not is_processing_time(time, left):
        position_of(query, table).fail(
            f"FOR SYSTEM_TIME AS OF {time.sql()} needs the rows that {table.name} had at that time, and it "
            "has only those of now: use PROCTIME() to join them, or a table of a topic or of files with "
            "PRIMARY KEY (…) NOT ENFORCED and WATERMARK FOR the time from which a row is valid"
        )
    table.set("version", None)


def require_versions(table: exp.Table, rows: Relation, left: Mapping[str, Relation], query: Query) -> None:
    """Check that a stream can be joined with the versions of another one.

    Raises
    ------
    SqlError
    """
    at = _join(table, query)
    _versions(rows, at, query)
    if is_processing_time(at.time, left):
        position_of(query, table).fail(
            f"FOR SYSTEM_TIME AS OF the stream {table.name} needs a time of the rows, as in Flink: use the "
            "column of WATERMARK FOR instead of PROCTIME()"
        )


def _join(table: exp.Table, query: Query) -> _Join:
    join = table.parent
    if not isinstance(join, exp.Join) or join.args.get("on") is None:
        position_of(query, table).fail(f"FOR SYSTEM_TIME AS OF needs JOIN {table.name} … ON …")
    if join.side not in {"", "LEFT"} or join.kind in {"SEMI", "ANTI"}:
        position_of(query, table).fail("FOR SYSTEM_TIME AS OF needs JOIN or LEFT JOIN")
    return _Join(table, join, table.args["version"].expression)


def _versions(rows: Relation, at: _Join, query: Query) -> Versions:
    if rows.versions is None:
        position_of(query, at.table).fail(
            f"FOR SYSTEM_TIME AS OF needs the versions of {at.table.name}: declare its PRIMARY KEY (…) NOT "
            "ENFORCED and WATERMARK FOR the time from which a row is valid, or use a view with the row of "
            "each key whose ROW_NUMBER() … ORDER BY that time DESC is 1. A changelog has versions only "
            "as a stream: a batch reads the rows that remain"
        )
    return rows.versions
