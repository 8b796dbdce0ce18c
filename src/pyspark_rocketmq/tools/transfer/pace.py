"""Sends no faster than a number of messages a second."""

from __future__ import annotations

from typing import Any, Final

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.errors import OptionError

__all__ = ["A_RATE", "Pace", "check_rate"]

_LOWEST_RATE: Final = 1e-6
_CAUGHT_UP_S: Final = 1.0
"""A longer stall, such as that of a laptop that slept, is not caught up: its messages would come at once."""
A_RATE: Final = "messages per second, at least 0.000001; 0 for no limit"


def check_rate(rate: float, **facts: Any) -> float:
    """Return a rate of messages that a clock can keep.

    Raises
    ------
    OptionError
        It is negative, not a number, or less than one message in eleven days.
    """
    if rate != 0 and not rate >= _LOWEST_RATE:
        raise OptionError(f"rate takes {A_RATE}", given=rate, **facts)
    return rate


class Pace:
    """Limits a rate: `wait` sleeps until the next messages are due.

    Parameters
    ----------
    rate : float
        Messages per second; 0 for no limit.
    clock : Clock

    Raises
    ------
    OptionError
        See `check_rate`.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        self.rate = check_rate(rate)
        self._clock = clock
        self._start = clock.monotonic()
        self._passed = 0

    def wait(self, messages: int = 1) -> None:
        """Sleep until this number of messages may follow those before."""
        if self.rate:
            now, spent = self._clock.monotonic(), self._passed / self.rate
            self._start = max(self._start, now - spent - _CAUGHT_UP_S)
            self._clock.sleep(max(0.0, self._start + spent - now))
        self._passed += messages
