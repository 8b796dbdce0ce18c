"""The byte stream of a connection: a TCP socket, or its replacement in a simulation."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
from typing import Protocol

__all__ = ["ByteStream", "SocketStream"]

_BLOCKS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ByteStream(Protocol):
    """A connected, non-blocking stream; only `wait` blocks.

    `send` and `receive_into` are called by one thread at a time, `wait` by another one meanwhile.
    """

    @property
    def reads_ahead(self) -> bool:
        """Whether there may be bytes to receive that `wait` does not notice, as TLS keeps them."""
        ...

    def send(self, data: memoryview) -> int | None:
        """Send as much of ``data`` as the peer accepts now: the number of bytes, or None for none.

        Raises
        ------
        OSError, ValueError
            The connection broke, or was closed.
        """
        ...

    def receive_into(self, room: memoryview) -> int | None:
        """Receive the bytes that have arrived: their number, 0 at the stream's end, or None for none yet.

        Raises
        ------
        OSError, ValueError
            The connection broke, or was closed.
        """
        ...

    def wait(self, timeout_s: float, *, writable: bool) -> bool | None:
        """Wait until there are bytes to receive or, with ``writable``, the peer accepts bytes.

        Returns
        -------
        bool or None
            Whether there are bytes to receive; None after the timeout.

        Raises
        ------
        OSError, ValueError, KeyError
            The connection was closed meanwhile.
        """
        ...

    def shut_down(self) -> None:
        """Wake the threads that wait: the stream has ended."""
        ...

    def close(self) -> None:
        """Close the descriptors."""
        ...


class SocketStream:
    """A TCP connection, with or without TLS.

    Parameters
    ----------
    sock : socket.socket
        Connected and non-blocking; it is closed with this.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ)
        self._selects_writable = False
        self.reads_ahead = isinstance(sock, ssl.SSLSocket)

    def send(self, data: memoryview) -> int | None:
        """See `ByteStream.send`."""
        try:
            return self._sock.send(data)
        except _BLOCKS:
            return None

    def receive_into(self, room: memoryview) -> int | None:
        """See `ByteStream.receive_into`."""
        try:
            return self._sock.recv_into(room)
        except _BLOCKS:
            return None

    def wait(self, timeout_s: float, *, writable: bool) -> bool | None:
        """See `ByteStream.wait`."""
        if self._selects_writable != writable:
            self._selects_writable = writable
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
            self._selector.modify(self._sock, events)
        ready = self._selector.select(timeout_s)
        return any(events & selectors.EVENT_READ for _, events in ready) if ready else None

    def shut_down(self) -> None:
        """See `ByteStream.shut_down`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """See `ByteStream.close`."""
        self._selector.close()
        self._sock.close()
