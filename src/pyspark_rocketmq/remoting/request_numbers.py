"""The numbers of a connection's requests, and when the ones before a request were answered."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Final

__all__ = ["RequestNumbers"]

_MAX_NUMBER: Final = 0x7FFFFFFF
_STEP_S: Final = 0.05
_KEPT: Final = 512


class RequestNumbers:
    """Gives each request its opaque number, and knows when answers came; times are seconds of a clock.

    Answers come in any order. So the last one says nothing of a request that was sent before its own: a
    server that answers all requests but one must not look as if that one still had to wait its turn.

    Parameters
    ----------
    first : int
        The first number. After the greatest one, numbers begin with 0 again.
    """

    def __init__(self, first: int = 1) -> None:
        self._numbers = itertools.count(first)
        # Both ascend: an answer to an earlier request than that of the last entry takes the entry's place.
        self._answers: deque[tuple[int, float]] = deque(maxlen=_KEPT)

    def take(self) -> int:
        """Return the next number."""
        return next(self._numbers) & _MAX_NUMBER

    def record_answer(self, number: int, at_s: float) -> None:
        """Record an answer, or the earliest request of several that are answered together."""
        answers = self._answers
        while answers and not _is_before(answers[-1][0], number):
            answers.pop()
        if not answers or at_s - answers[-1][1] >= _STEP_S:  # else it is recorded, slightly too early
            answers.append((number, at_s))

    def answered_before(self, number: int) -> float:
        """Return when the last answer to an earlier request came, 50 ms too early at most; if ever."""
        times = (at_s for answered, at_s in reversed(self._answers) if _is_before(answered, number))
        return next(times, -float("inf"))

    def is_due(self, number: int) -> bool:
        """Whether the last answer was to an earlier request, so that this one may be next."""
        return not self._answers or _is_before(self._answers[-1][0], number)


def _is_before(number: int, other: int) -> bool:
    return 0 < (other - number) & _MAX_NUMBER <= _MAX_NUMBER >> 1
