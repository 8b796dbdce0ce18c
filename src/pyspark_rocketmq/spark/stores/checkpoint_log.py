"""Reads the offset ranges of a batch from a query's checkpoint."""

# Facts (OffsetSeqLog, StreamMetadata of Spark 4.3): `offsets/<batch>` is written before the batch runs and
# holds a version line, a line of metadata, and each source's end offset; `metadata` holds the query's id.

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, offset_of_rocketmq
from pyspark_rocketmq.planning.batch_replay import BatchId
from pyspark_rocketmq.planning.topics.discovery import plan_ranges

__all__ = ["CheckpointLog"]

_VERSION: Final = "v1"


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
        ends = self._offsets(number)
        starts = self._offsets(number - 1) if number > 0 else [None] * len(ends)
        if not any(ends):
            raise OptionError("no source of the query is RocketMQ", checkpoint=self._location, batch=number)
        ranges: list[OffsetRange] = []
        for start, end in zip(starts, ends, strict=True):
            if end is not None and end != start:
                before = {} if start is None else start.offsets
                ranges += plan_ranges(before, end.offsets, end.begin)
        return tuple(sorted(ranges))

    def watermark_ms(self, number: int) -> int:
        """Return the watermark of a batch, in milliseconds since the epoch; 0 if there was none yet."""
        return int(json.loads(self._entry(number)[1])["batchWatermarkMs"])

    def _offsets(self, number: int) -> list[SourceOffset | None]:
        """Return a batch's end offsets, in the order of the query's sources; None for other sources."""
        return [offset_of_rocketmq(line) for line in self._entry(number)[2:]]

    def _entry(self, number: int) -> list[str]:
        lines = self._text(f"offsets/{number}").splitlines()
        if not lines or lines[0] != _VERSION:
            raise OptionError(
                f"the offset log is of version {lines[0] if lines else 'none'!r}, this release reads "
                f"{_VERSION}",
                checkpoint=self._location,
                batch=number,
            )
        return lines

    def _text(self, name: str) -> str:
        path = f"{self._location}/{name}"
        rows = self._spark.read.text(path, wholetext=True).collect()
        if len(rows) != 1:
            raise OptionError("the checkpoint has no such file", path=path)
        return str(rows[0][0])
