"""A log of the ranges of batches, written before the batches run.

Spark writes a checkpoint after it has started a batch's jobs. A driver that dies in between recovers from a
checkpoint without the batch, and would plan other ranges for its time. So each batch's ranges are first
written to a small file next to the checkpoints. A recovered stream reads these files before it plans. The
progress of finished batches is also written: changed code cannot use a checkpoint, but it can use these
files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pyspark import SparkContext

from pyspark_rocketmq.dstream.jvm import jvm_of
from pyspark_rocketmq.dstream.ranges import OffsetRanges
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.direct_log import (
    ENDS_PREFIX,
    FOLDER_PREFIX,
    decode_moved,
    decode_ranges,
    encode_ends,
    encode_ranges,
)

__all__ = ["BatchLog"]

_KEPT: Final = 100
_KEPT_ENDS: Final = 3


class BatchLog:
    """The files of one stream in ``<checkpoint directory>/rocketmq-<stream>``, any path that Hadoop supports.

    Parameters
    ----------
    sc : SparkContext
    directory : str
        The checkpoint directory.
    stream_id : int
    """

    def __init__(self, sc: SparkContext, directory: str, stream_id: int) -> None:
        self._jvm = jvm_of(sc)
        self._folder = self._jvm.org.apache.hadoop.fs.Path(directory, f"{FOLDER_PREFIX}{stream_id}")
        self._files = self._folder.getFileSystem(sc._jsc.hadoopConfiguration())  # noqa: SLF001
        self._files.mkdirs(self._folder)
        names = [str(status.getPath().getName()) for status in self._files.listStatus(self._folder)]
        self._times = {int(name) for name in names if name.isdigit()}
        self._ends_files = sorted(name for name in names if name.startswith(ENDS_PREFIX))
        self._ends: Mapping[MessageQueue, int] = {}

    def read(self, time_ms: int) -> tuple[OffsetRanges, Mapping[MessageQueue, int]] | None:
        """Return the ranges that an earlier run of the stream planned for a time, if any.

        With them, the positions before that of the queues whose range does not begin at it.
        """
        if time_ms not in self._times:
            return None
        stream = self._files.open(self._path(time_ms))
        try:
            text = str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        ranges = decode_ranges(text)
        return None if ranges is None else (OffsetRanges(ranges), decode_moved(text))

    def write(self, time_ms: int, ranges: OffsetRanges, moved: Mapping[MessageQueue, int]) -> None:
        """Write a batch's ranges, and what `read` returns with them. The batch may run when this returns."""
        self._create(str(time_ms), encode_ranges(ranges, moved))
        self._times.add(time_ms)

    def write_ends(self, time_ms: int, ends: Mapping[MessageQueue, int]) -> None:
        """Write the offsets up to which all batches are finished: changed code starts there."""
        if ends == self._ends:
            return
        name = f"{ENDS_PREFIX}{time_ms}"
        self._create(name, encode_ends(ends))
        self._ends = ends
        self._ends_files = [*(kept for kept in self._ends_files if kept != name), name]
        for old in self._ends_files[:-_KEPT_ENDS]:
            self._files.delete(self._path(old), False)
        self._ends_files = self._ends_files[-_KEPT_ENDS:]

    def forget(self, needed: Collection[int]) -> None:
        """Delete old files, except those of needed batches and the newest ones."""
        for time_ms in sorted(self._times)[:-_KEPT]:
            if time_ms not in needed:
                self._files.delete(self._path(time_ms), False)
                self._times.discard(time_ms)

    def _create(self, name: str, text: str) -> None:
        stream = self._files.create(self._path(name), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _path(self, name: object) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, str(name))
