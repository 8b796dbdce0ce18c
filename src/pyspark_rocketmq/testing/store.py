"""The state of one mock broker: topics, queues, groups and their offsets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.model.names import RETRY_PREFIX
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.ids import encode_host, offset_message_id
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.record.properties import PROPERTY_TAGS, decode_properties
from pyspark_rocketmq.remoting.java_hash import java_hash
from pyspark_rocketmq.testing.log import QueueLog, StoredMessage

__all__ = ["BrokerStore", "HalfMessage", "Placed"]

READ_WRITE: Final = Permission.READ | Permission.WRITE


@dataclass(frozen=True, slots=True)
class Placed:
    """The position of a stored message. ``msg_id`` is its offset message id."""

    offset: int
    msg_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """A message that waits for the end of its transaction. ``offset`` is its offset in the half topic."""

    offset: int
    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    sys_flag: int
    flag: int
    born_timestamp: int


@dataclass(slots=True)
class BrokerStore:
    """One broker's state. Guarded by the cluster's lock.

    Parameters
    ----------
    name : str
    store_host : str
        ``ip:port``, as stored in records.
    """

    name: str
    store_host: str = "127.0.0.1:0"
    topics: dict[str, TopicConfig] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    resets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)
    locks: dict[tuple[str, MessageQueue], tuple[str, int]] = field(default_factory=dict)
    _records: dict[int, bytes] = field(default_factory=dict)
    _logs: dict[tuple[str, int], QueueLog] = field(default_factory=dict)
    _halves: dict[int, HalfMessage] = field(default_factory=dict)
    _half_offset: int = 0
    _commit_log: int = 0
    _round_robin: itertools.count[int] = field(default_factory=itertools.count)

    def create_topic(self, config: TopicConfig) -> None:
        """Create a topic, or change its settings and keep its messages."""
        self.topics[config.topic] = config

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages and the groups' offsets."""
        self.topics.pop(topic, None)
        for key in [key for key in self._logs if key[0] == topic]:
            del self._logs[key]
        for group_key in [key for key in self.committed if key[1] == topic]:
            del self.committed[group_key]

    def create_group(self, group: str, *, retry_topic: bool = False) -> None:
        """Register a group. A heartbeat also creates its retry topic."""
        self.groups.add(group)
        if retry_topic:
            self.create_inner_topic(RETRY_PREFIX + group)

    def create_inner_topic(self, name: str) -> None:
        """Create a topic with one queue if it does not exist, as brokers do for groups."""
        self.topics.setdefault(name, TopicConfig(name, 1, 1, READ_WRITE))

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Whether the topic has a queue with this id, for reading or writing."""
        config = self.topics.get(topic)
        return config is not None and 0 <= queue_id < max(config.read_queues, config.write_queues)

    def log(self, topic: str, queue_id: int) -> QueueLog:
        """Return the log of a queue, or an empty one if the queue does not exist.

        If the numbers of queues are lowered, brokers keep what is in the queues beyond, and their offsets.
        """
        log = self._logs.get((topic, queue_id))
        if log is None:
            log = QueueLog()
            if self.has_queue(topic, queue_id):
                self._logs[topic, queue_id] = log
        return log

    def any_queue(self, topic: str) -> int:
        """Return a writable queue for a message without a queue."""
        return next(self._round_robin) % max(1, self.topics[topic].write_queues)

    def append(
        self,
        topic: str,
        queue_id: int,
        stored_body: bytes,
        properties: Mapping[str, str],
        *,
        sys_flag: int,
        flag: int,
        born_timestamp: int,
        store_timestamp: int,
        born_host: str = "127.0.0.1:0",
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> Placed:
        """Store a message. If ``sys_flag`` says so, its body is already compressed."""
        log = self.log(topic, queue_id)
        record = encode_message(
            stored_body,
            properties,
            topic=topic,
            queue_id=queue_id,
            queue_offset=log.max_offset,
            commit_log_offset=self._commit_log,
            compression=Compression.NONE,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp=born_timestamp,
            born_host=born_host,
            store_timestamp=store_timestamp,
            store_host=self.store_host,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        self._records[self._commit_log] = record
        tag = properties.get(PROPERTY_TAGS)
        hashed = None if tag is None else java_hash(tag)
        log.append(StoredMessage(log.max_offset, record, store_timestamp, hashed))
        msg_id = offset_message_id(encode_host(self.store_host), self._commit_log)
        self._commit_log += len(record)
        return Placed(log.max_offset - 1, msg_id)

    def record_at(self, commit_log_offset: int) -> bytes | None:
        """Return the record at a commit log offset."""
        return self._records.get(commit_log_offset)

    def append_half(self, half: HalfMessage) -> Placed:
        """Store a half message and assign its ``offset``. Consumers do not see it."""
        placed = Placed(self._half_offset, offset_message_id(encode_host(self.store_host), self._commit_log))
        self._half_offset += 1
        self._halves[self._commit_log] = replace(half, offset=placed.offset)
        self._commit_log += len(half.body) + 1
        return placed

    def half(self, commit_log_offset: int) -> HalfMessage | None:
        """Return the half message at a commit log offset. It stays there after its transaction ends."""
        return self._halves.get(commit_log_offset)

    def expire_halves(self, record: bytes) -> None:
        """Delete half messages before a record: a broker deletes the files of its one log in their order."""
        (message,) = decode_messages(record, broker_name=self.name)
        for at in [at for at in self._halves if at < message.commit_log_offset]:
            del self._halves[at]

    def position(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset."""
        return self.committed.get((group, queue.topic, queue.queue_id))


def parse_properties(text: str) -> dict[str, str]:
    """Parse the properties of a send request."""
    return decode_properties(text.encode())
