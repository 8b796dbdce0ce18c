"""Whole numbers in Flink that are DOUBLE in Spark, and the other way round.

Whether an operand is a whole number is known when Spark resolves its type. A quotient of two of them has
the type DOUBLE in Spark, since one expression cannot have two types. So expressions are noted with the
condition that they are whole numbers in Flink, as far as a query makes them itself.
"""

# Facts (Flink 1.20): whole numbers divide to whole numbers, and SIGN keeps the type. Spark makes both DOUBLE.

from __future__ import annotations

from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.operators.forms import called, fill

__all__ = [
    "divide",
    "is_fractional",
    "note_whole",
    "note_whole_average",
    "note_whole_call",
    "note_whole_rounded",
    "pass_whole",
    "whole_of",
]

_WHOLE: Final = "typeof(_1) IN ('tinyint', 'smallint', 'int', 'bigint')"
_WHOLE_VALUES: Final = _WHOLE.replace("_1", "any_value(_1)")
_DIVIDED: Final = "CASE WHEN _3 AND _4 THEN CAST(_1 AS BIGINT) DIV CAST(_2 AS BIGINT) ELSE _1 / _2 END"
_IS_WHOLE: Final = "whole"
"""The metadata of an expression: the condition that it is a whole number in Flink."""

_ROUNDED: Final = frozenset({"CEIL", "CEILING", "FLOOR", "TRUNCATE"})
_OF_FIRST: Final = frozenset({"ABS", "NULLIF", "ROUND"})
_OF_ALL: Final = frozenset({"COALESCE", "IFNULL", "MOD"})
_OF_VALUES: Final = frozenset({"MAX", "MIN", "SUM"})
"""Functions with the type of their first argument, of all of them, and of the values of a group."""


def divide(node: exp.Div) -> exp.Expression:
    """Translate a division, which cuts off the fraction if both numbers are whole."""
    one, other = _whole(node.this), _whole(node.expression)
    divided = fill(_DIVIDED, [node.this, node.expression, one, other])
    divided.meta[_IS_WHOLE] = exp.and_(one.copy(), other.copy())
    return divided


def whole_of(node: exp.Expression) -> exp.Expression | None:
    """Return the condition that an expression is a whole number in Flink, if that is not Spark's type."""
    return cast("exp.Expression | None", node.unnest().meta.get(_IS_WHOLE))


def is_fractional(node: exp.Expression) -> bool:
    """Return whether a division by it, or of it, is certainly none of whole numbers."""
    if isinstance(node, exp.Paren | exp.Neg):
        return is_fractional(node.this)
    return isinstance(node, exp.Literal) and not node.is_string and not node.name.isdigit()


def note_whole(node: exp.Expression) -> None:
    """Note when an operation with noted operands is a whole number."""
    match node:
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            _note_values(node, [node.this, node.expression])
        case exp.Neg():
            _note_values(node, [node.this])
        case exp.If():
            _note_values(node, [node.args["true"], node.args.get("false")])
        case exp.Case():
            _note_values(node, [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")])


def note_whole_call(node: exp.Anonymous) -> None:
    """Note when a call with noted arguments is a whole number, or one that has another type in Spark."""
    name, arguments = called(node), node.expressions
    if name == "SIGN" and len(arguments) == 1:
        node.meta[_IS_WHOLE] = _whole(arguments[0]).copy()
    elif name in _OF_ALL:
        _note_values(node, arguments)
    elif name in _OF_FIRST or name in _OF_VALUES:
        _note_values(node, arguments[:1])
        if name in _OF_VALUES and _IS_WHOLE in node.meta:
            _use_any_values(node.meta[_IS_WHOLE])


def note_whole_rounded(name: str, node: exp.Expression, arguments: list[exp.Expression]) -> None:
    """Note of a translated FLOOR and its kin that it is a whole number if its argument is noted as one."""
    if name in _ROUNDED:
        inner = node.this if isinstance(node, exp.Paren) else node
        _note_values(inner, [*arguments[:1]])


def note_whole_average(node: exp.Expression, arguments: list[exp.Expression]) -> None:
    """Note of a translated AVG when it is a whole number."""
    node.meta[_IS_WHOLE] = fill(_WHOLE_VALUES, arguments)


def pass_whole(aggregate: exp.Expression, node: exp.Expression, wrapper: exp.Filter | exp.Window) -> None:
    """Note of an aggregate with FILTER or OVER what is noted of the aggregate."""
    noted = aggregate.meta.get(_IS_WHOLE)
    if noted is None:
        return
    node.meta[_IS_WHOLE] = condition = noted.copy()
    for call in list(condition.find_all(exp.Anonymous)) if isinstance(wrapper, exp.Window) else []:
        if called(call) == "ANY_VALUE":
            over = wrapper.copy()
            over.set("this", call.copy())
            call.replace(over)


def _use_any_values(condition: exp.Expression) -> None:
    """Make a condition on the types in a row that of a group, whose columns only aggregates may name."""
    for call in condition.find_all(exp.Anonymous):
        if called(call) == "TYPEOF" and not isinstance(call.expressions[0], exp.Literal):
            call.set("expressions", [exp.Anonymous(this="any_value", expressions=call.expressions)])


def _whole(node: exp.Expression) -> exp.Expression:
    noted = whole_of(node)
    return fill(_WHOLE, [node]) if noted is None else noted


def _note_values(node: exp.Expression, values: list[exp.Expression | None]) -> None:
    """Note of an expression with the type of some values when all of them are whole numbers."""
    typed = [each for each in values if each is not None and not isinstance(each, exp.Null)]
    if any(whole_of(each) is not None for each in typed):
        node.meta[_IS_WHOLE] = exp.and_(*(_whole(each).copy() for each in typed))
