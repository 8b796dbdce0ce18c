"""Stops a query, also after Ctrl-C."""

from __future__ import annotations

from py4j.protocol import Py4JNetworkError
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stop_query"]


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
