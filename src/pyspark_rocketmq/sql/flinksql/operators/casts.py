"""Casts that give another value in Flink: to texts, whole numbers and bytes."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import IS_WHOLE_CAST, fill
from pyspark_rocketmq.sql.flinksql.operators.whole_numbers import whole_of
from pyspark_rocketmq.sql.statements import Query

__all__ = ["TRANSLATED_TYPES", "translate_cast"]

_QUOTIENT: Final = "CASE WHEN _2 THEN CAST(CAST(_1 AS BIGINT) AS STRING) ELSE CAST(_1 AS STRING) END"
_TEXT: Final = "CASE WHEN typeof(_1) = 'boolean' THEN upper(CAST(_1 AS STRING)) ELSE CAST(_1 AS STRING) END"
_WHOLE_OF_TEXT: Final = (
    "CASE WHEN typeof(_1) = 'string' THEN {0}(regexp_replace(CAST(_1 AS STRING), "
    "'^\\\\s*([+-]?)([0-9]*)[.][0-9]*\\\\s*$', '$10$2') AS {1}) ELSE {0}(_1 AS {1}) END"
)
"""The point of a text and what is after it are cut off; ``$10`` is the sign and a digit, if there is none."""

_WHOLE_TYPES: Final = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
_TEXTS: Final = frozenset({exp.DType.VARCHAR, exp.DType.CHAR, exp.DType.TEXT})
_LENGTHS: Final = {
    exp.DType.BINARY: "rpad(CAST(_1 AS BINARY), {}, X'00')",
    exp.DType.VARBINARY: "substring(CAST(_1 AS BINARY), 1, {})",
}
_DIGITS_OF_LENGTH: Final = 10

TRANSLATED_TYPES: Final = _WHOLE_TYPES | _TEXTS | _LENGTHS.keys()


def translate_cast(node: exp.Cast, query: Query) -> exp.Expression | None:
    """Translate a cast to one of these types; None if it means the same in Spark.

    Raises
    ------
    SqlError
        The length of a type is no number.
    """
    if node.to.this in _TEXTS:
        return _cast_to_text(node, query)
    if node.to.this in _WHOLE_TYPES:
        return _cast_to_whole(node)
    return _cast_to_bytes(node, query) if node.to.expressions else None


def _cast_to_text(node: exp.Cast, query: Query) -> exp.Expression | None:
    """Translate a cast to a text: Flink writes TRUE, and cuts at the length."""
    whole = whole_of(node.this)
    if whole is not None:
        text = fill(_QUOTIENT, [node.this, whole])
        return _cut(text, node, query)
    known = isinstance(node.this, exp.Literal | exp.Null | exp.Anonymous)
    text = fill("CAST(_1 AS STRING)" if known else _TEXT, [node.this])
    return None if known and not node.to.expressions else _cut(text, node, query)


def _cast_to_whole(node: exp.Cast) -> exp.Expression | None:
    """Translate a cast to a whole number: of a text, Flink cuts off what is after the point."""
    given = node.this.unnest()
    number = isinstance(given, exp.Literal | exp.Neg) and not given.is_string
    if number or whole_of(given) is not None or isinstance(given, exp.Null):
        return None
    cast_ = "TRY_CAST" if node.args.get("safe") else "CAST"
    whole = fill(_WHOLE_OF_TEXT.format(cast_, node.to.this.value), [node.this])
    whole.meta[IS_WHOLE_CAST] = True
    return whole


def _cast_to_bytes(node: exp.Cast, query: Query) -> exp.Expression:
    """Translate a cast to bytes of a length: they are cut, and those of a BINARY are filled up."""
    return fill(_LENGTHS[node.to.this].format(_length(node, query)), [node.this])


def _cut(text: exp.Expression, cast_: exp.Cast, query: Query) -> exp.Expression:
    """Cut a text at the length of the type that it is cast to; a CHAR is filled up with blanks."""
    if not cast_.to.expressions:
        return text
    length = _length(cast_, query)
    is_char = cast_.to.this == exp.DType.CHAR
    return fill(f"rpad(_1, {length}, ' ')" if is_char else f"left(_1, {length})", [text])


def _length(node: exp.Cast, query: Query) -> int:
    """Return the length of the type that a value is cast to.

    Raises
    ------
    SqlError
    """
    digits = node.to.expressions[0].name
    if not digits.isdecimal() or len(digits) > _DIGITS_OF_LENGTH:
        kind = node.to.this.value
        position_of(query, node).fail(f"the length of {kind} is a number up to 2147483647: {kind}(10)")
    return int(digits)
