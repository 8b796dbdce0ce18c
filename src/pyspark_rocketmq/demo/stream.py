"""The running query: its current result and its progress."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.demo.orders import Total, Totals, Window
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.offsets.stream_offset import offset_of_rocketmq
from pyspark_rocketmq.spark.causes import find_cause
from pyspark_rocketmq.spark.query_end import stop_query

__all__ = ["RevenueStream"]


class RevenueStream:
    """Keeps the newest revenue of each window and product. A context manager that runs the query.

    Rows replace their older versions, so a repeated batch changes nothing.

    Parameters
    ----------
    revenue : DataFrame
        The job's result.
    checkpoint : Path
    """

    def __init__(self, revenue: DataFrame, checkpoint: Path) -> None:
        self.batches = 0
        self.batch_s = 0.0
        self.read = 0
        self._totals: dict[Window, Total] = {}
        self._writer = (
            revenue.writeStream.outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self._take)
        )
        self._query: StreamingQuery | None = None

    @property
    def totals(self) -> Totals:
        """The current result."""
        return dict(self._totals)

    def look(self) -> None:
        """Read Spark's progress report of the last finished batch.

        Raises
        ------
        RocketMQError
            The query has failed.
        """
        assert self._query is not None
        failure = self._query.exception()
        if failure is not None:
            raise RocketMQError(f"the streaming query failed: {find_cause(str(failure))}")
        progress = self._query.lastProgress
        end = None if progress is None else offset_of_rocketmq(progress.sources[0].endOffset)
        if progress is None or end is None:
            return
        self.batches = progress.batchId + 1
        self.batch_s = progress.batchDuration / 1000
        self.read = sum(end.offsets.values())

    def __enter__(self) -> Self:
        self._query = self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._query is not None
        stop_query(self._query)

    def _take(self, batch: DataFrame, _batch_id: int) -> None:
        self._totals |= {
            (row.windowStart, row.product): Total(row.orders, row.cents) for row in batch.collect()
        }
