"""Event times from fields."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, NumericType, StringType

from pyspark_rocketmq.streams.frame.python_steps import FIRST_MS, LAST_MS

__all__ = ["event_time"]


def event_time(value: Column, kind: DataType) -> Column:
    """Return a field as event time: a timestamp, milliseconds, or a text of either. Null if it is none."""
    if isinstance(kind, NumericType):
        time = _time_of_millis(value)
    elif isinstance(kind, StringType):
        time = F.coalesce(_time_of_millis(value.try_cast("double")), value.try_cast("timestamp"))
    else:
        time = value.cast("timestamp")
    return F.when(F.unix_millis(time).between(FIRST_MS, LAST_MS), time)


def _time_of_millis(value: Column) -> Column:
    return F.when(value.between(FIRST_MS, LAST_MS), F.timestamp_millis(value.cast("long")))
