"""Encodes messages for a send request: check, id, compression, encoding."""

# Facts (MessageConst.STRING_HASH_SET, DefaultMQProducerImpl.sendKernelImpl, MessageBatch; 4.9, 5.4 and 5.5)
# - Brokers store the items of a batch unchanged: the client sets UNIQ_KEY, and properties for delays
#   and lite topics are ignored. The header's sysFlag applies to all items: either all bodies are compressed
#   or none.
# - Java compresses bodies of 4096 bytes and more, with zlib level 5, but no batches.
# - Brokers from 5.1 on fail on an empty body.

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.errors import LocalProtocolError, OptionError
from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.model.arguments import require_messages
from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.compress import Compression, compress
from pyspark_rocketmq.record.ids import create_unique_id
from pyspark_rocketmq.record.properties import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_LITE_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    RESERVED_PROPERTIES,
    encode_properties,
)

__all__ = ["DEFAULT_COMPRESS_ABOVE", "MAX_SEND_BYTES", "RESERVED_PROPERTIES", "Outgoing", "UniqueIds"]
__all__ += ["encode_many", "encode_one", "message_properties"]

MAX_SEND_BYTES: Final = 4 * 1024 * 1024
"""A broker's default ``maxMessageSize``, for the body of one message and of one batch."""

DEFAULT_COMPRESS_ABOVE: Final = 4096

_COUNTER_DIGITS: Final = 4


class UniqueIds:
    """Message ids in Java's layout, unique among processes by 64 random bits, and in one by a counter."""

    def __init__(self, clock: Clock, host: Host = SYSTEM_HOST) -> None:
        self._clock = clock
        self._host = host
        self._renew()

    def _renew(self) -> None:
        self._pid = self._host.process_id()
        self._ip = self._host.random_bytes(4)
        self._salt = self._random(4)
        self._counter = itertools.count(self._random(2))
        self._head = (-1, "")

    def next(self) -> str:
        """Return a unique id. Thread-safe and fork-safe."""
        if self._pid != self._host.process_id():
            self._renew()
        now_ms = self._clock.now_ms()
        made_ms, head = self._head
        if made_ms != now_ms:  # only the counter differs within a millisecond: the rest is costly to write
            head = create_unique_id(self._ip, self._pid, self._salt, now_ms, 0)[:-_COUNTER_DIGITS]
            self._head = now_ms, head
        return f"{head}{next(self._counter) & 0xFFFF:04X}"

    def block(self) -> tuple[str, int]:
        """Return what 65,536 ids begin with, and where the 16-bit counter that follows may start.

        Ids of a block are apart from those of `next` and of other blocks.
        """
        salt, start = self._random(4), self._random(2)
        head = create_unique_id(self._ip, self._host.process_id(), salt, self._clock.now_ms(), 0)
        return head[:-_COUNTER_DIGITS], start

    def _random(self, size: int) -> int:
        return int.from_bytes(self._host.random_bytes(size), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """The content of one send request: one message, or a batch for one queue.

    Parameters
    ----------
    body : bytes-like
        The body as sent: compressed, or the batch's encoding.
    properties : str
        The encoded properties of a single message; those of a batch are in its items.
    sys_flag, flag : int
    count : int
        Number of messages.
    batch : bool
    msg_ids : tuple of str
        The unique id of each message.
    """

    topic: str
    body: bytes | memoryview
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
    """Encode a message for a single send. A body of ``compress_above`` bytes or more is compressed.

    Raises
    ------
    OptionError
        A property's name is reserved.
    LocalProtocolError
        A property contains 0x01 or 0x02, or the properties are too long.
    """
    require_messages((message,))
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
    messages: Iterable[OutgoingMessage],
    ids: UniqueIds,
    *,
    compression: Compression = Compression.NONE,
    compress_above: int = DEFAULT_COMPRESS_ABOVE,
) -> Outgoing:
    """Encode messages of one topic as a batch; compressed if every body has ``compress_above`` bytes or more.

    Raises
    ------
    OptionError
        No messages, several topics, a reserved property, or features that batches do not support: delays,
        lite topics, and messages that differ in ``wait_store_ok``.
    LocalProtocolError
        As `encode_one`.
    """
    messages = require_messages(messages)
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
        if PROPERTY_LITE_TOPIC in message.properties:
            raise OptionError(
                "brokers ignore lite topics within a batch: send the message alone", topic=first.topic
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise OptionError("the messages of a batch need the same wait_store_ok", topic=first.topic)
    kind = Compression.NONE
    if all(len(message.body) >= compress_above for message in messages):
        kind = compression
    msg_ids = tuple(ids.next() for _ in messages)
    items = [
        BatchItem(compress(message.body, kind), message_properties(message, msg_id), message.flag)
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
        return encode_properties(message_properties(message, msg_id))
    except LocalProtocolError as error:
        raise LocalProtocolError(error.message, **error.facts, topic=message.topic) from error


def message_properties(message: OutgoingMessage, msg_id: str) -> dict[str, str]:
    """Return every property that a message is sent with, the user's first.

    Raises
    ------
    OptionError
        A property's name is reserved.
    """
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
        properties[PROPERTY_TIMER_DELAY_MS] = str(operator.index(message.delay_ms))
    elif message.deliver_at_ms is not None:
        properties[PROPERTY_TIMER_DELIVER_MS] = str(operator.index(message.deliver_at_ms))
    return properties
