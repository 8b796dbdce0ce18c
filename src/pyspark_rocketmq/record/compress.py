"""Compressed bodies.

Facts: ``org.apache.rocketmq.common.compression`` of 5.4.0. A body is compressed if sysFlag bit
0x1 is set; bits 0x700 name the format since 4.9.4: 0 and 3 zlib, 1 an LZ4 frame, 2 a zstd frame
that does not tell its content size, so that only a streaming decoder reads it. Java's LZ4 decoder
(``LZ4FrameInputStream``) takes frames of independent blocks only, and a consumer drops what it cannot
decompress together with all that follows in the answer.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.codecs import inflate, read_lz4, read_zstd
from pyspark_rocketmq.record.layout import MAX_BODY_BYTES, MessageFlag

__all__ = ["Compression", "compress", "decompress", "is_compressed"]

_ZLIB_LEVEL: Final = 5

_LZ4_BLOCK: Final = 4 * 1024 * 1024
_LZ4_PLAIN: Final = 1 << 31
_LZ4_HEAD: Final = bytes.fromhex("04224D18 60 70 73")
"""Magic; version 1 with independent blocks and no checksums; blocks up to 4 MiB; the head's checksum."""

# Asked of every message, and arithmetic with enums is slow.
_COMPRESSED: Final = int(MessageFlag.COMPRESSED)
_TYPE: Final = int(MessageFlag.COMPRESSION_TYPE)


class Compression(enum.Enum):
    """How a body is compressed; the value is what the record's sysFlag holds then."""

    NONE = MessageFlag(0)
    ZLIB = MessageFlag.COMPRESSED | MessageFlag.COMPRESSION_ZLIB
    LZ4 = MessageFlag.COMPRESSED | MessageFlag.COMPRESSION_LZ4
    ZSTD = MessageFlag.COMPRESSED | MessageFlag.COMPRESSION_ZSTD

    @classmethod
    def of(cls, sys_flag: int) -> Compression:
        """Return the compression that a sysFlag tells.

        Raises
        ------
        CorruptMessageError
            The type bits hold a number that no release uses.
        """
        if not is_compressed(sys_flag):
            return cls.NONE
        try:
            return _BY_TYPE[sys_flag & _TYPE]
        except KeyError:
            raise _unknown(sys_flag) from None


_BY_TYPE: Final[Mapping[int, Compression]] = {
    0: Compression.ZLIB,  # clients before 4.9.4 leave the type empty
    int(MessageFlag.COMPRESSION_ZLIB): Compression.ZLIB,
    int(MessageFlag.COMPRESSION_LZ4): Compression.LZ4,
    int(MessageFlag.COMPRESSION_ZSTD): Compression.ZSTD,
}


_READERS: Final[Mapping[int, Callable[[bytes | memoryview, int], bytes]]] = {
    0: inflate,
    int(MessageFlag.COMPRESSION_ZLIB): inflate,
    int(MessageFlag.COMPRESSION_LZ4): read_lz4,
    int(MessageFlag.COMPRESSION_ZSTD): read_zstd,
}


def _unknown(sys_flag: int) -> CorruptMessageError:
    kind = (sys_flag & _TYPE) >> 8
    return CorruptMessageError(f"unknown compression type {kind} in sysFlag {sys_flag:#x}")


def is_compressed(sys_flag: int) -> bool:
    """Return whether a record's body is compressed."""
    return sys_flag & _COMPRESSED != 0


def compress(data: bytes, kind: Compression) -> bytes:
    """Compress a body as the Java client does."""
    match kind:
        case Compression.NONE:
            return data
        case Compression.ZLIB:
            return zlib.compress(data, _ZLIB_LEVEL)
        case Compression.LZ4:
            return _lz4_frame(data)
        case Compression.ZSTD:
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as stream:
                stream.write(data)
            return bytes(sink.getvalue())


def _lz4_frame(data: bytes) -> bytes:
    """Return an LZ4 frame of independent blocks, which Arrow's own frames are not."""
    codec = pa.Codec("lz4_raw")
    parts = [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK):
        block = data[start : start + _LZ4_BLOCK]
        packed = codec.compress(block, asbytes=True)
        plain = len(packed) >= len(block)
        parts.append((len(block) | _LZ4_PLAIN if plain else len(packed)).to_bytes(4, "little"))
        parts.append(block if plain else packed)
    parts.append(bytes(4))
    return b"".join(parts)


def decompress(data: bytes | memoryview, sys_flag: int, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the plain body.

    Parameters
    ----------
    data : bytes or memoryview
        The stored body.
    sys_flag : int
        The record's sysFlag, which tells whether and how it is compressed.
    limit : int
        What the plain body may take, in bytes; at most 32 MiB more than this are ever unpacked.

    Raises
    ------
    CorruptMessageError
        The body is damaged, cut short, of an unknown type, or larger than ``limit``.
    """
    if not sys_flag & _COMPRESSED or not len(data):  # Java, too, leaves an empty body alone
        return bytes(data)
    read = _READERS.get(sys_flag & _TYPE)
    if read is None:
        raise _unknown(sys_flag)
    body = read(data, limit)
    if len(body) > limit:
        raise CorruptMessageError(f"the decompressed body is larger than {limit} bytes")
    return body
