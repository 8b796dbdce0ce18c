"""Texts in bodies: the delimiters of rows and fields, with Spark's functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

__all__ = ["delimiter_pattern", "join_fields"]


def join_fields(values: Mapping[str, Column], names: Sequence[str], *, field: str, line: str) -> Column:
    """Return a row of format=delimited. A value that its reader would divide fails the query.

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
        failure = F.raise_error(F.lit(message)).cast("string")
        texts.append(F.when(torn, failure).otherwise(text))
    return F.array_join(F.array(*texts), field)


def delimiter_pattern(delimiter: str) -> str:
    """Return the regular expression of a delimiter, for Java."""
    return "\\Q" + delimiter.replace("\\E", "\\E\\\\E\\Q") + "\\E"
