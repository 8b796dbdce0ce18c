"""The properties of many messages together: the vectorized twin of ``properties.decode_properties``."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.record.decode.corrupt import replace_slots
from pyspark_rocketmq.record.decode.rows import Rows
from pyspark_rocketmq.record.decode.spans import Bytes, Int64s, Mask, Spans, contents, view_sliding

__all__ = ["MAP_TYPE", "PropertyTable"]

MAP_TYPE: Final = pa.map_(pa.string(), pa.string())

_NAME_END: Final = 1
_VALUE_END: Final = 2


class PropertyTable:
    """Where each property of each message is.

    All property strings are concatenated, one pass finds the separators in them, and
    only what is asked for is collected from between: no object a message or a property.

    Parameters
    ----------
    rows : Rows
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = len(rows)
        self._take(*_collect(rows))

    def _take(self, blocks: pa.Array, ends: Int64s) -> None:
        self._blocks = blocks
        self._data = contents(blocks)
        self._name_start, self._name_end, self._value_end = _find_entries(self._data)
        self._name_length = self._name_end - self._name_start
        # Row i has the entries first[i] up to first[i + 1].
        self._first = np.searchsorted(self._value_end, ends)

    def _replace(self) -> None:
        """Write U+FFFD over what is not UTF-8, as Java's clients read it; rare, and slow."""
        blocks = replace_slots(self._blocks)
        self._take(blocks, _offsets(blocks)[:: len(blocks) // max(1, self._rows)])

    def column(self, name: str) -> pa.Array:
        """Return one property as strings, null where a message does not have it."""
        try:
            return self._column(name).cast(pa.string())
        except pa.ArrowInvalid:
            self._replace()
            return self._column(name).cast(pa.string())

    def _column(self, name: str) -> pa.Array:
        found = self._find(name.encode())
        first, rows = self._first, self._rows
        if not found.size:
            return pa.nulls(rows, pa.binary())
        if found.size == rows and (found >= first[:-1]).all() and (found < first[1:]).all():
            entry, present = found, None
        else:
            entry = np.full(rows, -1)
            entry[np.searchsorted(first, found, side="right") - 1] = (
                found  # of equal names the last one counts
            )
            present = entry >= 0
        start, length = self._name_end[entry] + 1, self._value_end[entry] - self._name_end[entry] - 1
        if present is not None:
            length[~present] = 0
        values = Spans(np.zeros(rows, np.int32), start, length)
        return values.collect((self._data,), present)

    def map(self) -> pa.MapArray:
        """Return all properties."""
        try:
            self._blocks.cast(pa.string())
        except pa.ArrowInvalid:
            self._replace()
        names, values, first = self._pieces(0), self._pieces(2), self._first
        keep = _last_of_equal(names, first)
        if keep is not None:
            names, values = names.take(keep), values.take(keep)
            first = np.searchsorted(keep, first)
        entries = pa.StructArray.from_arrays(
            [names, values], fields=[MAP_TYPE.key_field, MAP_TYPE.item_field]
        )
        offsets = pa.py_buffer(first.astype(np.int32))
        return pa.Array.from_buffers(MAP_TYPE, self._rows, [None, offsets], children=[entries])

    def _find(self, name: bytes) -> Int64s:
        """Return the entries of that name."""
        found = np.flatnonzero(self._name_length == len(name))
        chars = view_sliding(self._data, f"S{len(name)}")[self._name_start[found]]
        same: Mask = chars == name
        return found[same]

    def _pieces(self, which: int) -> pa.Array:
        """Return all names (0) or all values (2): every fourth string of name, 0x01, value, rest."""
        entries = self._name_start.size
        edges = np.empty(4 * entries + 1, np.int32)
        edges[:-1:4] = self._name_start
        edges[1::4] = self._name_end
        edges[2::4] = self._name_end + 1
        edges[3::4] = self._value_end
        edges[-1] = self._data.size
        strings = pa.Array.from_buffers(
            pa.string(), 4 * entries, [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        )
        return strings.take(pa.array(np.arange(which, 4 * entries, 4, dtype=np.int32)))


def _collect(rows: Rows) -> tuple[pa.Array, Int64s]:
    """Concatenate all property strings, each closed by 0x02; return the N + 1 edges, too."""
    blocks = rows.properties.collect(rows.buffers)
    ends = _offsets(blocks)
    filled = ends[1:][rows.properties.length > 0]
    if (contents(blocks)[filled - 1] == _VALUE_END).all():
        return blocks, ends
    # Some releases of 4.9 omit the last separator: append one to each.
    size = 2 * len(rows)
    index, start, length = (
        np.full(size, len(rows.buffers), np.int32),
        np.zeros(size, np.int64),
        np.ones(size, np.int64),
    )
    index[::2], start[::2], length[::2] = rows.properties.index, rows.properties.start, rows.properties.length
    closing = np.array([_VALUE_END], np.uint8)
    blocks = Spans(index, start, length).collect((*rows.buffers, closing))
    return blocks, _offsets(blocks)[::2]


def _offsets(array: pa.Array) -> Int64s:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1).astype(np.int64)


def _find_entries(data: Bytes) -> tuple[Int64s, Int64s, Int64s]:
    """Return where each entry's name begins and ends, and where its value (one byte after that) ends."""
    separators = np.flatnonzero(data - np.uint8(_NAME_END) < 2)
    kind = data[separators]
    if separators.size % 2 == 0 and (kind[::2] == _NAME_END).all() and (kind[1::2] == _VALUE_END).all():
        name_end, value_end = separators[::2], separators[1::2]
    else:
        # A value may hold 0x01, an entry may lack it: its first separator ends the name.
        closing = np.flatnonzero(kind == _VALUE_END)
        value_end = separators[closing]
        name_end = separators[np.concatenate(([0], closing[:-1] + 1))] if closing.size else value_end
    name_start = np.concatenate(([0], value_end[:-1] + 1)) if value_end.size else value_end
    valid = (name_end > name_start) & (value_end > name_end + 1)
    if not valid.all():
        name_start, name_end, value_end = name_start[valid], name_end[valid], value_end[valid]
    return name_start, name_end, value_end


def _last_of_equal(names: pa.Array, first: Int64s) -> Int64s | None:
    """Return the entries that no later one of the same row overrides; None if that is all of them."""
    counts = np.diff(first)
    name = names.dictionary_encode().indices.to_numpy()
    if not name.size:
        return None
    if (counts == counts[0]).all():
        table = name.reshape(counts.size, counts[0])
        if (table == table[0]).all() and np.unique(table[0]).size == counts[0]:
            return None  # what nearly all topics look like: the same names in the same order
    of_row = np.repeat(np.arange(counts.size), counts) * (int(name.max()) + 1) + name
    last = name.size - 1 - np.unique(of_row[::-1], return_index=True)[1]
    return None if last.size == name.size else np.sort(last)
