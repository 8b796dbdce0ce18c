"""Times without an offset: in the option timeZone or the session's time zone, never silently in another."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import AtOffsets, AtTimestamp, MessageQueue
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.session_settings import add_session_settings

BASE = {"nameServer": "127.0.0.1:9876", "topic": "orders"}
EIGHT_UTC = 1_706_688_000_000  # 2024-01-31T08:00:00Z
HOUR = 3_600_000


def start(**options: str) -> object:
    return parse_options(SourceOptions, BASE | options).start_policy(streaming=True)


@pytest.mark.parametrize(
    ("zone", "shift"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("gmt", 0),
        ("Europe/Berlin", -HOUR),
        ("Asia/Kolkata", -11 * HOUR // 2),
        ("+08:00", -8 * HOUR),
        ("-0330", 7 * HOUR // 2),
        ("GMT+8", -8 * HOUR),
        ("UTC-5", 5 * HOUR),
    ],
)
def test_a_local_time_is_in_the_given_zone(zone: str, shift: int) -> None:
    assert start(startingTimestamp="2024-01-31 08:00:00", timeZone=zone) == AtTimestamp(EIGHT_UTC + shift)


def test_an_offset_overrides_the_zone() -> None:
    assert start(startingTimestamp="2024-01-31T08:00:00Z", timeZone="+05:00") == AtTimestamp(EIGHT_UTC)
    assert start(startingTimestamp=str(EIGHT_UTC), timeZone="+05:00") == AtTimestamp(EIGHT_UTC)


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": "2024-01-31T08:00:00"},
        {"startingOffsetsByTimestamp": '{"orders": "2024-01-31T08:00:00"}'},
        {"endingTimestamp": "2024-01-31T08:00:00"},
        {"endingOffsetsByTimestamp": '{"orders": {"broker-a": {"0": "2024-01-31T08:00:00"}}}'},
    ],
)
def test_without_a_zone_it_is_an_error_that_says_what_to_write(options: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(SourceOptions, BASE | options)
    (name,) = options
    assert caught.value.facts == {"option": name}
    assert "the time 2024-01-31T08:00:00 has no time zone: write 2024-01-31T08:00:00Z or" in str(caught.value)


def test_each_queue_has_its_time() -> None:
    text = (
        '{"orders": {"broker-a": {"0": "2024-01-31T08:00:00", "1": 5}}, "paid": "2024-01-31T08:00:00Z", '
        '"sent": "2024-01-31T08:00:00"}'
    )
    assert start(startingOffsetsByTimestamp=text, timeZone="+01:00") == AtOffsets(
        {
            MessageQueue("orders", "broker-a", 0): AtTimestamp(EIGHT_UTC - HOUR),
            MessageQueue("orders", "broker-a", 1): AtTimestamp(5),
        },
        topics={"paid": AtTimestamp(EIGHT_UTC), "sent": AtTimestamp(EIGHT_UTC - HOUR)},
    )


def test_clocks_that_are_set_forward_and_back() -> None:
    """In the hour that does not exist and in the one that is there twice: as in Spark."""
    berlin = {"timeZone": "Europe/Berlin"}
    assert start(startingTimestamp="2024-03-31T02:30:00", **berlin) == AtTimestamp(1_711_848_600_000)  # 3:30
    assert start(startingTimestamp="2024-10-27T02:30:00", **berlin) == AtTimestamp(1_729_989_000_000)  # first


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+25:00", "", "../etc/passwd", "CEST-ish"])
def test_no_time_zone(zone: str) -> None:
    with pytest.raises(OptionError, match="option timeZone is malformed"):
        start(startingTimestamp="2024-01-31T08:00:00", timeZone=zone)


@pytest.mark.parametrize("moment", ["1969-12-31T23:00:00", "0001-01-01T00:00:00"])
def test_a_local_time_before_1970(moment: str) -> None:
    with pytest.raises(OptionError, match="option startingTimestamp is malformed: "):
        start(startingTimestamp=moment, timeZone="UTC")


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        (EIGHT_UTC // 1000, "seconds"),
        (EIGHT_UTC * 1000, "microseconds"),
        (EIGHT_UTC * 10**6, "nanoseconds"),
    ],
)
def test_a_time_in_another_unit_than_milliseconds_is_an_error(number: int, unit: str) -> None:
    """It would be a time of 1970, or one after all messages: a query would read everything, or nothing."""
    for options in (
        {"startingTimestamp": str(number)},
        {"endingTimestamp": str(number)},
        {"startingOffsetsByTimestamp": f'{{"orders": {number}}}'},
        {"startingOffsetsByTimestamp": f'{{"orders": {{"broker-a": {{"0": "{number}"}}}}}}'},
    ):
        with pytest.raises(OptionError, match=f"{number} is a time in {unit}: write {EIGHT_UTC}"):
            parse_options(SourceOptions, BASE | options)


def test_options_with_a_zone_travel_to_other_processes() -> None:
    options = parse_options(
        SourceOptions, BASE | {"startingTimestamp": "2024-01-31T08:00", "timeZone": "Asia/Tokyo"}
    )
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options.client) == hash(pickle.loads(pickle.dumps(options)).client)


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"topic": "orders"}, {}),
        ({"startingTimestamp": "x"}, {"timeZone": "Asia/Tokyo"}),
        ({"ENDINGOFFSETSBYTIMESTAMP": "x"}, {"timeZone": "Asia/Tokyo"}),
        ({"startingtimestamp": "x", "timezone": "UTC"}, {}),
    ],
)
def test_the_session_s_zone_is_added_where_it_matters(given: dict[str, str], added: dict[str, str]) -> None:
    spark: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert add_session_settings(spark, given) == given | added
