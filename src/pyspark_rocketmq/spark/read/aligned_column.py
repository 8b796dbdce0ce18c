"""The column ``alignedTimestamp``: the store time up to which all queues were read.

Every row of a micro-batch has the same value, which never decreases from one micro-batch to the next.
Messages of later micro-batches were stored at or after it, in all queues whose brokers answered. So a
watermark on it drops no row, whatever the queues' times are, and state that is older than it by some time can
be dropped.

The value is not an offset: the end of a micro-batch contains it, so that a replay has the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructField, StructType, TimestampType

from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.options.choices import EventTime
from pyspark_rocketmq.planning.alignment import aligned_until, tails

__all__ = ["ALIGNED_TIMESTAMP", "AlignedColumn", "AlignedPartition", "look_up_aligned"]

ALIGNED_TIMESTAMP: Final = "alignedTimestamp"

_LOG: Final = logging.getLogger(__name__)


class AlignedPartition(InputPartition):
    """A partition whose rows get the column.

    Parameters
    ----------
    value : tuple
        The partition, and the column's value in milliseconds since the epoch.
    """

    value: tuple[InputPartition, int]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AlignedPartition) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class AlignedColumn:
    """Where the column is among those of a read."""

    place: int

    @classmethod
    def of(cls, schema: StructType, options: SourceOptions) -> tuple[Self | None, StructType]:
        """Return the column, if a schema has it, and the schema of a message.

        Raises
        ------
        OptionError
            It has the wrong type, or queues are not aligned by store time.
        """
        if ALIGNED_TIMESTAMP not in schema.names:
            return None, schema
        place = schema.names.index(ALIGNED_TIMESTAMP)
        if schema.fields[place].dataType != TimestampType():
            raise OptionError(f"column {ALIGNED_TIMESTAMP!r} of the schema must be timestamp")
        if options.event_time_alignment is not EventTime.STORE:
            raise OptionError(
                f"the column {ALIGNED_TIMESTAMP} needs eventTimeAlignment=store: without it queues are read "
                "at times that are apart",
                option="eventTimeAlignment",
            )
        return cls(place), StructType([*schema.fields[:place], *schema.fields[place + 1 :]])

    @staticmethod
    def add_to(schema: StructType) -> StructType:
        """Return the schema with the column at its end."""
        return StructType([*schema.fields, StructField(ALIGNED_TIMESTAMP, TimestampType())])

    def insert(self, batches: Iterator[pa.RecordBatch], time_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield the record batches with the column."""
        field = pa.field(ALIGNED_TIMESTAMP, pa.timestamp("us", tz="UTC"))
        for batch in batches:
            times = pa.py_buffer(np.full(batch.num_rows, time_ms * 1000, np.int64))
            column = pa.Array.from_buffers(field.type, batch.num_rows, [None, times])
            columns, fields = [*batch.columns], [*batch.schema]
            columns.insert(self.place, column)
            fields.insert(self.place, field)
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def look_up_aligned(
    client: PlanningClient,
    previous_ms: int,
    until: Mapping[MessageQueue, int],
    reach: Mapping[MessageQueue, int],
    *,
    seen_ms: int,
    group: str,
) -> int:
    """Return the value for a micro-batch that ends at ``until``; the previous one if it is unknown.

    Parameters are those of `aligned_until` and `tails`.
    """
    wanted = tails(until, reach)
    try:
        unread = client.message_times(wanted, group)
    except RocketMQError as error:
        if not error.retriable:
            raise
        _LOG.warning("%s stays at %d: %s", ALIGNED_TIMESTAMP, previous_ms, error)
        return max(1, previous_ms)
    if unread.keys() != wanted.keys():  # a slave may lack messages whose master has just gone
        return max(1, previous_ms)
    return aligned_until(previous_ms, [times.store_timestamp for times in unread.values()], seen_ms=seen_ms)
