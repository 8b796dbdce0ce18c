"""The connection of a receiver's task to the driver: blocks one way, acknowledgments the other."""

# Facts: ours. The driver sends 16 random bytes; the task answers its number (u32) and the HMAC-SHA-256 of
# both under a secret that came with its task. Then frames ">BIIQ" (kind, length, messages, skipped) and
# replies ">Bd" (status, rate; -1 is no limit). No byte of it is ever unpickled by the driver.

from __future__ import annotations

import enum
import hashlib
import hmac
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.errors import ConnectionLostError

__all__ = [
    "FRAME",
    "HELLO_SIZE",
    "NONCE_SIZE",
    "REPLY",
    "FrameKind",
    "Link",
    "ReceiverSpec",
    "Reply",
    "ReplyStatus",
    "proof",
]

FRAME: Final = struct.Struct(">BIIQ")
REPLY: Final = struct.Struct(">Bd")
NONCE_SIZE: Final = 16
HELLO_SIZE: Final = 4 + hashlib.sha256().digest_size


class FrameKind(enum.IntEnum):
    """The kind of a task's frame."""

    BLOCK = 0
    ALIVE = 1
    """The task runs; the payload is the consumer's latest warning, once."""
    RESTART = 2
    """The receiver restarts; the payload is the reason."""
    STARTED = 3
    """The receiver has started; the payload is its location."""


class ReplyStatus(enum.IntEnum):
    """The status of the driver's reply."""

    STORED = 0
    REFUSED = 1
    STOP = 2


@dataclass(frozen=True, slots=True)
class Reply:
    """The driver's reply.

    Parameters
    ----------
    status : ReplyStatus
    rate : float, optional
        Messages per second from now on.
    """

    status: ReplyStatus
    rate: float | None


@dataclass(frozen=True, slots=True)
class ReceiverSpec:
    """The parameters of a receiver's task, sent with the task.

    Parameters
    ----------
    number : int
    host, port : str, int
        The driver's address.
    secret : bytes
        The secret of this run of the stream.
    block_interval_ms : int
    """

    number: int
    host: str
    port: int
    secret: bytes = field(repr=False)
    block_interval_ms: int


def proof(secret: bytes, nonce: bytes, number: int) -> bytes:
    """Return the proof that a task knows the secret."""
    return hmac.digest(secret, nonce + number.to_bytes(4, "big"), "sha256")


class Link:
    """A task's side of the connection.

    Parameters
    ----------
    spec : ReceiverSpec
    timeout_s : float
        Timeout of a reply.

    Raises
    ------
    ConnectionLostError
        Raised by every method: the driver is gone, or did not reply in time.
    """

    def __init__(self, spec: ReceiverSpec, timeout_s: float) -> None:
        self._address = (spec.host, spec.port)
        try:
            self._socket = socket.create_connection(self._address, timeout_s)
        except OSError as error:
            raise self._lost() from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nonce = self._receive(NONCE_SIZE)
        self._send(spec.number.to_bytes(4, "big") + proof(spec.secret, nonce, spec.number))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def tell(self, kind: FrameKind, payload: bytes = b"", *, messages: int = 0, skipped: int = 0) -> Reply:
        """Send a frame and return the reply: for a block, after it is stored or rejected."""
        self._send(FRAME.pack(kind, len(payload), messages, skipped))
        self._send(payload)
        status, rate = REPLY.unpack(self._receive(REPLY.size))
        return Reply(ReplyStatus(status), rate if rate >= 0 else None)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost() from error

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                more = self._socket.recv(size - len(data))
            except OSError as error:
                raise self._lost() from error
            if not more:
                raise self._lost()
            data += more
        return data

    def _lost(self) -> ConnectionLostError:
        host, port = self._address
        return ConnectionLostError("the driver of the stream does not answer", addr=f"{host}:{port}")
