"""Time as an argument: clocks for the real world and for tests, and deadlines measured on them."""

from __future__ import annotations

import time
from typing import Final, Protocol

from pyspark_rocketmq.errors import RequestTimeoutError

__all__ = ["SYSTEM_CLOCK", "Clock", "Deadline", "Since"]


class Clock(Protocol):
    """What the client needs to know of time."""

    def monotonic(self) -> float:
        """Return seconds that never go back. They may stand still while the machine sleeps."""
        ...

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Pause the calling thread."""
        ...


class _SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK: Final[Clock] = _SystemClock()


class Deadline:
    """A moment by which a wait must end.

    Parameters
    ----------
    clock : Clock
    timeout_ms : float
        From now on.
    renewable : bool
        Whether progress renews it. For requests that wait their turn, because many large bodies share a slow
        link: a time-out from each one's own begin would say how many are in flight, not whether the peer
        answers; and what is requested again does not arrive sooner.
    """

    __slots__ = ("_at", "_clock", "_renewable", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: float, *, renewable: bool = False) -> None:
        self._clock = clock
        self._at = clock.monotonic() + timeout_ms / 1000
        self._renewable = renewable
        self.timeout_ms = timeout_ms

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at - self._clock.monotonic())

    @property
    def expired(self) -> bool:
        """Whether no time is left."""
        return self._clock.monotonic() >= self._at

    def sooner(self, timeout_ms: float, *, renewable: bool = False) -> Deadline:
        """Return a deadline ``timeout_ms`` from now, or at this one's end if that comes first."""
        return Deadline(self._clock, min(timeout_ms, self.remaining_s * 1000), renewable=renewable)

    def record_progress(self, at_s: float) -> None:
        """Count the time-out from a moment of the clock, if it is renewable and ends later then."""
        if self._renewable:
            self._at = max(self._at, at_s + self.timeout_ms / 1000)

    def check(self, what: str, **facts: object) -> None:
        """Raise when no time is left.

        Raises
        ------
        RequestTimeoutError
            Names ``what`` and how long it was waited for.
        """
        if self.expired:
            raise RequestTimeoutError(f"{what}: no answer within {self.timeout_ms:.0f} ms", **facts)


class Since:
    """The time since its creation, also if the machine slept meanwhile: for what others end by their clocks.

    Of the two clocks, the one that says more counts: the monotonic one of Linux and macOS stands still while
    the machine sleeps, as a laptop does. A wall clock that is set forward looks like that.

    Parameters
    ----------
    clock : Clock
    """

    __slots__ = ("_clock", "_wall_ms", "begun_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.now_ms()
        self.begun_s = clock.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds, never negative."""
        wall_ms = self._clock.now_ms() - self._wall_ms
        return max(self._clock.monotonic() - self.begun_s, wall_ms / 1000)
