"""Joins as steps: what each side gives, and how a query reads the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.operators.forms import conditions_of
from pyspark_rocketmq.sql.flinksql.relations import CHANGE, WINDOW, Relation

__all__ = ["equal_values", "read_structs", "struct_of"]


def struct_of(alias: str, rows: Relation) -> exp.Expression:
    """Return the columns of a table as a struct, without hidden ones."""
    hidden = [WINDOW] if rows.window else []
    hidden += [CHANGE] if rows.changelog else []
    except_ = [exp.to_identifier(name) for name in hidden] or None
    star = exp.Column(this=exp.Star(except_=except_), table=exp.to_identifier(alias))
    return exp.Anonymous(this="struct", expressions=[star])


def equal_values(
    on: exp.Expression, alias: str
) -> tuple[dict[str, tuple[exp.Expression, exp.Expression]], list[exp.Expression]]:
    """Return the values that columns of a table are compared with, and the other conditions.

    Returns
    -------
    dict of str to (Expression, Expression)
        By the column, in lower case: the value of the other tables, and the whole condition.
    list of Expression
    """
    found: dict[str, tuple[exp.Expression, exp.Expression]] = {}
    others: list[exp.Expression] = []
    for part in conditions_of(on):
        whole = cast("exp.Expression", part.copy())
        key = None
        if isinstance(part, exp.EQ):
            for one, other in ((part.this, part.expression), (part.expression, part.this)):
                of_others = not any(_is_of(column, alias) for column in other.find_all(exp.Column))
                if key is None and _is_of(one, alias) and of_others and other.find(exp.Column):
                    key, value = one.name.lower(), other
        if key is None or key in found:
            others.append(whole)
        else:
            found[key] = value, whole
    return found, others


def _is_of(node: exp.Expr, alias: str) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() == alias.lower()


def read_structs(select: exp.Select, structs: Mapping[str, str], name: str) -> None:
    """Make a query read the structs of a step under the names of its tables."""
    select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(name))))
    select.set("joins", None)
    views = [
        exp.Lateral(
            this=exp.Anonymous(
                this="inline", expressions=[exp.Anonymous(this="array", expressions=[exp.column(place)])]
            ),
            view=True,
            alias=exp.TableAlias(this=exp.to_identifier(alias)),
        )
        for alias, place in structs.items()
    ]
    select.set("laterals", [*views, *(select.args.get("laterals") or [])])
    items: list[exp.Expression] = []
    for item in select.expressions:
        if isinstance(item, exp.Star):
            items += [exp.Column(this=item.copy(), table=exp.to_identifier(alias)) for alias in structs]
        else:
            items.append(item)
    select.set("expressions", items)
