"""Full joins of streams, whose keys may be NULL."""

# Facts (Spark 4.3, seen): a FULL JOIN of streams takes NULL for equal to NULL: its state is looked up by the
# bytes of the key. The optimizer adds IS NOT NULL to inner, left and right joins only.

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import conditions_of
from pyspark_rocketmq.sql.flinksql.relations import Relation
from pyspark_rocketmq.sql.statements import Query

__all__ = ["keep_nulls_apart"]


def keep_nulls_apart(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> bool:
    """Let values that full joins of streams compare be no NULL, in place; return whether there are any.

    Raises
    ------
    SqlError
        A full join of streams has USING, or is NATURAL: no condition can be added to it.
    """
    several = sum(rows.stream for rows in sources.values()) > 1
    joins = select.args.get("joins") or [] if several else []
    full = [join for join in joins if join.side == "FULL"]
    for join in full:
        on = join.args.get("on")
        if on is None:
            position_of(query, join.this).fail(
                "a FULL JOIN of streams needs ON a.k = b.k: with USING or NATURAL, Spark pairs NULL keys"
            )
        values = [part.left.copy() for part in conditions_of(on) if isinstance(part, exp.EQ)]
        present = [exp.Not(this=exp.Is(this=exp.paren(value), expression=exp.Null())) for value in values]
        join.set("on", exp.and_(on, *present))
    return bool(full)
