"""The table of a dimension join, as the plan knows it."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

__all__ = ["Dimension"]


class Dimension(Protocol):
    """A table with known columns; a connector reads it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns."""
        ...

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the table as a DataFrame that is read again in each batch."""
        ...
