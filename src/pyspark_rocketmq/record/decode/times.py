"""Where a stored message is and when it was born and stored, without decoding the rest of it.

A planner asks that of a thousand queues for one micro-batch. The twin is ``message.decode_messages``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.layout import (
    BORN_HOST_AT,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    STORE_HOST_AT,
    MessageFlag,
)

__all__ = ["RecordTimes", "first_times"]

_START: Final = struct.Struct(">iI")
_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20
_FLAG_AND_BORN: Final = struct.Struct(">iq")  # right before the born host
_LONG: Final = struct.Struct(">q")  # right before the store host
_BORN_HOST_V6: Final = int(MessageFlag.BORN_HOST_V6)


class RecordTimes(NamedTuple):
    """A record's queue offset (its first message's, for an inner batch) and its times in milliseconds."""

    queue_offset: int
    born_timestamp: int
    store_timestamp: int


def first_times(data: bytes | memoryview) -> RecordTimes:
    """Return the offset and the times of the first record, without reading the rest.

    Raises
    ------
    CorruptMessageError
        There is no record, or its size or magic is wrong.
    """
    if len(data) < MIN_RECORD_SIZE:
        raise CorruptMessageError(f"{len(data)} bytes are fewer than the smallest record")
    size, magic = _START.unpack_from(data)
    if not MIN_RECORD_SIZE <= size <= len(data):
        raise CorruptMessageError(f"the record says that it takes {size} bytes, {len(data)} are left")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptMessageError(f"the record has the unknown magic {magic:#x}")
    (queue_offset,) = _QUEUE_OFFSET.unpack_from(data, _QUEUE_OFFSET_AT)
    sys_flag, born = _FLAG_AND_BORN.unpack_from(data, BORN_HOST_AT - _FLAG_AND_BORN.size)
    extra = IPV6_EXTRA if sys_flag & _BORN_HOST_V6 else 0
    (stored,) = _LONG.unpack_from(data, STORE_HOST_AT - _LONG.size + extra)
    return RecordTimes(queue_offset, born, stored)
