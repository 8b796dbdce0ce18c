"""Test messages have the columns that the same messages have at a broker."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from pyspark_rocketmq.client import Client, OutgoingMessage, PullConsumer
from pyspark_rocketmq.testing import MockBroker, message_frame

OF_BROKERS = {"MSG_REGION", "TRACE_ON", "CLUSTER", "UNIQ_KEY"}
COLUMNS = ("topic", "queueOffset", "keys", "tags", "body", "flag", "traceparent", "properties")
MESSAGES = [
    OutgoingMessage("orders", b"1", tags="new", keys=("k1", "k2"), sharding_key="s", flag=7),
    OutgoingMessage("orders", b"2", tags="", keys="", properties={"a": "b", "traceparent": "t"}),
    OutgoingMessage("orders", b"3", wait_store_ok=False),
]


def rows(messages: list[Any]) -> list[Mapping[str, Any]]:
    """Return the rows of the frame, without Spark."""
    spark: Any = SimpleNamespace(createDataFrame=lambda rows, schema: (rows, schema.names))
    found: Any = message_frame(spark, messages, columns=COLUMNS)
    values, names = found
    return [dict(zip(names, row, strict=True)) for row in values]


def test_outgoing_messages_are_as_stored_ones():
    with MockBroker({"orders": 1}) as mq, Client(mq.name_server) as client:
        for message in MESSAGES:
            mq.send(message)
        stored = PullConsumer("report", client=client).pull(mq.queue("orders"), "*", 0).messages
    given, expected = rows(MESSAGES), rows(list(stored))
    for row in (*given, *expected):
        for name in OF_BROKERS:
            row["properties"].pop(name, None)
    assert given == expected
    assert given[0]["properties"] == {"KEYS": "k1 k2", "TAGS": "new", "__SHARDINGKEY": "s"}
