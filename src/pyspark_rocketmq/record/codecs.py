"""Decompressors of bodies: fast ones where the extra ``compression`` is installed, else zlib's and Arrow's.

Bodies are small, so that the cost of beginning counts most: Arrow's streams of LZ4 and ZSTD take 30 us for a
body of 1 KiB, `lz4.block` and `zstandard` a few, libdeflate two thirds of zlib's time
(``benchmarks/compression.py``).

Facts: the LZ4 frame format 1.6 (lz4_Frame_format.md). Java's ``LZ4FrameOutputStream`` writes independent
blocks of up to 4 MiB, no checksums and no content size.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from pyspark_rocketmq.errors import CorruptMessageError

__all__ = ["inflate", "read_lz4", "read_zstd"]

_READ_STEP: Final = 8192

_LZ4_HEADS: Final[Mapping[bytes, int]] = {
    bytes.fromhex("04224D18 60 40 82"): 64 << 10,
    bytes.fromhex("04224D18 60 70 73"): 4 << 20,
}
"""Magic; version 1 with independent blocks and no checksums; the size of blocks, which is the value, too; the
head's checksum. The second is Java's; frames with any other head are Arrow's to read."""
_LZ4_HEAD_SIZE: Final = 7
_LZ4_PLAIN: Final = 1 << 31
_LZ4_LENGTH: Final = _LZ4_PLAIN - 1
_LZ4_FIRST_GUESS: Final = 8

_ZLIB_FIRST_GUESS: Final = 16
"""How many times as large as a stream its body usually is at most. Others are read by `zlib`."""

_ZSTD_STEP: Final = 1024
"""Bytes of a frame that are unpacked at a time: a frame has at most 32 MiB."""


_IDLE: Final[list[Any]] = []
"""ZSTD decompressors that are not in use: making one takes longer than a body. Threads share the list."""


@functools.cache
def optional(name: str) -> Any:
    """Return a module, None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def inflate(data: bytes | memoryview, limit: int) -> bytes:
    """Return the plain body of a zlib stream; longer than ``limit`` where there is more than that.

    Raises
    ------
    CorruptMessageError
        The stream is damaged or cut short.
    """
    fast = optional("deflate")
    if fast is not None:
        try:
            return bytes(fast.zlib_decompress(data, min(limit, _ZLIB_FIRST_GUESS * len(data))))
        except fast.DeflateError:
            pass  # larger, or damaged: zlib tells
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise CorruptMessageError(f"the body does not decompress as zlib: {error}") from error
    if not inflater.eof and len(body) <= limit:
        raise CorruptMessageError("the body does not decompress as zlib: it is cut short")
    return body


def read_lz4(data: bytes | memoryview, limit: int) -> bytes:
    """Return the plain body of an LZ4 frame; as `inflate`."""
    blocks = optional("lz4.block")
    largest = _LZ4_HEADS.get(bytes(data[:_LZ4_HEAD_SIZE]))
    if blocks is None or largest is None:
        return _read_stream(data, "lz4", limit)
    try:
        body = _read_blocks(data, blocks, largest, limit)
    except blocks.LZ4BlockError as error:
        raise CorruptMessageError(f"the body does not decompress as lz4: {error}") from error
    return _read_stream(data, "lz4", limit) if body is None else body


def _read_blocks(data: bytes | memoryview, library: Any, largest: int, limit: int) -> bytes | None:
    """Return the body of a frame of independent blocks; None if it is anything else, damaged perhaps."""
    parts: list[bytes] = []
    position, size = _LZ4_HEAD_SIZE, 0
    while size <= limit:
        word = int.from_bytes(data[position : position + 4], "little")
        start = position + 4
        position = start + (word & _LZ4_LENGTH)
        if position > len(data):
            return None
        if not word:
            break
        block = data[start:position]
        parts.append(bytes(block) if word & _LZ4_PLAIN else _read_block(block, library, largest))
        size += len(parts[-1])
    if size <= limit and position != len(data):
        return None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_block(block: bytes | memoryview, library: Any, largest: int) -> bytes:
    """Unpack a block whose plain size is unknown: first into what such a block usually takes."""
    guess = min(largest, _LZ4_FIRST_GUESS * len(block))
    try:
        plain: bytes = library.decompress(block, uncompressed_size=guess)
    except library.LZ4BlockError:
        if guess == largest:
            raise
        plain = library.decompress(block, uncompressed_size=largest)
    return plain


def read_zstd(data: bytes | memoryview, limit: int) -> bytes:
    """Return the plain body of a ZSTD frame; as `inflate`."""
    library = optional("zstandard")
    if library is None:
        return _read_stream(data, "zstd", limit)
    try:
        decompressor = _IDLE.pop()
    except IndexError:
        decompressor = library.ZstdDecompressor()
    reader = decompressor.decompressobj()
    parts: list[bytes] = []
    position = size = 0
    try:
        while position < len(data) and size <= limit and not reader.eof:
            parts.append(reader.decompress(data[position : position + _ZSTD_STEP]))
            position += _ZSTD_STEP
            size += len(parts[-1])
    except library.ZstdError as error:
        raise CorruptMessageError(f"the body does not decompress as zstd: {error}") from error
    finally:
        _IDLE.append(decompressor)
    if size <= limit and (not reader.eof or position < len(data) or reader.unused_data):
        return _read_stream(data, "zstd", limit)  # cut short, or several frames
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _read_stream(data: bytes | memoryview, codec: str, limit: int) -> bytes:
    # read() allocates what it is asked for: ask for what such a body usually takes, not for the limit.
    step = max(_READ_STEP, 8 * len(data))
    parts: list[bytes] = []
    left = limit + 1
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while left and (part := stream.read(min(step, left))):
                parts.append(part)
                left -= len(part)
    except (OSError, pa.ArrowException) as error:
        raise CorruptMessageError(f"the body does not decompress as {codec}: {error}") from error
    return b"".join(parts)
