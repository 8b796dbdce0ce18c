"""Stored messages as rows to be sent again, to another topic: with their unique keys and other properties."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.encode.outgoing_rows import UNIQUE_KEY_BYTES, OutgoingRows
from pyspark_rocketmq.record.properties import (
    PROPERTY_COMMIT_TOPIC,
    PROPERTY_LITE_TOPIC,
    PROPERTY_PRIORITY,
    PROPERTY_UNIQUE_KEY,
)

__all__ = ["rows_of_stored", "unique_keys_of"]

_END: Final = b"\x02"
_EMPTY: Final = pa.scalar(b"")

# What follows a separator is a name.
_FIRST: Final = b"\\A\x02"
_UNIQUE: Final = f"\x02(?P<found>{PROPERTY_UNIQUE_KEY}\x01[^\x02]*\x02)".encode()
_REMOVED: Final = f"\x02(?:{PROPERTY_UNIQUE_KEY}|{PROPERTY_COMMIT_TOPIC})\x01[^\x02]*".encode()
_ALONE: Final = f"\x02(?:{PROPERTY_PRIORITY}|{PROPERTY_LITE_TOPIC})\x01".encode()
"""Brokers ignore these properties in a batch."""


def rows_of_stored(body: pa.Array, properties: pa.Array, flag: pa.Array) -> tuple[OutgoingRows, pa.Array]:
    """Return stored messages of a transactional write as rows, and their encoded unique keys.

    The mark of the write is removed. Everything else is sent as it is stored.

    Parameters
    ----------
    body, properties, flag : pyarrow.Array
        Plain bodies, properties as they are stored, and numbers.

    Raises
    ------
    CorruptMessageError
        A message has no unique key of a producer.
    """
    text = _separated(properties)
    unique = _find_unique(text)
    sizes = pc.fill_null(pc.binary_length(unique), 0)
    if not pc.all(pc.equal(sizes, UNIQUE_KEY_BYTES), min_count=0).as_py():
        raise CorruptMessageError("a message of a transactional write has no unique key")
    rest = pc.replace_substring_regex(text, pattern=_REMOVED, replacement=b"")
    rows = OutgoingRows(
        place=np.arange(len(body), dtype=np.int64),
        body=body,
        properties=pc.replace_substring_regex(rest, pattern=_FIRST, replacement=b""),
        flag=flag.to_numpy(),
        single=pc.match_substring_regex(rest, _ALONE).to_numpy(zero_copy_only=False),
    )
    return rows, unique


def unique_keys_of(properties: pa.Array) -> pa.Array:
    """Return the encoded unique keys of stored messages, without those that have none."""
    return _find_unique(_separated(properties)).drop_null()


def _separated(properties: pa.Array) -> pa.Array:
    """Return encoded properties with a separator before each name, and after the last value."""
    text = pc.binary_join_element_wise(pa.scalar(_END), properties, _EMPTY)
    ends = pc.ends_with(text, _END)
    if pc.all(ends, min_count=0).as_py():
        return text
    # Brokers may leave out the last separator.
    return pc.if_else(ends, text, pc.binary_join_element_wise(text, pa.scalar(_END), _EMPTY))


def _find_unique(text: pa.Array) -> pa.Array:
    return pc.struct_field(pc.extract_regex(text, _UNIQUE), "found")
