"""The end of a query: waits for it for a limited time, or causes it, also after Ctrl-C."""

from __future__ import annotations

from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ends_within", "stop_query"]

_LEAST_S: Final = 0.001
"""Spark waits for whole milliseconds, and refuses 0."""


def ends_within(query: StreamingQuery, timeout_s: float) -> bool:
    """Wait for a query's end for at most this time, and return whether it has ended.

    Raises
    ------
    StreamingQueryException
        The query has failed.
    """
    return bool(query.awaitTermination(max(timeout_s, _LEAST_S)))  # type: ignore[arg-type]  # takes fractions


def stop_query(query: StreamingQuery) -> None:
    """Stop a query, and wait for its end.

    Raises
    ------
    Py4JNetworkError
        The JVM has ended.
    """
    try:
        query.stop()
    except Py4JNetworkError:
        # After an interruption within a call the JVM may close py4j's next connection, and no other.
        query.stop()
