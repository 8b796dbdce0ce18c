"""How long a range has been in trouble: counted from its first failure, so a slow consumer is none."""

from __future__ import annotations

__all__ = ["Patience"]


class Patience:
    """The failures of one range since its last progress; times are seconds of a monotonic clock."""

    __slots__ = ("_arriving", "_failing_since", "_missing_since", "failures")

    def __init__(self) -> None:
        self.failures = 0
        """How many since the last progress."""
        self._failing_since: float | None = None
        self._missing_since: float | None = None
        self._arriving: tuple[int, int] | None = None

    def record_progress(self) -> None:
        """Record that offsets were accounted for."""
        self.failures = 0
        self._failing_since = self._missing_since = self._arriving = None

    def record_answer(self) -> None:
        """Record an answer, perhaps not the next one in order: what arrives now is another one."""
        self._arriving = None

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

    @property
    def awaits_late_answer(self) -> bool:
        """Whether `record_late_answer` had the caller wait, and nothing was accounted for since then."""
        return self._arriving is not None

    def record_late_answer(self, now_s: float, arriving: tuple[int, int] | None) -> bool:
        """Record a timeout. Return whether to wait again, because an answer is arriving, only slowly.

        Requested again, it would not arrive sooner. After the first timeout, any incomplete answer may be the
        expected one. After the next ones, it must be the same answer, with more bytes.

        Parameters
        ----------
        now_s : float
        arriving : tuple of (int, int), optional
            See `RequestTimeoutError`.
        """
        before, self._arriving = self._arriving, None
        if arriving is None or not arriving[1]:
            return False
        if before is not None and not (before[0] == arriving[0] and before[1] < arriving[1]):
            return False
        self.record_failure(now_s, missed=False)
        self._arriving = arriving
        return True

    def missing_ms(self, now_s: float) -> float:
        """Return how long the master has missed the messages, this miss included."""
        if self._missing_since is None:
            self._missing_since = now_s
        return (now_s - self._missing_since) * 1000

    def stalled_ms(self, now_s: float) -> float:
        """Return how long ago the first failure was."""
        return 0.0 if self._failing_since is None else (now_s - self._failing_since) * 1000
