"""How fast messages are sent."""

from __future__ import annotations

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.tools.transfer.pace import Pace, check_rate


def test_a_rate_is_kept_on_average() -> None:
    clock = FakeClock(100.0)
    pace = Pace(10, clock)
    for _ in range(5):
        pace.wait(4)
    assert clock.now_s == pytest.approx(101.6)
    clock.now_s += 1  # a short stall is caught up
    pace.wait(6)
    assert clock.now_s == pytest.approx(102.6)
    pace.wait()
    assert clock.now_s == pytest.approx(102.6)
    unlimited = Pace(0, clock)
    unlimited.wait(1_000_000)
    assert clock.now_s == pytest.approx(102.6)


@pytest.mark.parametrize("rate", [10.0, 0.001])
def test_what_a_frozen_process_has_not_sent_does_not_follow_at_once(rate: float) -> None:
    clock = FakeClock(100.0)
    pace = Pace(rate, clock)
    pace.wait()
    clock.now_s = awake = 100_000.0
    sent: list[float] = []
    for _ in range(50):
        pace.wait()
        sent.append(clock.now_s)
    assert sent[0] == awake
    at_once = sent.count(awake)
    assert at_once <= rate + 1, "what was due in the last second, and the next one"
    assert sent[-1] >= awake + (50 - at_once) / rate - 1


def test_the_longest_pause_is_one_that_a_clock_can_keep() -> None:
    for rate in (-1.0, 1e-300, 1e-7, float("nan")):
        with pytest.raises(OptionError, match="rate takes messages per second, at least"):
            check_rate(rate)
    for rate in (0, 1e-6, 5, float("inf")):
        assert check_rate(rate) == rate
    clock = FakeClock(100.0)
    endless = Pace(float("inf"), clock)
    for _ in range(3):
        endless.wait(1_000)
    assert clock.now_s == 100
