"""Frames: one header and one body on the wire.

# Facts
#
# ``NettyEncoder``, ``NettyDecoder``, ``RemotingCommand.encode`` (5.4.0, the same in 4.9).
#
# * int32 length of what follows; then one word: serialization in the top byte, header length in the
#   low 24 bits; header; body. All big-endian.
# * A server closes the connection as soon as it reads a frame of more than 16,777,216 bytes
#   *including* the length itself (``com.rocketmq.remoting.frameMaxLength``); exactly that is fine.
# * A server does not limit what it sends: answers to pulls of 30 MB were seen and the store stops at
#   128 MiB (``MAX_PULL_MSG_SIZE``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.remoting.command import Buffer, Command, Serializer, decode_header, encode_header

__all__ = ["MAX_FRAME_SENT", "MAX_FRAME_TAKEN", "Frame", "decode_command", "decode_frame", "encode_frame"]
__all__ += ["encode_frame_head", "frame_head", "frame_length"]

MAX_FRAME_SENT: Final = 16 * 1024 * 1024
"""The largest frame that a server with default settings takes, in bytes with its length word."""

MAX_FRAME_TAKEN: Final = 160 * 1024 * 1024
"""The largest frame that we take: a full pull answer of 128 MiB and room for its header."""

_WORD: Final = struct.Struct(">I")
_PREFIX: Final = struct.Struct(">II")
_HEADER_MASK: Final = 0xFFFFFF
_SERIALIZERS: Final = {int(kind): kind for kind in Serializer}


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame; ``body`` is a slice of the buffer that the frame was decoded from."""

    command: Command
    body: memoryview


def encode_frame(
    command: Command,
    body: Buffer = b"",
    *,
    serializer: Serializer = Serializer.JSON,
    limit: int = MAX_FRAME_SENT,
) -> bytes:
    """Write a frame.

    Parameters
    ----------
    command : Command
    body : bytes-like
    serializer : Serializer, default JSON
    limit : int
        The receiver's limit in bytes. Only a server that answers may go above the default.

    Raises
    ------
    LocalProtocolError
        The frame is larger than the receiver takes, or the header does not fit its serialization.
    """
    head = encode_frame_head(command, len(body), serializer=serializer, limit=limit)
    return b"".join((head, body))


def encode_frame_head(
    command: Command,
    body_bytes: int,
    *,
    serializer: Serializer = Serializer.JSON,
    limit: int = MAX_FRAME_SENT,
) -> bytes:
    """Write what a frame has before its body; see `encode_frame`."""
    header = encode_header(command, serializer)
    return frame_head(header, body_bytes, code=command.code, serializer=serializer, limit=limit)


def frame_head(
    header: bytes,
    body_bytes: int,
    *,
    code: int,
    serializer: Serializer = Serializer.JSON,
    limit: int = MAX_FRAME_SENT,
) -> bytes:
    """Write what a frame has before its body, from an encoded header; see `encode_frame`."""
    total = 8 + len(header) + body_bytes
    if total > limit or len(header) > _HEADER_MASK:
        raise LocalProtocolError(
            "the frame is larger than its receiver takes: send less at once",
            code=code,
            size=total,
            limit=limit,
        )
    return _PREFIX.pack(total - 4, serializer << 24 | len(header)) + header


def frame_length(view: Buffer, start: int, end: int, *, limit: int = MAX_FRAME_TAKEN) -> int | None:
    """Return the size of the frame that begins at ``start``, its length word included.

    Checks the second word too as soon as it has arrived, so that a peer that speaks something else
    (HTTP, gRPC, TLS) is found out by its first bytes instead of by a time-out.

    Parameters
    ----------
    view : bytes-like
        A buffer of which ``start`` to ``end`` has been received.
    start, end : int
        Bounds of the received bytes, in bytes.
    limit : int
        The largest frame to take, in bytes.

    Returns
    -------
    int or None
        None while fewer than four bytes have been received.

    Raises
    ------
    RemoteProtocolError
        No frame can begin with these bytes, or the frame is above ``limit``.
    """
    if end - start < 4:
        return None
    (size,) = _WORD.unpack_from(view, start)
    # The second word and an empty binary header are the least that a frame has.
    if not 6 <= size <= limit - 4:
        raise RemoteProtocolError(
            "the peer sent no remoting frame, or one above the limit: is this the port of a RocketMQ"
            " name server or broker, and is TLS set alike on both sides?",
            announced=size + 4,
            limit=limit,
        )
    if end - start >= 8:
        _check_header_size(*_PREFIX.unpack_from(view, start))
    return int(size) + 4


def decode_frame(view: memoryview) -> Frame:
    """Read the one frame that ``view`` holds, its length word included; copies no byte of the body.

    Raises
    ------
    RemoteProtocolError
        The bytes are not exactly one frame, or its header does not decode.
    """
    if len(view) < 8:
        raise RemoteProtocolError("the peer sent a frame without a header", size=len(view))
    size, word = _PREFIX.unpack_from(view)
    if size != len(view) - 4:
        raise RemoteProtocolError("the frame does not end where it says", announced=size + 4, size=len(view))
    _check_header_size(size, word)
    command, body = decode_command(view, 0)
    return Frame(command, view[body:])


def decode_command(view: memoryview, start: int) -> tuple[Command, int]:
    """Read the header of the frame at ``start``; return where its body begins, too.

    `frame_length` has checked the frame, and the view has the whole of it.

    Raises
    ------
    RemoteProtocolError
        The header does not decode.
    """
    (word,) = _WORD.unpack_from(view, start + 4)
    end = start + 8 + (word & _HEADER_MASK)
    return decode_header(view[start + 8 : end], _SERIALIZERS[word >> 24]), end


def _check_header_size(size: int, word: int) -> None:
    """Check a frame's second word, which says how the header is written and how long it is."""
    header = word & _HEADER_MASK
    if word >> 24 not in _SERIALIZERS or not 2 <= header <= size - 4:
        raise RemoteProtocolError(
            "the peer sent no remoting frame: is this the port of a RocketMQ name server or broker?",
            serializer=word >> 24,
            header_size=header,
            size=size + 4,
        )
