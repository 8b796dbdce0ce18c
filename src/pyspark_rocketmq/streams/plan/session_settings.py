"""Temporary Spark settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

__all__ = ["temporary_settings"]


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
