"""The result of one pull as it came, for those that store messages before they decode them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.rows import Chunk

__all__ = ["PulledRun"]

_FOREVER: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PulledRun:
    """The undecoded records of one pull: no object per message is created.

    Parameters
    ----------
    queue : MessageQueue
    from_offset : int
        The requested offset. It identifies the run for `QueueWorker.finish_run`.
    offset_delta : int
        See `Chunk`.
    records : bytes or memoryview
    until_offset : int
        Records from this offset on belong to another run.
    """

    queue: MessageQueue
    from_offset: int
    offset_delta: int
    records: bytes | memoryview
    until_offset: int = _FOREVER

    def chunk(self, buffer: memoryview | None = None, start: int = 0) -> Chunk:
        """Return the records as the decoder's input; ``buffer`` contains them at ``start``."""
        data = memoryview(self.records) if buffer is None else buffer
        end = start + len(self.records)
        return Chunk(data, start, end, self.from_offset, self.until_offset, self.offset_delta)
