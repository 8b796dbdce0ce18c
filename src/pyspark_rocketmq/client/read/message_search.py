"""Searches stored messages: the last ones, by time, by key, by id."""

# Facts (QueryMessageProcessor, IndexService, MessageDecoder.decodeMessageId; 4.9 and 5.4)
# - A broker finds keys by their hash, so that others may come along; the UNIQ_KEY of a message is a key too.
#   The index is written shortly after the message.
# - VIEW_MESSAGE_BY_ID does not check the position: what it brings must be compared with what was asked.
# - An offset message id and a unique id look alike: 32 hex digits with IPv4, 56 and 40 with IPv6.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.client.retry import retry
from pyspark_rocketmq.errors import BrokerError, CorruptMessageError, OptionError, RemoteProtocolError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange
from pyspark_rocketmq.record.ids import is_address_of
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import QueryMessageRequest, ViewMessageRequest

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["last_messages", "message_by_id", "messages_at", "messages_by_key"]

_END_OF_TIME: Final = (1 << 63) - 1
_POSITION_BYTES: Final = 8


def last_messages(client: Client, queues: Iterable[MessageQueue], count: int) -> list[Message]:
    """Return the last ``count`` messages of these queues together, in store order.

    Raises
    ------
    TopicNotFoundError, NameServerError, TransportError, BrokerError, CorruptMessageError
    """
    queues = tuple(queues)
    mins, maxs = client.min_offsets(queues), client.max_offsets(queues)
    starts = {queue: max(mins[queue], maxs[queue] - count) for queue in queues}
    return _read(client, starts, maxs)[-count:]


def messages_at(
    client: Client, queues: Iterable[MessageQueue], timestamp_ms: int, count: int
) -> list[Message]:
    """Return the first ``count`` messages of these queues stored at or after a time. Raises as above."""
    starts = client.offsets_at(dict.fromkeys(queues, timestamp_ms))
    maxs = client.max_offsets(starts)
    ends = {queue: min(maxs[queue], start + count) for queue, start in starts.items()}
    return _read(client, starts, ends)[:count]


def messages_by_key(client: Client, topic: str, key: str, count: int = 32) -> list[Message]:
    """Return up to ``count`` messages with this key, in store order.

    Raises
    ------
    OptionError
        The text is not one key.
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    if not key or " " in key:  # a message's keys are separated by blanks
        raise OptionError("give one key, without blanks", key=key)
    found = _query_index(client, topic, key, count)
    return [message for message in found if key in (message.keys or "").split(" ")]


def message_by_id(client: Client, topic: str, message_id: str) -> Message | None:
    """Return the message with this unique id or offset message id; None if there is none.

    Raises
    ------
    OptionError
        The text is not a message id.
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    wanted = message_id.strip().upper()
    try:
        raw = bytes.fromhex(wanted)
    except ValueError:
        raw = b""
    if not raw:
        raise OptionError("a message id is hexadecimal", msg_id=message_id)
    for message in _query_index(client, topic, wanted, 32):
        if message.msg_id == wanted:
            return message
    return _stored_at(client, topic, raw, wanted)


def _read(
    client: Client, starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]
) -> list[Message]:
    ranges = [
        OffsetRange(queue, start, ends[queue]) for queue, start in starts.items() if start < ends[queue]
    ]
    options = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=False)
    found = list(read_messages(client, ranges, options))
    # A broker's log tells the order within a millisecond; a message of an inner batch shares its place there.
    return sorted(
        found,
        key=lambda message: (
            message.store_timestamp,
            message.broker_name,
            message.commit_log_offset,
            message.queue_offset,
        ),
    )


def _query_index(client: Client, topic: str, key: str, count: int) -> list[Message]:
    """Query every broker's index."""
    request = QueryMessageRequest(
        topic=topic, key=key, max_num=count, begin_timestamp=0, end_timestamp=_END_OF_TIME
    )

    deadline = client.deadline()
    found: dict[str, list[Message]] = {}

    def attempt() -> None:
        for data in client.route(topic).queues:  # of a static topic also brokers that only had a queue once
            name = data.broker_name
            if name in found:
                continue
            connection = client.connection(client.broker_address(name, topic=topic))
            answer = connection.call(request, deadline=deadline.sooner(client.request_timeout_ms))
            answer.require(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND, topic=topic)
            hit = answer.code == ResponseCode.SUCCESS
            found[name] = list(decode_messages(answer.body, topic=topic, broker_name=name)) if hit else []

    retry(
        attempt,
        deadline=deadline,
        clock=client.clock,
        random=client.random,
        on_stale_route=lambda: client.invalidate(topic),
    )
    everything = (message for messages in found.values() for message in messages)
    return sorted(everything, key=lambda message: message.store_timestamp)[:count]


def _stored_at(client: Client, topic: str, raw: bytes, wanted: str) -> Message | None:
    """Read the position in an offset message id, if it is at a broker of the topic."""
    if len(raw) not in {_POSITION_BYTES + 8, _POSITION_BYTES + 20}:
        return None
    host = raw[:-_POSITION_BYTES]
    position = int.from_bytes(raw[-_POSITION_BYTES:], "big", signed=True)
    brokers = ((addr, data.broker_name) for data in client.route(topic).brokers for addr in data)
    addr, broker_name = next((found for found in brokers if is_address_of(found[0], host)), ("", ""))
    if not addr:
        return None
    request = ViewMessageRequest(offset=position, topic=topic)
    try:
        response = client.connection(addr).call(request, deadline=client.deadline(client.request_timeout_ms))
        found = decode_messages(response.require(topic=topic).body, broker_name=broker_name)
    except (BrokerError, CorruptMessageError, RemoteProtocolError):
        return None  # no message begins there
    named = (message._replace(topic=client.namespace.plain(message.topic)) for message in found)
    return next((message for message in named if message.offset_msg_id == wanted), None)
