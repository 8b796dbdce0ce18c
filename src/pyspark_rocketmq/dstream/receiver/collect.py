"""The messages that a receiver has pulled but not stored yet: rate, order, and blocks."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_worker import QueueWorker

__all__ = ["Collected", "Collector", "Given", "InTurn", "RateLimiter"]

_BLOCK_BYTES: Final = 8 << 20
"""The size at which a block is closed before its interval ends."""

_PART_OF_ONE: Final = 1e-3
"""Of a message: what a clock's rounding leaves is no reason to wait."""


class RateLimiter:
    """Spreads messages over time so that they do not exceed a rate. Thread-safe.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rate: float | None = None
        self._reserved = 0.0
        self._passed = 0.0
        self._passed_at = clock.monotonic()

    @property
    def rate(self) -> float | None:
        """Messages per second; None is no limit. A new rate counts for those that wait, too."""
        return self._rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        with self._lock:
            self._advance()
            self._rate = rate

    def reserve(self, count: int) -> float:
        """Return the turn of that many messages; see `wait_s`."""
        with self._lock:
            self._advance()
            turn = self._reserved
            self._reserved += count
            return turn

    def wait_s(self, turn: float) -> float:
        """Return how many seconds are left to wait for a turn, at the rate of now."""
        with self._lock:
            self._advance()
            left = turn - self._passed
            return 0.0 if self._rate is None or left < _PART_OF_ONE else left / self._rate

    def clear(self) -> None:
        """Forget the turns that wait: their messages were dropped."""
        with self._lock:
            self._advance()
            self._reserved = self._passed

    def _advance(self) -> None:
        """Let pass what may have passed by now. Requires the lock."""
        now = self._clock.monotonic()
        most = math.inf if self._rate is None else self._passed + (now - self._passed_at) * self._rate
        self._passed, self._passed_at = min(most, self._reserved), now


@dataclass(frozen=True, slots=True)
class Collected:
    """One pull that waits to be stored, with the objects that were created from its messages, if any."""

    worker: QueueWorker
    run: PulledRun
    messages: int
    objects: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """Elements that the receiver's code passed to ``store``, which waits until they are stored."""

    objects: tuple[Any, ...]
    stored: threading.Event


class Collector:
    """The elements that wait to become a block. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Collected | Given] = []
        self._bytes = 0
        self.full = threading.Event()

    def add(self, collected: Collected | Given) -> None:
        """Take the result of a pull, or elements that a caller waits for: they become a block immediately."""
        with self._lock:
            self._waiting.append(collected)
            self._bytes += _size(collected)
            if self._bytes >= _BLOCK_BYTES or isinstance(collected, Given):
                self.full.set()

    def take(self) -> list[Collected | Given]:
        """Remove and return the elements of the next block, the oldest first."""
        with self._lock:
            size = count = 0
            while count < len(self._waiting) and size < _BLOCK_BYTES:
                size += _size(self._waiting[count])
                count += 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            self._bytes -= size
            if self._bytes < _BLOCK_BYTES:
                self.full.clear()
            return taken

    def clear(self) -> None:
        """Drop everything: it was not acknowledged."""
        while self.take():
            pass


def _size(collected: Collected | Given) -> int:
    """Return the pulled bytes; the size of given objects is unknown until they are pickled."""
    return len(collected.run.records) if isinstance(collected, Collected) else 0


class InTurn:
    """Passes on the results of several threads for the runs of a queue, in the order of the pulls.

    Thread-safe.

    Parameters
    ----------
    hand_on : Callable
        Called with one result at a time.
    """

    def __init__(self, hand_on: Callable[[Collected], None]) -> None:
        self._hand_on = hand_on
        self._lock = threading.Lock()
        self._places: dict[QueueWorker, deque[_Place]] = {}

    def enter(self, worker: QueueWorker) -> _Place:
        """Reserve the next place of a queue; called in the order of its runs.

        The places of queues that have gone to other members are dropped: their runs may never leave.
        """
        place = _Place()
        with self._lock:
            for gone in [known for known in self._places if known.stopped]:
                del self._places[gone]
            self._places.setdefault(worker, deque()).append(place)
        return place

    def leave(self, worker: QueueWorker, place: _Place, collected: Collected) -> None:
        """Pass on the result of a run once every run before it was passed on."""
        with self._lock:
            place.collected = collected
            row = self._places.get(worker)
            while row and (first := row[0].collected) is not None:
                row.popleft()
                self._hand_on(first)
            if not row:
                self._places.pop(worker, None)

    def clear(self) -> None:
        """Drop every place."""
        with self._lock:
            self._places.clear()


@dataclass(slots=True)
class _Place:
    collected: Collected | None = None
