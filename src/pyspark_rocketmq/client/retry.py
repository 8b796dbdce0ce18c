"""The only retry, of threads and of asyncio: by the flags of an error, never its class, within a deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.errors import RocketMQError

__all__ = ["DEFAULT_POLICY", "ONCE_MORE", "RandomSource", "RetryPolicy", "retry", "retry_async"]

T = TypeVar("T")


class RandomSource(Protocol):
    """The part of ``random.Random`` that the client uses."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between ``a`` and ``b``."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter: a random pause between 0 and a ceiling that doubles.

    Full jitter spreads the tasks of a Spark job that all lost the same broker at the same time.

    Parameters
    ----------
    base_ms, max_ms : float
        The ceiling after the first failure, and the highest ceiling.
    attempts : int, optional
        Maximum number of attempts; None: only the deadline limits them.
    """

    base_ms: float = 50.0
    max_ms: float = 2_000.0
    attempts: int | None = None

    def pause_s(self, failures: int, random: RandomSource) -> float:
        """Return the pause after the ``failures``-th failure, in seconds."""
        doublings = min(failures - 1, 30)
        return random.uniform(0.0, min(self.max_ms, self.base_ms * 2.0**doublings)) / 1000

    def exhausted(self, failures: int) -> bool:
        """Whether no attempt is left after ``failures`` failures."""
        return self.attempts is not None and failures >= self.attempts


DEFAULT_POLICY: Final = RetryPolicy()

ONCE_MORE: Final = RetryPolicy(base_ms=20, attempts=2)
"""A restarted broker causes one failure: of its old connection, or at its old address."""


def retry(
    attempt: Callable[[], T],
    *,
    deadline: Deadline,
    clock: Clock,
    random: RandomSource,
    policy: RetryPolicy = DEFAULT_POLICY,
    on_stale_route: Callable[[], None] | None = None,
) -> T:
    """Call ``attempt`` until it succeeds, fails permanently, or deadline or attempts are exhausted.

    Parameters
    ----------
    attempt : Callable
        One attempt; must respect ``deadline``. It may keep partial results.
    on_stale_route : Callable, optional
        Called before the next attempt if an error says that the route is outdated, and after every further
        failure: a master that became a slave only reports that it is busy.

    Raises
    ------
    RocketMQError
        The last attempt's error; its fact ``attempts`` is their number if there were several.
    """
    attempts = _Attempts(deadline, random, policy, on_stale_route)
    while True:
        try:
            return attempt()
        except RocketMQError as error:
            pause_s = attempts.pause_after(error)
            if pause_s is None:
                raise
            clock.sleep(pause_s)
            if deadline.expired:  # a pause may take longer
                raise


async def retry_async(
    attempt: Callable[[], Awaitable[T]],
    *,
    deadline: Deadline,
    random: RandomSource,
    policy: RetryPolicy = DEFAULT_POLICY,
    on_stale_route: Callable[[], None] | None = None,
) -> T:
    """Await ``attempt`` until it succeeds, as `retry` does; pauses let other tasks of the event loop run."""
    import asyncio  # noqa: PLC0415 - workers do without it

    attempts = _Attempts(deadline, random, policy, on_stale_route)
    while True:
        try:
            return await attempt()
        except RocketMQError as error:
            pause_s = attempts.pause_after(error)
            if pause_s is None:
                raise
            await asyncio.sleep(pause_s)
            if deadline.expired:
                raise


@dataclass(slots=True)
class _Attempts:
    """The failed attempts of one call, and whether another one follows."""

    deadline: Deadline
    random: RandomSource
    policy: RetryPolicy
    on_stale_route: Callable[[], None] | None
    failures: int = 0

    def pause_after(self, error: RocketMQError) -> float | None:
        """Return the pause before the next attempt, in seconds; None if there is no attempt left."""
        self.failures += 1
        if (error.stale_route or self.failures > 1) and self.on_stale_route is not None:
            self.on_stale_route()
        if self.failures > 1:
            error.facts["attempts"] = self.failures
        pause_s = self.policy.pause_s(self.failures, self.random)
        again = error.retriable and not self.policy.exhausted(self.failures)
        return pause_s if again and self.deadline.remaining_s > pause_s else None
