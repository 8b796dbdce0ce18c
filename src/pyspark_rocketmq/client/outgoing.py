"""Messages on their way out: checked, given an id, compressed, and encoded for one send request."""

# Facts (MessageConst.STRING_HASH_SET, DefaultMQProducerImpl.sendKernelImpl, MessageBatch; 4.9 and 5.4)
# - Brokers store the items of a batch as they come: the client puts UNIQ_KEY, and properties for delays are
#   ignored. The header's sysFlag counts for all items: either all bodies are compressed or none.
# - Java compresses bodies of 4096 bytes and more, with zlib level 5, but no batches.
# - A body of no bytes fails in brokers from 5.1 on.

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.errors import LocalProtocolError, OptionError
from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.record.compress import Compression, compress
from pyspark_rocketmq.record.ids import create_unique_id
from pyspark_rocketmq.record.message import BatchItem, encode_batch
from pyspark_rocketmq.record.properties import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    encode_properties,
)

__all__ = ["DEFAULT_COMPRESS_ABOVE", "MAX_SEND_BYTES", "RESERVED_PROPERTIES", "Outgoing", "UniqueIds"]
__all__ += ["encode_many", "encode_one"]

MAX_SEND_BYTES: Final = 4 * 1024 * 1024
"""A broker's default ``maxMessageSize``, for the body of one message and of one batch."""

DEFAULT_COMPRESS_ABOVE: Final = 4096

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
    )
)
"""Names that RocketMQ gives a meaning to: what a message needs of them has a field of its own."""


class UniqueIds:
    """Message ids in Java's layout, unique among processes by 64 random bits, and in one by a counter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._ip = secrets.token_bytes(4)
        self._salt = secrets.randbits(32)
        self._counter = itertools.count(secrets.randbits(16))

    def next(self) -> str:
        """Return an id that nobody else has; safe in threads and after a fork."""
        if self._pid != os.getpid():
            self._renew()
        return create_unique_id(self._ip, self._pid, self._salt, self._clock.now_ms(), next(self._counter))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What one send request carries: one message, or a batch of them for one queue.

    Parameters
    ----------
    body : bytes
        As it travels: compressed, or the batch's encoding.
    properties : str
        The encoded properties of a single message; those of a batch are in its items.
    sys_flag, flag : int
    count : int
        How many messages it holds.
    batch : bool
    msg_ids : tuple of str
        The unique id of each message.
    """

    topic: str
    body: bytes
    properties: str = ""
    sys_flag: int = 0
    flag: int = 0
    count: int = 1
    batch: bool = False
    msg_ids: tuple[str, ...] = ()


def encode_one(
    message: OutgoingMessage,
    ids: UniqueIds,
    *,
    compression: Compression = Compression.ZLIB,
    compress_above: int = DEFAULT_COMPRESS_ABOVE,
) -> Outgoing:
    """Encode a message for a send of its own; a body of ``compress_above`` bytes or more is compressed.

    Raises
    ------
    OptionError
        A property's name is reserved.
    LocalProtocolError
        A property holds 0x01 or 0x02, or they are too long together.
    """
    msg_id = ids.next()
    body, kind = message.body, Compression.NONE
    if compression is not Compression.NONE and len(body) >= compress_above:
        packed = compress(body, compression)
        if len(packed) < len(body):
            body, kind = packed, compression
    return Outgoing(
        topic=message.topic,
        body=body,
        properties=_encode(message, msg_id).decode(),
        sys_flag=int(kind.value),
        flag=message.flag,
        msg_ids=(msg_id,),
    )


def encode_many(
    messages: Sequence[OutgoingMessage],
    ids: UniqueIds,
    *,
    compression: Compression = Compression.NONE,
    compress_above: int = DEFAULT_COMPRESS_ABOVE,
) -> Outgoing:
    """Encode messages of one topic as a batch; compressed if every body has ``compress_above`` bytes or more.

    Raises
    ------
    OptionError
        Nothing to send, several topics, a reserved property, or what does not work within a batch: delays,
        and messages that differ in ``wait_store_ok``.
    LocalProtocolError
        As `encode_one`.
    """
    if not messages:
        raise OptionError("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise OptionError(
                "the messages of a batch need one topic", topic=first.topic, other=message.topic
            )
        if message.delayed:
            raise OptionError(
                "brokers ignore delays within a batch: send the message alone", topic=first.topic
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise OptionError("the messages of a batch need the same wait_store_ok", topic=first.topic)
    kind = Compression.NONE
    if all(len(message.body) >= compress_above for message in messages):
        kind = compression
    msg_ids = tuple(ids.next() for _ in messages)
    items = [
        BatchItem(compress(message.body, kind), _properties(message, msg_id), message.flag)
        for message, msg_id in zip(messages, msg_ids, strict=True)
    ]
    return Outgoing(
        topic=first.topic,
        body=encode_batch(items),
        properties="" if first.wait_store_ok else encode_properties({PROPERTY_WAIT: "false"}).decode(),
        sys_flag=int(kind.value),
        count=len(messages),
        batch=True,
        msg_ids=msg_ids,
    )


def _encode(message: OutgoingMessage, msg_id: str) -> bytes:
    try:
        return encode_properties(_properties(message, msg_id))
    except LocalProtocolError as error:
        raise LocalProtocolError(error.message, **error.facts, topic=message.topic) from error


def _properties(message: OutgoingMessage, msg_id: str) -> dict[str, str]:
    """Return every property of a message, the user's first."""
    reserved = RESERVED_PROPERTIES & message.properties.keys()
    if reserved:
        raise OptionError(
            f"RocketMQ reserves the property {min(reserved)}: use the message's own fields",
            topic=message.topic,
            property=min(reserved),
        )
    properties = dict(message.properties)
    properties[PROPERTY_UNIQUE_KEY] = msg_id
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
    if keys:
        properties[PROPERTY_KEYS] = keys
    if message.tags:
        properties[PROPERTY_TAGS] = message.tags
    if message.sharding_key:
        properties[PROPERTY_SHARDING_KEY] = message.sharding_key
    if not message.wait_store_ok:
        properties[PROPERTY_WAIT] = "false"
    if message.delay_level:
        properties[PROPERTY_DELAY] = str(message.delay_level)
    elif message.delay_ms is not None:
        properties[PROPERTY_TIMER_DELAY_MS] = str(message.delay_ms)
    elif message.deliver_at_ms is not None:
        properties[PROPERTY_TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    return properties
