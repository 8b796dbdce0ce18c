"""Settings of the session: what queries need for a time, and what Spark does not pass to data sources.

# Facts (Spark 4.0 to 4.3, ReuseExchangeAndSubquery, WatermarkPropagator): where two parts of a plan are equal
# up to a shuffle, the second becomes a ReusedExchange, below which the propagator finds no watermark. The
# stateful operators above it never see time pass: a join of two aggregates of one stream gives no rows, and
# nothing is logged.

# Facts (Spark 4.3, seen): where an aggregation has a function such as ``collect_list``, a task with more than
# 128 groups changes from hashing to sorting, and merges both parts of a group in any order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["ORDER_SETTINGS", "WATERMARK_SETTINGS", "add_session_settings", "temporary_settings"]

_TIMES: Final = frozenset(
    {"startingtimestamp", "startingoffsetsbytimestamp", "endingtimestamp", "endingoffsetsbytimestamp"}
)

WATERMARK_SETTINGS: Final[Mapping[str, str]] = {"spark.sql.exchange.reuse": "false"}
"""What a query with watermarks needs when it starts, see the facts above."""

ORDER_SETTINGS: Final[Mapping[str, str]] = {"spark.sql.execution.useObjectHashAggregateExec": "false"}
"""What a query needs when it starts whose aggregates have rows in the order in which they came."""


@contextlib.contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to a session for the block, then restore the old ones."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name)
            if old is not None and spark.conf.get(name, None) != old:
                spark.conf.set(name, old)


def add_session_settings(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """Add the option ``timeZone`` to the options of a read that have a time and no time zone.

    Spark does not pass its session time zone to Python data sources.
    """
    names = {name.lower() for name in options}
    if "timezone" in names or not names & _TIMES:
        return dict(options)
    return {**options, "timeZone": str(spark.conf.get("spark.sql.session.timeZone"))}
