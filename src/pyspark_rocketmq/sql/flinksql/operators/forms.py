"""Expressions of Spark's with arguments in them, and the names of calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.functions.values import JSON_TEXT
from pyspark_rocketmq.sql.flinksql.grammar import parse_expression

__all__ = [
    "IS_AVERAGE",
    "IS_JSON",
    "IS_WHOLE_CAST",
    "bind_random",
    "called",
    "comparisons_of",
    "conditions_of",
    "fill",
    "json_text",
]

IS_AVERAGE: Final = "average"
"""The metadata of a quotient of a sum and a number that is an AVG."""

IS_JSON: Final = "json"
"""The metadata of an expression that is JSON already."""

IS_WHOLE_CAST: Final = "whole cast"
"""The metadata of a translated cast to a whole number."""


def called(node: exp.Expression | None) -> str:
    """Return the upper-case name of the function that a node calls; otherwise an empty text."""
    return str(node.this).upper() if isinstance(node, exp.Anonymous) and isinstance(node.this, str) else ""


def conditions_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND connects, also in parentheses."""
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        yield from conditions_of(inner.left)
        yield from conditions_of(inner.right)
    else:
        yield inner


def comparisons_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND connects, and the two comparisons of each BETWEEN in its place."""
    for part in conditions_of(condition):
        if isinstance(part, exp.Between) and not part.args.get("symmetric"):
            yield exp.GTE(this=part.this.copy(), expression=part.args["low"].copy())
            yield exp.LTE(this=part.this.copy(), expression=part.args["high"].copy())
        else:
            yield part


def fill(form: str, arguments: list[exp.Expression]) -> exp.Expression:
    """Return an expression of Spark's with arguments in it."""
    tree = parse_expression(form)
    for column in list(tree.find_all(exp.Column)):
        name = column.name
        if name == "_json":
            texts = [json_text(argument.copy()) for argument in arguments]
            cast("exp.Expression", column.parent).set("expressions", texts)
        elif name == "_all":
            parent = cast("exp.Expression", column.parent)
            parent.set("expressions", [argument.copy() for argument in arguments])
        elif name == "_null":
            column.replace(
                exp.Paren(this=exp.or_(*(argument.copy().is_(exp.null()) for argument in arguments)))
            )
        elif name.startswith("_") and name[1:].isdigit():
            argument = arguments[int(name[1:]) - 1].copy()
            simple = isinstance(argument, exp.Column | exp.Literal | exp.Anonymous | exp.Paren)
            filled = argument if simple else exp.Paren(this=argument)
            if column is tree:
                return filled
            column.replace(filled)
    return tree


_RANDOM: Final = frozenset({"RAND", "RANDN", "RANDOM", "RANDSTR", "SHUFFLE", "UNIFORM", "UUID"})


def bind_random(form: str, arguments: list[exp.Expression]) -> str:
    """Return an expression that evaluates each random argument once, however often its form names it."""
    for number, argument in enumerate(arguments, 1):
        name = re.compile(rf"\b_{number}\b")
        is_random = any(called(call) in _RANDOM for call in argument.find_all(exp.Anonymous))
        if is_random and len(name.findall(form)) > 1:
            once = name.sub(f"once{number}", form)
            form = f"get(transform(array(_{number}), once{number} -> {once}), 0)"
    return form


def json_text(value: exp.Expression) -> exp.Expression:
    """Return the JSON of a value; NULL is no text."""
    if value.meta.get(IS_JSON):
        return value
    return fill(f"CASE WHEN _1 IS NOT NULL THEN {JSON_TEXT} END", [value])
