"""The one retry loop: it asks an error's flags, never its class, and always has a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["DEFAULT_POLICY", "RandomSource", "RetryPolicy", "retry"]

T = TypeVar("T")


class RandomSource(Protocol):
    """What the client needs of ``random.Random``."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between ``a`` and ``b``."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter: a pause is drawn between 0 and a ceiling that doubles.

    Full jitter spreads the tasks of a Spark job that all lost the same broker at the same moment.

    Parameters
    ----------
    base_ms, max_ms : float
        The ceiling after the first failure, and the highest ceiling.
    attempts : int, optional
        Tries in all; None leaves it to the deadline.
    """

    base_ms: float = 50.0
    max_ms: float = 2_000.0
    attempts: int | None = None

    def pause_s(self, failures: int, random: RandomSource) -> float:
        """Return how long to wait after the ``failures``-th failure, in seconds."""
        doublings = min(failures - 1, 30)
        return random.uniform(0.0, min(self.max_ms, self.base_ms * 2.0**doublings)) / 1000

    def exhausted(self, failures: int) -> bool:
        """Whether no try is left after ``failures`` failures."""
        return self.attempts is not None and failures >= self.attempts


DEFAULT_POLICY: Final = RetryPolicy()


def retry(
    attempt: Callable[[], T],
    *,
    deadline: Deadline,
    clock: Clock,
    random: RandomSource,
    policy: RetryPolicy = DEFAULT_POLICY,
    on_stale_route: Callable[[], None] | None = None,
) -> T:
    """Call ``attempt`` until it succeeds, fails for good, or time or tries run out.

    Parameters
    ----------
    attempt : Callable
        One try; must itself respect ``deadline``. It may keep what it has done so far.
    on_stale_route : Callable, optional
        Called before the next try when an error says that the route is out of date, and after every further
        failure: a master that became a slave only says that it is busy.

    Raises
    ------
    RocketMQError
        The last try's error; its fact ``attempts`` says how many there were when more than one.
    """
    failures = 0
    while True:
        try:
            return attempt()
        except RocketMQError as error:
            failures += 1
            if (error.stale_route or failures > 1) and on_stale_route is not None:
                on_stale_route()
            pause_s = policy.pause_s(failures, random)
            if not error.retriable or policy.exhausted(failures) or deadline.remaining_s <= pause_s:
                if failures > 1:
                    error.facts["attempts"] = failures
                raise
        clock.sleep(pause_s)
