"""How long a range has been in trouble: counted from its first failure, so a slow consumer is none."""

from __future__ import annotations

__all__ = ["Patience"]


class Patience:
    """The failures of one range since its last progress; times are seconds of a monotonic clock."""

    __slots__ = ("_failing_since", "_missing_since", "failures")

    def __init__(self) -> None:
        self.failures = 0
        """How many since the last progress."""
        self._failing_since: float | None = None
        self._missing_since: float | None = None

    def record_progress(self) -> None:
        """Record that offsets were accounted for."""
        self.failures = 0
        self._failing_since = self._missing_since = None

    def record_failure(self, now_s: float, *, missed: bool) -> None:
        """Record a failure.

        Parameters
        ----------
        now_s : float
        missed : bool
            Whether the master answered and did not have the messages: only such misses, without anything
            else between them, show that messages are gone.
        """
        self.failures += 1
        if self._failing_since is None:
            self._failing_since = now_s
        if not missed:
            self._missing_since = None

    def missing_ms(self, now_s: float) -> float:
        """Return how long the master has missed the messages, this miss included."""
        if self._missing_since is None:
            self._missing_since = now_s
        return (now_s - self._missing_since) * 1000

    def stalled_ms(self, now_s: float) -> float:
        """Return how long ago the first failure was."""
        return 0.0 if self._failing_since is None else (now_s - self._failing_since) * 1000
