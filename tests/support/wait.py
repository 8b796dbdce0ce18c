"""Waiting for what happens elsewhere, with a deadline and a failure that says what was seen last."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK

T = TypeVar("T")

BUSY = 3
"""How much longer than a test says something may take, on a machine that has other work."""

PATIENCE = 6
"""How much longer than a test says what must happen is waited for. Only a failure takes this time."""

_POLL_S = 0.02


def eventually(condition: Callable[[], T], timeout_s: float = 30.0, *, what: str = "the condition") -> T:
    """Return the first truthy answer of ``condition``; AssertionError after `PATIENCE` times ``timeout_s``.

    A condition may itself assert: its last AssertionError is the failure's cause.
    """
    timeout_s *= PATIENCE
    end = time.monotonic() + timeout_s
    while True:
        answer: object = None
        cause: AssertionError | None = None
        try:
            found = condition()
            if found:
                return found
            answer = found
        except AssertionError as error:
            cause = error
        if time.monotonic() >= end:
            seen = cause if cause is not None else repr(answer)
            raise AssertionError(f"{what} did not come true within {timeout_s:g} s; last: {seen}") from cause
        time.sleep(_POLL_S)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Assert that the block takes less than `BUSY` times ``seconds``; for what would last much longer."""
    began = SYSTEM_CLOCK.monotonic()
    yield
    assert SYSTEM_CLOCK.monotonic() - began < seconds * BUSY
