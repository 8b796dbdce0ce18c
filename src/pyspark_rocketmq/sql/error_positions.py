"""The positions of Spark's errors in a job's text, and their one-line messages."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, QueryContextType

from pyspark_rocketmq.errors import RocketMQError, SqlError
from pyspark_rocketmq.spark.causes import find_cause
from pyspark_rocketmq.sql.statements import Position

__all__ = ["failures_at", "place_of", "reason_of"]

_BATCH: Final = "SET 'execution.runtime-mode' = 'batch' runs it once"
_TOP_N: Final = (
    "a Top-N of a stream with more than one row of each key needs Spark 4.2 or later: use that release, or "
    f"select the first row, WHERE rank = 1; {_BATCH}"
)
_INSTEAD: Final[Mapping[str, str]] = {
    # Spark's line speaks of a missing watermark, also if the table has one that the query does not group by.
    "streaming aggregations without watermark": (
        "the aggregation has no final rows to append: nothing in GROUP BY is a time with a watermark. Group "
        "by a window of the column of WATERMARK FOR, such as window(ts, '1 minute'), or write each changed "
        "row: SET 'outputMode' = 'update'"
    ),
    "Sorting is not supported on streaming": (
        "ORDER BY of a stream is not supported: it has no last row before which others could be sorted. Use "
        f"ROW_NUMBER() with a bound (Top-N), or sort where the result is read; {_BATCH}"
    ),
    "Offset is not supported on streaming": f"OFFSET of a stream is not supported: leave it out; {_BATCH}",
    "Intersect of streaming": (
        f"INTERSECT of streams is not supported: JOIN the queries on all their columns; {_BATCH}"
    ),
    "Except on a streaming": (
        f"EXCEPT of streams is not supported: a later row of the second one would take back a row; {_BATCH}"
    ),
    "Streaming query is not allowed in subquery expressions": (
        "a condition or a value cannot read a stream (IN, EXISTS, a query in parentheses): JOIN it, for IN "
        f"with SELECT DISTINCT; {_BATCH}"
    ),
    "Union between streaming and batch": (
        "a stream cannot be united with rows that are no stream: write each with its own INSERT"
    ),
    "between two streaming DataFrame/Datasets is not supported without a watermark": (
        "an outer join of streams needs a bound, after which a row has no match: WATERMARK FOR in both "
        f"tables, and ON … AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR; {_BATCH}"
    ),
    "Sampling is not supported on streaming": "TABLESAMPLE of a stream is not supported: WHERE RAND() < 0.1",
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": (
        "OVER of a stream is supported in Flink's dialect: ROW_NUMBER() in a query whose outer query has a "
        "bound (WHERE rank <= 10), and aggregates in the order of the column of WATERMARK FOR. Otherwise use "
        f"a window and GROUP BY; {_BATCH}"
    ),
    "Detected pattern of possible 'correctness' issue": (
        "the query aggregates or joins rows that may be older than the watermark: those of an outer join, or "
        "of an aggregation without a window. Group the inner query by a window, or write its result to a "
        f"topic, which another INSERT reads; {_BATCH}"
    ),
    "`max_by` requires 2 parameters": _TOP_N,
    "`min_by` requires 2 parameters": _TOP_N,
    "Queries with streaming sources must be executed with writeStream": (
        f"a stream can be read by INSERT INTO … SELECT, and by SELECT in the shell; {_BATCH}"
    ),
}
"""What to say where a part of Spark's line speaks of DataFrames or misleads."""

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
    text = str(error)
    instead = next((ours for theirs, ours in _INSTEAD.items() if theirs in text), None)
    return instead or find_cause(text) or type(error).__name__


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
