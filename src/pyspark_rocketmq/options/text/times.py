"""Times in options: an instant, a time before the query's start, or a local time that needs a time zone.

Forms: milliseconds since the epoch, ISO 8601 with or without an offset, ``now``, and ``-10m``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Ago, AtOffsets, AtTimestamp, MessageQueue
from pyspark_rocketmq.model.numbers import parse_milliseconds
from pyspark_rocketmq.options.declare import Kind
from pyspark_rocketmq.options.text.kinds import parse_duration_ms, whole_number

__all__ = [
    "MILLISECONDS",
    "TIMESTAMP",
    "TIME_ZONE",
    "LocalTime",
    "Moment",
    "TimesByQueue",
    "resolve_time",
    "resolve_times",
]

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?", re.IGNORECASE)
_UTC: Final = frozenset({"utc", "gmt", "ut", "z"})


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A time without an offset from UTC."""

    moment: datetime

    def at(self, zone: tzinfo) -> AtTimestamp:
        """Return the instant in a time zone."""
        return _instant(self.moment.replace(tzinfo=zone))


Moment: TypeAlias = AtTimestamp | Ago | LocalTime


@dataclass(frozen=True, slots=True)
class TimesByQueue:
    """Times by queue, else by topic."""

    queues: Mapping[MessageQueue, Moment]
    topics: Mapping[str, Moment]


def resolve_time(moment: Moment, zone: tzinfo | None, option: str) -> AtTimestamp | Ago:
    """Return a time as an instant or a time ago.

    Raises
    ------
    OptionError
        A local time without a time zone, or before 1970.
    """
    if not isinstance(moment, LocalTime):
        return moment
    if zone is None:
        local = moment.moment.isoformat()
        raise OptionError(
            f"the time {local} has no time zone: write {local}Z or {local}+08:00, or set the option timeZone "
            "(Spark does not pass its session time zone to Python data sources)",
            option=option,
        )
    try:
        return moment.at(zone)
    except (ValueError, OverflowError) as error:
        raise OptionError(f"option {option} is malformed: {error}", option=option) from None


def resolve_times(times: TimesByQueue, zone: tzinfo | None, option: str) -> AtOffsets:
    """Return times by queue as positions.

    Raises
    ------
    OptionError
        A local time without a time zone, or before 1970.
    """
    return AtOffsets(
        {queue: resolve_time(moment, zone, option) for queue, moment in times.queues.items()},
        topics={topic: resolve_time(moment, zone, option) for topic, moment in times.topics.items()},
    )


def _timestamp(text: str) -> Moment:
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        return AtTimestamp(parse_milliseconds(int(stripped)))
    if stripped.lower() == "now":
        return Ago(0)
    if stripped.startswith("-") and not stripped[1:].isdigit():
        return Ago(parse_duration_ms(stripped[1:]))
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError("it is no time") from None
    return LocalTime(moment) if moment.tzinfo is None else _instant(moment)


def _instant(moment: datetime) -> AtTimestamp:
    milliseconds = round(moment.timestamp() * 1000)
    if milliseconds < 0:
        raise ValueError("the time is before 1970")
    return AtTimestamp(milliseconds)


def _time_zone(text: str) -> tzinfo:
    if text.lower() in _UTC:
        return UTC
    if found := _OFFSET.fullmatch(text):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-offset if found[1] == "-" else offset)  # a ValueError from 24 hours on
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError("unknown time zone") from None


_WHOLE: Final = whole_number(0, example=1_767_225_600_000)
MILLISECONDS: Final = replace(_WHOLE, parse=lambda text: parse_milliseconds(_WHOLE.parse(text)))
TIMESTAMP: Final = Kind("milliseconds since the epoch, ISO 8601, now, or a time ago", "-10m", _timestamp)
TIME_ZONE: Final = Kind("a region or an offset from UTC", "Europe/Berlin", _time_zone)
