"""Messages that are packed: compressed bodies and inner batches, unpacked one by one into side buffers.

A compressed body may be a thousand times smaller than what it unpacks to, and a receive buffer holds
thousands of them: the amount unpacked at a time is limited, and earlier parts may be freed by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.batch_items import is_inner_batch, iter_batch
from pyspark_rocketmq.record.compress import decompress, is_compressed
from pyspark_rocketmq.record.decode.corrupt import BODY_DAMAGED, INSIDE_DAMAGED, Corrupt
from pyspark_rocketmq.record.decode.rows import Rows
from pyspark_rocketmq.record.decode.spans import Bytes, Int64s, Mask, Spans
from pyspark_rocketmq.record.layout import MAX_INNER_MESSAGES
from pyspark_rocketmq.record.properties import PROPERTY_INNER_NUM, decode_properties

__all__ = ["unpack"]

_SIDE_BUFFER: Final = 2**29


def unpack(
    rows: Rows, packed: Mask, corrupt: Corrupt, *, body_limit: int, part_bytes: int
) -> Iterator[tuple[Rows, Int64s]]:
    """Decompress bodies and unwrap inner batches.

    Parameters
    ----------
    body_limit : int
        What one decompressed body may take, in bytes.
    part_bytes : int
        A part ends with the body that brings the unpacked bytes to this: together with ``body_limit``
        the bound on the memory of one.

    Yields
    ------
    tuple
        The new rows of a part, and the old row that each came from; together all rows, in order.
    """
    start = 0
    if rows.damage is None:
        for part, parent in _decompress_bodies(rows, packed, body_limit=body_limit, part_bytes=part_bytes):
            yield part, parent
            start = int(parent[-1]) + 1
    if start < len(rows):
        yield from _unpack_one_by_one(
            rows, packed, start, corrupt, body_limit=body_limit, part_bytes=part_bytes
        )


def _decompress_bodies(
    rows: Rows, packed: Mask, *, body_limit: int, part_bytes: int
) -> Iterator[tuple[Rows, Int64s]]:
    """Yield parts in which bodies are compressed and nothing else; up to the first part that has more.

    Besides its decompression, a body costs a third of what `_unpack_one_by_one` takes for it.
    """
    views = [buffer.data for buffer in rows.buffers]
    at = np.flatnonzero(packed)
    columns = (at, rows.sys_flag()[at], *rows.body[at].parts)
    places = zip(*(column.tolist() for column in columns), strict=True)
    begin, plain, lengths = 0, bytearray(), list[int]()
    for row, sys_flag, index, start, length in places:
        if is_inner_batch(sys_flag):
            return
        try:
            body = decompress(views[index][start : start + length], sys_flag, limit=body_limit)
        except CorruptMessageError:
            return
        plain += body
        lengths.append(len(body))
        if len(plain) >= part_bytes:
            yield _with_bodies(rows, packed, slice(begin, row + 1), plain, lengths)
            begin, plain, lengths = row + 1, bytearray(), []
    if begin < len(rows):
        yield _with_bodies(rows, packed, slice(begin, len(rows)), plain, lengths)


def _with_bodies(
    rows: Rows, packed: Mask, part: slice, plain: bytearray, lengths: list[int]
) -> tuple[Rows, Int64s]:
    """Return the rows of a part with these bodies in place of the packed ones, and the rows' numbers."""
    mine, changed = rows[part], packed[part]
    body = mine.body
    index, start, length = body.index.copy(), body.start.copy(), body.length.copy()
    index[changed], length[changed] = len(rows.buffers), lengths
    start[changed] = np.cumsum(lengths) - lengths
    buffers = (*rows.buffers, np.frombuffer(plain, np.uint8))
    return replace(mine, body=Spans(index, start, length), buffers=buffers), np.arange(part.start, part.stop)


def _unpack_one_by_one(
    rows: Rows, packed: Mask, start: int, corrupt: Corrupt, *, body_limit: int, part_bytes: int
) -> Iterator[tuple[Rows, Int64s]]:
    """As `unpack`, from row ``start`` on, whatever is in the rows."""
    part = _Part(rows, packed, start)
    for row, facts in _facts(rows, packed, start):
        if rows.damage is not None and rows.damage[row]:  # noted already, but for what is inside
            error = CorruptMessageError("the body does not match its checksum")
            corrupt.note(error, int(rows.offset[row]), part.spoil(facts))
        else:
            try:
                part.add(facts, body_limit)
            except CorruptMessageError as error:
                corrupt.note(error, int(rows.offset[row]), part.spoil(facts))
        if part.side.size >= part_bytes or len(part.items) >= MAX_INNER_MESSAGES:
            yield part.finish(row + 1)
            part = _Part(rows, packed, row + 1)
    if part.start < len(rows):
        yield part.finish(len(rows))


@dataclass(slots=True)
class _Part:
    """What the packed ones of some rows, from ``start`` on, have become."""

    rows: Rows
    packed: Mask
    start: int
    items: list[tuple[int, ...]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    side: _SideBuffers = field(init=False)
    views: list[memoryview] = field(init=False)

    def __post_init__(self) -> None:
        self.side = _SideBuffers(len(self.rows.buffers))
        self.views = [buffer.data for buffer in self.rows.buffers]

    def add(self, facts: _Facts, body_limit: int) -> None:
        """Unpack one row."""
        items = list(_items_of(self.views, facts, self.side, body_limit))
        self.items += items
        self.counts.append(len(items))

    def spoil(self, facts: _Facts) -> int:
        """Take a row that does not unpack as messages without what is inside; return how many."""
        sys_flag, flag, index, start, _, *properties = facts
        count = 1
        if is_inner_batch(sys_flag):
            count = _inner_number(self.views[properties[0]], properties[1], properties[2])
            gone = (*(index, start, 0), *(index, start, 0), INSIDE_DAMAGED)
            self.items += ((flag, position, *gone) for position in range(count))
        else:
            self.items.append((flag, 0, index, start, 0, *properties, BODY_DAMAGED))
        self.counts.append(count)
        return count

    def finish(self, end: int) -> tuple[Rows, Int64s]:
        """Return the new rows of the old ones before ``end``, and the old row that each came from."""
        packed = self.packed[self.start : end]
        count = np.ones(end - self.start, np.int64)
        count[packed] = self.counts
        parent = np.repeat(np.arange(self.start, end), count)
        unpacked = self.rows[parent]  # copies, so that they can be written
        changed = np.repeat(packed, count)
        (
            unpacked.head["flag"][changed],
            position,
            unpacked.body.index[changed],
            unpacked.body.start[changed],
            unpacked.body.length[changed],
            unpacked.properties.index[changed],
            unpacked.properties.start[changed],
            unpacked.properties.length[changed],
            damage,
        ) = np.array(self.items, np.int64).reshape(-1, 9).T
        unpacked.offset[changed] += position
        if damage.any():
            there = np.zeros(len(unpacked), np.uint8) if unpacked.damage is None else unpacked.damage
            there[changed] = damage
            unpacked = replace(unpacked, damage=there)
        return replace(unpacked, buffers=self.rows.buffers + self.side.finish()), parent


_Facts: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""sysFlag and flag; buffer, start and length of the body; the same of the properties."""


def _facts(rows: Rows, packed: Mask, start: int) -> Iterator[tuple[int, _Facts]]:
    """Yield the packed rows: taken from the arrays together, because one by one costs a microsecond each."""
    at = start + np.flatnonzero(packed[start:])
    columns = [rows.head[name][at] for name in ("sys_flag", "flag")]
    columns += [part[at] for spans in (rows.body, rows.properties) for part in spans.parts]
    return zip(at.tolist(), zip(*(column.tolist() for column in columns), strict=True), strict=True)


def _items_of(
    views: Sequence[memoryview], facts: _Facts, side: _SideBuffers, limit: int
) -> Iterator[tuple[int, ...]]:
    """Yield a row's messages: flag, number in it, buffer, start, length of body and properties, damage."""
    sys_flag, flag, index, start, length, *properties = facts
    body: bytes | memoryview = views[index][start : start + length]
    if is_compressed(sys_flag):
        body = decompress(body, sys_flag, limit=limit)
        index, start = side.add(body)
    if is_inner_batch(sys_flag):
        for position, item in enumerate(iter_batch(body)):
            yield (
                *(item.flag, position),
                *(index, start + item.body_start, item.body_end - item.body_start),
                *(index, start + item.properties_start, item.properties_end - item.properties_start),
                0,
            )
    else:
        yield (flag, 0, index, start, len(body), *properties, 0)


def _inner_number(buffer: memoryview, start: int, length: int) -> int:
    """Return how many messages the properties of an inner batch tell; 1 if they do not."""
    text = decode_properties(buffer[start : start + length]).get(PROPERTY_INNER_NUM, "")
    return min(max(int(text), 1), MAX_INNER_MESSAGES) if text.isascii() and text.isdigit() else 1


class _SideBuffers:
    """Where unpacked bodies go: few large buffers, numbered from ``first``."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._buffers: list[bytearray] = []
        self.size = 0
        """How many bytes there are."""

    def add(self, body: bytes) -> tuple[int, int]:
        """Keep a body; return the number of its buffer and where it begins there."""
        if not self._buffers or len(self._buffers[-1]) + len(body) > _SIDE_BUFFER:
            self._buffers.append(bytearray())
        start = len(self._buffers[-1])
        self._buffers[-1] += body
        self.size += len(body)
        return self._first + len(self._buffers) - 1, start

    def finish(self) -> tuple[Bytes, ...]:
        """Return the buffers."""
        return tuple(np.frombuffer(buffer, np.uint8) for buffer in self._buffers)
