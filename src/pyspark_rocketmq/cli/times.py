"""Times that people type: without an offset they are local, as the times that commands print."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark_rocketmq.errors import OptionError

__all__ = ["is_time", "moment", "with_local_zone"]


def with_local_zone(text: str) -> str:
    """Return a time with its offset: a time without one is local. Other texts are returned unchanged."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    if found.tzinfo is not None or text.strip().isdecimal():  # digits alone are milliseconds since the epoch
        return text
    try:
        return found.astimezone().isoformat()
    except (ValueError, OverflowError):  # at the ends of the calendar; the parser names the fault
        return text


def is_time(text: str) -> bool:
    """Return whether a text is a time, and not an offset or a name of one."""
    from pyspark_rocketmq.options.text.times import TIMESTAMP

    try:
        TIMESTAMP.parse(with_local_zone(text))
    except ValueError:
        return text.strip().isdecimal()  # digits alone are a wrong time, such as one in seconds
    return True


def moment(name: str, text: str, now_ms: int) -> int:
    """Return the time that an option gives, in milliseconds since the epoch.

    Raises
    ------
    OptionError
        The text is not a time.
    """
    from pyspark_rocketmq.model import AtTimestamp
    from pyspark_rocketmq.options.text.times import TIMESTAMP, LocalTime

    try:
        position = TIMESTAMP.parse(with_local_zone(text))
        if isinstance(position, LocalTime):  # at the ends of the calendar, where no offset can be added
            position = position.at(UTC)
    except (ValueError, OverflowError):
        raise OptionError(
            f"{name} takes milliseconds since the epoch, a time (2030-01-31T08:00:00), now, or a time ago "
            "(-10m)",
            given=text,
        ) from None
    return position.timestamp_ms if isinstance(position, AtTimestamp) else now_ms - position.ago_ms
