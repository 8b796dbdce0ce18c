"""When a wait has to end, and which progress gives it more time."""

from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.errors import RequestTimeoutError


def test_a_deadline_stays_where_it_is_whatever_arrives() -> None:
    clock = FakeClock(100.0)
    deadline = Deadline(clock, 400)
    clock.now_s = 100.3
    deadline.record_progress(100.3)
    clock.now_s = 100.5
    assert deadline.expired
    with pytest.raises(RequestTimeoutError, match="sending: no answer within 400 ms"):
        deadline.check("sending")


def test_progress_renews_a_deadline_from_its_own_moment() -> None:
    clock = FakeClock(100.0)
    deadline = Deadline(clock, 400, renewable=True)
    clock.now_s = 100.5
    assert deadline.expired
    deadline.record_progress(100.25)
    assert not deadline.expired
    assert deadline.remaining_s == pytest.approx(0.15)
    deadline.record_progress(99.0)
    assert deadline.remaining_s == pytest.approx(0.15), "older progress takes nothing away"
    clock.now_s = 100.7
    assert deadline.expired


def test_a_sooner_deadline_may_be_renewed_beyond_the_other_one() -> None:
    """An attempt that makes progress is not cut off by the deadline of all attempts."""
    clock = FakeClock(100.0)
    attempt = Deadline(clock, 300).sooner(400, renewable=True)
    assert attempt.timeout_ms == pytest.approx(300)
    attempt.record_progress(100.2)
    clock.now_s = 100.4
    assert not attempt.expired
