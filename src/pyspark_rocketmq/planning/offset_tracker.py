"""The delivered but unfinished messages of a queue, which limit what a group may commit."""

# Facts: org.apache.rocketmq.client.impl.consumer.ProcessQueue (5.4.0): a queue's progress is the lowest
# offset that is not finished; with none of them it is where the next pull begins.

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["InFlight"]


class InFlight:
    """The unfinished messages of one queue, by offset. Not thread-safe.

    Parameters
    ----------
    position : int
        Where reading begins.
    """

    __slots__ = ("_next", "_sizes", "bytes")

    def __init__(self, position: int) -> None:
        self._next = position
        self._sizes: dict[int, int] = {}
        self.bytes = 0
        """The total size of the unfinished messages."""

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def position(self) -> int:
        """The next offset of the group: everything below is finished."""
        return min(self._sizes, default=self._next)

    @property
    def span(self) -> int:
        """The distance from the lowest to the highest unfinished offset."""
        return max(self._sizes) - min(self._sizes) if self._sizes else 0

    def add(self, messages: Iterable[tuple[int, int]], *, next_offset: int) -> None:
        """Record delivered messages (offset and size in bytes), and where to pull next."""
        for offset, size in messages:
            self.bytes += size - self._sizes.get(offset, 0)  # again, after a reset of the group
            self._sizes[offset] = size
        self._next = next_offset

    def finish(self, offsets: Iterable[int]) -> None:
        """Record that messages are finished; those that are not in flight are ignored."""
        for offset in offsets:
            self.bytes -= self._sizes.pop(offset, 0)
