"""The timings of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_rocketmq.client.clock import Clock

__all__ = ["Phase", "Timeline"]


@dataclass(slots=True)
class Phase:
    """A part of the run, in seconds since the run's start. ``end_s`` is None while it lasts."""

    name: str
    start_s: float
    end_s: float | None = None
    note: str = ""


class Timeline:
    """The phases of a run, some of them concurrent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._zero = clock.monotonic()
        self.phases: list[Phase] = []

    def now_s(self) -> float:
        """Return the seconds since the run's start."""
        return self._clock.monotonic() - self._zero

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Measure the time of the block."""
        phase = Phase(name, self.now_s())
        self.phases.append(phase)
        try:
            yield phase
        finally:
            phase.end_s = self.now_s()
