"""The brokers that a long-running watcher has seen: name servers forget one that dies within seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark_rocketmq.client.clock import Clock

__all__ = ["KnownBrokers"]

_KNOWN_S: Final = 24 * 3600.0


class KnownBrokers:
    """Remembers each broker until it was not registered for a day.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s: dict[str, float] = {}

    def find_missing(self, registered: Iterable[str]) -> tuple[str, ...]:
        """Record which brokers are registered now; return, sorted, those that were within the last day."""
        now_s = self._clock.monotonic()
        present = dict.fromkeys(registered, now_s)
        seen = self._seen_s | present
        self._seen_s = {name: at_s for name, at_s in seen.items() if now_s - at_s < _KNOWN_S}
        return tuple(sorted(self._seen_s.keys() - present.keys()))
