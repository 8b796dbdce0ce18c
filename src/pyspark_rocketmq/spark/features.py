"""What the running PySpark can do, decided once, and the names of its API that older releases lack.

Everything else asks here, except the check of the oldest supported release, before an import can fail.
"""

# Facts (Spark 4.0.5, 4.1.4, 4.2 and 4.3; the order of calls is that of trial runs)
# - 4.0 and 4.1 call `latestOffset()` of a stream reader, without a start and a limit. A new query calls it
#   before `initialOffset()`. A restarted one first calls `partitions(X, X)`, where X is the newest in the
#   offset log (AcceptsLatestSeenOffset).
# - There, Trigger.AvailableNow is one micro-batch. After a failure it is the one that failed, and no other.
#   With spark.sql.streaming.triggerAvailableNowWrapper.enabled, a restart calls `latestOffset()` first.
# - The reader's process lives as long as the query. If it dies, the query fails.
# - 4.0 plans each action on a batch DataFrame; later releases plan once for each `load()`.
# - 4.0 gives Arrow batches to any writer that is a DataSourceArrowWriter, also to one of a stream.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self

import pyspark
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import Options, option_values

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FEATURES",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SparkFeatures",
    "SupportsTriggerAvailableNow",
    "utc_arrow_schema",
]


@dataclass(frozen=True, slots=True)
class SparkFeatures:
    """What a PySpark can do.

    Parameters
    ----------
    version : str
        What it calls itself.
    level : tuple of int
        The first release with its data source API: managed runtimes have parts of later releases.
    """

    version: str
    level: tuple[int, int]

    @classmethod
    def of_running(cls) -> Self:
        """Return the features of the PySpark that is imported."""
        if find_spec("pyspark.sql.streaming.datasource") is not None:
            level = (4, 2)
        else:
            level = (4, 1) if hasattr(datasource, "Filter") else (4, 0)
        return cls(pyspark.__version__, level)

    @property
    def passes_positions(self) -> bool:
        """Whether a stream reader is told where the next micro-batch starts, and how much it may take."""
        return self.level >= (4, 2)

    def has(self, since: str) -> bool:
        """Whether this is the release ``since``, such as "4.2", or later."""
        major, minor = map(int, since.split("."))
        return self.level >= (major, minor)

    def require(self, since: str, what: str, instead: str) -> None:
        """Raise an error if this release is older than what needs it.

        Parameters
        ----------
        since : str
            The first release that has it, such as "4.2".
        what : str
            What needs it, as the error's first words.
        instead : str
            What to do, as the error's last words.

        Raises
        ------
        OptionError
        """
        if not self.has(since):
            raise OptionError(f"{what} needs Spark {since} or later, but this is {self.version}: {instead}")

    def check_options(self, options: Options, given: Mapping[str, Any]) -> None:
        """Check that the options that are set have an effect in this release.

        Parameters
        ----------
        options : Options
            The parsed options.
        given : Mapping
            The map that was parsed. What it sets to "none" or "off" has no effect in any release.

        Raises
        ------
        OptionError
        """
        named = {name.lower() for name, value in given.items() if value is not None}
        for option, value in option_values(options):
            is_set = value and not named.isdisjoint(spelling.lower() for spelling in option.spellings)
            if is_set and option.since is not None:
                self.require(option.since, f"the option {option.name}", "remove it, or use that release")


FEATURES: Final = SparkFeatures.of_running()


def utc_arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema as Spark lays it out in Arrow, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - planning processes do not need it

    zone: dict[str, Any] = {"timezone": "UTC"} if FEATURES.has("4.2") else {"timestamp_utc": True}
    return to_arrow_schema(schema, prefers_large_types=False, **zone)


if TYPE_CHECKING or FEATURES.has("4.1"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A stream's writer that gets Arrow batches."""


if TYPE_CHECKING or FEATURES.has("4.2"):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How much a micro-batch may take."""

    @dataclass(frozen=True)
    class ReadAllAvailable(ReadLimit):
        """Everything."""

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):
        """A number of rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """A reader that knows where a run ends."""
