"""CPU time of decompressing bodies, with and without the extra ``compression``.

Run ``python -m benchmarks.compression``. Bodies are JSON of a few sizes, compressed like the Java client. The
figures are microseconds of CPU per KiB of plain body, best of several rounds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

from pyspark_rocketmq.record import codecs
from pyspark_rocketmq.record.compress import Compression, compress, decompress

_SIZES = (1 << 10, 4 << 10, 64 << 10)
_ROUNDS = 7
_BYTES_A_ROUND = 2 << 20


def main() -> None:
    """Print a table with one row per size and format."""
    installed = codecs.optional
    print(f"{'format':8} {'body':>9} {'packed':>9} {'without':>9} {'with':>9}  us/KiB")
    for size in _SIZES:
        body = _body(size)
        for kind in (Compression.ZLIB, Compression.LZ4, Compression.ZSTD):
            packed = compress(body, kind)
            times = []
            for optional in (_nothing, installed):
                codecs.optional = optional  # type: ignore[assignment]
                times.append(_best(lambda packed=packed, kind=kind: decompress(packed, kind.value), size))
            print(f"{kind.name:8} {size:9} {len(packed):9} {times[0]:9.2f} {times[1]:9.2f}")


def _nothing(_: str) -> None:
    return None


def _best(work: Callable[[], bytes], size: int) -> float:
    """Return the microseconds per KiB of the best round."""
    repeats = _BYTES_A_ROUND // size
    best = float("inf")
    for _ in range(_ROUNDS):
        started = time.process_time()
        for _ in range(repeats):
            work()
        best = min(best, time.process_time() - started)
    return best / repeats / (size / 1024) * 1e6


def _body(size: int) -> bytes:
    draw = random.Random(1)
    rows = []
    while sum(map(len, rows)) < size:
        row = {"id": draw.randrange(10**9), "name": draw.choice("abc") * 4, "amount": draw.random()}
        rows.append(json.dumps(row).encode())
    return b"".join(rows)[:size]


if __name__ == "__main__":
    main()
