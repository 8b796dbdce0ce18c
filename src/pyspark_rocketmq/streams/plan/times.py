"""Durations and kinds of windows, with RocketMQ Streams' names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from pyspark_rocketmq.errors import PlanError

__all__ = [
    "WINDOW_FIELDS",
    "HoppingWindow",
    "SessionWindow",
    "Time",
    "TumblingWindow",
    "Window",
    "WindowBuilder",
    "to_milliseconds",
]

WINDOW_FIELDS: Final = ("start_time", "end_time", "fire_time")
"""The fields that a window's results have besides the group and the results."""


def to_milliseconds(seconds: float) -> int:
    """Return seconds in milliseconds, rounded: 64.1 times 1000 is a little less than 64100."""
    return round(seconds * 1000)


@dataclass(frozen=True, slots=True, order=True)
class Time:
    """A duration, created by ``Time.seconds(10)`` and similar methods.

    Parameters
    ----------
    length_ms : int
        In milliseconds, above 0.
    """

    length_ms: int

    def __post_init__(self) -> None:
        if self.length_ms <= 0:
            raise PlanError("a duration must be greater than 0", milliseconds=self.length_ms)

    @classmethod
    def milliseconds(cls, count: float) -> Self:
        """Return a duration in milliseconds."""
        return cls(round(count))

    @classmethod
    def seconds(cls, count: float) -> Self:
        """Return a duration in seconds."""
        return cls(to_milliseconds(count))

    @classmethod
    def minutes(cls, count: float) -> Self:
        """Return a duration in minutes."""
        return cls.seconds(count * 60)

    @classmethod
    def hours(cls, count: float) -> Self:
        """Return a duration in hours."""
        return cls.minutes(count * 60)

    @classmethod
    def days(cls, count: float) -> Self:
        """Return a duration in days of 24 hours."""
        return cls.hours(count * 24)

    def __str__(self) -> str:
        return f"{self.length_ms} milliseconds"


@dataclass(frozen=True, slots=True)
class TumblingWindow:
    """Consecutive windows of a fixed size."""

    size: Time
    time_field: str | None = None

    @classmethod
    def of(cls, size: Time, timeField: str | None = None) -> Self:
        """Return tumbling windows of a size, by a field of the record or by the message's store time."""
        return cls(size, timeField)

    def __str__(self) -> str:
        return f"tumbling windows of {_seconds(self.size)}{_time_of(self.time_field)}"


@dataclass(frozen=True, slots=True)
class HoppingWindow:
    """Overlapping windows: one starts every ``slide``."""

    size: Time
    slide: Time
    time_field: str | None = None

    def __post_init__(self) -> None:
        if self.slide > self.size:
            raise PlanError(f"windows of {self.size} every {self.slide} would skip rows")

    @classmethod
    def of(cls, size: Time, slide: Time, timeField: str | None = None) -> Self:
        """Return windows of a size that start every ``slide``."""
        return cls(size, slide, timeField)

    def __str__(self) -> str:
        every = _seconds(self.slide)
        return f"windows of {_seconds(self.size)} every {every}{_time_of(self.time_field)}"


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Windows that end after a key had no records for ``gap``."""

    gap: Time
    time_field: str | None = None

    @classmethod
    def of(cls, gap: Time, timeField: str | None = None) -> Self:
        """Return windows that end after a gap without records."""
        return cls(gap, timeField)

    def __str__(self) -> str:
        return f"sessions that end after {_seconds(self.gap)}{_time_of(self.time_field)}"


Window = TumblingWindow | HoppingWindow | SessionWindow


def length_of(window: Window) -> Time:
    """Return the length of windows, or the gap of sessions: for so long a record keeps one open."""
    return window.gap if isinstance(window, SessionWindow) else window.size


def _seconds(time: Time) -> str:
    return f"{time.length_ms / 1000:g} s"


def _time_of(field: str | None) -> str:
    return "" if field is None else f" of the field {field}"


def with_time_field(window: Window, field: str) -> Window:
    """Return the window with another time."""
    return replace(window, time_field=field)


class WindowBuilder:
    """The newer API's constructors of windows."""

    @staticmethod
    def tumblingWindow(size: Time) -> TumblingWindow:
        """Return tumbling windows."""
        return TumblingWindow.of(size)

    @staticmethod
    def slidingWindow(size: Time, slideStep: Time) -> HoppingWindow:
        """Return sliding windows."""
        return HoppingWindow.of(size, slideStep)

    @staticmethod
    def sessionWindow(gap: Time) -> SessionWindow:
        """Return windows that end after a gap without records."""
        return SessionWindow.of(gap)
