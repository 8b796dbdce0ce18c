"""Spark's ``dropDuplicatesWithinWatermark`` in a few lines, with a watermark that one column drives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Deduplication"]


@dataclass
class Deduplication:
    """The operator's state over the micro-batches of a query.

    Facts (StreamingDeduplicateWithinWatermarkExec of Spark 4.3): a row whose time is not after the watermark
    is dropped as late; a key is forgotten when its first row's time plus the delay is not after the
    watermark; the watermark is the greatest time minus the delay, and moves after the micro-batch. Keys are
    forgotten at the end of the next micro-batch, which Spark may run at once, without rows: ``at_once``.
    """

    delay_ms: int
    at_once: bool = False
    watermark_ms: int = 0
    remembered: dict[str, int] = field(default_factory=dict)

    def batch(self, rows: Sequence[tuple[str, int]]) -> list[int]:
        """Take the rows of a micro-batch (key, time); return the places of those that pass.

        Raises
        ------
        AssertionError
            A row is late.
        """
        passed = []
        for place, (key, time_ms) in enumerate(rows):
            assert time_ms > self.watermark_ms, f"{key} at {time_ms} is late at {self.watermark_ms}"
            if key not in self.remembered:
                self.remembered[key] = time_ms + self.delay_ms
                passed.append(place)
        newest = max((time_ms for _, time_ms in rows), default=0)
        forget_ms = self.watermark_ms
        self.watermark_ms = max(self.watermark_ms, newest - self.delay_ms)
        if self.at_once:
            forget_ms = self.watermark_ms
        self.remembered = {key: until for key, until in self.remembered.items() if until > forget_ms}
        return passed
