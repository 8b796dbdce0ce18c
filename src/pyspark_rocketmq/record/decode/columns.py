"""The columns of a record batch, each built on its own from the rows of a scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.corrupt import BODY_DAMAGED, INSIDE_DAMAGED, UNREADABLE, Corrupt
from pyspark_rocketmq.record.decode.property_table import MAP_TYPE, PropertyTable
from pyspark_rocketmq.record.decode.rows import Rows
from pyspark_rocketmq.record.decode.spans import Int64s, Spans, contents, validity
from pyspark_rocketmq.record.ids import format_host
from pyspark_rocketmq.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TRACEPARENT,
    PROPERTY_UNIQUE_KEY,
)

__all__ = ["COLUMNS", "ENCODED_PROPERTIES", "ColumnBuilder", "Constants"]

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000

COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "topic": pa.string(),
    "brokerName": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.binary(),
    "bornTimestamp": _TIMESTAMP,
    "storeTimestamp": _TIMESTAMP,
    "properties": MAP_TYPE,
    "offsetMsgId": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
    "bodyCrc": pa.int32(),
    "traceparent": pa.string(),
}
"""Every column and its type, as Spark lays it out in Arrow (``to_arrow_schema(…, timezone="UTC")``)."""

ENCODED_PROPERTIES: Final = "encodedProperties"
"""A column of bytes that is not for users: the properties as they are stored."""

_NEVER_GONE: Final = UNREADABLE + 1
_GONE_FROM: Final[Mapping[str, int]] = {
    **dict.fromkeys(("topic", "brokerName", "queueId", "queueOffset"), _NEVER_GONE),
    **dict.fromkeys(("msgId", "keys", "tags", "properties", "flag", "traceparent"), INSIDE_DAMAGED),
    "body": BODY_DAMAGED,
}
"""From which damage on a column is null; the others are of the record and go with it."""

_HEX: Final = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)


class Constants:
    """Columns with one value, made once and sliced: they cost nothing a batch."""

    def __init__(self) -> None:
        self._arrays: dict[str | int, pa.Array] = {}

    def repeat(self, value: str | int, rows: int) -> pa.Array:
        """Return ``rows`` times the value."""
        array = self._arrays.get(value)
        if array is None or len(array) < rows:
            array = self._arrays[value] = _repeat(value, rows)
        return array.slice(0, rows)


def _repeat(value: str | int, rows: int) -> pa.Array:
    if isinstance(value, int):
        return numbers(np.full(rows, value, np.int32))
    data = value.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])


def numbers(values: npt.NDArray[np.generic]) -> pa.Array:
    """Return integers as Arrow has them, no copy; ``pa.array`` would import pandas, 45 MB a worker."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


class ColumnBuilder:
    """Builds the columns of one record batch.

    Parameters
    ----------
    rows : Rows
        The batch's messages.
    queue : MessageQueue
        What topic, brokerName and queueId say: the queue that was read, not what the records hold.
        The two differ for light message queues (parent topic) and static topics (physical queue).
    constants : Constants
        Kept from batch to batch.
    corrupt : Corrupt
    """

    def __init__(self, rows: Rows, queue: MessageQueue, constants: Constants, corrupt: Corrupt) -> None:
        self.rows = rows
        self.queue = queue
        self._constants = constants
        self._corrupt = corrupt

    def build(self, source: str, kind: pa.DataType) -> pa.Array:
        """Return the column ``source`` of `COLUMNS`; only a body may be of another type than there.

        Raises
        ------
        CorruptMessageError
            A body is not UTF-8 or a timestamp does not fit, and the policy is to fail.
        """
        array = _BUILDERS[source](self)
        if kind != array.type:
            array = self._corrupt.text(array, self.rows.offset, source)
        if self.rows.damage is None:
            return array
        gone = self.rows.damage >= _GONE_FROM.get(source, UNREADABLE)
        return pc.if_else(pa.array(gone), None, array) if gone.any() else array

    @cached_property
    def properties(self) -> PropertyTable:
        """The messages' properties, parsed once for all columns that come from them."""
        return PropertyTable(self.rows)

    @cached_property
    def offset_msg_id(self) -> pa.Array:
        """The ids that say where the messages are stored."""
        hosts = self.rows.store_host()
        commit_log_offset = np.frombuffer(self.rows.head["commit_log_offset"].tobytes(), np.uint8).reshape(
            -1, 8
        )
        ids: list[pa.Array] = []
        order: list[Int64s] = []
        for width in np.unique(hosts.length).tolist():
            some = np.flatnonzero(hosts.length == width)
            raw = np.empty((some.size, width + 8), np.uint8)
            raw[:, :width] = contents(hosts[some].collect(self.rows.buffers)).reshape(-1, width)
            raw[:, width:] = commit_log_offset[some]
            ends = np.arange(some.size + 1, dtype=np.int32) * np.int32(2 * (width + 8))
            data = [None, pa.py_buffer(ends), pa.py_buffer(_HEX[raw])]
            ids.append(pa.Array.from_buffers(pa.string(), some.size, data))
            order.append(some)
        if len(ids) == 1:
            return ids[0]
        return pa.concat_arrays(ids).take(pa.array(np.argsort(np.concatenate(order))))

    def msg_id(self) -> pa.Array:
        """Return the clients' ids, or, where a message has none, the offset message id."""
        unique = self.properties.column(PROPERTY_UNIQUE_KEY)
        return pc.coalesce(unique, self.offset_msg_id) if unique.null_count else unique

    def constant(self, value: str | int) -> pa.Array:
        """Return the same value for all."""
        return self._constants.repeat(value, len(self.rows))

    def integer(self, field: str, kind: type[np.int32 | np.int64] = np.int32) -> pa.Array:
        """Return a fixed field."""
        return numbers(self.rows.head[field].astype(kind))

    def timestamp(self, field: str) -> pa.Array:
        """Return a fixed field, milliseconds since the epoch, as a timestamp in microseconds."""
        ms = self.rows.head[field].astype(np.int64)
        fits = (ms <= _MAX_TIMESTAMP_MS) & (ms >= -_MAX_TIMESTAMP_MS)
        if not self._corrupt.judge(
            fits, self.rows.offset, f"the {field} is no timestamp that Spark could hold"
        ):
            ms[~fits] = 0
        return pa.Array.from_buffers(_TIMESTAMP, len(self.rows), [validity(fits), pa.py_buffer(ms * 1000)])

    def host(self, where: Spans) -> pa.Array:
        """Return hosts as text; few differ, so each is formatted once."""
        hosts = where.collect(self.rows.buffers).dictionary_encode()
        return pa.array(map(format_host, hosts.dictionary.to_pylist()), pa.string()).take(hosts.indices)


_BUILDERS: Final[Mapping[str, Callable[[ColumnBuilder], pa.Array]]] = {
    "topic": lambda batch: batch.constant(batch.queue.topic),
    "brokerName": lambda batch: batch.constant(batch.queue.broker_name),
    "queueId": lambda batch: batch.constant(batch.queue.queue_id),
    "queueOffset": lambda batch: numbers(batch.rows.offset),
    "msgId": ColumnBuilder.msg_id,
    "keys": lambda batch: batch.properties.column(PROPERTY_KEYS),
    "tags": lambda batch: batch.properties.column(PROPERTY_TAGS),
    "body": lambda batch: batch.rows.body.collect(batch.rows.buffers),
    "bornTimestamp": lambda batch: batch.timestamp("born_timestamp"),
    "storeTimestamp": lambda batch: batch.timestamp("store_timestamp"),
    "properties": lambda batch: batch.properties.map(),
    "offsetMsgId": lambda batch: batch.offset_msg_id,
    "flag": lambda batch: batch.integer("flag"),
    "sysFlag": lambda batch: batch.integer("sys_flag"),
    "bornHost": lambda batch: batch.host(batch.rows.born_host()),
    "storeHost": lambda batch: batch.host(batch.rows.store_host()),
    "reconsumeTimes": lambda batch: batch.integer("reconsume_times"),
    "preparedTransactionOffset": lambda batch: batch.integer("prepared_transaction_offset", np.int64),
    "bodyCrc": lambda batch: batch.integer("body_crc"),
    "traceparent": lambda batch: batch.properties.column(PROPERTY_TRACEPARENT),
    ENCODED_PROPERTIES: lambda batch: batch.rows.properties.collect(batch.rows.buffers),
}
