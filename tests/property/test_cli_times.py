"""Every time that a command prints is a time that every command takes, in every zone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_rocketmq.cli.connect import source_options
from pyspark_rocketmq.cli.printing import timestamp
from pyspark_rocketmq.cli.times import moment, with_local_zone
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import AtTimestamp

# Zones with offsets of minutes and seconds, and with summer time in either half of the year.
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Monrovia"]
)
local_times = st.datetimes(datetime(1971, 1, 1), datetime(2400, 1, 1))  # noqa: DTZ001 - without a zone
milliseconds = st.integers(1, 250_000_000_000_000)
AMBIGUOUS_MS = 1_792_888_200_000  # 2026-10-25 02:30 in Berlin, the first of two


@contextmanager
def local_zone(name: str) -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@given(milliseconds, zones, zones)
@example(AMBIGUOUS_MS, "Europe/Berlin", "UTC")
@example(AMBIGUOUS_MS + 3_600_000, "Europe/Berlin", "Europe/Berlin")
def test_a_printed_time_is_the_same_time_typed_in_any_zone(ms, printed_in, typed_in):
    with local_zone(printed_in):
        text = timestamp(ms)
    with local_zone(typed_in):
        assert moment("--at", text, 0) == ms
        options = source_options("127.0.0.1:1", None, topic="orders", group=None, start=text, name="--from")
        assert options.start_policy(streaming=True) == AtTimestamp(ms)


@given(local_times, zones, st.sampled_from(["T", " "]))
def test_a_time_without_an_offset_is_local(local, zone, separator):
    with local_zone(zone):
        ms = moment("--at", local.isoformat(sep=separator), 0)
        assert ms == round(local.timestamp() * 1000)
        assert moment("--at", with_local_zone(local.isoformat()), 0) == ms


@given(milliseconds.map(lambda ms: ms + 5_000_000_000), zones)  # less may be a time in seconds
def test_milliseconds_are_the_same_everywhere(ms, zone):
    with local_zone(zone):
        assert moment("--at", str(ms), 0) == ms


@pytest.mark.parametrize("text", ["yesterday", "2030-13-01", "0001-01-01", "1969-12-30", "", "5x"])
def test_what_is_no_time_is_an_error_that_says_what_is_one(text):
    with local_zone("America/New_York"), pytest.raises(OptionError, match="--at takes milliseconds"):
        moment("--at", text, 0)
