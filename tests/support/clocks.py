"""Time under a test's control."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator

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


class Beats:
    """Tells whether event loops run: each answers a beat, and the next one follows."""

    _PAUSE_S = 0.05
    """Between two beats of a loop: each wakes its thread."""
    _LATE_S = 0.1
    _DEAD_S = 10.0
    """A loop that has not answered for this long will not: time passes again."""

    def __init__(self) -> None:
        self._sent_s: dict[asyncio.AbstractEventLoop, float] = {}
        self._answered: set[asyncio.AbstractEventLoop] = set()

    def add(self, loop: asyncio.AbstractEventLoop) -> None:
        self._answered.add(loop)

    def all_run(self) -> bool:
        now_s = time.monotonic()
        for loop in tuple(self._answered):
            if now_s - self._sent_s.get(loop, -math.inf) < self._PAUSE_S:
                continue
            self._answered.discard(loop)
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._answered.add, loop)
                self._sent_s[loop] = now_s
        waiting = [(loop, now_s - sent_s) for loop, sent_s in self._sent_s.items() if not loop.is_closed()]
        self._sent_s = {loop: now_s - waited_s for loop, waited_s in waiting}
        return not any(
            self._LATE_S < waited_s < self._DEAD_S for loop, waited_s in waiting if loop not in self._answered
        )


class RunningTime:
    """Seconds during which this process ran: a stall of the machine, or its other work, takes no time.

    A thread reads the time every 10 ms. When it finds that more has passed, the process was not running.

    Parameters
    ----------
    others_run : Callable
        Whether what else must run does; else no time passes.
    """

    _TICK_S = 0.01
    _MOST_S = 0.03
    """What counts between two ticks."""

    def __init__(self, others_run: Callable[[], bool] = lambda: True) -> None:
        self._others_run = others_run
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="running-time", daemon=True)
        self._pid = os.getpid()
        self._ran_s = self._last_s = time.monotonic()
        self._runs = True

    def monotonic(self) -> float:
        if os.getpid() != self._pid:  # a fork has no thread but the one that forked
            return time.monotonic()
        with self._lock:
            return self._now_s(time.monotonic())

    def _now_s(self, now_s: float) -> float:
        return self._ran_s + (min(now_s - self._last_s, self._MOST_S) if self._runs else 0.0)

    def _tick(self) -> None:
        while not self._ended.wait(self._TICK_S):
            run = self._others_run()
            with self._lock:
                now_s = time.monotonic()
                self._ran_s, self._last_s, self._runs = self._now_s(now_s), now_s, run

    @contextlib.contextmanager
    def counted(self) -> Iterator[RunningTime]:
        """Count inside this block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
