"""Resend messages that consumers could not process: those of a group's retry and dead-letter topics."""

# Facts (consumerSendMsgBack of SendMessageProcessor, 4.9 and 5.4)
# - A message that a consumer sends back goes to %RETRY%<group>, after maxReconsumeTimes to %DLQ%<group>. It
#   keeps its UNIQ_KEY. Its property RETRY_TOPIC is its original topic; 5.x also sets DLQ_ORIGIN_TOPIC on dead
#   letters.
# - 5.4 brokers create dead-letter topics with read permission. A topic with write permission only must be
#   changed before it can be read.

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.admin_calls import await_route
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import OptionError, RocketMQError, TopicNotFoundError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange, Permission, TopicRoute
from pyspark_rocketmq.record.properties import PROPERTY_SHARDING_KEY, user_properties
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace
from pyspark_rocketmq.tools.origins import Origin
from pyspark_rocketmq.tools.transfer.pace import Pace

__all__ = ["PROPERTY_REPLAYS", "Origin", "Replay", "ReplayFilter", "count_replays", "find_ranges"]
__all__ += ["find_replays", "in_store_order", "make_readable", "select_replays", "send_replays"]

_TOPIC_PROPERTIES: Final = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
PROPERTY_REPLAY_OF: Final = "replayOf"
"""Property of a resent message: the id of the original message."""

PROPERTY_REPLAYS: Final = "replays"
"""Property of a resent message: how many times it was resent. A message that fails again keeps it."""

_DIGITS: Final = 10
"""A longer number is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """Selects messages to resend.

    Parameters
    ----------
    tags, keys : frozenset of str
        Messages with one of the tags, and one of the keys; empty for all.
    topic : str, optional
        Messages originally sent to this topic.
    since_ms, until_ms : int, optional
        Messages stored at or after ``since_ms`` and before ``until_ms``, in milliseconds since the epoch.
    text : str, optional
        Messages whose body contains this text.
    limit : int, optional
        Maximum number of messages, the oldest first.
    max_replays : int, optional
        Messages that were replayed fewer times than this.
    """

    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None
    limit: int | None = None
    max_replays: int | None = None

    def takes(self, message: Message, namespace: Namespace = NO_NAMESPACE) -> bool:
        """Return whether a message is selected. Brokers note its first topic with the client's namespace."""
        return (
            (not self.tags or message.tags in self.tags)
            and (not self.keys or not self.keys.isdisjoint((message.keys or "").split()))
            and (self.topic is None or _origin(message, namespace) == namespace.plain(self.topic))
            and (self.since_ms is None or message.store_timestamp >= self.since_ms)
            and (self.until_ms is None or message.store_timestamp < self.until_ms)
            and (self.text is None or self.text.encode() in message.body)
            and (self.max_replays is None or count_replays(message) < self.max_replays)
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """A message and the topic to send it to."""

    message: Message
    topic: str

    def outgoing(self) -> OutgoingMessage:
        """Return the message to send, with the same body, tag, keys, sharding key and user properties."""
        message = self.message
        own = user_properties(message.properties)
        own[PROPERTY_REPLAY_OF] = message.msg_id
        own[PROPERTY_REPLAYS] = str(count_replays(message) + 1)
        return OutgoingMessage(
            self.topic,
            message.body,
            tags=message.tags,
            keys=message.keys or (),
            properties=own,
            flag=message.flag,
            sharding_key=message.properties.get(PROPERTY_SHARDING_KEY),
        )


def find_replays(
    client: Client, group: str, origin: Origin, chosen: ReplayFilter, *, to: str | None = None
) -> list[Replay]:
    """Find the messages to resend, in store order. Consumes and changes nothing.

    Parameters
    ----------
    to : str, optional
        The topic to send to. Default: each message's original topic.

    Raises
    ------
    OptionError
        The topic is not readable, or a message lacks its original topic and ``to`` is absent.
    TopicNotFoundError
        The group has no such topic: no message was ever sent back.
    NameServerError, TransportError, BrokerError
    """
    return select_replays(client, find_ranges(client, group, origin, chosen), chosen, to=to)


def find_ranges(client: Client, group: str, origin: Origin, chosen: ReplayFilter) -> list[OffsetRange]:
    """Return the ranges in which messages to resend may be. Raises as `find_replays`."""
    source = origin.topic(group)
    try:
        queues = client.read_queues(source)
    except TopicNotFoundError as error:
        lacking = "dead letters" if origin is Origin.DLQ else "messages that were sent back"
        raise TopicNotFoundError(
            f"the group has no {lacking}: its topic, which brokers create for the first one, does not exist",
            **error.facts,
        ) from None
    if not queues:
        raise OptionError(
            "the topic is write-only: allow reading it with --make-readable",
            topic=source,
        )
    starts = client.min_offsets(queues)
    if chosen.since_ms is not None:
        starts = client.offsets_at(dict.fromkeys(queues, chosen.since_ms))
    ends = client.max_offsets(queues)
    return [OffsetRange(queue, start, ends[queue]) for queue, start in starts.items() if start < ends[queue]]


def select_replays(
    client: Client, ranges: Sequence[OffsetRange], chosen: ReplayFilter, *, to: str | None = None
) -> list[Replay]:
    """Read the messages to resend from ranges. Parameters and errors as in `find_replays`."""
    options = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=False)
    namespace = client.namespace
    messages = read_messages(client, ranges, options)
    ordered = in_store_order((each for each in messages if chosen.takes(each, namespace)), chosen.limit)
    return [Replay(message, to or _first_topic(message, namespace)) for message in ordered]


def in_store_order(messages: Iterable[Message], limit: int | None) -> list[Message]:
    """Return the oldest messages. Those of a queue keep its order, even if a broker's clock went back."""
    latest: dict[MessageQueue, int] = {}

    def keyed(message: Message) -> tuple[int, str, int]:
        queue = message.queue
        latest[queue] = max(message.store_timestamp, latest.get(queue, 0))
        return latest[queue], message.broker_name, message.commit_log_offset

    pairs = ((keyed(message), message) for message in messages)
    if limit is None:
        ordered = sorted(pairs, key=itemgetter(0))
    else:  # keeps no more than these
        ordered = heapq.nsmallest(limit, pairs, key=itemgetter(0))
    return [message for _, message in ordered]


def send_replays(client: Client, replays: Iterable[Replay], *, rate: float = 0) -> Iterator[Replay]:
    """Resend messages one by one, at most ``rate`` per second. Yields each after the broker has stored it.

    The originals stay: a second run sends them again.

    Raises
    ------
    SendError, RocketMQError
        Messages already yielded are sent. The fact ``msg_id`` names the dead letter that was not.
    """
    pace = Pace(rate, client.clock)
    with Producer(client) as producer:
        for replay in replays:
            pace.wait()
            try:
                producer.send(replay.outgoing())
            except RocketMQError as error:
                raise error.with_facts(msg_id=replay.message.msg_id) from None
            yield replay


def make_readable(client: Client, group: str, origin: Origin) -> None:
    """Give a group's topic read permission, on every broker that has it, and wait until its route says so.

    Raises
    ------
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    topic = origin.topic(group)
    Admin(client).alter_topic(topic, perm=Permission.READ | Permission.WRITE)
    homes = {data.broker_name for data in client.route(topic).queues}
    await_route(client, topic, _is_readable, homes=homes)


def _is_readable(route: TopicRoute | None) -> bool:
    return route is not None and all(Permission.READ in data.perm for data in route.queues)


def count_replays(message: Message) -> int:
    """Return how many times a message was resent; 0 if its property is no number."""
    text = message.properties.get(PROPERTY_REPLAYS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else 0


def _origin(message: Message, namespace: Namespace) -> str | None:
    """Return the topic that a message was first sent to, None if it does not say it."""
    names = (message.properties[name] for name in _TOPIC_PROPERTIES if name in message.properties)
    return next(map(namespace.plain, names), None)


def _first_topic(message: Message, namespace: Namespace) -> str:
    topic = _origin(message, namespace)
    if topic is None:
        raise OptionError(
            "a message does not say which topic it was first sent to: give one with --to",
            msg_id=message.msg_id,
        )
    return topic
