"""The data of a mock cluster: messages, topics, offsets, and faults of the data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.send.message_encoding import UniqueIds, encode_one
from pyspark_rocketmq.inventory import TopicConfig
from pyspark_rocketmq.model import Message, MessageQueue, OutgoingMessage, Permission
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.testing.handlers.requests import broker_settings
from pyspark_rocketmq.testing.log import PullLimits, QueueLog
from pyspark_rocketmq.testing.static_topics import LOGICAL_BROKER, Part, StaticTopic
from pyspark_rocketmq.testing.store import READ_WRITE, BrokerStore, parse_properties

__all__ = ["MockData"]


class MockData:
    """The data of a `MockCluster`. All methods act immediately, without the network, from any thread.

    Parameters
    ----------
    stores : mapping of str to BrokerStore
    clock : Clock
    announce_news : Callable
        Called when suspended pulls may have a result.
    host : Host
        Gives the random parts of message ids.
    """

    def __init__(
        self,
        stores: Mapping[str, BrokerStore],
        *,
        clock: Clock,
        announce_news: Callable[[], None],
        host: Host = SYSTEM_HOST,
    ) -> None:
        self._lock = threading.RLock()
        self._clock = clock
        self._ids = UniqueIds(clock, host)
        self._stores = dict(stores)
        self._static_topics: dict[str, StaticTopic] = {}
        self._announce_news = announce_news

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers' names."""
        return tuple(self._stores)

    def queue(self, topic: str, queue_id: int = 0, broker: str | None = None) -> MessageQueue:
        """Return a queue. Default: the first broker's. For a static topic, the queue's logical name."""
        if broker is None and topic in self._static_topics:
            return MessageQueue(topic, LOGICAL_BROKER, queue_id)
        return MessageQueue(topic, broker or self.brokers[0], queue_id)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return every queue of a topic, sorted."""
        with self._lock:
            if topic in self._static_topics:
                return self._static_topics[topic].queues()
            return tuple(
                MessageQueue(topic, name, queue_id)
                for name, store in sorted(self._stores.items())
                if topic in store.topics
                for queue_id in range(store.topics[topic].read_queues)
            )

    def send(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> int:
        """Store a message immediately, without the network, and return its offset.

        Raises
        ------
        KeyError
            The topic does not exist.
        """
        queue = queue or self.queue(message.topic)
        outgoing = encode_one(message, self._ids)
        now = self._clock.now_ms()
        with self._lock:
            part = self._parts(queue)[-1]
            placed = self._stores[part.broker].append(
                message.topic,
                part.queue_id,
                bytes(outgoing.body),
                parse_properties(outgoing.properties),
                sys_flag=outgoing.sys_flag,
                flag=outgoing.flag,
                born_timestamp=now,
                store_timestamp=now,
            )
        self._announce_news()
        return part.begin + placed.offset

    def messages(self, topic: str, queue: MessageQueue | None = None) -> tuple[Message, ...]:
        """Return the stored messages, queue by queue."""
        with self._lock:
            return tuple(
                message
                for one in ((queue,) if queue else self.queues(topic))
                for part in self._parts(one)
                for stored in self._log(MessageQueue(topic, part.broker, part.queue_id)).messages
                for message in decode_messages(
                    stored.record,
                    topic=topic,
                    broker_name=one.broker_name,
                    queue_id=one.queue_id,
                    offset_delta=part.begin,
                )
            )

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset of a queue."""
        with self._lock:
            part = self._parts(queue)[0]
            return part.begin + self._log(MessageQueue(queue.topic, part.broker, part.queue_id)).min_offset

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the next offset of a queue."""
        with self._lock:
            part = self._parts(queue)[-1]
            return part.begin + self._log(MessageQueue(queue.topic, part.broker, part.queue_id)).max_offset

    def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's committed offset."""
        with self._lock:
            for part in reversed(self._parts(queue)):
                here = MessageQueue(queue.topic, part.broker, part.queue_id)
                committed = self._stores[part.broker].position(group, here)
                if committed is not None:
                    return part.begin + committed
            return None

    # --- topics ---

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        read_queues: int | None = None,
        perm: Permission = READ_WRITE,
        brokers: Collection[str] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, or change its settings and keep its messages."""
        read = queues if read_queues is None else read_queues
        config = TopicConfig(topic, read, queues, perm, attributes=dict(attributes or {}))
        with self._lock:
            for name in brokers or self.brokers:
                self._stores[name].create_topic(config)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages and the groups' offsets."""
        with self._lock:
            self._static_topics.pop(topic, None)
            for store in self._stores.values():
                store.delete_topic(topic)

    def create_static_topic(self, topic: str, queues: int = 4, *, broker: str | None = None) -> None:
        """Create a static topic on one broker, or add queues to it. They can be moved between brokers.

        For data faults (`expire`, `truncate`, …), name the physical queue of the broker that stores the
        messages, with its id and offsets there.
        """
        with self._lock:
            if topic not in self._static_topics:
                for name in self.brokers:
                    self._stores[name].create_topic(TopicConfig(topic, 0, 0, READ_WRITE))
                self._static_topics[topic] = StaticTopic(topic, self.brokers)
            static = self._static_topics[topic]
            for queue_id in range(len(static.parts), queues):
                home = broker or self.brokers[0]
                static.parts[queue_id] = [Part(home, self._add_queue(topic, home), 0)]

    def remap(self, topic: str, broker: str) -> None:
        """Move a static topic's queues on other brokers to a broker. Stored messages are not moved.

        Raises
        ------
        KeyError
            The topic is not static.
        """
        with self._lock:
            static = self._static_topics[topic]
            for queue in static.queues():
                if static.owner(queue.queue_id) != broker:
                    end = self.max_offset(queue)
                    static.move(queue.queue_id, broker, self._add_queue(topic, broker), end)

    # --- faults ---

    def expire(self, queue: MessageQueue, min_offset: int) -> None:
        """Delete messages below ``min_offset``, as when their retention ends, and older half messages."""
        with self._lock:
            log = self._log(queue)
            self._expire_halves(queue, log, 0, min_offset)
            log.expire(min_offset)

    def remove(self, queue: MessageQueue, from_offset: int, until_offset: int) -> None:
        """Delete messages, and older half messages, but keep the min offset.

        A log file is deleted before its index.
        """
        with self._lock:
            log = self._log(queue)
            self._expire_halves(queue, log, from_offset, until_offset)
            log.remove(from_offset, until_offset)

    def remove_index(self, queue: MessageQueue, from_offset: int, until_offset: int) -> None:
        """Delete the entries of messages in their queue's index: these cannot be read any more."""
        with self._lock:
            self._log(queue).remove(from_offset, until_offset, index=True)

    def _expire_halves(self, queue: MessageQueue, log: QueueLog, from_offset: int, until_offset: int) -> None:
        """Delete the half messages that are older than the last of the messages between two offsets."""
        gone = [it.record for it in log.messages if from_offset <= it.offset < until_offset]
        if gone:
            self._stores[queue.broker_name].expire_halves(gone[-1])

    def truncate(self, queue: MessageQueue, max_offset: int) -> None:
        """Lose messages from ``max_offset`` on, as in an unclean crash. The offsets are reused."""
        with self._lock:
            self._log(queue).truncate(max_offset)

    def gap(self, queue: MessageQueue, count: int) -> None:
        """Skip offsets, as compaction does. It is a loss unless the topic is compacted.

        A compacted topic has the attribute ``cleanup.policy=COMPACTION``.
        """
        with self._lock:
            self._log(queue).skip(count)

    def corrupt(self, queue: MessageQueue, offset: int, change: Callable[[bytes], bytes]) -> None:
        """Replace the stored bytes of a message: ``change`` gets its record and returns the new one.

        Raises
        ------
        KeyError
            No message has this offset.
        """
        with self._lock:
            log = self._log(queue)
            stored = next((one for one in log.messages if one.offset == offset), None)
            if stored is None:
                raise KeyError(offset)
            log.replace(replace(stored, record=change(stored.record)))

    def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Redirect the group's next pull of a queue to ``offset``, as an operator's reset does."""
        with self._lock:
            part = self._parts(queue)[-1]
            store, key = self._stores[part.broker], (group, queue.topic, part.queue_id)
            store.resets[key] = store.committed[key] = max(0, offset - part.begin)

    def set_limits(self, limits: PullLimits) -> None:
        """Change the limits of a pull response, on every broker."""
        with self._lock:
            for name, store in self._stores.items():
                store.settings = broker_settings(name, store.settings["brokerClusterName"], limits)

    def _add_queue(self, topic: str, broker: str) -> int:
        """Add a physical queue of a static topic to a broker, and return its id there."""
        store = self._stores[broker]
        count = store.topics[topic].write_queues
        store.create_topic(TopicConfig(topic, count + 1, count + 1, READ_WRITE))
        return count

    def _parts(self, queue: MessageQueue) -> Sequence[Part]:
        """Return the parts of a queue: the brokers' queues that store its messages."""
        if queue.logical:
            return self._static_topics[queue.topic].parts[queue.queue_id]
        return (Part(queue.broker_name, queue.queue_id, 0),)

    def _log(self, queue: MessageQueue) -> QueueLog:
        store = self._stores[queue.broker_name]
        if not store.has_queue(queue.topic, queue.queue_id):
            raise KeyError(queue)
        return store.log(queue.topic, queue.queue_id)
