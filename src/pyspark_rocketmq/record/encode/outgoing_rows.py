"""Checks the Arrow columns of messages to be sent, and encodes their properties, column by column.

No Python object is created per message. The readable twin is ``client.send.message_encoding`` with
``properties``; a property test shows that both give the same results.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.model.messages import DELAY_LIMIT_MS, MAX_DELAY_LEVEL
from pyspark_rocketmq.record.properties import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_LITE_TOPIC,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACEPARENT,
    PROPERTY_WRITE_ID,
    RESERVED_PROPERTIES,
)

__all__ = ["UNIQUE_KEY_BYTES", "MessageColumns", "OutgoingRows", "Refused", "binary_of", "prepare"]

UNIQUE_KEY_BYTES: Final = 42
"""The size of ``UNIQ_KEY`` with its separators and an id of 32 characters."""

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_EMPTY: Final = pa.scalar(b"")
_VALUE_END: Final = pa.scalar(b"\x02")
_COLUMNS: Final = {  # as users call them
    "sharding_key": "shardingKey",
    "write_id": "writeId",
    "delay_level": "delayLevel",
    "delay_ms": "delay",
    "deliver_at_ms": "deliverAt",
}

Mask = npt.NDArray[np.bool_]
Refused = dict[int, str]
"""The rows that no broker would accept, and the reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageColumns:
    """The parts of messages, one column each; None for a part that no row has.

    Texts are ``binary`` columns of UTF-8. ``delay_ms`` is relative, ``deliver_at_ms`` since the epoch.
    """

    body: pa.Array
    topic: pa.Array | None = None
    tags: pa.Array | None = None
    keys: pa.Array | None = None
    properties: pa.MapArray | None = None
    sharding_key: pa.Array | None = None
    broker_name: pa.Array | None = None
    queue_id: pa.Array | None = None
    flag: pa.Array | None = None
    delay_level: pa.Array | None = None
    delay_ms: pa.Array | None = None
    deliver_at_ms: pa.Array | None = None
    priority: pa.Array | None = None
    traceparent: pa.Array | None = None
    write_id: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRows:
    """Checked messages, with their encoded properties except the unique key.

    ``place`` is each row's number in the original columns. ``single`` marks rows that must not be in a batch:
    brokers ignore delays, priorities and lite topics there. ``traceparent`` is the encoded property, which is
    no part of a row's content: a row that is written again may be sent from another span.
    """

    place: npt.NDArray[np.int64]
    body: pa.Array
    properties: pa.Array
    flag: npt.NDArray[np.int32]
    single: Mask
    topic: pa.Array | None = None
    sharding_key: pa.Array | None = None
    broker_name: pa.Array | None = None
    queue_id: pa.Array | None = None
    traceparent: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.body)

    def take(self, rows: npt.NDArray[np.int64]) -> Self:
        """Return these rows, in this order."""
        indices = pa.array(rows)
        taken = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if value is not None:
                taken[column.name] = value[rows] if isinstance(value, np.ndarray) else value.take(indices)
        return replace(self, **taken)

    def without(self, rows: list[int]) -> Self:
        """Return the other rows."""
        return self.take(np.delete(np.arange(len(self)), rows)) if rows else self

    def traced(self) -> Self:
        """Return the rows with their trace contexts among the properties."""
        if self.traceparent is None:
            return self
        properties = pc.binary_join_element_wise(self.properties, self.traceparent, _EMPTY)
        return replace(self, properties=properties, traceparent=None)

    def identify(self, properties: pa.Array) -> Self:
        """Return the rows with these properties, which contain their write ids."""
        return replace(self, properties=properties)


def binary_of(array: pa.Array) -> pa.Array:
    """Return a text, number or binary column as ``binary``, texts in UTF-8."""
    if pa.types.is_binary(array.type):
        return array
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        return array.cast(pa.large_binary()).cast(pa.binary())
    return array.cast(pa.string()).view(pa.binary())


def prepare(
    columns: MessageColumns,
    *,
    drop_reserved: bool = False,
    needs_write_id: bool = False,
    added_bytes: int = 0,
) -> tuple[OutgoingRows, Refused]:
    """Check the rows and encode their properties.

    Parameters
    ----------
    columns : MessageColumns
    drop_reserved : bool
        Omit properties with reserved names, instead of rejecting their rows.
    needs_write_id : bool
        Reject rows whose write id is missing, if there is such a column.
    added_bytes : int
        The number of bytes that are added to the properties of each row later.

    Returns
    -------
    OutgoingRows
        The rows that may be sent.
    dict
        The other rows, and the reasons.
    """
    refused: Refused = {}
    _check_plain(columns, refused)
    if needs_write_id and columns.write_id is not None:
        _mark(refused, _lengths(columns.write_id) == 0, "it has no write id")
    single = _check_delays(columns, refused)
    if columns.properties is not None:
        single |= _have_property(columns.properties, PROPERTY_LITE_TOPIC)
    properties = _properties(columns, refused, drop_reserved=drop_reserved)
    most = MAX_PROPERTIES_BYTES - UNIQUE_KEY_BYTES - added_bytes
    sizes, traceparent = _lengths(properties), None
    if columns.traceparent is not None:
        traceparent = _property(PROPERTY_TRACEPARENT, binary_of(columns.traceparent))
        sizes += _lengths(traceparent)
    _mark(refused, sizes > most, f"its properties take over {MAX_PROPERTIES_BYTES} bytes")
    count = len(columns)
    flag = columns.flag
    rows = OutgoingRows(
        place=np.arange(count, dtype=np.int64),
        body=columns.body,
        properties=properties,
        flag=np.zeros(count, np.int32) if flag is None else _numbers(flag).astype(np.int32),
        single=single,
        topic=columns.topic,
        sharding_key=columns.sharding_key,
        broker_name=columns.broker_name,
        queue_id=columns.queue_id,
        traceparent=traceparent,
    )
    return rows.without(list(refused)), refused


# --- checks ---------------------------------------------------------------------------------


def _mark(refused: Refused, bad: Mask, cause: str) -> None:
    """Record the rows of a mask; the first cause of a row is kept."""
    for row in np.flatnonzero(bad):
        refused.setdefault(int(row), cause)


def _check_plain(columns: MessageColumns, refused: Refused) -> None:
    _mark(refused, _lengths(columns.body) == 0, "it has no body: brokers take none of 0 bytes")
    if columns.topic is not None:
        codes = columns.topic.dictionary_encode()
        legal = [name is not None and _is_topic(name) for name in codes.dictionary.to_pylist()]
        legal.append(False)  # what a null's code, -1, finds
        taken = np.array(legal)[_codes(codes)]
        _mark(refused, ~taken, "its topic is missing, or no legal name")
    for name in ("tags", "keys", "sharding_key", "traceparent", "write_id"):
        array = getattr(columns, name)
        if array is not None:
            _mark_text(refused, array, _COLUMNS.get(name, name))


def _is_topic(name: bytes | str) -> bool:
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    return _TOPIC.fullmatch(text) is not None


def _mark_text(refused: Refused, array: pa.Array, what: str) -> None:
    bad = _bad_texts(array)
    if bad is not None:
        _mark(refused, bad, f"its {what} holds 0x01 or 0x02, or is not UTF-8")


def _bad_texts(array: pa.Array) -> Mask | None:
    """Return which texts cannot be (part of) a property; None if all can."""
    data = _data(array)
    if b"\x01" not in data and b"\x02" not in data and _is_utf8(data):
        starts = _offsets(array)[:-1] - _offsets(array)[0]
        firsts = np.frombuffer(data, np.uint8)[starts[starts < len(data)]]
        if not np.any(firsts & 0xC0 == 0x80):  # the inside of a character, which two values share
            return None
    return np.array([value is not None and not _is_text(value) for value in array.to_pylist()], np.bool_)


def _is_text(value: bytes) -> bool:
    return b"\x01" not in value and b"\x02" not in value and _is_utf8(value)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check_delays(columns: MessageColumns, refused: Refused) -> Mask:
    """Return which rows must be sent alone."""
    kinds = np.zeros(len(columns), np.int8)
    for name in ("delay_level", "delay_ms", "deliver_at_ms"):
        array = getattr(columns, name)
        if array is None:
            continue
        values = _numbers(array)
        given = values != 0 if name != "deliver_at_ms" else np.asarray(array.is_valid())
        kinds += given
        _mark(refused, values < 0, f"its {_COLUMNS[name]} is negative")
    if columns.delay_level is not None:
        _mark(refused, _numbers(columns.delay_level) > MAX_DELAY_LEVEL, "its delay level is above 18")
    if columns.delay_ms is not None:  # else they would deliver it at once
        _mark(refused, _numbers(columns.delay_ms) >= DELAY_LIMIT_MS, "its delay is too large for brokers")
    _mark(refused, kinds > 1, "it has more than one kind of delay")
    single: Mask = kinds > 0
    if columns.priority is not None:
        _mark(refused, _numbers(columns.priority) < 0, "its priority is negative")
        single |= np.asarray(columns.priority.is_valid())
    return single


def _have_property(maps: pa.MapArray, name: str) -> Mask:
    """Return which rows have a property."""
    named = pc.fill_null(pc.equal(binary_of(maps.keys), pa.scalar(name.encode())), False)
    before = np.concatenate([[0], np.cumsum(named.to_numpy(zero_copy_only=False))])
    offsets = maps.offsets.to_numpy()
    found: Mask = before[offsets[1:]] > before[offsets[:-1]]
    return found


# --- properties -----------------------------------------------------------------------------


def _properties(columns: MessageColumns, refused: Refused, *, drop_reserved: bool) -> pa.Array:
    parts: list[pa.Array] = []
    if columns.properties is not None:
        parts.append(_user_properties(columns.properties, refused, drop_reserved=drop_reserved))
    for name, array in (
        (PROPERTY_KEYS, columns.keys),
        (PROPERTY_TAGS, columns.tags),
        (PROPERTY_SHARDING_KEY, columns.sharding_key),
        (PROPERTY_DELAY, _without_zero(columns.delay_level)),
        (PROPERTY_TIMER_DELAY_MS, _without_zero(columns.delay_ms)),
        (PROPERTY_TIMER_DELIVER_MS, columns.deliver_at_ms),
        (PROPERTY_PRIORITY, columns.priority),
        (PROPERTY_WRITE_ID, columns.write_id),
    ):
        if array is not None:
            parts.append(_property(name, binary_of(array)))
    match parts:
        case []:
            return pa.repeat(_EMPTY, len(columns))
        case [only]:
            return only
        case _:
            return pc.binary_join_element_wise(*parts, _EMPTY)


def _property(name: str, values: pa.Array) -> pa.Array:
    """Encode one property of every row. A row without a value does not get the property."""
    encoded = pc.binary_join_element_wise(pa.scalar(f"{name}\x01".encode()), values, _VALUE_END, _EMPTY)
    present = pc.greater(pc.binary_length(values), 0)
    if values.null_count == 0 and pc.all(present, min_count=0).as_py():
        return encoded
    return pc.if_else(pc.fill_null(present, False), encoded, _EMPTY)


def _without_zero(array: pa.Array | None) -> pa.Array | None:
    return None if array is None else pc.if_else(pc.equal(array, 0), pa.scalar(None, array.type), array)


def _user_properties(maps: pa.MapArray, refused: Refused, *, drop_reserved: bool) -> pa.Array:
    """Encode a column of maps: all entries of all rows together, then cut into rows by the maps' offsets."""
    offsets = maps.offsets.to_numpy()
    names = binary_of(maps.keys.slice(offsets[0], offsets[-1] - offsets[0]))
    values = binary_of(maps.items.slice(offsets[0], offsets[-1] - offsets[0]))
    offsets = offsets - offsets[0]
    row_of = np.repeat(np.arange(len(maps)), np.diff(offsets))
    keep: Mask = pc.fill_null(pc.greater(pc.binary_length(values), 0), False).to_numpy(zero_copy_only=False)
    if maps.null_count:
        keep = keep & np.asarray(maps.is_valid())[row_of]
    for array, what in ((names, "a property's name"), (values, "a property")):
        bad = _bad_texts(array)
        if bad is not None:
            _mark_rows(refused, row_of[bad & keep], f"{what} holds 0x01 or 0x02, or is not UTF-8")
    _mark_rows(refused, row_of[(_lengths(names) == 0) & keep], "a property has no name")
    reserved = _find_reserved(names)
    if reserved is not None and drop_reserved:
        keep = keep & ~reserved
    elif reserved is not None:
        for entry in np.flatnonzero(reserved & keep):
            name = names[entry].as_py().decode()
            refused.setdefault(int(row_of[entry]), f"RocketMQ reserves the property {name}: use its column")
    entries = pc.binary_join_element_wise(names, pa.scalar(b"\x01"), values, _VALUE_END, _EMPTY)
    entries = pc.if_else(pa.array(keep), entries, _EMPTY)
    row_offsets = np.ascontiguousarray(_offsets(entries)[offsets])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(maps), [None, pa.py_buffer(row_offsets), entries.buffers()[2] or pa.py_buffer(b"")]
    )


def _mark_rows(refused: Refused, rows: npt.NDArray[np.int64], cause: str) -> None:
    for row in rows:
        refused.setdefault(int(row), cause)


def _find_reserved(names: pa.Array) -> Mask | None:
    codes = names.dictionary_encode()
    found = [name.decode(errors="replace") in RESERVED_PROPERTIES for name in codes.dictionary.to_pylist()]
    return np.array(found)[_codes(codes)] if any(found) else None


# --- columns as numpy arrays ----------------------------------------------------------------


def _codes(encoded: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    """Return the codes of a dictionary column, -1 for null."""
    codes: npt.NDArray[np.int32] = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return codes


def _numbers(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return a column of integers, 0 for null."""
    numbers: npt.NDArray[np.int64] = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    return _numbers(pc.binary_length(array))


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(array.buffers()[1], np.int32) if len(array) else np.zeros(1, np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def _data(array: pa.Array) -> bytes:
    """Return the bytes of all values, one after the other (those of nulls too)."""
    buffer = array.buffers()[2]
    if buffer is None or not len(array):
        return b""
    offsets = _offsets(array)
    return bytes(memoryview(buffer)[offsets[0] : offsets[-1]])
