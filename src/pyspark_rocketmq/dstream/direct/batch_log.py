"""What batches consist of, written down before they run.

Spark writes a checkpoint after it has started a batch's jobs. A driver that dies in between comes back with
a checkpoint that does not know the batch, and would give its time other ranges. So each batch's ranges go
into a small file beside the checkpoints first; a recovered stream reads them before it plans anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

from pyspark import SparkContext

from pyspark_rocketmq.dstream.jvm import jvm_of
from pyspark_rocketmq.dstream.ranges import OffsetRanges
from pyspark_rocketmq.model import OffsetRange

__all__ = ["BatchLog", "decode_ranges", "encode_ranges"]

_VERSION: Final = 1
_KEPT: Final = 100


def encode_ranges(ranges: OffsetRanges) -> str:
    """Return the text of a batch's file."""
    rows = [[r.topic, r.broker_name, r.queue_id, r.from_offset, r.until_offset] for r in ranges]
    return json.dumps({"version": _VERSION, "ranges": rows})


def decode_ranges(text: str) -> OffsetRanges | None:
    """Return the ranges; None for a file that was not finished: its batch never ran."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    if document.get("version") != _VERSION:
        return None
    return OffsetRanges(
        OffsetRange.create(topic, queue_id, broker_name, begin, end)
        for topic, broker_name, queue_id, begin, end in document["ranges"]
    )


class BatchLog:
    """The files of one stream in ``<checkpoint directory>/rocketmq-<stream>``; any path that Hadoop knows.

    Parameters
    ----------
    sc : SparkContext
    directory : str
        Of the checkpoints.
    stream_id : int
    """

    def __init__(self, sc: SparkContext, directory: str, stream_id: int) -> None:
        self._jvm = jvm_of(sc)
        self._folder = self._jvm.org.apache.hadoop.fs.Path(directory, f"rocketmq-{stream_id}")
        self._files = self._folder.getFileSystem(sc._jsc.hadoopConfiguration())  # noqa: SLF001
        self._files.mkdirs(self._folder)
        names = [str(status.getPath().getName()) for status in self._files.listStatus(self._folder)]
        self._times = {int(name) for name in names if name.isdigit()}

    def read(self, time_ms: int) -> OffsetRanges | None:
        """Return what a former life of the stream planned for a time, if it did."""
        if time_ms not in self._times:
            return None
        stream = self._files.open(self._path(time_ms))
        try:
            text = str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        return decode_ranges(text)

    def write(self, time_ms: int, ranges: OffsetRanges) -> None:
        """Write a batch down: it may run when this returns."""
        stream = self._files.create(self._path(time_ms), True)
        try:
            stream.write(bytearray(encode_ranges(ranges).encode()))
        finally:
            stream.close()
        self._times.add(time_ms)

    def forget(self, needed: Collection[int]) -> None:
        """Delete old files, but for those of the batches that are needed and the newest ones."""
        for time_ms in sorted(self._times)[:-_KEPT]:
            if time_ms not in needed:
                self._files.delete(self._path(time_ms), False)
                self._times.discard(time_ms)

    def _path(self, time_ms: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, str(time_ms))
