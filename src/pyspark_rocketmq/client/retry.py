"""The only retry loop: it uses an error's flags, never its class, and always has a deadline."""

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
    failures = 0
    while True:
        try:
            return attempt()
        except RocketMQError as error:
            failures += 1
            if (error.stale_route or failures > 1) and on_stale_route is not None:
                on_stale_route()
            pause_s = policy.pause_s(failures, random)
            again = error.retriable and not policy.exhausted(failures)
            if not again or not _pause(pause_s, deadline, clock):
                if failures > 1:
                    error.facts["attempts"] = failures
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

    failures = 0
    while True:
        try:
            return await attempt()
        except RocketMQError as error:
            failures += 1
            if (error.stale_route or failures > 1) and on_stale_route is not None:
                on_stale_route()
            pause_s = policy.pause_s(failures, random)
            again = error.retriable and not policy.exhausted(failures) and deadline.remaining_s > pause_s
            if again:
                await asyncio.sleep(pause_s)
            if not again or deadline.expired:
                if failures > 1:
                    error.facts["attempts"] = failures
                raise


def _pause(pause_s: float, deadline: Deadline, clock: Clock) -> bool:
    """Pause if that leaves time for another attempt, and return whether it did: a pause may take longer."""
    if deadline.remaining_s <= pause_s:
        return False
    clock.sleep(pause_s)
    return not deadline.expired
