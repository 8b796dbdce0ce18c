"""Whole numbers in Flink that are DOUBLE in Spark, and the other way round.

Whether an operand is a whole number is known when Spark resolves its type. A quotient of two of them has
the type DOUBLE in Spark, since one expression cannot have two types. So expressions are noted with the
condition that they are whole numbers in Flink, as far as a query makes them itself.
"""

# Facts (Flink 1.20): whole numbers divide to whole numbers, and SIGN keeps the type. Spark makes both DOUBLE.
# A quotient of DECIMALs has the same type in both (LogicalTypeMerging, DecimalPrecision), but an INT literal
# counts as DECIMAL(10, 0) in Flink, in Spark as a DECIMAL of its digits, and a SUM as DECIMAL(38, s). CASE
# widens the types of its branches: that of a quotient must not change with the branch for whole numbers.

from __future__ import annotations

from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.operators.forms import called, fill

__all__ = [
    "divide",
    "note_whole",
    "note_whole_average",
    "note_whole_call",
    "note_whole_rounded",
    "pass_whole",
    "whole_of",
]

_WHOLE: Final = "typeof(_1) IN ('tinyint', 'smallint', 'int', 'bigint')"
_WHOLE_VALUES: Final = _WHOLE.replace("_1", "any_value(_1)")
_DIVIDED: Final = (
    "CASE WHEN _3 AND _4 THEN variant_get(CAST(CAST(_1 AS BIGINT) DIV CAST(_2 AS BIGINT) AS VARIANT), '$', "
    "typeof(_6)) ELSE _5 END"
)
_BOUND: Final = "get(transform(array({value}), {name} -> {form}), 0)"
"""Names an operand that is a quotient itself: its text would double with each division."""

_SIZED: Final = 7
"""The number of the first operand in `_BOUND`."""

_AS_SUM: Final = (
    "variant_get(CAST(_1 AS VARIANT), '$', regexp_replace(typeof(_1), 'decimal[(][0-9]+,', 'decimal(38,'))"
)
"""A sum with Flink's type: of DECIMALs it has 38 digits, in Spark 10 more than they have."""

_DIGITS_OF_INT: Final = 10
_IS_WHOLE: Final = "whole"
"""The metadata of an expression: the condition that it is a whole number in Flink."""

_PLAIN: Final = "plain"
"""The metadata of a translated quotient: one of the same type in Spark."""

_ROUNDED: Final = frozenset({"CEIL", "CEILING", "FLOOR", "TRUNCATE"})
_OF_FIRST: Final = frozenset({"ABS", "NULLIF", "ROUND"})
_OF_ALL: Final = frozenset({"COALESCE", "IFNULL", "MOD"})
_OF_VALUES: Final = frozenset({"MAX", "MIN", "SUM"})
"""Functions with the type of their first argument, of all of them, and of the values of a group."""


def divide(node: exp.Div) -> exp.Expression | None:
    """Translate a division, which cuts off the fraction if both numbers are whole."""
    quotient = exp.Div(this=_sized(node.this), expression=_sized(node.expression))
    if _is_fractional(node.this) or _is_fractional(node.expression):
        return None if quotient == node else quotient
    one, other = _whole(node.this), _whole(node.expression)
    plain = _plain(quotient)
    sized = [quotient.this, quotient.expression]
    form, operands = _DIVIDED, [node.this, node.expression]
    for at, part in enumerate(("this", "expression")):
        if any(_PLAIN in each.meta for each in operands[at].walk()):
            name = f"{('left', 'right')[at]}_quotient"
            form = _BOUND.format(value=f"_{_SIZED + at}", name=name, form=form)
            operands[at] = exp.to_identifier(name)  # as a column, it would be one of the query
            quotient.set(part, operands[at].copy())
    divided = fill(form, [*operands, one, other, quotient, plain, *sized])
    divided.meta[_PLAIN] = plain
    divided.meta[_IS_WHOLE] = exp.and_(one.copy(), other.copy())
    return divided


def whole_of(node: exp.Expression) -> exp.Expression | None:
    """Return the condition that an expression is a whole number in Flink, if that is not Spark's type."""
    return cast("exp.Expression | None", node.unnest().meta.get(_IS_WHOLE))


def _is_fractional(node: exp.Expression) -> bool:
    """Return whether a division by it, or of it, is certainly none of whole numbers."""
    if isinstance(node, exp.Paren | exp.Neg):
        return _is_fractional(node.this)
    return isinstance(node, exp.Literal) and not node.is_string and not node.name.isdigit()


def _plain(quotient: exp.Expression) -> exp.Expression:
    """Return a quotient without the branches for whole numbers in it: it has the same type, and is short."""
    plain = quotient.copy()
    for part in list(plain.walk(prune=lambda node: _PLAIN in node.meta)):
        if _PLAIN in part.meta:
            part.replace(exp.Paren(this=part.meta[_PLAIN].copy()))
    return plain


def _sized(node: exp.Expression) -> exp.Expression:
    """Return an operand with the digits of its type in Flink: a literal of a whole number, or a sum."""
    inner = node.this if isinstance(node, exp.Filter | exp.Window) else node
    if called(inner) == "SUM":
        return fill(_AS_SUM, [node])
    literal = node.unnest()
    digits = (literal.this if isinstance(literal, exp.Neg) else literal).name
    if not isinstance(literal, exp.Neg | exp.Literal) or literal.is_string or not digits.isdigit():
        return node.copy()
    kind = exp.DType.INT if len(digits) < _DIGITS_OF_INT else exp.DType.BIGINT
    return exp.Cast(this=literal.copy(), to=exp.DataType(this=kind))


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
