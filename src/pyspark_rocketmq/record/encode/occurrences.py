"""How often contents came up in a task, and which came up in several: by sorted fingerprints, 8 bytes each.

A fingerprint is the first 64 bits of a content's digest. Two contents that share one are numbered as if they
were one content. Their write ids differ all the same, because those hold the whole digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

__all__ = ["FINGERPRINT", "Fingerprints", "Occurrences", "count_shared"]

FINGERPRINT: Final = np.dtype("<u8")

Fingerprints = npt.NDArray[np.uint64]

_SLICE: Final = 1 << 18
"""About how many fingerprints are sorted at a time: what merging needs beside its input and its result."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Distinct fingerprints in ascending order, and how often each came up."""

    keys: Fingerprints
    counts: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, keys: Fingerprints, counts: npt.NDArray[np.uint32]) -> Self:
        """Sort and add up what is unsorted and repeated."""
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        first = _firsts(keys)
        return cls(keys[first], np.add.reduceat(counts, first, dtype=np.uint32) if len(first) else counts)

    def find(self, keys: Fingerprints) -> npt.NDArray[np.uint32]:
        """Return how often each of these came up."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.counts[places], np.uint32(0))

    def merge(self, other: Self) -> Self:
        """Return both as one run, slice by slice."""
        size = len(self.keys) + len(other.keys)
        keys, counts = np.empty(size, np.uint64), np.empty(size, np.uint32)
        filled = 0
        for mine, others in _slices((self.keys, other.keys)):
            part = type(self).of(
                np.concatenate([self.keys[mine], other.keys[others]]),
                np.concatenate([self.counts[mine], other.counts[others]]),
            )
            end = filled + len(part.keys)
            keys[filled:end], counts[filled:end] = part.keys, part.counts
            filled = end
        if filled > size * 3 // 4:
            return type(self)(keys[:filled], counts[:filled])
        return type(self)(keys[:filled].copy(), counts[:filled].copy())


class Occurrences:
    """Numbers the occurrences of each content of a task: 12 bytes a distinct content, twice that in a merge.

    The runs' sizes fall at least by half from one to the next, so that few are searched and each fingerprint
    is merged a logarithmic number of times.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def number(self, fingerprints: Fingerprints) -> npt.NDArray[np.int64]:
        """Return each row's occurrence number, from 0; later calls continue the count."""
        numbers = _ranks(fingerprints)
        for run in self._runs:
            numbers += run.find(fingerprints)
        if len(fingerprints):
            self._runs.append(_Run.of(fingerprints, np.ones(len(fingerprints), np.uint32)))
        while len(self._runs) > 1 and len(self._runs[-2].keys) < 2 * len(self._runs[-1].keys):
            self._merge_last()
        return numbers

    def fingerprints(self) -> Fingerprints:
        """Return the distinct fingerprints in ascending order."""
        while len(self._runs) > 1:
            self._merge_last()
        return self._runs[0].keys if self._runs else np.empty(0, np.uint64)

    def _merge_last(self) -> None:
        last = self._runs.pop()
        self._runs[-1] = self._runs[-1].merge(last)


def count_shared(tasks: Sequence[bytes]) -> int:
    """Count the fingerprints that are in more than one of these.

    Parameters
    ----------
    tasks : sequence of bytes
        `Occurrences.fingerprints` of each task, as bytes of `FINGERPRINT`.
    """
    columns = [np.frombuffer(task, FINGERPRINT) for task in tasks]
    shared = 0
    for slices in _slices(columns):
        parts = zip(columns, slices, strict=True)
        values = np.sort(np.concatenate([column[mine] for column, mine in parts]))
        again = values[1:][values[1:] == values[:-1]]
        shared += len(_firsts(again))
    return shared


def _ranks(keys: Fingerprints) -> npt.NDArray[np.int64]:
    """Return how many equal keys precede each one."""
    order = np.argsort(keys, kind="stable")
    first = _firsts(keys[order])
    lengths = np.diff(np.append(first, len(keys)))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(first, lengths)
    return ranks


def _firsts(keys: Fingerprints) -> npt.NDArray[np.int64]:
    """Return where each distinct key of a sorted array begins."""
    changes: npt.NDArray[np.int64] = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    return changes


def _slices(columns: Sequence[Fingerprints]) -> Iterator[tuple[slice, ...]]:
    """Cut sorted arrays at the same values: digests are spread evenly, hence so are the slices."""
    if not columns:
        return
    count = sum(len(column) for column in columns) // _SLICE + 1
    starts = [0] * len(columns)
    for number in range(1, count + 1):
        edge = np.uint64((number << 64) // count) if number < count else None
        ends = [len(c) if edge is None else int(np.searchsorted(c, edge)) for c in columns]
        yield tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))
        starts = ends
