"""Rows of CSV as they are: with the white space, the empty texts and the bytes that they have."""

# Facts (Spark 4.0 to 4.3, CSVOptions, UnivocityGenerator, UnivocityParser): to_csv removes characters up to
# the space from both ends of a text. An empty text is written as "", which from_csv reads as null, because
# the text of a null is the empty one. Without a quote character, "" is taken as it is, and U+0000 is written
# for quotes, also around a text that begins as a comment does (#). Bytes are written for people, as [01 02].
# A quote within a quoted field gets a backslash, unless the quote is the escape. Flink and RFC 4180 double
# it. The number of a DECIMAL is written out before it is compared with the type, which takes 17 s for
# 1e10000000, and hours for larger exponents; a cast looks at the exponent first. Flink writes bytes in base64
# (RowDataToCsvConverters, CsvToRowDataConverters of 1.20). A row whose only field is empty has no text
# (univocity returns null), with which to_csv fails.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.spark.bodies.times import EXACT_TIMES, add_defaults

__all__ = [
    "has_bad_values",
    "read_csv_values",
    "reading_settings",
    "type_in_csv",
    "without_line_end",
    "write_csv",
    "writing_settings",
]

_READ_AS_NULL: Final = "\ufdd0"
"""The text of an empty field, which is null: a character that Unicode leaves to programs, in no text."""

_NO_QUOTE: Final = "\0"
"""What Spark writes around a value that needs quotes, if there is no character for them."""

_DIVIDED: Final = (
    "a value holds a delimiter, the end of a line or the beginning of a comment, which format=csv without a "
    "quote character cannot write: set a quote character, or use json"
)

_KEEP_SPACE: Final = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


def reading_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by which Spark reads CSV."""
    return add_defaults({"nullValue": _READ_AS_NULL, **_doubled_quotes(given)}, given)


def writing_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by which Spark writes CSV."""
    unquoted = {"emptyValue": "", "comment": _READ_AS_NULL} if _quote(given) == "" else {}
    return add_defaults({**_KEEP_SPACE, **EXACT_TIMES, **unquoted, **_doubled_quotes(given)}, given)


def _doubled_quotes(given: Mapping[str, str]) -> dict[str, str]:
    """Return the option by which a quote in a quoted field is written twice."""
    quote = _quote(given)
    return {"escape": quote} if quote else {}


def _quote(given: Mapping[str, str]) -> str:
    return next((value for name, value in given.items() if name.lower() == "quote"), '"')


def without_line_end(body: Column, given: Mapping[str, str]) -> Column:
    """Return a row without the end of its line, which is part of a field only within quotes."""
    return F.regexp_replace(body, r"(?<=[^\r\n])\r?\n\z", "") if _quote(given) else body


def type_in_csv(kind: str, given: Mapping[str, str]) -> str:
    """Return the type by which Spark reads a column, for its type."""
    return "STRING" if kind == "BINARY" or _is_decimal(kind, given) else kind


def _is_decimal(kind: str, given: Mapping[str, str]) -> bool:
    """Return whether a column is a decimal, without a locale by which Spark reads it."""
    return kind.upper().startswith("DECIMAL") and all(name.lower() != "locale" for name in given)


def read_csv_values(row: Column, kinds: Mapping[str, str], given: Mapping[str, str]) -> list[Column]:
    """Return the columns' values, by their types; NULL for what is not base64, or no such decimal."""
    return [_read_value(row.getField(name), kind, given) for name, kind in kinds.items()]


def _read_value(field: Column, kind: str, given: Mapping[str, str]) -> Column:
    if kind == "BINARY":
        return F.try_to_binary(field, F.lit("base64"))
    return F.replace(field, F.lit(",")).try_cast(kind) if _is_decimal(kind, given) else field


def has_bad_values(row: Column, kinds: Mapping[str, str], given: Mapping[str, str]) -> Column:
    """Return whether a column that Spark reads as a text, by the columns' types, has another value."""
    bad = F.lit(False)
    for name, kind in kinds.items():
        if type_in_csv(kind, given) != kind:
            text = row.getField(name)
            bad = bad | (text.isNotNull() & _read_value(text, kind, given).isNull())
    return bad


def write_csv(values: Mapping[str, Column], kinds: Mapping[str, str], given: Mapping[str, str]) -> Column:
    """Return a row, with the values by their columns' names in lower case."""
    fields = [
        (F.base64(values[name.lower()]) if kind == "BINARY" else values[name.lower()]).alias(name)
        for name, kind in kinds.items()
    ]
    row = F.concat_ws("", F.to_csv(F.struct(*fields), writing_settings(given)))  # no text is the empty one
    if _quote(given):
        return row
    failure = F.raise_error(F.lit(_DIVIDED)).cast("string")
    return F.when(F.contains(row, F.lit(_NO_QUOTE)), failure).otherwise(row)
