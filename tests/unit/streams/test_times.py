"""Durations of windows: in whole milliseconds, the nearest to what is written."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.streams import Time
from pyspark_rocketmq.streams.plan.times import to_milliseconds


@pytest.mark.parametrize(
    ("time", "length_ms"),
    [
        (Time.milliseconds(250), 250),
        (Time.seconds(64.1), 64_100),
        (Time.minutes(4.1), 246_000),
        (Time.hours(1.15), 4_140_000),
        (Time.days(0.07), 6_048_000),
    ],
)
def test_a_fraction_is_no_millisecond_short(time, length_ms):
    """In binary, 4.1 minutes are a little less: windows a millisecond short would move through the day."""
    assert time.length_ms == length_ms


def test_seconds_of_a_setting_are_no_millisecond_short():
    assert to_milliseconds(2.01) == 2_010
