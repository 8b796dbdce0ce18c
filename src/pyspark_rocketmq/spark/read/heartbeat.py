"""Rows that advance Spark's watermark while no messages arrive, so that windows close.

A heartbeat row has the time of the heartbeat as ``storeTimestamp`` and ``bornTimestamp``, and null in every
other column. Keep it until the watermark has seen it, and drop it afterwards. Spark pushes a plain filter on
``topic`` below the watermark, where it would undo the heartbeat; one that also names the event time stays
above, and one that is not deterministic keeps those of later steps (of an outer join, say) above too::

    df.withWatermark("storeTimestamp", "10 seconds").where(
        "(topic is not null or storeTimestamp is null) and spark_partition_id() >= 0")

With a time out of the payload the event time is ``coalesce(payload_time, storeTimestamp)``. The watermark's
delay must cover what the clocks of driver and brokers are apart.

A heartbeat is not an offset: the end of a micro-batch contains its time, so that a replay has the same row.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.arrow import BatchDecoder
from pyspark_rocketmq.spark.read.schema import Projection

__all__ = ["Absences", "HeartbeatPartition", "check_heartbeat", "heartbeat_row"]

_LOG: Final = logging.getLogger(__name__)

_TIMES: Final = frozenset({"bornTimestamp", "storeTimestamp"})
_NOWHERE: Final = MessageQueue("", "", 0)


class HeartbeatPartition(InputPartition):
    """One heartbeat row.

    Parameters
    ----------
    value : int
        Its time, in milliseconds since the epoch.
    """

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeartbeatPartition) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class Absences:
    """How long brokers have been missing, in this run of the query.

    Messages of a broker that is down are older than the heartbeat: they would be late after it returns. So
    heartbeats wait for it, but not without limit: a retired broker would keep every window open.

    Parameters
    ----------
    patience_ms : int
        ``heartbeatPatience``.
    clock : Clock
    """

    def __init__(self, patience_ms: int, clock: Clock) -> None:
        self._patience_ms = patience_ms
        self._clock = clock
        self._since: dict[str, float] = {}
        self._given_up: frozenset[str] = frozenset()
        self._asked_s = clock.monotonic()

    def record_look(self) -> None:
        """Record that brokers are asked now: what they tell is as old, if the process is frozen meanwhile."""
        self._asked_s = self._clock.monotonic()

    def waited_for(self, missed: Collection[str]) -> frozenset[str]:
        """Return the missing brokers that still delay heartbeats."""
        now, told = self._asked_s, self._clock.monotonic()
        self._since = {name: self._since.get(name, told) for name in missed}
        waited = frozenset(n for n, since in self._since.items() if (now - since) * 1000 < self._patience_ms)
        for name in sorted(self._since.keys() - waited - self._given_up):
            _LOG.warning(
                "broker %s has not answered for %d s: heartbeats no longer wait for it, and its messages may "
                "come late. If it was retired, name its queues in forgetQueues",
                name,
                now - self._since[name],
            )
        self._given_up = frozenset(self._since) - waited
        return waited


def check_heartbeat(projection: Projection) -> None:
    """Check that heartbeat rows fit the columns that are read.

    Raises
    ------
    OptionError
        No column has a time, or one forbids null.
    """
    if not any(column.source in _TIMES for column in projection.columns):
        raise OptionError(
            "heartbeatInterval needs storeTimestamp or bornTimestamp among the columns: that is all they have"
        )
    for column in projection.columns:
        if column.source not in _TIMES and not column.nullable:
            raise OptionError(
                "heartbeatInterval makes rows without a message: the column must be nullable",
                column=column.name,
            )


def heartbeat_row(projection: Projection, time_ms: int) -> pa.RecordBatch:
    """Return the row of a heartbeat."""
    schema = BatchDecoder(projection.columns, queue=_NOWHERE, body_as=projection.body_as).schema
    time_us = pa.py_buffer((time_ms * 1000).to_bytes(8, sys.byteorder, signed=True))
    columns = [
        pa.Array.from_buffers(field.type, 1, [None, time_us])
        if column.source in _TIMES
        else pa.nulls(1, field.type)
        for column, field in zip(projection.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
