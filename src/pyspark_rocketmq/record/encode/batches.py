"""Encodes checked rows as the bodies of send requests: the hot path of every write.

The items of a batch (``batch_items.encode_batch``) are adjacent in the data of one Arrow column, so that a
batch's body is a slice of it.
"""

# Facts (MessageDecoder.encodeMessage of 5.4.0): size, magic 0, CRC 0, flag, body length, all 4 bytes;
# the body; 2 bytes of properties' length; the properties. Big-endian.

from __future__ import annotations

import enum
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.record.compress import Compression, compress
from pyspark_rocketmq.record.encode.occurrences import FINGERPRINT, Occurrences
from pyspark_rocketmq.record.encode.outgoing_rows import UNIQUE_KEY_BYTES, OutgoingRows
from pyspark_rocketmq.record.layout import BATCH_ITEM_OVERHEAD
from pyspark_rocketmq.record.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TRANSACTION,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WRITE_ID,
    encode_properties,
)

__all__ = ["BatchLimits", "Parcel", "ParcelKind", "arrange", "as_half_messages", "content_ids"]
__all__ += ["WRITE_ID_BYTES", "encode_parcels", "half_message_marks", "kinds_of", "unique_keys"]
__all__ += ["with_write_ids"]

_HEAD: Final = np.dtype([("size", ">i4"), ("zeros", ">i8"), ("flag", ">i4"), ("body", ">i4")])
_EMPTY: Final = pa.scalar(b"")
_UNIQUE_HEAD: Final = b"UNIQ_KEY\x01"
_PREFIX_LENGTH: Final = 28
_DIGEST_BYTES: Final = 16

WRITE_ID_BYTES: Final = len(PROPERTY_WRITE_ID) + 2 + 2 * _DIGEST_BYTES + 1 + 10
"""The maximum size of a property with a write id derived from content: the occurrence has up to 10 digits."""

_SINGLES: Final = 256
"""How many messages that travel alone become Python objects at a time."""

_COUNTER_DIGITS: Final = np.frombuffer(
    b"".join(b"%04X" % number for number in range(1 << 16)), np.uint8
).reshape(-1, 4)


class ParcelKind(enum.IntEnum):
    """How a row is sent: in a batch, in a batch of compressed bodies, or alone."""

    PLAIN = 0
    COMPRESSED = 1
    SINGLE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a batch. ``compress_above`` is None if nothing is compressed."""

    max_rows: int
    max_bytes: int
    compression: Compression = Compression.NONE
    compress_above: int | None = None


@dataclass(frozen=True, slots=True)
class Parcel:
    """The contents of one send request: rows ``start`` to ``end`` of those that were encoded.

    ``properties`` and ``msg_id`` are set for a single message only. The body of a batch is a view of the
    encoding of the rows: a copy would cost more than the encoding.
    """

    start: int
    end: int
    body: bytes | memoryview
    sys_flag: int = 0
    flag: int = 0
    properties: str = ""
    msg_id: str = ""
    batch: bool = True

    def __len__(self) -> int:
        return self.end - self.start


def kinds_of(rows: OutgoingRows, limits: BatchLimits) -> npt.NDArray[np.int8]:
    """Return how each row is sent (``ParcelKind``): alone if it must be, or if it would fill a batch."""
    lengths = pc.binary_length(rows.body).to_numpy()
    kinds = np.zeros(len(rows), np.int8)
    if limits.compress_above is not None and limits.compression is not Compression.NONE:
        kinds[lengths >= limits.compress_above] = ParcelKind.COMPRESSED
    kinds[rows.single | (_item_sizes(rows) > limits.max_bytes)] = ParcelKind.SINGLE
    if limits.max_rows == 1:
        kinds[:] = ParcelKind.SINGLE
    return kinds


def arrange(
    queues: npt.NDArray[np.int32], kinds: npt.NDArray[np.int8], *, ordered: bool
) -> npt.NDArray[np.int64] | None:
    """Return the order of rows that groups them by queue, each queue's in row order.

    If the order of messages does not matter, rows of one kind are grouped too, so that batches are full. None
    if the rows already are in that order. Rows that all travel alone need none: more of them are in flight if
    their queues take turns.
    """
    keys = queues.astype(np.int64) * len(ParcelKind) + (0 if ordered else kinds)
    if np.all(keys[1:] >= keys[:-1]):
        return None
    return np.argsort(keys, kind="stable")


def encode_parcels(
    rows: OutgoingRows,
    queues: npt.NDArray[np.int32],
    kinds: npt.NDArray[np.int8],
    limits: BatchLimits,
    *,
    unique: pa.Array,
) -> Iterator[Parcel]:
    """Encode rows that `arrange` has ordered, as full batches and single messages.

    Parameters
    ----------
    queues : numpy.ndarray
        A number for each row. All rows of a parcel have the same number.
    unique : pyarrow.Array
        The encoded unique key of each row, from `unique_keys`.
    """
    offsets, data = _items(rows, unique, kinds, limits.compression)
    # Compressed, a body may be larger than before.
    kinds = np.where(np.diff(offsets) > limits.max_bytes, np.int8(ParcelKind.SINGLE), kinds)
    other_queue = (np.diff(queues) != 0) & (kinds[1:] != ParcelKind.SINGLE)
    edges = np.flatnonzero(other_queue | (np.diff(kinds) != 0)) + 1
    for start, end in _runs(edges, len(rows)):
        if kinds[start] == ParcelKind.SINGLE:
            for first in range(start, end, _SINGLES):
                yield from _singles(rows, unique, first, min(first + _SINGLES, end), limits)
            continue
        sys_flag = limits.compression.value if kinds[start] == ParcelKind.COMPRESSED else 0
        for first, last in _cut(offsets, start, end, limits):
            yield Parcel(first, last, data[offsets[first] : offsets[last]], int(sys_flag))


def content_ids(rows: OutgoingRows, scope: bytes, seen: Occurrences, *, topic: str) -> list[bytes]:
    """Return an id for each row: a digest of its content, and the number of its occurrence.

    Parameters
    ----------
    scope : bytes
        The scope in which the ids are unique, such as a query's batch.
    seen : Occurrences
        Counts how often each digest has occurred so far.
    topic : str
        The rows' topic, part of their content.
    """
    heads = _heads(rows, pc.binary_length(rows.body).to_numpy(), _properties_lengths(rows))
    key = scope if len(scope) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.blake2b(scope).digest()
    own = hashlib.blake2b(topic.encode(), digest_size=_DIGEST_BYTES, key=key)
    contents = pc.binary_join_element_wise(heads, rows.body, rows.properties, _EMPTY)
    digests = bytearray()
    for content in contents:
        hasher = own.copy()
        hasher.update(content.as_buffer())
        digests += hasher.digest()
    numbers = seen.number(np.frombuffer(digests, FINGERPRINT)[:: _DIGEST_BYTES // FINGERPRINT.itemsize])
    text = digests.hex()
    return [
        b"%b-%d" % (text[2 * _DIGEST_BYTES * row : 2 * _DIGEST_BYTES * (row + 1)].encode(), number)
        for row, number in enumerate(numbers.tolist())
    ]


def with_write_ids(properties: pa.Array, ids: pa.Array) -> pa.Array:
    """Return the properties with each row's write id appended: the last property of a name is valid."""
    name = pa.scalar(f"{PROPERTY_WRITE_ID}\x01".encode())
    return pc.binary_join_element_wise(properties, name, ids, pa.scalar(b"\x02"), _EMPTY)


def half_message_marks(group: str, transaction: str) -> bytes:
    """Return the encoded properties that make a message a half message.

    ``group`` is the producer group with its namespace. The broker asks it whether to commit.
    """
    marks = {
        PROPERTY_TRANSACTION_PREPARED: "true",
        PROPERTY_PRODUCER_GROUP: group,
        PROPERTY_TRANSACTION: transaction,
    }
    return encode_properties(marks)


def as_half_messages(properties: pa.Array, marks: bytes) -> pa.Array:
    """Return the properties with `half_message_marks` appended."""
    return pc.binary_join_element_wise(properties, pa.scalar(marks), _EMPTY)


# --- inside ---------------------------------------------------------------------------------


def _properties_lengths(rows: OutgoingRows) -> npt.NDArray[np.int32]:
    lengths: npt.NDArray[np.int32] = pc.binary_length(rows.properties).to_numpy()
    return lengths


def _item_sizes(rows: OutgoingRows) -> npt.NDArray[np.int64]:
    bodies: npt.NDArray[np.int64] = pc.binary_length(rows.body).to_numpy().astype(np.int64)
    return bodies + (BATCH_ITEM_OVERHEAD + UNIQUE_KEY_BYTES) + _properties_lengths(rows)


def _heads(
    rows: OutgoingRows, body_lengths: npt.NDArray[np.int32], properties_lengths: npt.NDArray[np.int32]
) -> pa.Array:
    heads = np.zeros(len(rows), _HEAD)
    heads["size"] = body_lengths.astype(np.int64) + properties_lengths + BATCH_ITEM_OVERHEAD
    heads["flag"] = rows.flag
    heads["body"] = body_lengths
    return _write_fixed(heads.view(np.uint8).reshape(-1, _HEAD.itemsize))


def _items(
    rows: OutgoingRows, unique: pa.Array, kinds: npt.NDArray[np.int8], compression: Compression
) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Return the offsets of the rows' items in their data; nothing if all travel alone."""
    if np.all(kinds == ParcelKind.SINGLE):
        return np.zeros(len(rows) + 1, np.int64), memoryview(b"")
    bodies = _compress_bodies(rows.body, kinds, compression)
    properties = _properties_lengths(rows) + UNIQUE_KEY_BYTES
    heads = _heads(rows, pc.binary_length(bodies).to_numpy(), properties)
    shorts = _write_fixed(properties.astype(">u2").view(np.uint8).reshape(-1, 2))
    items = pc.binary_join_element_wise(heads, bodies, shorts, unique, rows.properties, _EMPTY)
    offsets = np.frombuffer(items.buffers()[1], np.int32)[: len(rows) + 1].astype(np.int64)
    return offsets, memoryview(items.buffers()[2])


def _write_fixed(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """Return the rows of a matrix of bytes as a binary column."""
    count, width = matrix.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    )


def unique_keys(prefix: str, start: int, count: int) -> pa.Array:
    """Return the encoded property UNIQ_KEY of ``count`` new messages.

    Parameters
    ----------
    prefix, start : str, int
        28 characters, and a counter of 16 bits that continues from ``start``.
    """
    matrix = np.empty((count, UNIQUE_KEY_BYTES), np.uint8)
    head = _UNIQUE_HEAD + prefix.encode()
    assert len(prefix) == _PREFIX_LENGTH
    matrix[:, : len(head)] = np.frombuffer(head, np.uint8)
    matrix[:, len(head) : -1] = _COUNTER_DIGITS[(start + np.arange(count)) & 0xFFFF]
    matrix[:, -1] = 2
    return _write_fixed(matrix)


def _compress_bodies(bodies: pa.Array, kinds: npt.NDArray[np.int8], kind: Compression) -> pa.Array:
    """Compress the bodies that travel so."""
    rows = np.flatnonzero(kinds == ParcelKind.COMPRESSED)
    if not len(rows):
        return bodies
    packed = pa.array([compress(bodies[row].as_py(), kind) for row in rows], pa.binary())
    if len(rows) == len(bodies):
        return packed
    places = np.arange(len(bodies))
    places[rows] = len(bodies) + np.arange(len(rows))
    return pa.concat_arrays([bodies, packed]).take(pa.array(places))


def _runs(edges: npt.NDArray[np.int64], count: int) -> Iterator[tuple[int, int]]:
    return itertools.pairwise([0, *edges.tolist(), count] if count else [])


def _cut(
    offsets: npt.NDArray[np.int64], start: int, end: int, limits: BatchLimits
) -> Iterator[tuple[int, int]]:
    """Cut a run into batches, each as full as the limits allow and of one row at least."""
    while start < end:
        fits = int(np.searchsorted(offsets, offsets[start] + limits.max_bytes, side="right")) - 1
        last = min(end, start + limits.max_rows, max(fits, start + 1))
        yield start, last
        start = last


def _singles(
    rows: OutgoingRows, unique: pa.Array, start: int, end: int, limits: BatchLimits
) -> Iterator[Parcel]:
    properties = pc.binary_join_element_wise(unique[start:end], rows.properties[start:end], _EMPTY)
    columns = zip(
        rows.body[start:end].to_pylist(),
        properties.cast(pa.string()).to_pylist(),
        rows.flag[start:end].tolist(),
        strict=True,
    )
    for row, (body, text, flag) in enumerate(columns, start):
        msg_id = text[len(_UNIQUE_HEAD) : UNIQUE_KEY_BYTES - 1]
        packed, sys_flag = _pack(body, limits)
        yield Parcel(row, row + 1, packed, sys_flag, flag, text, msg_id, batch=False)


def _pack(body: bytes, limits: BatchLimits) -> tuple[bytes, int]:
    """Return a body as it travels alone, and its bits of sysFlag."""
    if limits.compress_above is not None and len(body) >= limits.compress_above:
        packed = compress(body, limits.compression)
        if len(packed) < len(body):
            return packed, int(limits.compression.value)
    return body, 0
