"""Where answers are received: large buffers, handed out as views and used again when nobody looks at them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import decode_frame, frame_length

__all__ = ["MAX_FRAME_BYTES", "ReceiveBuffer"]

MAX_FRAME_BYTES: Final = 160 << 20
"""The longest answer taken: a broker caps a pull at 128 MiB and a single message at 4 MiB by default."""

_FIRST_BYTES: Final = 64 << 10
_FULL_BYTES: Final = 4 << 20
"""The fewer buffers a batch lies in, the less it costs to decode (measured: 15 % less than with 1 MiB)."""
_KEPT: Final = 6
"""Fresh memory costs a page fault every 4 KiB, which is four times what receiving into it costs (measured):
so this many full-size buffers are kept for when they are free again."""
_LEAST_ROOM: Final = 64 << 10


def _references(buffers: list[bytearray], index: int) -> int:
    return sys.getrefcount(buffers[index])


_UNSHARED: Final = _references([bytearray()], 0)
"""What `_references` says of a buffer that only the list holds. Every view of it holds one more."""


class ReceiveBuffer:
    """The buffer that a connection receives into: bytes come in at its end, frames are taken from its start.

    Views of a buffer stay good for as long as they live: it is used again only when there are none.
    """

    __slots__ = ("_data", "_end", "_kept", "_start")

    def __init__(self) -> None:
        self._data = bytearray(_FIRST_BYTES)
        self._start = 0
        self._end = 0
        self._kept: list[bytearray] = []

    def room(self) -> memoryview:
        """Return where the next bytes go; `received` tells how many came.

        Raises
        ------
        RemoteProtocolError
            What was received last is no frame.
        """
        have = self._end - self._start
        needed = 0
        if have:
            needed = frame_length(self._data, self._start, self._end, limit=MAX_FRAME_BYTES) or 0
        if len(self._data) - self._end < max(needed - have, _LEAST_ROOM):
            self._change(needed, have)
        return memoryview(self._data)[self._end :]

    def received(self, size: int) -> None:
        """Count in bytes that were written to the last `room`."""
        self._end += size

    def frames(self) -> Iterator[tuple[Command, bytearray, int, int]]:
        """Take the frames that are whole: each one's command, and its body as a buffer and its bounds.

        Raises
        ------
        RemoteProtocolError
            The peer sent something else.
        """
        data, end = self._data, self._end
        view = memoryview(data)
        while True:
            length = frame_length(data, self._start, end, limit=MAX_FRAME_BYTES)
            if length is None or end - self._start < length:
                return
            frame = decode_frame(view[self._start : self._start + length])
            self._start += length
            yield frame.command, data, self._start - len(frame.body), self._start

    def _change(self, needed: int, have: int) -> None:
        """Go on in another buffer, which takes along the beginning of a frame.

        It grows with what has arrived, not with what the peer announced.
        """
        old = self._data
        size = min(_FULL_BYTES, 4 * len(old))
        if needed > size:
            size = max(size, min(needed + _LEAST_ROOM, 4 * have))
        self._data = self._unused(size)
        self._data[:have] = memoryview(old)[self._start : self._end]
        self._start, self._end = 0, have
        if len(old) == _FULL_BYTES and len(self._kept) < _KEPT:
            self._kept.append(old)

    def _unused(self, size: int) -> bytearray:
        if size == _FULL_BYTES:
            for index in range(len(self._kept)):
                if _references(self._kept, index) == _UNSHARED:
                    return self._kept.pop(index)
        return bytearray(size)
