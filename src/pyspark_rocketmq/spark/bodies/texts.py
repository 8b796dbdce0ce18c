"""Texts in bodies: their charsets, and the delimiters of rows and fields, with Spark's functions."""

# Facts (Java 17): UTF-16 without a byte order mark is big-endian. Spark 4's decode fails at malformed bytes.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

__all__ = ["decode_text", "delimiter_pattern", "join_fields"]

# Of bytes that are read as ISO-8859-1: one character, or a pair of surrogates.
_BIG_ENDIAN: Final = r"(?s)[^\xD8-\xDF].|[\xD8-\xDB].[\xDC-\xDF]."
_LITTLE_ENDIAN: Final = r"(?s).[^\xD8-\xDF]|.[\xD8-\xDB].[\xDC-\xDF]"
_LITTLE_ENDIAN_MARK: Final = "\xff\xfe"


def decode_text(data: Column, charset: str) -> Column:
    """Return bytes as a text; NULL if they are no text of the charset.

    Bytes that are said to be UTF-8 are taken as they are.
    """
    if charset == "UTF-8":
        return data.cast("string")
    return F.when(_is_text(data, charset), F.decode(data, charset))


def _is_text(data: Column, charset: str) -> Column:
    each_byte = F.decode(data, "ISO-8859-1")
    match charset:
        case "US-ASCII":
            return F.octet_length(each_byte) == F.octet_length(data)
        case "UTF-16BE":
            return F.regexp_replace(each_byte, _BIG_ENDIAN, "") == ""
        case "UTF-16LE":
            return F.regexp_replace(each_byte, _LITTLE_ENDIAN, "") == ""
        case "UTF-16":
            marked = each_byte.startswith(_LITTLE_ENDIAN_MARK)
            kind = F.when(marked, F.lit(_LITTLE_ENDIAN)).otherwise(F.lit(_BIG_ENDIAN))
            return F.regexp_replace(each_byte, kind, F.lit("")) == ""
        case _:
            return F.lit(True)


def join_fields(values: Mapping[str, Column], names: Sequence[str], *, field: str, line: str) -> Column:
    """Return a row of format=delimited. A value that its reader would divide, or not take, fails the query.

    Parameters
    ----------
    values : mapping of str to Column
        The value of each column, by its name in lower case.
    names : sequence of str
        The columns, in order.
    field, line : str
        The delimiters.
    """
    texts = []
    for name in names:
        text = F.coalesce(values[name.lower()].cast("string"), F.lit(""))
        message = f"column {name} holds a delimiter of format=delimited: use json or csv"
        torn = F.contains(text, F.lit(field)) | F.contains(text, F.lit(line))
        if name != names[-1]:  # a delimiter of several characters may begin in the text
            torn = torn | F.contains(F.concat(text, F.lit(field[:-1])), F.lit(field))
        unread = (
            f"column {name} holds bytes that are not UTF-8, which format=delimited refuses: use json or csv"
        )
        checked = F.when(torn, _fail(message)).when(~F.is_valid_utf8(text), _fail(unread))
        texts.append(checked.otherwise(text))
    return F.array_join(F.array(*texts), field)


def _fail(message: str) -> Column:
    return F.raise_error(F.lit(message)).cast("string")


def delimiter_pattern(delimiter: str) -> str:
    """Return the regular expression of a delimiter, for Java."""
    return "\\Q" + delimiter.replace("\\E", "\\E\\\\E\\Q") + "\\E"
