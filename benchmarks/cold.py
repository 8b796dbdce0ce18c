"""Cold data: before each round the broker is stopped and its files are dropped from the page cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

from pyspark_rocketmq.devcluster import DevCluster

_LIBC = ctypes.CDLL(None, use_errno=True)
_WARM_SHARE = 0.02
"""The allowed rest in memory: a page or two of each file."""


def make_cold(cluster: DevCluster) -> None:
    """Stop the brokers, drop their files from the page cache, verify this, and restart them.

    Raises
    ------
    RuntimeError
        The kernel keeps the files in memory.
    """
    for broker in cluster.brokers:
        broker.stop()
    files = [file for file in cluster.home.rglob("store/**/*") if file.is_file() and file.stat().st_size]
    os.sync()  # pages that are not written to disk cannot be dropped
    for file in files:
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    warm, pages = map(sum, zip(*(_pages_in_memory(file) for file in files), strict=True))
    if warm > pages * _WARM_SHARE:
        raise RuntimeError(f"{warm} of {pages} pages of the broker's files are still in memory")
    for broker in cluster.brokers:
        broker.start()


def _pages_in_memory(file: Path) -> tuple[int, int]:
    """Return the number of a file's pages in the page cache, and in total."""
    size = file.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    states = (ctypes.c_ubyte * pages)()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), size) as mapped:
        address = ctypes.addressof(ctypes.c_ubyte.from_buffer(mapped))
        if _LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), states):
            raise OSError(ctypes.get_errno(), "mincore failed", str(file))
    return sum(state & 1 for state in bytes(states)), pages
