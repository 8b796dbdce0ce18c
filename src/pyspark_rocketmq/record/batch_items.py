"""The items of a batch: what batch sends carry, and what the body of an inner batch holds.

Facts: ``org.apache.rocketmq.common.message.MessageDecoder.encodeMessages`` of 5.4.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.layout import (
    BATCH_ITEM_OVERHEAD,
    MAX_INNER_MESSAGES,
    MessageFlag,
)
from pyspark_rocketmq.record.properties import decode_properties, encode_properties

__all__ = ["BatchItem", "ItemSpan", "decode_batch", "encode_batch", "is_inner_batch", "iter_batch"]

# A plain integer: operations on enums cost a tenth of a message's time.
_INNER_BATCH: Final = int(MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH)
_ITEM_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")


def is_inner_batch(sys_flag: int) -> bool:
    """Return whether a record's body is a batch whose items are the messages."""
    return sys_flag & _INNER_BATCH == _INNER_BATCH


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One message of a batch that is sent, or of an inner batch that is read."""

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0


class ItemSpan(NamedTuple):
    """Where one batch item keeps its body and properties, as positions in the batch body."""

    flag: int
    body_start: int
    body_end: int
    properties_start: int
    properties_end: int


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Encode messages as the body of SEND_BATCH_MESSAGE.

    Brokers store properties of items byte for byte: a producer that wants ``UNIQ_KEY`` adds it.

    Raises
    ------
    LocalProtocolError
        Properties that cannot be encoded.
    """
    parts: list[bytes] = []
    for item in items:
        properties = encode_properties(item.properties)
        size = BATCH_ITEM_OVERHEAD + len(item.body) + len(properties)
        parts += (
            _ITEM_HEAD.pack(size, 0, 0, item.flag, len(item.body)),
            item.body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def iter_batch(data: bytes | memoryview) -> Iterator[ItemSpan]:
    """Walk the items of a batch body.

    Raises
    ------
    CorruptMessageError
        An item does not fit its size, the body ends within one, or it has more than
        `MAX_INNER_MESSAGES`, which only a body has that was made to exhaust its readers.
    """
    start = count = 0
    while start < len(data):
        count += 1
        if count > MAX_INNER_MESSAGES:
            raise CorruptMessageError(f"the batch has more than {MAX_INNER_MESSAGES} messages")
        if len(data) - start < BATCH_ITEM_OVERHEAD:
            raise CorruptMessageError(f"the batch ends within the head of the item at byte {start}")
        size, _, _, flag, body_length = _ITEM_HEAD.unpack_from(data, start)
        end = start + size
        body_start = start + _ITEM_HEAD.size
        body_end = body_start + body_length
        if end > len(data) or body_length < 0 or body_end + 2 > end:
            raise CorruptMessageError(f"the batch item at byte {start} does not fit its size")
        (properties_length,) = _SHORT.unpack_from(data, body_end)
        if properties_length < 0 or body_end + 2 + properties_length > end:
            raise CorruptMessageError(f"the properties of the batch item at byte {start} do not fit")
        yield ItemSpan(flag, body_start, body_end, body_end + 2, body_end + 2 + properties_length)
        start = end


def decode_batch(data: bytes | memoryview) -> list[BatchItem]:
    """Decode a batch body.

    Raises
    ------
    CorruptMessageError
        See `iter_batch` and `decode_properties`.
    """
    return [
        BatchItem(
            bytes(data[span.body_start : span.body_end]),
            decode_properties(bytes(data[span.properties_start : span.properties_end])),
            span.flag,
        )
        for span in iter_batch(data)
    ]
