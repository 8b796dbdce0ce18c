"""The bytes of one connection: what waits to be sent, and what was received, frame by frame."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyspark_rocketmq.client.net.byte_stream import ByteStream
from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.receive_buffer import ReceiveBuffer
from pyspark_rocketmq.errors import ConnectionLostError
from pyspark_rocketmq.remoting.acl import sign
from pyspark_rocketmq.remoting.command import Buffer, Command, Serializer
from pyspark_rocketmq.remoting.frame import encode_frame_head
from pyspark_rocketmq.remoting.template import Request, TemplatedRequest

__all__ = ["LARGE_BODY", "FrameSocket", "Received", "encode_request"]

LARGE_BODY: Final = 64 * 1024
"""A body of this many bytes goes to the socket as it is: it is not copied to follow its header."""

_SILENCE_S: Final = 0.05
"""After this long without a byte a connection gives up its buffer: another one may need it."""


class Received(NamedTuple):
    """A frame whose body is ``buffer[start:end]``."""

    command: Command
    buffer: bytearray
    start: int
    end: int


def encode_request(
    options: ConnectionOptions, request: Request, body: Buffer, opaque: int, flag: int
) -> Sequence[Buffer]:
    """Return the parts of a request's frame, signed if there are credentials."""
    if (
        isinstance(request, TemplatedRequest)
        and options.credentials is None
        and options.serializer is Serializer.JSON
        and not flag
    ):
        head = request.template.frame_head(opaque, request.values, len(body))
    else:
        head = _encode_head(options, request, body, opaque, flag)
    return (b"".join((head, body)),) if len(body) < LARGE_BODY else (head, body)


def _encode_head(options: ConnectionOptions, request: Request, body: Buffer, opaque: int, flag: int) -> bytes:
    if isinstance(request, TemplatedRequest):
        request = request.template.request(request.values)
    fields = request.fields(options.namespace)
    if options.credentials is not None:
        fields = sign(fields, body, options.credentials)
    command = Command(code=request.CODE, opaque=opaque, flag=flag, fields=fields)
    return encode_frame_head(command, len(body), serializer=options.serializer)


class FrameSocket:
    """A stream of frames; only `sleep` waits.

    Safe to share between threads, but only one of them may be in `sleep`.

    Parameters
    ----------
    stream : ByteStream
        It is closed with this.
    addr : str
        For errors.
    """

    def __init__(self, stream: ByteStream, addr: str) -> None:
        self._stream = stream
        self._addr = addr
        self._lock = threading.Lock()  # TLS objects are not safe for a read beside a write
        self._outgoing: deque[memoryview] = deque()
        self._buffer = ReceiveBuffer()
        self._given_up = False
        self._frames = 0
        self.taken = 0
        """The number of bytes that the peer, or the machine, has taken so far."""
        self.may_have_more = False
        """Whether there may be more to receive although `sleep` would not notice it."""

    @property
    def unsent(self) -> bool:
        """Whether something waits for the peer to take it."""
        return bool(self._outgoing)

    @property
    def arriving(self) -> tuple[int, int]:
        """The number of frames received, and the bytes of the next one so far."""
        return self._frames, self._buffer.unfinished

    def arrived_since(self, before: tuple[int, int]) -> int:
        """Return how many bytes of the next frame have arrived since `arriving` was that."""
        frames, size = self.arriving
        return size - (before[1] if frames == before[0] else 0)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send frames, or queue what the socket does not take now: `flush` and `sleep` send it.

        Raises
        ------
        ConnectionLostError
        """
        with self._lock:
            large = any(len(part) >= LARGE_BODY for part in parts)
            self._outgoing.extend(map(memoryview, parts if large else (b"".join(parts),)))
            self._flush()

    def flush(self) -> None:
        """Send of the queue what the socket takes. Raises as `send`."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        outgoing = self._outgoing
        while outgoing and not self._given_up:
            view = outgoing[0]
            try:
                sent = self._stream.send(view)
            except (OSError, ValueError) as cause:
                raise self._lost(cause) from cause
            if sent is None:
                return
            self.taken += sent
            if sent == len(view):
                outgoing.popleft()
            else:
                outgoing[0] = view[sent:]

    def sleep(self, timeout_s: float) -> bool:
        """Wait until there is something to receive, or room for what is queued, which is sent then.

        Returns
        -------
        bool
            Whether there is something to receive.

        Raises
        ------
        ConnectionLostError
        """
        try:
            readable = self._stream.wait(min(timeout_s, _SILENCE_S), writable=self.unsent)
            if readable is None and timeout_s > _SILENCE_S:
                self.shrink()
                readable = self._stream.wait(timeout_s - _SILENCE_S, writable=self.unsent)
        except (OSError, ValueError, KeyError) as cause:  # the connection was closed meanwhile
            raise self._lost(cause) from cause
        if self._outgoing:
            self.flush()
        return bool(readable)

    def receive(self, deliver: Callable[[list[Received]], None]) -> int:
        """Read once and deliver the frames that are whole; return the number of bytes, 0 if there are none.

        Parameters
        ----------
        deliver : Callable
            Called before any other thread can read: if a thread finds nothing to read, everything is
            delivered. Must not call this object.

        Raises
        ------
        ConnectionLostError
        RemoteProtocolError
            The peer sent something that is no frame. What came before it is delivered.
        """
        with self._lock:
            buffer = self._buffer
            try:
                with buffer.room() as room:
                    received = self._stream.receive_into(room)
                    # Bytes that TLS has read ahead do not wake up a poll.
                    self.may_have_more = received is not None and (
                        received == len(room) or self._stream.reads_ahead
                    )
            except (OSError, ValueError) as cause:
                raise self._lost(cause) from cause
            if received is None:
                return 0
            if received == 0:
                raise ConnectionLostError("the peer closed the connection", addr=self._addr)
            buffer.add_received(received)
            frames: list[Received] = []
            try:
                for command, data, start, end in buffer.take_frames():
                    frames.append(Received(command, data, start, end))
            finally:
                self._frames += len(frames)
                deliver(frames)
            return received

    def shrink(self) -> None:
        """Give up the receive buffer until bytes arrive again, unless it has part of a frame."""
        with self._lock:
            self._buffer.shrink()

    def give_up(self) -> None:
        """Forget what was to be sent and what was received; safe while other threads send or read."""
        self._given_up = True
        self._outgoing = deque()  # others: a thread may be at the old ones right now
        self._buffer = ReceiveBuffer()

    def shut_down(self) -> None:
        """Wake the threads that wait."""
        self._stream.shut_down()

    def close(self) -> None:
        """Close the descriptors."""
        with self._lock:
            self._stream.close()

    def forget(self) -> None:
        """Close a forked child's copies of the descriptors; a thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self.give_up()
        self._stream.close()

    def _lost(self, cause: Exception) -> ConnectionLostError:
        return ConnectionLostError(f"the connection broke: {cause}", addr=self._addr)
