"""Time under a test's control."""

from __future__ import annotations

import math
from collections.abc import Callable

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock


class FakeClock:
    """A clock that moves only when somebody sleeps on it, or a test moves it.

    Parameters
    ----------
    now_s : float
        Where it begins; a test may set it later.
    base : Clock, optional
        Time that passes as well, such as the machine's: ``now_s`` is what is added to it.
    """

    def __init__(self, now_s: float = 1_767_225_600.0, *, base: Clock | None = None) -> None:
        self.now_s = now_s
        self.sleeps: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self._base = base

    def monotonic(self) -> float:
        return self.now_s + (0.0 if self._base is None else self._base.monotonic())

    def now_ms(self) -> int:
        return int(self.now_s * 1000) + (0 if self._base is None else self._base.now_ms())

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds
        self.on_sleep()


class WrongClock:
    """Another clock whose wall time is wrong by some seconds, as after an operator's ``date``.

    Parameters
    ----------
    ahead_s : float
        How much later it is by this clock; a test may set it later.
    base : Clock
    longest_sleep_s : float
        Sleeps end after this time.
    """

    def __init__(
        self, ahead_s: float = 0.0, *, base: Clock = SYSTEM_CLOCK, longest_sleep_s: float = math.inf
    ) -> None:
        self.ahead_s = ahead_s
        self._base = base
        self._longest_sleep_s = longest_sleep_s

    def monotonic(self) -> float:
        return self._base.monotonic()

    def now_ms(self) -> int:
        return self._base.now_ms() + round(self.ahead_s * 1000)

    def sleep(self, seconds: float) -> None:
        self._base.sleep(min(seconds, self._longest_sleep_s))
