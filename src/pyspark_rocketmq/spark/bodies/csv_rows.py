"""Rows of CSV as they are: with the white space, the empty texts and the bytes that they have."""

# Facts (Spark 4.0 to 4.3, CSVOptions, UnivocityGenerator, UnivocityParser): to_csv removes characters up to
# the space from both ends of a text. An empty text is written as "", which from_csv reads as null, because
# the text of a null is the empty one. Without a quote character, "" is taken as it is. Bytes are written for
# people, as [01 02]. Flink writes them in base64 (RowDataToCsvConverters, CsvToRowDataConverters of 1.20).

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

__all__ = ["has_bad_bytes", "read_csv_value", "reading_settings", "type_in_csv", "write_csv"]

_READ_AS_NULL: Final = "\ufdd0"
"""The text of an empty field, which is null: a character that Unicode leaves to programs, in no text."""

_KEEP_SPACE: Final = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


def reading_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options for ``from_csv``."""
    return _defaults({"nullValue": _READ_AS_NULL}, given) | {**given}


def _writing_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options for ``to_csv``."""
    unquoted = {"emptyValue": ""} if given.get("quote") == "" else {}
    return _defaults({**_KEEP_SPACE, **unquoted}, given) | {**given}


def _defaults(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are not given, whatever the case of their names."""
    names = {name.lower() for name in given}
    return {name: value for name, value in settings.items() if name.lower() not in names}


def type_in_csv(kind: str) -> str:
    """Return the type by which Spark reads a column, for its type."""
    return "STRING" if kind == "BINARY" else kind


def read_csv_value(field: Column, kind: str) -> Column:
    """Return a column's value; NULL if it is not base64."""
    return F.try_to_binary(field, F.lit("base64")) if kind == "BINARY" else field


def has_bad_bytes(row: Column, kinds: Mapping[str, str]) -> Column:
    """Return whether a column of bytes, by the columns' types, has others than base64."""
    bad = F.lit(False)
    for name, kind in kinds.items():
        if kind == "BINARY":
            text = row.getField(name)
            bad = bad | (text.isNotNull() & read_csv_value(text, kind).isNull())
    return bad


def write_csv(values: Mapping[str, Column], kinds: Mapping[str, str], given: Mapping[str, str]) -> Column:
    """Return a row, with the values by their columns' names in lower case."""
    fields = [
        (F.base64(values[name.lower()]) if kind == "BINARY" else values[name.lower()]).alias(name)
        for name, kind in kinds.items()
    ]
    return F.to_csv(F.struct(*fields), _writing_settings(given))
