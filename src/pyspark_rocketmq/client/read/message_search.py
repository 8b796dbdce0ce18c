"""Searches stored messages: the last ones, by time, by key, by id."""

# Facts (QueryMessageProcessor, IndexService, MessageDecoder.decodeMessageId; 4.9 and 5.4)
# - A broker finds keys by their hash, so that others may come along; the UNIQ_KEY of a message is a key too.
#   The index is written shortly after the message.
# - VIEW_MESSAGE_BY_ID does not check the position: what it brings must be compared with what was asked.
# - An offset message id and a unique id look alike: 32 hex digits with IPv4, 56 and 40 with IPv6.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.client.retry import retry
from pyspark_rocketmq.errors import BrokerError, CorruptMessageError, OptionError
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

_WIDER: Final = 8
"""By how much more is read each time, where offsets without messages are passed."""


def last_messages(client: Client, queues: Iterable[MessageQueue], count: int) -> list[Message]:
    """Return the last ``count`` messages of these queues together, in store order.

    Raises
    ------
    TopicNotFoundError, NameServerError, TransportError, BrokerError, CorruptMessageError
    """
    queues = tuple(queues)
    mins, maxs = client.min_offsets(queues), client.max_offsets(queues)
    stored = [OffsetRange(queue, mins[queue], maxs[queue]) for queue in queues if mins[queue] < maxs[queue]]
    return _read(client, stored, count, last=True)[-count:]


def messages_at(
    client: Client, queues: Iterable[MessageQueue], timestamp_ms: int, count: int
) -> list[Message]:
    """Return the first ``count`` messages of these queues stored at or after a time. Raises as above."""
    starts = client.offsets_at(dict.fromkeys(queues, timestamp_ms))
    maxs = client.max_offsets(starts)
    stored = [OffsetRange(queue, at, maxs[queue]) for queue, at in starts.items() if at < maxs[queue]]
    return _read(client, stored, count, last=False)[:count]


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


def _read(client: Client, ranges: Iterable[OffsetRange], count: int, *, last: bool) -> list[Message]:
    """Return ``count`` or more of the first or last messages of each range, in store order.

    Compacted and static topics have gaps: more offsets than that are read where one has too few messages.
    """
    options = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=False)
    found: list[Message] = []
    left, size = list(ranges), count
    while left:
        cuts = [_cut(each, size, last=last) for each in left]
        found += read_messages(client, [part for part, _ in cuts], options)
        if left := [rest for _, rest in cuts if len(rest)]:
            had = Counter(MessageQueue(each.topic, each.broker_name, each.queue_id) for each in found)
            left = [rest for rest in left if had[rest.queue] < count]
        size *= _WIDER
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


def _cut(whole: OffsetRange, size: int, *, last: bool) -> tuple[OffsetRange, OffsetRange]:
    """Return the first or last offsets of a range, and the rest."""
    if last:
        at = max(whole.from_offset, whole.until_offset - size)
        return replace(whole, from_offset=at), replace(whole, until_offset=at)
    at = min(whole.until_offset, whole.from_offset + size)
    return replace(whole, until_offset=at), replace(whole, from_offset=at)


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
    deadline = client.deadline()

    def attempt() -> memoryview:
        connection = client.connection(addr)
        answer = connection.call(request, deadline=deadline.sooner(client.request_timeout_ms))
        return answer.require(topic=topic).body

    try:
        body = retry(attempt, deadline=deadline, clock=client.clock, random=client.random)
        found = decode_messages(body, broker_name=broker_name)
    except CorruptMessageError:
        return None  # no message begins there
    except BrokerError as error:
        # A broker that is busy, or refuses the account, does not say that: its errors have classes.
        if type(error) is not BrokerError or error.code != ResponseCode.SYSTEM_ERROR:
            raise
        return None
    named = (message._replace(topic=client.namespace.plain(message.topic)) for message in found)
    return next((message for message in named if message.offset_msg_id == wanted), None)
