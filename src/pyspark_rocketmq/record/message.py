"""The reference codec: one stored message at a time, readable, both ways.

``arrow.BatchDecoder`` does the same for whole answers; a property test holds both equal.

Facts: ``org.apache.rocketmq.common.message.MessageDecoder`` and
``client.impl.consumer.PullAPIWrapper`` (inner batches) of 5.4.0; the record's fields are in ``layout``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.errors import CorruptMessageError, LocalProtocolError
from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.record.batch_items import BatchItem, decode_batch, is_inner_batch
from pyspark_rocketmq.record.compress import Compression, compress, decompress
from pyspark_rocketmq.record.ids import encode_host, format_host, offset_message_id
from pyspark_rocketmq.record.layout import (
    MAGIC_V1,
    MAGIC_V2,
    MAX_BODY_BYTES,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_BYTES_V1,
    MIN_RECORD_SIZE,
    MessageFlag,
)
from pyspark_rocketmq.record.light_queue import is_light, light_offset
from pyspark_rocketmq.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
    encode_properties,
)

__all__ = [
    "body_crc",
    "decode_messages",
    "encode_message",
]

_CRC_MASK: Final = 0x7FFFFFFF
# Plain integers: operations on enums cost a tenth of a message's time.
_BORN_HOST_V6: Final = int(MessageFlag.BORN_HOST_V6)
_STORE_HOST_V6: Final = int(MessageFlag.STORE_HOST_V6)

_HEAD = struct.Struct(">iIiiiqqiq")
_TAIL = struct.Struct(">iqi")
_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">q")


def body_crc(body: bytes | memoryview) -> int:
    """Return the checksum that a record holds for its stored (compressed) body."""
    return zlib.crc32(body) & _CRC_MASK


# --- records --------------------------------------------------------------------------------


def encode_message(
    body: bytes,
    properties: Mapping[str, str] | bytes = b"",
    *,
    topic: str,
    queue_id: int = 0,
    queue_offset: int = 0,
    commit_log_offset: int = 0,
    compression: Compression = Compression.NONE,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: str = "127.0.0.1:0",
    store_timestamp: int = 0,
    store_host: str = "127.0.0.1:10911",
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Encode a record as a broker stores it: V2 for topics above 127 bytes, flags of the hosts set.

    Parameters
    ----------
    body : bytes
        The plain body, or, with both inner batch flags, what `encode_batch` returns.
    properties : Mapping or bytes
        Encoded as a broker does, or taken as they are.
    compression : Compression
        How the body is stored.

    Raises
    ------
    LocalProtocolError
        Properties or a topic that cannot be encoded.
    """
    if not isinstance(properties, bytes):
        properties = encode_properties(properties)
    topic_bytes = topic.encode()
    if len(topic_bytes) > MAX_TOPIC_BYTES:
        raise LocalProtocolError(f"the topic is longer than {MAX_TOPIC_BYTES} bytes")
    if len(topic_bytes) <= MAX_TOPIC_BYTES_V1:
        magic, topic_length = MAGIC_V1, bytes([len(topic_bytes)])
    else:
        magic, topic_length = MAGIC_V2, _SHORT.pack(len(topic_bytes))
    born, store = encode_host(born_host), encode_host(store_host)
    sys_flag |= compression.value
    sys_flag |= MessageFlag.BORN_HOST_V6 if len(born) == 20 else 0
    sys_flag |= MessageFlag.STORE_HOST_V6 if len(store) == 20 else 0
    stored = compress(body, compression)
    variable = stored + topic_length + topic_bytes + _SHORT.pack(len(properties)) + properties
    size = _HEAD.size + len(born) + 8 + len(store) + _TAIL.size + len(variable)
    head = (
        size,
        magic,
        body_crc(stored),
        queue_id,
        flag,
        queue_offset,
        commit_log_offset,
        sys_flag,
        born_timestamp,
    )
    tail = (reconsume_times, prepared_transaction_offset, len(stored))
    return b"".join(
        (_HEAD.pack(*head), born, _LONG.pack(store_timestamp), store, _TAIL.pack(*tail), variable)
    )


def decode_messages(
    data: bytes | memoryview,
    *,
    topic: str | None = None,
    broker_name: str,
    queue_id: int | None = None,
    offset_delta: int = 0,
    from_offset: int = 0,
    check_crc: bool = False,
    body_limit: int = MAX_BODY_BYTES,
) -> list[Message]:
    """Decode concatenated records: the body of a pull, query or view answer.

    Bodies come back decompressed and inner batches as their messages; such a message has its own
    offset, flag, body and properties and takes all else from the record around it.

    Parameters
    ----------
    data : bytes or memoryview
    topic, queue_id : optional
        What the messages are said to belong to. A record's own values differ from the queue that
        was read for light message queues (parent topic) and static topics (physical queue id);
        None takes the record's.
    broker_name : str
        Records do not hold it.
    offset_delta : int
        ``offsetDelta`` of the answer (static topics), added to each queue offset.
    from_offset : int
        Messages below it are dropped: a pull within an inner batch returns the whole batch.
    check_crc : bool
        Compare each stored body with its checksum, too.
    body_limit : int
        What one decompressed body may take, in bytes.

    Raises
    ------
    CorruptMessageError
        Names topic, broker, queue and offset as far as they are known.
    """
    view = memoryview(data)
    messages: list[Message] = []
    start = 0
    while start < len(view):
        facts: dict[str, object] = {"topic": topic, "broker_name": broker_name, "queue_id": queue_id}
        try:
            record = _Record.parse(view, start)
            queue = MessageQueue(
                record.topic_name() if topic is None else topic,
                broker_name,
                record.queue_id if queue_id is None else queue_id,
            )
            facts = {"topic": queue.topic, "broker_name": broker_name, "queue_id": queue.queue_id}
            if topic is not None and is_light(topic):
                offset_delta = record.delta_in(topic)
            facts["queue_offset"] = record.queue_offset + offset_delta
            if check_crc:
                record.check_crc()
            messages += (
                message
                for message in _messages_of(record, queue, offset_delta, body_limit)
                if message.queue_offset >= from_offset
            )
        except CorruptMessageError as error:
            raise CorruptMessageError(error.message, **facts, position=start) from error
        start += record.size
    return messages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The fields of one record, as they are stored."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: memoryview
    topic: memoryview
    properties: memoryview

    @classmethod
    def parse(cls, view: memoryview, start: int) -> _Record:
        left = len(view) - start
        if left < MIN_RECORD_SIZE:
            raise CorruptMessageError(f"{left} bytes are left, fewer than the smallest record")
        head = _HEAD.unpack_from(view, start)
        size, magic, crc, queue_id, flag, queue_offset, commit_log_offset, sys_flag, born_timestamp = head
        if not MIN_RECORD_SIZE <= size <= left:
            raise CorruptMessageError(f"the record says that it takes {size} bytes, {left} are left")
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise CorruptMessageError(f"the record has the unknown magic {magic:#x}")
        if queue_offset < 0:
            raise CorruptMessageError(f"the record has the negative queue offset {queue_offset}")
        cursor = _Cursor(view[start : start + size], _HEAD.size)
        born_host = cursor.take(20 if sys_flag & _BORN_HOST_V6 else 8, "born host")
        (store_timestamp,) = _LONG.unpack(cursor.take(8, "store timestamp"))
        store_host = cursor.take(20 if sys_flag & _STORE_HOST_V6 else 8, "store host")
        reconsume_times, prepared_offset, body_length = _TAIL.unpack(cursor.take(_TAIL.size, "body length"))
        body = cursor.take(body_length, "body")
        topic_length_size = 1 if magic == MAGIC_V1 else 2
        topic_length = int.from_bytes(
            cursor.take(topic_length_size, "topic length"), "big", signed=magic == MAGIC_V2
        )
        topic = cursor.take(topic_length, "topic")
        (properties_length,) = _SHORT.unpack(cursor.take(2, "properties length"))
        return cls(
            size=size,
            body_crc=crc,
            queue_id=queue_id,
            flag=flag,
            queue_offset=queue_offset,
            commit_log_offset=commit_log_offset,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=bytes(born_host),
            store_timestamp=store_timestamp,
            store_host=bytes(store_host),
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_offset,
            body=body,
            topic=topic,
            properties=cursor.take(properties_length, "properties"),
        )

    def delta_in(self, light_topic: str) -> int:
        """Return how far this message's offset in a light queue is from its own."""
        offset = light_offset(self.properties, light_topic)
        if offset < 0:
            raise CorruptMessageError("the message does not tell its offset in the light queue")
        return offset - self.queue_offset

    def check_crc(self) -> None:
        if body_crc(self.body) != self.body_crc:
            raise CorruptMessageError("the body does not match its checksum")

    def topic_name(self) -> str:
        try:
            return str(self.topic, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptMessageError(f"the topic is not UTF-8: {error.reason}") from error


@dataclass(slots=True)
class _Cursor:
    """Takes one field after the other and never reads beyond the record's end."""

    record: memoryview
    position: int

    def take(self, length: int, what: str) -> memoryview:
        end = self.position + length
        if length < 0 or end > len(self.record):
            raise CorruptMessageError(f"the {what} ({length} bytes) does not fit the record")
        part = self.record[self.position : end]
        self.position = end
        return part


def _messages_of(
    record: _Record, queue: MessageQueue, offset_delta: int, body_limit: int
) -> Iterator[Message]:
    """Yield the record's messages: one, or those of its inner batch."""
    body = decompress(record.body, record.sys_flag, limit=body_limit)
    if is_inner_batch(record.sys_flag):
        items = decode_batch(body)
    else:
        items = [BatchItem(body, decode_properties(record.properties), record.flag)]
    stored_id = offset_message_id(record.store_host, record.commit_log_offset)
    for index, item in enumerate(items):
        yield Message(
            topic=queue.topic,
            broker_name=queue.broker_name,
            queue_id=queue.queue_id,
            queue_offset=record.queue_offset + offset_delta + index,
            body=item.body,
            msg_id=item.properties.get(PROPERTY_UNIQUE_KEY, stored_id),
            offset_msg_id=stored_id,
            tags=item.properties.get(PROPERTY_TAGS),
            keys=item.properties.get(PROPERTY_KEYS),
            properties=item.properties,
            born_timestamp=record.born_timestamp,
            store_timestamp=record.store_timestamp,
            born_host=format_host(record.born_host),
            store_host=format_host(record.store_host),
            flag=item.flag,
            sys_flag=record.sys_flag,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            body_crc=record.body_crc,
            commit_log_offset=record.commit_log_offset,
            store_size=record.size,
        )
