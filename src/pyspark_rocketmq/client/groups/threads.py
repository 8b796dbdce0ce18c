"""Threads of a host: events, threads that are waited for, and pools. A simulation runs them in one thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from pyspark_rocketmq.client.net.host import Host

__all__ = ["Event", "Pool", "Worker", "wait_for_work"]

_LOG: Final = logging.getLogger(__name__)

_TICK_S: Final = 1.0
_SHORTEST_TICK_S: Final = 0.1


class Event:
    """An event that threads wait for, as ``threading.Event``."""

    __slots__ = ("_is_set", "_turn")

    def __init__(self, host: Host) -> None:
        self._turn = host.condition()
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake everyone who waits for it."""
        with self._turn:
            self._is_set = True
            self._turn.notify_all()

    def clear(self) -> None:
        """Reset it."""
        self._is_set = False

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set; whether it was within the time."""
        with self._turn:
            return self._turn.wait_for(self.is_set, timeout_s)


def wait_for_work(wake: Event, interval_ms: float) -> None:
    """Wait until a thread is woken up, or for an interval, but at least 0.1 s and at most a second."""
    wake.wait(min(_TICK_S, max(_SHORTEST_TICK_S, interval_ms / 1000)))
    wake.clear()


class Worker:
    """A thread that is started once and can be waited for.

    Parameters
    ----------
    host : Host
    work : Callable
    name : str
    """

    def __init__(self, host: Host, work: Callable[[], None], *, name: str) -> None:
        self._host = host
        self._work = work
        self._name = name
        self._over = Event(host)
        self.started = False

    def start(self) -> None:
        """Start the thread. Raises as the host's `start`; then it can be started later."""
        self.started = True
        try:
            self._host.start(self._run, name=self._name)
        except RuntimeError:
            self.started = False
            raise

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self._over.set()

    @property
    def alive(self) -> bool:
        """Whether the thread was started and has not ended."""
        return self.started and not self._over.is_set()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread, if it was started."""
        if self.started:
            self._over.wait(timeout_s)


class Pool:
    """Threads that make calls in the order in which they are submitted. They start when they are needed.

    Parameters
    ----------
    host : Host
    threads : int
        The maximum.
    name : str
    """

    def __init__(self, host: Host, threads: int, *, name: str) -> None:
        self._host = host
        self._most = threads
        self._name = name
        self._turn = host.condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False
        self._warned = False

    def submit(self, call: Callable[[], None]) -> bool:
        """Have a call made soon; returns False if the pool is closed.

        Raises
        ------
        RuntimeError
            The pool has no thread, and none can be started. The call is not made.
        """
        with self._turn:
            if self._closed:
                return False
            self._waiting.append(call)
            if self._idle >= len(self._waiting) or self._threads == self._most:
                self._turn.notify_all()
                return True
            self._threads += 1
            number = self._threads
        try:
            self._host.start(self._run, name=f"{self._name}_{number}")
        except RuntimeError:
            with self._turn:
                self._threads -= 1
                self._turn.notify_all()
                if not self._threads and call in self._waiting:
                    self._waiting.remove(call)
                    raise
                first, self._warned = not self._warned, True
            if first:  # each call would be another warning
                _LOG.warning("%s has %d threads, and no further one can be started", self._name, number - 1)
        return True

    def close(self, timeout_s: float) -> None:
        """Drop the calls that have not begun, and wait for the others."""
        with self._turn:
            self._closed = True
            self._waiting.clear()
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._threads == 0, timeout_s)

    def _run(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception:  # noqa: BLE001 - the thread's outermost frame; the next call is made
                _LOG.exception("a call of %s failed", self._name)

    def _next(self) -> Callable[[], None] | None:
        with self._turn:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._turn.wait()
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            self._turn.notify_all()
            return None
