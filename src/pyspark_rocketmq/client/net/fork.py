"""What a child process must not take over by a fork: locks that a thread of the parent held, sockets, waits.

Spark's Python workers are forked, and so are the processes of ``multiprocessing``. Only the thread that
forked lives on in the child: what any other thread was doing at that moment is never finished there.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Final, Protocol

__all__ = ["AfterFork", "ForkSafeLock", "tell_after_fork"]


class AfterFork(Protocol):
    """Something that has to forget what belongs to the parent process."""

    def after_fork(self) -> None:
        """Start again in the child; no other thread runs there yet."""
        ...


_told: Final[weakref.WeakSet[AfterFork]] = weakref.WeakSet()


def _tell() -> None:
    for each in list(_told):
        each.after_fork()


if sys.platform != "win32":  # Windows has no fork
    os.register_at_fork(after_in_child=_tell)


def tell_after_fork(owner: AfterFork) -> None:
    """Have ``owner.after_fork`` called in every child process for as long as ``owner`` lives."""
    _told.add(owner)


class ForkSafeLock:
    """A lock that is free in a child process, even if a thread of the parent held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Be free."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
