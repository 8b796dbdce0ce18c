"""Reads the offset ranges of a batch from a query's checkpoint."""

# Facts (StreamMetadata, MicroBatchExecution of Spark 4.3): `offsets/<batch>` is written before the batch
# runs; `metadata` holds the query's id. A start restores the offsets of the last two entries: a named source
# that was absent in one batch continues. One that was absent for longer starts as a new one.

from __future__ import annotations

import json
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.offsets.offset_log import OffsetLogEntry
from pyspark_rocketmq.planning.batch_replay import BatchId
from pyspark_rocketmq.planning.topics.discovery import plan_ranges

__all__ = ["CheckpointLog"]

_ADVICE: Final = "give the query's own checkpointLocation"


class CheckpointLog:
    """A checkpoint's offset log, read through Spark: any path that Spark can read, also with Spark Connect.

    Parameters
    ----------
    spark : SparkSession
    location : str
        The query's ``checkpointLocation``.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = location.rstrip("/")
        self._query_id: str | None = None

    def batch_id(self, number: int) -> BatchId:
        """Return the full id of a batch of this checkpoint's query."""
        if self._query_id is None:
            self._query_id = str(json.loads(self._text("metadata"))["id"])
        return BatchId(self._query_id, number)

    def ranges(self, number: int) -> tuple[OffsetRange, ...]:
        """Return the non-empty offset ranges of a batch, of all its RocketMQ sources.

        Raises
        ------
        OptionError
            The checkpoint does not exist, its query does not read RocketMQ, or its format is unknown to this
            release.
        """
        ends = self._entry(number).of_rocketmq()
        if not ends:
            raise OptionError("no source of the query is RocketMQ", checkpoint=self._location, batch=number)
        starts = self._entry(number - 1).of_rocketmq() if number > 0 else {}
        if number > 1 and ends.keys() - starts.keys():
            starts = {**self._entry(number - 2).of_rocketmq(), **starts}
        ranges: list[OffsetRange] = []
        for source, end in ends.items():
            start = starts.get(source)  # None: the source's first batch
            if end != start:
                if end.committed_only:
                    raise OptionError(
                        "transactional_writer stores offsets of queues, and a read with "
                        "isolation=read_committed has others: read with isolation=read_uncommitted",
                        option="isolation",
                    )
                ranges += plan_ranges({} if start is None else start.offsets, end.offsets, end.begin)
        return tuple(sorted(ranges))

    def watermark_ms(self, number: int) -> int:
        """Return the watermark of a batch, in milliseconds since the epoch; 0 if there was none yet."""
        return self._entry(number).watermark_ms

    def _entry(self, number: int) -> OffsetLogEntry:
        try:
            advice = f"{_ADVICE}, without asyncProgressTrackingEnabled, which records some batches only"
            return OffsetLogEntry.parse(self._text(f"offsets/{number}", advice))
        except OptionError as error:
            error.facts.update(checkpoint=self._location, batch=number)
            raise

    def _text(self, name: str, advice: str = _ADVICE) -> str:
        path = f"{self._location}/{name}"
        try:
            rows = self._spark.read.text(path, wholetext=True).collect()
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            rows = []
        if len(rows) != 1:
            raise OptionError(f"the checkpoint has no such file: {advice}", path=path)
        return str(rows[0][0])
