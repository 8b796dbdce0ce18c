"""The positions of Spark's errors in a job's text, and their one-line messages."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import PySparkException, QueryContextType

from pyspark_rocketmq.sql.statements import Position

__all__ = ["place_of", "reason_of"]

# Errors of Spark's parser have no query context: the position is in the message.
_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_NOISE: Final = re.compile(r" SQLSTATE: \w+|; line \d+ pos \d+;?| ?\(line \d+, pos \d+\)")


def place_of(error: PySparkException, text: str) -> Position | None:
    """Return an error's position in the job, if Spark reports one.

    Queries are passed to Spark padded to their positions in the job, so Spark's positions are the job's.
    """
    for context in error.getQueryContext() or ():
        if context.contextType() == QueryContextType.SQL and not context.objectType():
            return Position.of(text, context.startIndex())
    found = _PLACE.search(str(error))
    return None if found is None else Position(int(found[1]), int(found[2]) + 1)


def reason_of(error: BaseException) -> str:
    """Return the line of an error that says what happened. For a Python worker's error, its last cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition("Error: ")[2] for line in lines if line.partition(":")[0].endswith("Error")]
    line = ours[-1] if ours else lines[0] if lines else type(error).__name__
    return _NOISE.sub("", line).strip()
