"""A Python stream source and sink that do nothing. Their cost is Spark's overhead for any Python source."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType


class BlankSource(DataSource):
    """Reads empty rows: ``rows`` in total, ``batchRows`` per batch, one partition. Discards written rows."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "blank"

    def schema(self) -> str:
        """Return a column like that of our source."""
        return "body binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Return the reader."""
        return _Reader(int(self.options["rows"]), int(self.options["batchrows"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
        """Return the writer."""
        return _Writer()


class _Reader(DataSourceStreamReader):
    def __init__(self, rows: int, batch_rows: int) -> None:
        self._rows = rows
        self._batch_rows = batch_rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._batch_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        step = self._rows if isinstance(limit, ReadAllAvailable) else self._batch_rows
        return {"at": min(self._rows, start["at"] + step)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["at"] - start["at"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        body = pa.array([b"x" * 1024] * partition.value, pa.binary())
        yield pa.RecordBatch.from_arrays([body], schema=pa.schema([pa.field("body", pa.binary())]))


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
