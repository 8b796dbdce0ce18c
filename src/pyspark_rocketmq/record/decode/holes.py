"""Offsets that pull answers cover without a record: looked for only when rows are fewer than offsets."""

# Facts (DefaultMessageStore.getMessage, 5.4.0)
# - Entries whose file of the commit log was just deleted are passed over: an answer FOUND then has a hole.
# - Compacted topics have holes where an older message of a key was; static topics where a queue moved.

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.batch_items import is_inner_batch
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.layout import FIXED_SIZE, MIN_RECORD_SIZE, MessageFlag
from pyspark_rocketmq.record.light_queue import is_light
from pyspark_rocketmq.record.message import decode_messages

__all__ = ["find_holes"]

_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">i16xq8xi")
"""Size, queue offset and sysFlag of a record."""

# A plain integer: operations on enums cost a tenth of a message's time.
_INNER_BATCH: Final = int(MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH)

_OFFSET: Final = struct.Struct(">q")
_OFFSET_AT: Final = 20
_SYS_FLAG_AT: Final = 36


def find_holes(chunks: Sequence[Chunk], topic: str = "") -> list[tuple[int, int]]:
    """Return the half-open ranges of the chunks' offsets that have no record, in order.

    The topic matters for light queues only, whose offsets are not those of the records.

    What comes after a record that breaks the layout is no hole: the decoder reports it.
    """
    holes: list[tuple[int, int]] = []
    for chunk in chunks:
        if _is_consecutive(chunk, topic):
            continue
        expected = chunk.from_offset
        for start, end in _cover(chunk, topic):
            if start > expected and expected < chunk.until_offset:
                holes.append((expected, min(start, chunk.until_offset)))
            expected = max(expected, end)
        if expected < chunk.until_offset:
            holes.append((expected, chunk.until_offset))
    return _join(holes)


def _is_consecutive(chunk: Chunk, topic: str) -> bool:
    """Return whether a quick check shows a record at each offset, as in nearly all chunks.

    Every answer of a slave is checked. One unpacking per record takes a tenth of the decoder's time, and for
    the 32 records of an answer a quarter of numpy's.
    """
    unpack, buffer = _HEAD.unpack_from, chunk.buffer
    position, last = chunk.start, chunk.end - MIN_RECORD_SIZE
    expected = chunk.from_offset - chunk.offset_delta
    while position <= last:
        size, offset, sys_flag = unpack(buffer, position)
        if size < MIN_RECORD_SIZE or offset != expected or sys_flag & _INNER_BATCH:
            return False
        expected += 1
        position += size
    return (
        position == chunk.end and expected + chunk.offset_delta >= chunk.until_offset and not is_light(topic)
    )


def _cover(chunk: Chunk, topic: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets that each record accounts for; a malformed one accounts for all the rest."""
    data = memoryview(chunk.buffer)
    position = chunk.start
    while position < chunk.end:
        size = _SIZE.unpack_from(data, position)[0] if position + FIXED_SIZE <= chunk.end else 0
        if size < MIN_RECORD_SIZE or position + size > chunk.end:
            yield chunk.from_offset, chunk.until_offset
            return
        offset = _OFFSET.unpack_from(data, position + _OFFSET_AT)[0] + chunk.offset_delta
        (sys_flag,) = _SIZE.unpack_from(data, position + _SYS_FLAG_AT)
        if is_light(topic):
            yield _cover_by_light(chunk, data[position : position + size], topic)
        elif is_inner_batch(sys_flag):
            yield offset, _end_of_batch(data[position : position + size], offset, chunk.until_offset)
        else:
            yield offset, offset + 1
        position += size


def _cover_by_light(chunk: Chunk, record: memoryview, topic: str) -> tuple[int, int]:
    try:
        (message,) = decode_messages(record, topic=topic, broker_name="")
    except CorruptMessageError:  # the decoder's to report, not a hole
        return chunk.from_offset, chunk.until_offset
    return message.queue_offset, message.queue_offset + 1


def _end_of_batch(record: memoryview, offset: int, until_offset: int) -> int:
    try:
        return offset + len(decode_messages(record, broker_name=""))
    except CorruptMessageError:  # the decoder's to report, not a hole
        return until_offset


def _join(holes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in holes:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
