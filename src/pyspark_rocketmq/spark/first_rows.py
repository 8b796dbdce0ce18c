"""A stream's first rows as a list: for exploration, notebooks and tests."""

from __future__ import annotations

import uuid
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.arguments import require
from pyspark_rocketmq.options.text.kinds import parse_duration_ms
from pyspark_rocketmq.spark.query_end import ends_within, stop_query

__all__ = ["take_rows"]

_LOOK_S: Final = 0.1


def take_rows(
    df: DataFrame, rows: int = 10, *, timeout: str = "30 s", outputMode: str = "append"
) -> list[Row]:
    """Run a streaming DataFrame until it has returned some rows, stop it, and return the rows.

    Equivalent to ``df.take(rows)``, which is used for batch DataFrames. The query has a temporary checkpoint:
    the next call begins where the source's options say. With a ``consumerGroup``, finished batches are
    committed, as in any query. The rows of its batches are kept in the driver's memory.

    Parameters
    ----------
    df : DataFrame
    rows : int
        Maximum number of rows.
    timeout : str
        Maximum time. Then the rows read so far are returned, possibly none.
    outputMode : {"append", "update", "complete"}
        Use complete for aggregations without a watermark: returns the rows of the last result.

    Raises
    ------
    OptionError
        An argument is invalid.
    StreamingQueryException
        The query fails.

    Examples
    --------
    >>> take_rows(spark.readStream.format("rocketmq").option("topic", "orders").load())  # doctest: +SKIP
    """
    if rows < 1:
        raise OptionError("rows is 1 or more", rows=rows)
    require(timeout, str, "timeout", must='a text with its unit, such as "30 s"')
    try:
        timeout_s = parse_duration_ms(timeout) / 1000
    except ValueError as error:
        raise OptionError(f"timeout is malformed: {error}", value=timeout) from None
    if not df.isStreaming:
        return df.take(rows)
    table = f"take_rows_{uuid.uuid4().hex}"
    query = df.writeStream.format("memory").queryName(table).outputMode(outputMode).start()
    try:
        return _when_there(query, df.sparkSession.table(table), rows, timeout_s)
    finally:
        stop_query(query)
        df.sparkSession.catalog.dropTempView(table)


def _when_there(query: StreamingQuery, found: DataFrame, rows: int, timeout_s: float) -> list[Row]:
    """Check after each finished batch."""
    deadline = SYSTEM_CLOCK.monotonic() + timeout_s
    seen: str | None = None
    while (left := deadline - SYSTEM_CLOCK.monotonic()) > 0:
        ended = ends_within(query, min(_LOOK_S, left))
        progress = query.lastProgress
        at = None if progress is None else str(progress["timestamp"])
        if at != seen and len(taken := found.limit(rows).collect()) >= rows:
            return taken
        seen = at
        if ended:
            break
    return found.limit(rows).collect()
