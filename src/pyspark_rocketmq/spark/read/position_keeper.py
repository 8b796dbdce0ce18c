"""Stream readers for Spark 4.0 and 4.1, which do not tell a reader where the next micro-batch starts.

The reader of later releases is told its start with every call, so it needs no memory. `PositionKeeper` is the
memory: it asks that reader as a later release does. See the facts in `features`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import FEATURES, ReadAllAvailable, ReadLimit, SparkFeatures

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PositionKeeper", "ToldReader", "reader_for"]

_WRAPPER: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class ToldReader(Protocol):
    """A stream reader as Spark 4.2 calls it."""

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a query that has not read anything: the same at every call."""
        ...

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit, /) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        ...

    def partitions(self, start: dict[str, Any], end: dict[str, Any], /) -> Sequence[InputPartition]:
        """Plan a micro-batch."""
        ...

    def read(self, partition: InputPartition, /) -> Iterator[pa.RecordBatch]:
        """Read a partition."""
        ...

    def commit(self, end: dict[str, Any], /) -> None:
        """Record that a micro-batch is finished."""
        ...

    def stop(self) -> None:
        """Free resources."""
        ...


@called_by_spark
class PositionKeeper(DataSourceStreamReader):
    """Keeps the position of a query for its reader.

    The position is the last end that was returned: Spark asks for the next end after that micro-batch is
    finished. After a restart, it is the last offset of the offset log, which Spark plans before it asks.
    Delivery promise: that of the reader.

    Parameters
    ----------
    reader : ToldReader
    """

    def __init__(self, reader: ToldReader) -> None:
        self._reader = reader
        self._position: dict[str, Any] | None = None
        self._planned = False

    def initialOffset(self) -> dict[str, Any]:
        """Return the reader's initial offset."""
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # without arguments until Spark 4.2
        """Return the end of the next micro-batch: all messages that can be read."""
        start = self._reader.initialOffset() if self._position is None else self._position
        end = self._reader.latestOffset(start, ReadAllAvailable())
        self._position = json.loads(json.dumps(end))  # as Spark returns it
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a micro-batch. The first call of a run tells the position, or has the end that was returned.

        Raises
        ------
        RocketMQError
            Spark asked for an end before it told the position, so that end is wrong.
        """
        if self._position is None:
            self._position = end
        elif not self._planned and self._position != end:
            raise RocketMQError(
                f"Spark {FEATURES.version} asked for the end of this run before it told where the query is: "
                f"set {_WRAPPER} to false, or use Spark 4.2 or later, where availableNow needs no wrapper"
            )
        self._planned = True
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in a task's process."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Record that the micro-batch up to ``end`` is finished."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Stop the reader."""
        self._reader.stop()


def reader_for(reader: ToldReader, features: SparkFeatures = FEATURES) -> DataSourceStreamReader:
    """Return a reader as the running Spark calls it."""
    if not features.passes_positions:
        return PositionKeeper(reader)
    assert isinstance(reader, DataSourceStreamReader)
    return reader
