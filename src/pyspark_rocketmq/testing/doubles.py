"""Test doubles for a pipeline's source and sink, and a helper to run a query to its end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.client.send.message_encoding import message_properties
from pyspark_rocketmq.errors import RequestTimeoutError
from pyspark_rocketmq.model import Message, OutgoingMessage
from pyspark_rocketmq.spark.read.schema import read_schema

__all__ = ["MemorySink", "drain", "message_frame"]

_MOMENT_MS: Final = 1_767_225_600_000
"""2026-01-01 00:00 UTC: the send time of the first test message. Each next one is 1 ms later."""


def message_frame(
    spark: SparkSession,
    messages: Iterable[Message | OutgoingMessage],
    *,
    columns: Sequence[str] | None = None,
    body_as_string: bool = False,
) -> DataFrame:
    """Return messages as the DataFrame that ``format("rocketmq")`` would load, without a server.

    Parameters
    ----------
    spark : SparkSession
    messages : iterable of Message or OutgoingMessage
        Outgoing messages are treated as stored in one queue, ``broker-a:0``, in this order from offset 0,
        1 ms apart.
    columns : sequence of str, optional
        Same as the option ``columns``.
    body_as_string : bool

    Raises
    ------
    OptionError
        A column does not exist, or a property's name is reserved.
    """
    schema = read_schema(columns, body_as="string" if body_as_string else "binary")
    rows = []
    for at, message in enumerate(messages):
        values = _stored(message) if isinstance(message, Message) else _sent(message, at)
        if body_as_string:
            values["body"] = values["body"].decode()
        rows.append(tuple(values[name] for name in schema.names))
    return spark.createDataFrame(rows, schema)


def _time(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _stored(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "keys": message.keys,
        "tags": message.tags,
        "body": message.body,
        "bornTimestamp": _time(message.born_timestamp),
        "storeTimestamp": _time(message.store_timestamp),
        "properties": dict(message.properties),
        "offsetMsgId": message.offset_msg_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCrc": message.body_crc,
        "traceparent": message.properties.get("traceparent"),
    }


def _sent(message: OutgoingMessage, offset: int) -> dict[str, Any]:
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    moment, msg_id = _time(_MOMENT_MS + offset), f"{offset:032X}"
    return {
        "topic": message.topic,
        "brokerName": "broker-a",
        "queueId": 0,
        "queueOffset": offset,
        "msgId": msg_id,
        "keys": keys or None,
        "tags": message.tags or None,
        "body": message.body,
        "bornTimestamp": moment,
        "storeTimestamp": moment,
        "properties": message_properties(message, msg_id),
        "offsetMsgId": msg_id,
        "flag": message.flag,
        "sysFlag": 0,
        "bornHost": "127.0.0.1:0",
        "storeHost": "127.0.0.1:10911",
        "reconsumeTimes": 0,
        "preparedTransactionOffset": 0,
        "bodyCrc": 0,
        "traceparent": message.properties.get("traceparent"),
    }


class MemorySink:
    """Collects the rows of a streaming query, each batch once: ``df.writeStream.foreachBatch(sink)``.

    A repeated batch replaces its earlier rows, as in an idempotent sink.
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[Row]] = {}
        self._lock = threading.Lock()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Store a batch. Called by Spark."""
        rows = df.collect()
        with self._lock:
            self._batches[batch_id] = rows

    @property
    def batches(self) -> dict[int, list[Row]]:
        """The rows by batch id."""
        with self._lock:
            return dict(sorted(self._batches.items()))

    @property
    def rows(self) -> list[Row]:
        """All rows, batch by batch."""
        return [row for rows in self.batches.values() for row in rows]


def drain(query: StreamingQuery, timeout_s: float = 60.0) -> None:
    """Wait until a query has processed all existing data, or has ended.

    Parameters
    ----------
    query : StreamingQuery
    timeout_s : float

    Raises
    ------
    RequestTimeoutError
        The query has not finished in time. It continues to run.
    StreamingQueryException
        The query failed.
    """
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            query.processAllAvailable()
        except BaseException as failure:  # noqa: BLE001 - the thread's outermost frame: handed to the caller
            failures.append(failure)

    waiter = threading.Thread(target=wait, daemon=True)  # ends at the latest with the query
    waiter.start()
    waiter.join(timeout_s)
    if waiter.is_alive():
        raise RequestTimeoutError(
            f"the query is not through after {timeout_s:g} s",
            query=query.name or query.id,
            status=query.status,
        )
    if failures:
        raise failures[0]
