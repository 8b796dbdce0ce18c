"""Time and chance under a test's control."""

from __future__ import annotations

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK


class ManualClock:
    """A clock that moves only when somebody sleeps on it, or a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += seconds


class Ahead:
    """The machine's clock, and as many seconds more as a test says: time that passes at once."""

    def __init__(self) -> None:
        self.by_s = 0.0

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self.by_s

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + int(self.by_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.by_s += seconds


class Highest:
    """A random source that always draws the upper end."""

    def uniform(self, a: float, b: float, /) -> float:
        del a
        return b


class Lowest:
    """A random source that always draws the lower end."""

    def uniform(self, a: float, b: float, /) -> float:
        del b
        return a
