"""Send again what consumers could not process: the messages of a group's retry and dead-letter topics."""

# Facts (consumerSendMsgBack of SendMessageProcessor, 4.9 and 5.4)
# - What a consumer sends back goes to %RETRY%<group>, after maxReconsumeTimes to %DLQ%<group>. It keeps its
#   UNIQ_KEY; its property RETRY_TOPIC is its first topic, and 5.x gives dead letters DLQ_ORIGIN_TOPIC too.
# - Brokers of 5.4 make dead-letter topics for reading too. Where permission is to write only, it must be
#   changed before they are read.

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client import Admin, Client, OutgoingMessage, Producer
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Message, OffsetRange, Permission
from pyspark_rocketmq.record.properties import PROPERTY_SHARDING_KEY, RESERVED_PROPERTIES

__all__ = ["Origin", "Replay", "ReplayFilter", "find_replays", "make_readable", "send_replays"]

_TOPIC_PROPERTIES: Final = ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC")
PROPERTY_REPLAY_OF: Final = "replayOf"
"""What a message that is sent again was: the id of the first one."""


class Origin(enum.Enum):
    """Which of a group's topics."""

    DLQ = "dlq"
    RETRY = "retry"

    def topic(self, group: str) -> str:
        """Return its name."""
        return f"%{self.name}%{group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """Which messages.

    Parameters
    ----------
    tags, keys : frozenset of str
        Those with one of the tags, or one of the keys; empty for all.
    topic : str, optional
        Those that were first sent to this topic.
    since_ms, until_ms : int, optional
        Those stored then or later, and before then, in milliseconds since the epoch.
    text : str, optional
        Those whose body holds it.
    limit : int, optional
        The first ones only.
    """

    tags: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None
    limit: int | None = None

    def takes(self, message: Message) -> bool:
        """Say whether a message is one of them."""
        return (
            (not self.tags or message.tags in self.tags)
            and (not self.keys or not self.keys.isdisjoint((message.keys or "").split()))
            and (self.topic is None or _first_of(message, _TOPIC_PROPERTIES) == self.topic)
            and (self.since_ms is None or message.store_timestamp >= self.since_ms)
            and (self.until_ms is None or message.store_timestamp < self.until_ms)
            and (self.text is None or self.text.encode() in message.body)
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """A message, and the topic that it shall go to."""

    message: Message
    topic: str

    def outgoing(self) -> OutgoingMessage:
        """Return what is sent: body, tag, keys, sharding key and the user's own properties as they were."""
        message = self.message
        own = {name: value for name, value in message.properties.items() if name not in RESERVED_PROPERTIES}
        own[PROPERTY_REPLAY_OF] = message.msg_id
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
    """Find what would be sent again, in the order of its storing; nothing is consumed or changed.

    Parameters
    ----------
    to : str, optional
        The topic to send to; each message's own first topic when absent.

    Raises
    ------
    OptionError
        The topic is not readable, or a message does not say its first topic and ``to`` is absent.
    TopicNotFoundError
        The group has no such topic: nothing was ever sent back.
    NameServerError, TransportError, BrokerError
    """
    source = origin.topic(group)
    queues = client.read_queues(source)
    if not queues:
        raise OptionError(
            "the topic is there for writing only: allow reading it with --make-readable",
            topic=source,
        )
    starts = client.min_offsets(queues)
    if chosen.since_ms is not None:
        starts = client.offsets_at(dict.fromkeys(queues, chosen.since_ms))
    ends = client.max_offsets(queues)
    ranges = [
        OffsetRange(queue, start, ends[queue]) for queue, start in starts.items() if start < ends[queue]
    ]
    options = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=False)
    found = [message for message in read_messages(client, ranges, options) if chosen.takes(message)]
    found.sort(key=lambda message: (message.store_timestamp, message.broker_name, message.commit_log_offset))
    return [Replay(message, to or _first_topic(message)) for message in found[: chosen.limit]]


def send_replays(client: Client, replays: Iterable[Replay]) -> Iterator[Replay]:
    """Send messages again, one after the other; yields each when the broker has stored it.

    The originals stay where they are: a second run sends them again.

    Raises
    ------
    SendError, RocketMQError
        What was yielded before is sent.
    """
    with Producer(client) as producer:
        for replay in replays:
            producer.send(replay.outgoing())
            yield replay


def make_readable(client: Client, group: str, origin: Origin) -> None:
    """Allow reading a group's topic, at every broker that has it.

    Raises
    ------
    TopicNotFoundError, NameServerError, TransportError, BrokerError
    """
    admin, topic = Admin(client), origin.topic(group)
    for broker, config in admin.topic_configs(topic).items():
        admin.create_topic(
            topic, queues=config.write_queues, perm=Permission.READ | Permission.WRITE, brokers=[broker]
        )


def _first_of(message: Message, names: Sequence[str]) -> str | None:
    return next((message.properties[name] for name in names if name in message.properties), None)


def _first_topic(message: Message) -> str:
    topic = _first_of(message, _TOPIC_PROPERTIES)
    if topic is None:
        raise OptionError(
            "a message does not say which topic it was first sent to: give one with --to",
            message_id=message.msg_id,
        )
    return topic
