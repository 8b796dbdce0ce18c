"""A lock between processes."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import DevClusterError

__all__ = ["file_lock"]

_POLL_S: Final = 0.1


@contextlib.contextmanager
def file_lock(file: Path, deadline: Deadline, clock: Clock) -> Iterator[None]:
    """Hold a lock on a file, which is created if missing. The system releases it if the holder dies.

    Raises
    ------
    DevClusterError
        Another process held it until the deadline.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        while not _try_lock(handle.fileno()):
            if deadline.expired:
                raise DevClusterError(
                    f"another process kept this lock for {deadline.timeout_ms / 1000:g} s", lock=file
                )
            clock.sleep(_POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
