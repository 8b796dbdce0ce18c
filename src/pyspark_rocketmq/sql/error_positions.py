"""The positions of Spark's errors in a job's text, and their one-line messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, QueryContextType

from pyspark_rocketmq.errors import RocketMQError, SqlError
from pyspark_rocketmq.spark.causes import find_cause
from pyspark_rocketmq.sql.statements import Position

__all__ = ["failures_at", "place_of", "reason_of"]

_NO_WATERMARK: Final = "streaming aggregations without watermark"
_NO_FINAL_ROWS: Final = (
    "the aggregation has no final rows to append: nothing in GROUP BY is a time with a watermark. Group by a "
    "window of the column of WATERMARK FOR, such as window(ts, '1 minute'), or write each changed row: SET "
    "'outputMode' = 'update'"
)
"""Spark's line speaks of a missing watermark, also if the table has one that the query does not group by."""

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


def reason_of(error: BaseException | str) -> str:
    """Return the line of an error that says what happened, and what to do if Spark's line misleads."""
    if isinstance(error, PySparkException) and _NO_WATERMARK in str(error):
        return _NO_FINAL_ROWS
    return find_cause(str(error)) or type(error).__name__


@contextlib.contextmanager
def failures_at(position: Position, text: str) -> Iterator[None]:
    """Add the position in the text to errors of options and of Spark.

    Raises
    ------
    SqlError
    """
    try:
        yield
    except SqlError:
        raise
    except RocketMQError as error:
        raise SqlError(error.message, line=position.line, column=position.column) from error
    except PySparkException as error:
        at = place_of(error, text) or position
        raise SqlError(reason_of(error), line=at.line, column=at.column) from error
    except Py4JJavaError as error:  # some errors of Spark's are not translated
        reason = reason_of(str(error.java_exception.getMessage()))
        raise SqlError(reason, line=position.line, column=position.column) from error
