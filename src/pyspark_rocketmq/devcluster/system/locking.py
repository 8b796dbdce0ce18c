"""Locks between processes, on files of a local file system."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import DevClusterError

__all__ = ["file_lock", "is_locked", "try_file_lock"]

_POLL_S: Final = 0.1


@contextlib.contextmanager
def file_lock(file: Path, deadline: Deadline, clock: Clock) -> Iterator[None]:
    """Hold a lock on a file, which is created if missing. The system releases it if the holder dies.

    Raises
    ------
    DevClusterError
        Another process held it until the deadline.
    """
    while (lock := try_file_lock(file)) is None:
        if deadline.expired:
            raise DevClusterError(
                f"another process kept this lock for {deadline.timeout_ms / 1000:g} s", lock=file
            )
        clock.sleep(_POLL_S)
    with lock:
        yield


def try_file_lock(file: Path) -> contextlib.AbstractContextManager[object] | None:
    """Lock a file, which is created if missing. Return None if another process, or this one, holds the lock.

    On a file system without locks, `filelock` uses the existence of the file: it stays locked if its holder
    is killed.

    The end of the returned context manager's block releases the lock, from any thread.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(Timeout):
        return FileLock(file, thread_local=False).acquire(blocking=False)
    return None


def is_locked(file: Path) -> bool:
    """Return whether any process holds the lock on a file. A file that does not exist is not created."""
    if not file.exists():
        return False
    lock = try_file_lock(file)
    if lock is None:
        return True
    with lock:
        return False
