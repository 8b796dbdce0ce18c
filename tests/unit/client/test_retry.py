from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Highest

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.retry import RetryPolicy, retry
from pyspark_rocketmq.errors import (
    ConnectionLostError,
    FlowControlError,
    OptionError,
    RequestTimeoutError,
    RocketMQError,
)


class Script:
    """Raises the scripted errors one after the other, then succeeds."""

    def __init__(self, *errors: RocketMQError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def run(
    script: Script, *, timeout_ms: float = 10_000, policy: RetryPolicy | None = None
) -> tuple[str, FakeClock, int]:
    clock = FakeClock()
    stale = 0

    def on_stale_route() -> None:
        nonlocal stale
        stale += 1

    answer = retry(
        script,
        deadline=Deadline(clock, timeout_ms),
        clock=clock,
        random=Highest(),
        policy=policy or RetryPolicy(base_ms=100, max_ms=400),
        on_stale_route=on_stale_route,
    )
    return answer, clock, stale


def test_success_needs_no_pause() -> None:
    answer, clock, stale = run(Script())
    assert (answer, clock.sleeps, stale) == ("done", [], 0)


def test_the_ceiling_doubles_up_to_the_highest() -> None:
    _, clock, _ = run(Script(*[RequestTimeoutError("late") for _ in range(5)]))
    assert clock.sleeps == pytest.approx([0.1, 0.2, 0.4, 0.4, 0.4])


def test_an_error_that_is_not_retriable_ends_it() -> None:
    script = Script(OptionError("wrong"))
    with pytest.raises(OptionError, match="wrong"):
        run(script)
    assert script.calls == 1


def test_a_stale_route_is_looked_up_before_the_next_try() -> None:
    assert run(Script(ConnectionLostError("gone")))[2] == 1


def test_a_busy_server_is_no_reason_to_look_the_first_time() -> None:
    busy = [FlowControlError("busy", code=2) for _ in range(3)]
    assert run(Script(busy[0]))[2] == 0
    assert run(Script(*busy))[2] == 2


def test_the_deadline_ends_it_before_a_pause_that_is_too_long() -> None:
    script = Script(*[RequestTimeoutError("late", addr="a:1") for _ in range(99)])
    with pytest.raises(RequestTimeoutError) as caught:
        run(script, timeout_ms=500)
    assert caught.value.facts == {"addr": "a:1", "attempts": script.calls}
    assert script.calls == 3  # pauses of 0.1 and 0.2 s; the next of 0.4 s would end behind the deadline


def test_no_attempt_begins_when_a_pause_took_the_rest_of_the_time() -> None:
    """It would report a wait of 0 ms, instead of why the attempt before failed."""
    clock = FakeClock()
    clock.on_sleep = lambda: setattr(clock, "now_s", clock.now_s + 3)  # as on a busy machine
    script = Script(ConnectionLostError("gone"), RequestTimeoutError("no answer within 0 ms"))
    with pytest.raises(ConnectionLostError, match="gone"):
        retry(script, deadline=Deadline(clock, 3_000), clock=clock, random=Highest())
    assert script.calls == 1


def test_attempts_are_counted() -> None:
    script = Script(*[RequestTimeoutError("late") for _ in range(99)])
    with pytest.raises(RequestTimeoutError):
        run(script, policy=RetryPolicy(attempts=3))
    assert script.calls == 3


def test_no_overflow_after_very_many_failures() -> None:
    assert RetryPolicy(base_ms=1, max_ms=50).pause_s(100_000, Highest()) == pytest.approx(0.05)
