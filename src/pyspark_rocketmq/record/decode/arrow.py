"""Decodes pull answers to Arrow record batches in Spark's layout: the hot path of every read.

Only the selected columns are built, without a Python object per message. ``record.message`` is the readable
twin: a property test shows that both give the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options.choices import BodyType
from pyspark_rocketmq.record.decode.columns import COLUMNS, ENCODED_PROPERTIES, ColumnBuilder, Constants
from pyspark_rocketmq.record.decode.commit_marks import Decided
from pyspark_rocketmq.record.decode.corrupt import Corrupt, OnCorrupt
from pyspark_rocketmq.record.decode.rows import Chunk, Rows
from pyspark_rocketmq.record.decode.scan import scan
from pyspark_rocketmq.record.layout import MAX_BODY_BYTES
from pyspark_rocketmq.record.properties import PROPERTY_COMMIT_TOPIC

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "BatchDecoder", "Chunk", "Column"]

DEFAULT_COLUMNS: Final = tuple(COLUMNS)[:10]
"""What a read returns if nothing else is asked for; each further column costs."""

_ROW_OVERHEAD: Final = 256
"""What a row takes besides its strings: generous, so that no column outgrows its 32-bit offsets."""
_MAX_BATCH_BYTES: Final = 2**30
_UNPACKED_BATCHES: Final = 16
"""How many full batches are unpacked at a time: compressed bodies may unpack to any multiple of an answer."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is wanted.

    Parameters
    ----------
    name : str
        What it is called in the record batch.
    source : str
        Its name in `COLUMNS`.
    nullable : bool
        What the schema says; the data are the same.
    """

    name: str
    source: str
    nullable: bool = True


class BatchDecoder:
    """Decodes the pull answers of one queue.

    Every record batch has exactly `schema`, at least one row, at most ``max_batch_rows`` rows and,
    unless one message alone is larger, about ``max_batch_bytes`` of body, properties and constants.

    Parameters
    ----------
    columns : sequence of str or Column
        Names out of `COLUMNS`, in the order that the batches shall have them.
    queue : MessageQueue
        The queue of the answers; fills topic, brokerName and queueId.
    body_as : {"binary", "string"}
    on_corrupt : {"fail", "null", "skip"}
        How a message that cannot be decoded is handled: an error, nulls in the affected columns, or no row.
    check_crc : bool
        Compare each body with its checksum (costs a pass over it).
    max_batch_rows : int
    max_batch_bytes : int
        At most 1 GiB: strings have 32-bit offsets.
    body_limit : int
        What one decompressed body may take, in bytes.
    decided : Decided, optional
        Which messages of transactional writes are rows: others are left out.

    Raises
    ------
    OptionError
        A column does not exist, or a limit is out of range.
    """

    def __init__(
        self,
        columns: Sequence[str | Column],
        *,
        queue: MessageQueue,
        body_as: BodyType = "binary",
        on_corrupt: OnCorrupt = "fail",
        check_crc: bool = False,
        max_batch_rows: int = 10_000,
        max_batch_bytes: int = 64 * 1024 * 1024,
        body_limit: int = MAX_BODY_BYTES,
        decided: Decided | None = None,
    ) -> None:
        if not columns:
            raise OptionError("a record batch needs at least one column")
        if max_batch_rows < 1 or not 1 <= max_batch_bytes <= _MAX_BATCH_BYTES:
            raise OptionError(
                f"a batch holds at least one row and at most {_MAX_BATCH_BYTES} bytes",
                max_batch_rows=max_batch_rows,
                max_batch_bytes=max_batch_bytes,
            )
        self._columns = [Column(each, each) if isinstance(each, str) else each for each in columns]
        self._schema = pa.schema([_field(column, body_as) for column in self._columns])
        self._queue = queue
        self._with_body = any(column.source == "body" for column in self._columns)
        self.corrupt: Final = Corrupt(queue, on_corrupt)
        """The messages that could not be decoded, among those that were returned or skipped."""
        self._check_crc = check_crc
        self._max_batch_rows = max_batch_rows
        self._max_batch_bytes = max_batch_bytes
        self._body_limit = body_limit
        self._decided = decided
        self.undecided = 0
        """How many messages of transactional writes were left out."""
        self._row_bytes = _ROW_OVERHEAD + len(queue.topic.encode()) + len(queue.broker_name.encode())
        self._constants = Constants()

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return self._schema

    def decode(self, chunks: Sequence[Chunk]) -> list[pa.RecordBatch]:
        """Decode the records of pull answers, all together; see `batches`.

        Raises
        ------
        CorruptMessageError
            As `batches`; nothing of the call is returned then.
        """
        return list(self.batches(chunks))

    def batches(self, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
        """Decode the records of pull answers.

        However much the compressed bodies of the chunks unpack to, no more than about 16 times
        ``max_batch_bytes`` and one body of them are in memory at the same time, besides the batches returned.

        Parameters
        ----------
        chunks : sequence of Chunk
            In the order of their offsets. Chunks in one receive buffer, one after the other, are
            decoded together: the more records a call gets, the cheaper each is.

        Yields
        ------
        RecordBatch
            The messages that the chunks count, in order, each once. They are copies: after the last
            one the receive buffers are free again.

        Raises
        ------
        CorruptMessageError
            Names the queue and, if it can be read, the offset of the first such message. A record that
            breaks the layout hides those after it: it raises whatever ``on_corrupt`` says, before the first
            batch.
        """
        self.corrupt.forget()
        for rows in scan(
            chunks,
            self.corrupt,
            with_body=self._with_body,
            check_crc=self._check_crc,
            body_limit=self._body_limit,
            part_bytes=_UNPACKED_BATCHES * self._max_batch_bytes,
        ):
            for part in self._cut(rows):
                whole = part.stop - part.start == len(rows)
                batch = self._batch(rows if whole else rows[part])
                if batch.num_rows:
                    yield batch

    def _cut(self, rows: Rows) -> Iterator[slice]:
        """Cut rows so that no batch has too many, or too many bytes."""
        total = np.cumsum(rows.body.length + rows.properties.length + self._row_bytes)
        start, done = 0, 0
        while start < len(rows):
            fitting = int(np.searchsorted(total, done + self._max_batch_bytes, side="right"))
            end = max(start + 1, min(fitting, start + self._max_batch_rows))
            yield slice(start, end)
            start, done = end, int(total[end - 1])

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        builder = ColumnBuilder(rows, self._queue, self._constants, self.corrupt)
        if self._decided is not None:
            builder = self._without_undecided(builder, self._decided)
        arrays = [
            builder.build(column.source, field.type)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        marked = self.corrupt.settle(builder.rows.offset)
        if marked is None or self.corrupt.policy != "skip":
            return batch
        return batch.filter(pa.array(~marked))

    def _without_undecided(self, builder: ColumnBuilder, decided: Decided) -> ColumnBuilder:
        """Leave out the messages of transactional writes that are no rows. Raises as `Decided.check`."""
        marks = builder.properties.column(PROPERTY_COMMIT_TOPIC)
        if marks.null_count == len(marks):
            return builder
        decided.check(pc.unique(marks).to_pylist())
        unmarked = pc.is_null(marks).to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(unmarked | decided.lists(builder.rows.offset))
        self.undecided += len(marks) - len(kept)
        return ColumnBuilder(builder.rows[kept], self._queue, self._constants, self.corrupt)


def _field(column: Column, body_as: BodyType) -> pa.Field:
    kind = pa.binary() if column.source == ENCODED_PROPERTIES else COLUMNS.get(column.source)
    if kind is None:
        raise OptionError(f"unknown column {column.source}: the columns are {', '.join(COLUMNS)}")
    if column.source == "body" and body_as == "string":
        kind = pa.string()
    return pa.field(column.name, kind, column.nullable)
