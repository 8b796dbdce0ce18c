"""JSON as it is: without the numbers that Spark's parser must not get for their columns."""

# Facts (Spark 4.0 to 4.3, JacksonParser): the number of a DECIMAL is written out before it is compared with
# the type, which takes 17 s for 1e10000000, and hours for larger exponents. The whole number of a TIMESTAMP
# is multiplied by 1,000,000 without a check of overflow, which gives a time of any year. For a STRING, a
# number with an exponent is a double first: "Infinity" or 0.0 if it is out of range. A DECIMAL's text may
# have commas anywhere, and digits of any script, which Java's BigDecimal takes.

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_rocketmq.spark.bodies.texts import delimiter_pattern
from pyspark_rocketmq.spark.bodies.times import NO_OLD_TIMES, add_defaults

__all__ = ["parse_json"]

_EXPONENT: Final = r"[eE][-+]?0*[\p{IsDigit}&&[^0]]\p{IsDigit}{4,}"
_WILD_DECIMAL: Final = (
    r"[eE][-+,]*(?:\p{IsDigit},*){5}|[eE][-+,\p{IsDigit}]*\\u|\\u00(?:3[0-9]|[46]5|2[b-eB-E])"
)
"""Wherever it is: a name may be escaped, without quotes, or have a comment after it."""
_WILD_TEXT: Final = f"{_EXPONENT}|Infinity|^-?0\\.0$"
_LONG_SECONDS: Final = "-?[0-9]{13,}"
_ESCAPED_NAME: Final = r"\\u00[2-7]"
"""A character of a name may be escaped that needs no escape; others are escaped by many writers."""
_LAST_SECOND: Final = (2**63 - 1) // 1_000_000


def parse_json(
    body: Column, schema: StructType | str, settings: Mapping[str, str], *, wild: str | None = None
) -> Column:
    """Return the fields of a text as Spark reads them, without times and numbers that it makes up.

    Parameters
    ----------
    body : Column
    schema : StructType or str
    settings : mapping of str to str
        Of Spark's parser.
    wild : str, optional
        What is parsed in place of a text in which a DECIMAL or TIMESTAMP has a number far out of its range.
        The result is NULL without it.
    """
    kind = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    known = _without_wild_numbers(body, kind, settings)
    text = known if wild is None else F.coalesce(known, F.lit(wild))
    return F.from_json(text, schema, add_defaults(NO_OLD_TIMES, settings))


def _without_wild_numbers(body: Column, schema: DataType, settings: Mapping[str, str]) -> Column:
    """Return a body, or NULL if a DECIMAL or TIMESTAMP in it has a number far out of its range."""
    numbers = _numbers(schema)
    if not isinstance(numbers, StructType):
        return body
    # The patterns also match in other objects, and in texts: the parser tells, for these few bodies.
    suspicious = body.rlike("|".join(sorted(set(_patterns(numbers)))))
    lenient = {name: value for name, value in settings.items() if name.lower() != "mode"}
    is_wild = _is_wild(F.from_json(body, numbers, lenient), numbers)
    return F.when(~F.coalesce(F.when(suspicious, is_wild), F.lit(False)), body)


def _numbers(kind: DataType) -> DataType | None:
    """Return the parts of a type that may be wild, with the types that take any number; None without any."""
    match kind:
        case DecimalType():
            return StringType()
        case TimestampType():
            return LongType()
        case StructType():
            found = [(field.name, _numbers(field.dataType)) for field in kind.fields]
            fields = [StructField(name, part) for name, part in found if part is not None]
            return StructType(fields) if fields else None
        case ArrayType():
            part = _numbers(kind.elementType)
            return None if part is None else ArrayType(part)
        case MapType():
            part = _numbers(kind.valueType)
            return None if part is None else MapType(StringType(), part)
    return None


def _patterns(numbers: DataType, before: str = "") -> Iterator[str]:
    """Yield regular expressions of which one matches a body that may have a wild number."""
    match numbers:
        case StructType():
            for field in numbers.fields:
                name = f"[\"']{delimiter_pattern(field.name)}[\"']" if field.name.isascii() else ""
                yield from _patterns(field.dataType, f"{name}\\s*:")
        case ArrayType():
            yield from _patterns(numbers.elementType, "[\\[,]")
        case MapType():
            yield from _patterns(numbers.valueType, ":")
        case StringType():
            yield _WILD_DECIMAL
        case _:
            yield f"{before}\\s*{_LONG_SECONDS}"
            yield _ESCAPED_NAME


def _is_wild(value: Column, numbers: DataType) -> Column:
    """Return whether a value, or a part of it, is wild."""
    match numbers:
        case StructType():
            parts = [_is_wild(value.getField(field.name), field.dataType) for field in numbers.fields]
            return reduce(or_, parts)
        case ArrayType():
            found = F.exists(value, lambda each: _is_wild(each, numbers.elementType))
        case MapType():
            found = F.exists(F.map_values(value), lambda each: _is_wild(each, numbers.valueType))
        case StringType():
            found = F.replace(value, F.lit(",")).rlike(_WILD_TEXT)
        case _:
            found = ~value.between(-_LAST_SECOND, _LAST_SECOND)
    return F.coalesce(found, F.lit(False))
