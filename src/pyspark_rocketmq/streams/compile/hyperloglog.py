"""Count distinct values in a few kilobytes: HyperLogLog, for windows with state that we keep.

# Facts: registers as in Flajolet et al. 2007, 2^14 of them (standard error 0.81 %); the estimate is that
# of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6, which
# needs no correction tables. Up to `_EXACT` values are stored as hashes and counted exactly.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

__all__ = ["Sketch"]

_PRECISION: Final = 14
_REGISTERS: Final = 1 << _PRECISION
_BITS: Final = 64 - _PRECISION
_EXACT: Final = 512
_ALPHA: Final = 1 / (2 * math.log(2))


class Sketch:
    """A count of distinct texts."""

    __slots__ = ("_few", "_registers")

    def __init__(self) -> None:
        self._few: set[int] | None = set()
        self._registers = bytearray()

    @classmethod
    def of(cls, packed: set[int] | bytes) -> Sketch:
        """Return the sketch from its packed form."""
        made = cls()
        made._few = packed if isinstance(packed, set) else None
        made._registers = bytearray() if isinstance(packed, set) else bytearray(packed)
        return made

    def pack(self) -> set[int] | bytes:
        """Return the sketch as plain values, because checkpoints must not depend on a class's layout."""
        return bytes(self._registers) if self._few is None else self._few

    def add(self, text: str) -> None:
        """Add a value."""
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        hashed = int.from_bytes(digest, "big")
        if self._few is None:
            self._register(hashed)
            return
        self._few.add(hashed)
        if len(self._few) > _EXACT:
            self._registers = bytearray(_REGISTERS)
            for known in self._few:
                self._register(known)
            self._few = None

    def _register(self, hashed: int) -> None:
        at, rest = hashed >> _BITS, hashed & ((1 << _BITS) - 1)
        rank = _BITS - rest.bit_length() + 1
        self._registers[at] = max(self._registers[at], rank)

    def count(self) -> int:
        """Return the approximate number of distinct values."""
        if self._few is not None:
            return len(self._few)
        counts = [self._registers.count(rank) for rank in range(_BITS + 2)]
        z = _REGISTERS * _tau(1 - counts[_BITS + 1] / _REGISTERS)
        for rank in range(_BITS, 0, -1):
            z = 0.5 * (z + counts[rank])
        z += _REGISTERS * _sigma(counts[0] / _REGISTERS)
        return round(_ALPHA * _REGISTERS * _REGISTERS / z)


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z = 1.0, x
    while True:
        x, before = x * x, z
        z += x * y
        y += y
        if z == before:
            return z


def _tau(x: float) -> float:
    y, z = 1.0, 1 - x
    while True:
        x, before = math.sqrt(x), z
        y *= 0.5
        z -= (1 - x) ** 2 * y
        if z == before:
            return z / 3
