"""The positions of Spark's errors in a job's text, and their one-line messages."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import PySparkException, QueryContextType

from pyspark_rocketmq.spark.causes import find_cause
from pyspark_rocketmq.sql.statements import Position

__all__ = ["place_of", "reason_of"]

# Errors of Spark's parser have no query context: the position is in the message.
_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")


def place_of(error: PySparkException, text: str) -> Position | None:
    """Return an error's position in the job, if Spark reports one.

    Queries are passed to Spark padded to their positions in the job, so Spark's positions are the job's. In a
    translated query they are not: the part that Spark reports is searched in the job.
    """
    for context in error.getQueryContext() or ():
        if context.contextType() == QueryContextType.SQL and not context.objectType():
            start, fragment = context.startIndex(), context.fragment()
            if text.startswith(fragment, start):
                return Position.of(text, start)
            if text.count(fragment) == 1:  # of a translated query
                return Position.of(text, text.index(fragment))
            return None
    found = _PLACE.search(str(error))
    return None if found is None else Position(int(found[1]), int(found[2]) + 1)


def reason_of(error: BaseException) -> str:
    """Return the line of an error that says what happened."""
    return find_cause(str(error)) or type(error).__name__
