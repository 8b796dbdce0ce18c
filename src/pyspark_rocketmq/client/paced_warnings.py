"""Warnings about what is tried again and again: a broker that is away for a day must not fill a disk."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.net.fork import ForkSafeLock

__all__ = ["PacedWarnings"]

_PAUSE_S: Final = 300.0
_REMEMBERED: Final = 1_000


@dataclass(slots=True)
class _Logged:
    """When a warning is logged again, and how often it was not since."""

    again_at_s: float
    more: int = 0


class PacedWarnings:
    """Logs a warning at once, and again after five minutes at the earliest, with how often it was met.

    Thread-safe. Of very many different ones, the oldest are forgotten, and are new when they come again.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = ForkSafeLock()
        self._logged: dict[object, _Logged] = {}
        self._latest = ""

    def warn(self, log: logging.Logger, text: str, *args: object, about: object, trace: bool = False) -> None:
        """Log a warning, unless the same text was logged a moment ago about the same.

        Parameters
        ----------
        log : logging.Logger
        text, *args
            As those of ``log.warning``.
        about : object, hashable
            What it is about, such as a queue and the type of an error: texts of errors may differ each time.
        trace : bool
            Whether the traceback of the error that is being handled is logged, too.
        """
        key, now_s = (text, about), self._clock.monotonic()
        with self._lock:
            before = self._logged.pop(key, None)
            if before is not None and now_s < before.again_at_s:
                before.more += 1
                self._logged[key] = before
                return
            self._logged[key] = _Logged(now_s + _PAUSE_S)
            if len(self._logged) > _REMEMBERED:
                del self._logged[next(iter(self._logged))]
            self._latest = text % args
        since = f" (and {before.more} times since it was last logged)" if before and before.more else ""
        log.warning(text + since, *args, stacklevel=2, exc_info=trace)

    def take_latest(self) -> str:
        """Return the latest warning that was logged since the last call; an empty text if none was."""
        with self._lock:
            latest, self._latest = self._latest, ""
        return latest
