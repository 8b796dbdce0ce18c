"""The session's time zone for times in options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["add_session_zone"]

_TIMES: Final = frozenset(
    {"startingtimestamp", "startingoffsetsbytimestamp", "endingtimestamp", "endingoffsetsbytimestamp"}
)


def add_session_zone(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """Add the option ``timeZone`` to the options of a read that have a time and no time zone.

    Spark does not pass its session time zone to Python data sources.
    """
    names = {name.lower() for name in options}
    if "timezone" in names or not names & _TIMES:
        return dict(options)
    return {**options, "timeZone": str(spark.conf.get("spark.sql.session.timeZone"))}
