"""Receives answers into large buffers, which are returned as views and reused when no view is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark_rocketmq.client.net.buffer_pool import BUFFER_BYTES, BUFFERS, LEAST_ROOM, BufferPool, is_unshared
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.frame import decode_command, frame_length

__all__ = ["MAX_FRAME_BYTES", "ReceiveBuffer"]

MAX_FRAME_BYTES: Final = 160 << 20
"""The longest answer taken: a broker caps a pull at 128 MiB and a single message at 4 MiB by default."""

_FIRST_BYTES: Final = 2 * LEAST_ROOM
"""The size of a connection's own buffer: enough for small answers."""


class ReceiveBuffer:
    """The buffer that a connection receives into: bytes come in at its end, frames are taken from its start.

    Views of a buffer stay good for as long as they live: it is used again only when there are none.

    Parameters
    ----------
    pool : BufferPool
        Where large buffers come from and go to.
    """

    __slots__ = ("_end", "_held", "_pool", "_start")

    def __init__(self, pool: BufferPool = BUFFERS) -> None:
        self._pool = pool
        self._held = [bytearray(0)]  # a list of one: its references are counted as the pool counts them
        self._start = 0
        self._end = 0

    @property
    def unfinished(self) -> int:
        """The bytes of a frame that is not whole yet."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Return where the next bytes go; `add_received` says how many came.

        Raises
        ------
        RemoteProtocolError
            What was received last is no frame.
        """
        have = self._end - self._start
        needed = 0
        if have:
            needed = frame_length(self._held[0], self._start, self._end, limit=MAX_FRAME_BYTES) or 0
        least = needed - have if needed else LEAST_ROOM
        if needed > BUFFER_BYTES:
            least = min(least, LEAST_ROOM)
        if len(self._held[0]) - self._end < least:
            self._change(needed, have, least)
        return memoryview(self._held[0])[self._end :]

    def add_received(self, size: int) -> None:
        """Count in bytes that were written to the last `room`."""
        self._end += size

    def take_frames(self) -> Iterator[tuple[Command, bytearray, int, int]]:
        """Take the frames that are whole: each one's command, and its body as a buffer and its bounds.

        Raises
        ------
        RemoteProtocolError
            The peer sent something else.
        """
        data, end = self._held[0], self._end
        view = memoryview(data)
        while True:
            length = frame_length(data, self._start, end, limit=MAX_FRAME_BYTES)
            if length is None or end - self._start < length:
                return
            command, body = decode_command(view, self._start)
            self._start += length
            yield command, data, body, self._start

    def shrink(self) -> None:
        """Keep no large buffer until bytes arrive again, unless it has part of a frame."""
        if self._start == self._end and len(self._held[0]) > _FIRST_BYTES:
            if len(self._held[0]) == BUFFER_BYTES:
                self._pool.give(self._held.pop(), self._end, id(self))
            self._held = [bytearray(0)]
            self._start = self._end = 0

    def _change(self, needed: int, have: int, least: int) -> None:
        """Go on where there is room for ``least`` bytes, with the ``have`` ones of an unfinished frame.

        It grows with what has arrived, not with what the peer announced.
        """
        if not have and self._held[0] and is_unshared(self._held):
            self._start = self._end = 0
            return
        old, start, end = self._held[0], self._start, self._end
        if needed > BUFFER_BYTES and 4 * have > BUFFER_BYTES:
            data, self._start = bytearray(min(needed + LEAST_ROOM, 4 * have)), 0
        else:
            fresh = BUFFER_BYTES if old else _FIRST_BYTES
            data, self._start = self._pool.take(id(self), have + least) or (bytearray(fresh), 0)
        self._held = [data]
        self._end = self._start + have
        data[self._start : self._end] = memoryview(old)[start:end]
        if len(old) == BUFFER_BYTES:
            self._pool.give(old, end, id(self))
