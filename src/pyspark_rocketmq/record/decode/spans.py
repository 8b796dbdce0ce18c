"""Byte strings that lie scattered over buffers, and how to collect them into an Arrow array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Bytes", "Int32s", "Int64s", "Mask", "Spans", "ascends", "contents", "validity", "view_sliding"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_INLINE = 12
"""Arrow's binary views hold strings up to this length themselves."""


def view_sliding(data: Bytes, dtype: npt.DTypeLike) -> npt.NDArray[np.void]:
    """View ``data`` as if a value of ``dtype`` began at every byte: indexing gathers unaligned values."""
    kind = np.dtype(dtype)
    return np.ndarray((max(0, data.size - kind.itemsize + 1),), kind, data, strides=(1,))


def ascends(offset: Int64s, after: int) -> Mask:
    """Return whether each offset is above the one before; the first, above ``after``."""
    found = np.empty(offset.size, np.bool_)
    if offset.size:  # a fifth of the time of np.diff: most answers are short
        found[0] = offset[0] > after
        np.greater(offset[1:], offset[:-1], out=found[1:])
    return found


def contents(array: pa.Array) -> Bytes:
    """Return the concatenated bytes of a (whole) binary array."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)


def validity(present: Mask) -> pa.Buffer | None:
    """Return the Arrow bitmap of ``present``, None if all are."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """``length[i]`` bytes from ``start[i]`` of buffer number ``index[i]``, for each i."""

    index: Int32s
    start: Int64s
    length: Int64s

    def __len__(self) -> int:
        return self.length.size

    @property
    def parts(self) -> tuple[Int32s, Int64s, Int64s]:
        """Index, start and length."""
        return self.index, self.start, self.length

    def __getitem__(self, rows: slice | Int64s) -> Spans:
        return Spans(self.index[rows], self.start[rows], self.length[rows])

    @classmethod
    def concat(cls, parts: Sequence[Spans]) -> Spans:
        """Join spans over the same buffers."""
        return cls(
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.length for part in parts]),
        )

    def collect(self, buffers: Sequence[Bytes], present: Mask | None = None) -> pa.Array:
        """Copy the strings into one contiguous binary array; absent ones become null.

        The strings are described as Arrow binary views, whose cast to binary is one pass of copies.
        """
        views = np.empty((len(self), 4), np.int32)
        views[:, 0] = self.length
        views[:, 1] = 0  # the prefix, which only comparisons read
        views[:, 2] = self.index
        views[:, 3] = self.start
        short = np.flatnonzero(self.length <= _INLINE)
        if short.size:
            self._inline(buffers, short, views)
        bitmap = None if present is None else validity(present)
        data = [bitmap, pa.py_buffer(views), *map(pa.py_buffer, buffers)]
        return pa.Array.from_buffers(pa.binary_view(), len(self), data).cast(pa.binary())

    def _inline(self, buffers: Sequence[Bytes], short: Int64s, views: Int32s) -> None:
        """Put short strings into their views; what follows them there is never read."""
        for number, data in enumerate(buffers):
            rows = short if len(buffers) == 1 else short[self.index[short] == number]
            last = data.size - _INLINE
            inner = rows[self.start[rows] <= last]
            if inner.size:
                chars = view_sliding(data, f"V{_INLINE}")[self.start[inner]]
                views[inner, 1:] = chars.view(np.int32).reshape(-1, 3)
            for row in rows[self.start[rows] > last].tolist():
                tail = data[self.start[row] : self.start[row] + self.length[row]].tobytes()
                views[row, 1:] = np.frombuffer(tail.ljust(_INLINE, b"\0"), np.int32)
