"""How often a warning is logged whose cause stays."""

from __future__ import annotations

import logging

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.paced_warnings import PacedWarnings

LOG = logging.getLogger(__name__)


def test_a_day_of_one_condition_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    warnings = PacedWarnings(clock)
    for _ in range(86_400):
        warnings.warn(LOG, "%s is away: %s", "broker-a", f"at {clock.now_s}", about="broker-a")
        clock.now_s += 1
    lines = [record.message for record in caplog.records]
    assert len(lines) == 24 * 12
    assert lines[0] == "broker-a is away: at 1767225600.0", "at once, and nothing more"
    assert lines[1] == "broker-a is away: at 1767225900.0 (and 299 times since it was last logged)"


def test_another_condition_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    warnings = PacedWarnings(FakeClock())
    for about in ("a", "b", "a"):
        warnings.warn(LOG, "%s is away", about, about=about)
    warnings.warn(LOG, "%s is back", "a", about="a")
    assert [record.message for record in caplog.records] == ["a is away", "b is away", "a is back"]
    assert caplog.records[0].funcName == "test_another_condition_is_logged_at_once"


@pytest.mark.parametrize("trace", [True, False])
def test_a_traceback_is_part_of_a_warning_that_asks_for_it(
    caplog: pytest.LogCaptureFixture, trace: bool
) -> None:
    warnings = PacedWarnings(FakeClock())
    for _ in range(2):
        try:
            1 // 0  # noqa: B018 - it fails
        except ZeroDivisionError:
            warnings.warn(LOG, "it failed", about="it", trace=trace)
    assert len(caplog.records) == 1
    assert ("ZeroDivisionError" in caplog.text) is trace


def test_the_latest_warning_is_taken_once() -> None:
    warnings = PacedWarnings(FakeClock())
    for about in ("a", "b", "b", "a"):
        warnings.warn(LOG, "%s is away", about, about=about)
    assert [warnings.take_latest(), warnings.take_latest()] == ["b is away", ""]


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    warnings = PacedWarnings(FakeClock())
    for topic in range(5_000):
        warnings.warn(LOG, "%d is away", topic, about=topic)
        warnings.warn(LOG, "%d is away", 0, about=0)
    assert len(warnings._logged) == 1_000
    assert [record.message for record in caplog.records].count("0 is away") == 1, "it is met all the time"
