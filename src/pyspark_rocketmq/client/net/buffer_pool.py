"""Large receive buffers that no connection receives into now; one pool a process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.net.fork import ForkSafeLock, tell_after_fork

__all__ = ["BUFFERS", "BUFFER_BYTES", "KEPT_BYTES", "LEAST_ROOM", "BufferPool", "is_unshared"]

BUFFER_BYTES: Final = 4 << 20
"""The fewer buffers a batch lies in, the less it costs to decode (measured: 15 % less than with 1 MiB)."""

KEPT_BYTES: Final = 16 << 20
"""Fresh memory costs a page fault every 4 KiB, which is four times what receiving into it costs (measured):
so this much is kept for when it is needed again, for all connections of the process together."""

LEAST_ROOM: Final = 64 << 10
"""A buffer with less room at its end is not received into any more."""


def is_unshared(holder: list[bytearray], index: int = 0) -> bool:
    """Return whether only ``holder`` refers to a buffer: every view of it is one reference more."""
    return _references(holder, index) == _UNSHARED


def _references(holder: list[bytearray], index: int) -> int:
    return sys.getrefcount(holder[index])


_UNSHARED: Final = _references([bytearray()], 0)


@dataclass(slots=True)
class _Resting:
    """A kept buffer's state: bytes up to ``end`` may be in use; only ``owner`` may continue there."""

    end: int
    owner: int


class BufferPool:
    """Keeps buffers until nothing refers to them; safe in threads and after a fork.

    A connection whose answers are being decoded gets its own buffer back and continues at its end: answers of
    several connections in one buffer would keep it alive for the slowest of their readers.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._most = kept_bytes // BUFFER_BYTES
        self._lock = ForkSafeLock()
        self._buffers: list[bytearray] = []
        self._resting: list[_Resting] = []
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Start empty in a child: another thread of the parent may have been in the middle of a change."""
        self._buffers, self._resting = [], []

    @property
    def kept_bytes(self) -> int:
        """How much memory is kept, whether or not it is still referenced."""
        return len(self._buffers) * BUFFER_BYTES

    def take(self, owner: int, room: int) -> tuple[bytearray, int] | None:
        """Return a buffer with that much room, and where the room starts; None if there is none.

        The one used last comes first: it is in the CPU's cache.
        """
        with self._lock:
            for index in range(len(self._buffers) - 1, -1, -1):
                resting = self._resting[index]
                if is_unshared(self._buffers, index):
                    start = 0
                elif resting.owner == owner and BUFFER_BYTES - resting.end >= room:
                    start = resting.end
                else:
                    continue
                del self._resting[index]
                return self._buffers.pop(index), start
        return None

    def give(self, buffer: bytearray, end: int, owner: int) -> None:
        """Keep a buffer of ``BUFFER_BYTES`` that was received into up to ``end``, if there is room for it."""
        with self._lock:
            if len(self._buffers) >= self._most and not self._make_room(end):
                return
            self._buffers.append(buffer)
            self._resting.append(_Resting(end, owner))

    def _make_room(self, end: int) -> bool:
        """Drop a buffer that is full and still looked at, for one that can be gone on with."""
        if BUFFER_BYTES - end < LEAST_ROOM:
            return False
        for index, resting in enumerate(self._resting):
            if BUFFER_BYTES - resting.end < LEAST_ROOM and not is_unshared(self._buffers, index):
                del self._resting[index], self._buffers[index]
                return True
        return False


BUFFERS: Final = BufferPool()
"""The pool of this process."""
