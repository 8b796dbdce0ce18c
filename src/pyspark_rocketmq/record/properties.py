"""A message's properties: ``name 0x01 value 0x02``, repeated, in UTF-8.

Facts: ``MessageDecoder.messageProperties2String`` and ``string2messageProperties``, names from
``MessageConst``. Some releases of 4.9 leave out the last 0x02. Entries without a separator, a
name or a value are skipped, as Java does; of equal names the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.errors import LocalProtocolError

__all__ = [
    "MAX_PROPERTIES_BYTES",
    "PROPERTY_COMMIT_TOPIC",
    "PROPERTY_CRC32",
    "PROPERTY_DELAY",
    "PROPERTY_INNER_BASE",
    "PROPERTY_INNER_MULTI_DISPATCH",
    "PROPERTY_INNER_MULTI_QUEUE_OFFSET",
    "PROPERTY_INNER_NUM",
    "PROPERTY_KEYS",
    "PROPERTY_LITE_TOPIC",
    "PROPERTY_PRIORITY",
    "PROPERTY_PRODUCER_GROUP",
    "PROPERTY_REAL_QUEUE_ID",
    "PROPERTY_REAL_TOPIC",
    "PROPERTY_SHARDING_KEY",
    "PROPERTY_TAGS",
    "PROPERTY_TIMER_DELAY_MS",
    "PROPERTY_TIMER_DELAY_SEC",
    "PROPERTY_TIMER_DELIVER_MS",
    "PROPERTY_TRACEPARENT",
    "PROPERTY_TRACESTATE",
    "PROPERTY_TRANSACTION",
    "PROPERTY_TRANSACTION_ID",
    "PROPERTY_TRANSACTION_PREPARED",
    "PROPERTY_UNIQUE_KEY",
    "PROPERTY_WAIT",
    "PROPERTY_WRITE_ID",
    "RESERVED_PROPERTIES",
    "decode_properties",
    "encode_properties",
    "user_properties",
]

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"

MAX_PROPERTIES_BYTES: Final = 32_767
"""The length is a signed 16-bit integer; brokers answer MESSAGE_ILLEGAL above it."""

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_UNIQUE_KEY: Final = "UNIQ_KEY"
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_INNER_BASE: Final = "INNER_BASE"
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_CRC32: Final = "__CRC32#"
PROPERTY_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
PROPERTY_LITE_TOPIC: Final = "__LITE_TOPIC"
"""The lite topic of a message, within its topic (5.5). Brokers ignore it within a batch."""
PROPERTY_TRACEPARENT: Final = "traceparent"
PROPERTY_TRACESTATE: Final = "tracestate"
"""The W3C trace context, by the names that OpenTelemetry's instrumentation of the Java clients uses."""
PROPERTY_WRITE_ID: Final = "writeId"
"""Ours: the same in every copy of a row that was written more than once, another in every other row."""
PROPERTY_TRANSACTION: Final = "transaction"
"""Ours: the batch that a message of a transactional write is part of."""
PROPERTY_COMMIT_TOPIC: Final = "COMMIT_TOPIC"
"""Ours: the topic that says whether the message is a row, see ``planning.commits.records``."""

RESERVED_PROPERTIES: Final = frozenset(
    (
        *("KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "TRACE_ON", "MSG_REGION", "CLUSTER", "INSTANCE_ID"),
        *(
            "RETRY_TOPIC",
            "REAL_TOPIC",
            "REAL_QID",
            "ORIGIN_MESSAGE_ID",
            "RECONSUME_TIME",
            "MAX_RECONSUME_TIMES",
        ),
        *("TRAN_MSG", "PGROUP", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "TRANSFER_FLAG"),
        *("CORRECTION_FLAG", "MQ2_FLAG", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME"),
        *("DUP_INFO", "EXTEND_UNIQ_INFO", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME"),
        *(
            "PUSH_REPLY_TIME",
            "MSG_TYPE",
            "DLQ_ORIGIN_TOPIC",
            "DLQ_ORIGIN_MESSAGE_ID",
            "INNER_NUM",
            "INNER_BASE",
        ),
        *(
            "INNER_MULTI_DISPATCH",
            "INNER_MULTI_QUEUE_OFFSET",
            "__SHARDINGKEY",
            "__CRC32#",
            "_SYS_MSG_PRIORITY_",
        ),
        *("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS"),
        *("TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY", "BORN_TIMESTAMP", "__BORNHOST"),
        PROPERTY_COMMIT_TOPIC,
    )
)
"""Names that have a meaning in RocketMQ or here. A message has a field for each that it needs."""


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a program gave to a message, without those that a new message gets again."""
    return {name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES}


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties in the mapping's order.

    Entries with an empty value are left out: brokers drop them too.

    Raises
    ------
    LocalProtocolError
        A name is empty, a name or value holds 0x01 or 0x02 (brokers would cut it there) or is no
        text that UTF-8 can hold, or the whole is longer than ``MAX_PROPERTIES_BYTES``.
    """
    parts: list[str] = []
    for name, value in properties.items():
        if not name:
            raise LocalProtocolError("a property needs a name")
        for text in (name, value):
            if NAME_END in text or VALUE_END in text:
                raise LocalProtocolError(
                    "the characters 0x01 and 0x02 separate properties: they may not be part of one",
                    property=name,
                )
        if value:
            parts += (name, NAME_END, value, VALUE_END)
    try:
        data = "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a property cannot be written as UTF-8: {error.reason}") from error
    if len(data) > MAX_PROPERTIES_BYTES:
        raise LocalProtocolError(
            f"the properties of a message take {len(data)} bytes, more than {MAX_PROPERTIES_BYTES}"
        )
    return data


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """Decode a property string; what is not UTF-8 in it becomes U+FFFD, as with Java's clients."""
    text = str(data, "utf-8", "replace")
    properties: dict[str, str] = {}
    for entry in text.split(VALUE_END):
        name, _, value = entry.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties
