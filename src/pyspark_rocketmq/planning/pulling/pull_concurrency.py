"""How many pulls to have in flight: what the way to the broker holds, and no more than helps.

Two answers' worth of the way is enough to keep it full: while one half travels, the other half's successors
are asked for. What the way holds is how fast answers come, times how long the fastest one takes; a busy
broker makes answers slower, not the fastest of them, so queueing does not count as distance.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

__all__ = ["PullDepth", "Sent"]

LEAST: Final = 32
MOST: Final = 1024
"""Of 32 messages each: 328,000 messages a second from a broker 0.1 s away.

The bytes in flight are limited separately: what is asked for and not read yet, the broker holds.
"""

_FORGET: Final = 0.9
"""What is left of the best rate with each look at a lower one."""


class Sent(NamedTuple):
    """When pulls were sent (seconds of a monotonic clock), and how many answers had come by then."""

    at_s: float
    answers: int


class PullDepth:
    """The number of pulls that one reader may have in flight.

    Parameters
    ----------
    fixed : int, optional
        A number that never changes. Without it 32 at first and at least, and up to 1024 where that many are
        on the way.
    """

    __slots__ = ("_answers", "_fastest_s", "_fixed", "_most", "_rate", "limit")

    def __init__(self, fixed: int | None = None) -> None:
        self.limit = LEAST if fixed is None else fixed
        """How many pulls may be in flight now."""
        self._fixed = fixed is not None
        self._most = MOST
        self._answers = 0
        self._fastest_s = math.inf
        self._rate = 0.0

    def bound(self, most: int) -> None:
        """Never allow more than ``most`` from now on: the server takes no more."""
        self._most = min(self._most, most)
        self.limit = min(self.limit, most)

    def record_sent(self, now_s: float) -> Sent:
        """Return what `answered` wants to know again of the pulls that are being sent."""
        return Sent(now_s, self._answers)

    def record_answer(self, answers: int, last: Sent, now_s: float) -> None:
        """Record answers that arrived together.

        Parameters
        ----------
        answers : int
        last : Sent
            Of the pull of the last one.
        now_s : float
        """
        self._answers += answers
        took_s = now_s - last.at_s
        if self._fixed or took_s <= 0:
            return
        self._fastest_s = min(self._fastest_s, took_s)
        self._rate = max((self._answers - last.answers) / took_s, self._rate * _FORGET)
        self.limit = min(self._most, max(LEAST, math.ceil(2 * self._rate * self._fastest_s)))
