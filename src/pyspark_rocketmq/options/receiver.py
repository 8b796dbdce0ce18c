"""The options of receivers, by rocketmq-spark's names (``RocketMQConfig``)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageSelector
from pyspark_rocketmq.options.choices import KAFKA_RESET, CorruptPolicy
from pyspark_rocketmq.options.client import ClientOptions
from pyspark_rocketmq.options.declare import Options, group, option
from pyspark_rocketmq.options.pulling import (
    check_crc_option,
    on_corrupt_option,
    pull_batch_size_option,
    selector_of,
    sql_filter_option,
    tags_option,
)
from pyspark_rocketmq.options.text.kinds import BOOLEAN, DURATION_MS, GROUP, TOPICS, choice, whole_number
from pyspark_rocketmq.options.text.times import MILLISECONDS

__all__ = ["Allocation", "MessageModel", "ReceiverOptions", "StartFrom"]


class StartFrom(enum.Enum):
    """Where a group starts in a topic for which it has no offsets."""

    LATEST = "latest"
    EARLIEST = "earliest"
    TIMESTAMP = "timestamp"


class MessageModel(enum.Enum):
    """Whether a group's members share the messages."""

    CLUSTERING = "clustering"
    BROADCASTING = "broadcasting"


class Allocation(enum.Enum):
    """How queues are assigned to members; the names of ``planning.assign``."""

    AVERAGE = "average"
    CIRCLE = "circle"
    CONSISTENT_HASH = "consistentHash"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverOptions(Options):
    """The options of a receiver.

    Raises
    ------
    OptionError
        Options contradict one another.
    """

    COMPATIBILITY: ClassVar[Mapping[str, str]] = {
        "client.name": "a member's id is unique by itself",
        "client.ip": "a member's id has the machine's address",
        "client.callback.executor.threads": "answers are taken by the thread that waits for them",
        "consumer.min.threads": "threads begin when there is work",
        "pull.max.speed.per.partition": "of direct streams; receivers obey spark.streaming.receiver.maxRate",
        "pull.consumer.cache.initialCapacity": "of direct streams",
        "pull.consumer.cache.maxCapacity": "of direct streams",
        "pull.consumer.cache.loadFactor": "of direct streams",
    }

    TRANSLATED: ClassVar[Mapping[str, Mapping[str, str]]] = {"auto.offset.reset": KAFKA_RESET}

    client: ClientOptions = group(ClientOptions)

    consumer_group: str = option(
        "consumerGroup",
        GROUP,
        aliases=("consumer.group", "groupId"),
        doc="Consumer group of the receivers.",
    )
    topics: tuple[str, ...] = option(
        "topic",
        TOPICS,
        aliases=("consumer.topic", "topics"),
        doc="Topics to read. All members of the group must read the same topics.",
    )
    tags: tuple[str, ...] = tags_option()
    sql_filter: str | None = sql_filter_option()
    on_corrupt: CorruptPolicy = on_corrupt_option(objects=True)
    check_crc: bool = check_crc_option()
    start: StartFrom = option(
        "startFrom",
        choice(StartFrom),
        default=StartFrom.LATEST,
        default_text="latest",
        aliases=("consumer.offset.reset.to", "auto.offset.reset"),
        example="earliest",
        doc="Where a group without offsets starts in a topic. Queues added later are read from their start.",
    )
    timestamp_ms: int | None = option(
        "startTimestamp",
        MILLISECONDS,
        default=None,
        default_text="30 minutes ago",
        doc="For startFrom=timestamp: store time of the first message to read, in milliseconds since the "
        "epoch.",
    )
    ordered: bool = option(
        "ordered",
        BOOLEAN,
        default=False,
        aliases=("consumer.messages.orderly",),
        doc="Lock queues at the brokers, so that no two members receive from a queue at the same time.",
    )
    message_model: MessageModel = option(
        "messageModel",
        choice(MessageModel),
        default=MessageModel.CLUSTERING,
        default_text="clustering",
        example="broadcasting",
        doc="broadcasting: every receiver gets every message, beginning at startFrom on each start.",
    )
    allocation: Allocation = option(
        "allocateStrategy",
        choice(Allocation),
        default=Allocation.AVERAGE,
        default_text="average",
        doc="How queues are assigned to members. Must be the same for all members, including Java clients.",
    )
    threads: int = option(
        "consumerThreads",
        whole_number(1, example=8, maximum=1_000),
        default=4,
        aliases=("consumer.max.threads",),
        doc="Number of threads per topic in which a receiver calls deserialize. With ordered: one per queue.",
    )
    pull_batch_size: int = pull_batch_size_option("pull.max.batch.size", 32, "pullBatchSize")
    heartbeat_ms: int = option(
        "heartbeatIntervalMs",
        DURATION_MS,
        default=30_000,
        aliases=("brokerserver.heartbeat.interval",),
        example="30s",
        doc="Interval of a receiver's heartbeats to every broker.",
    )
    commit_ms: int = option(
        "offsetPersistIntervalMs",
        DURATION_MS,
        default=5_000,
        aliases=("consumer.offset.persist.interval",),
        example="5s",
        doc="Interval at which the offsets of acknowledged messages are committed.",
    )
    queue_size: int = option(
        "receiverQueueSize",
        whole_number(1, example=500),
        default=500,
        aliases=("spout.queue.size",),
        doc="Maximum pull results of a queue that wait to be stored. At the limit, the queue is not pulled.",
    )
    max_retry: int = option(
        "storeRetries",
        whole_number(0, example=3),
        default=3,
        aliases=("spout.messages.max.retry",),
        doc="Retries of a block that could not be stored, before the receiver restarts.",
    )
    ttl_ms: int = option(
        "storeTimeoutMs",
        DURATION_MS,
        default=300_000,
        aliases=("spout.messages.ttl",),
        example="5m",
        doc="Timeout for storing a block, after which the receiver restarts.",
    )

    def __post_init__(self) -> None:
        selector_of(self.tags, self.sql_filter)  # raises where both are given
        if self.timestamp_ms is not None and self.start is not StartFrom.TIMESTAMP:
            raise OptionError("startTimestamp needs startFrom=timestamp", option="startTimestamp")
        for name, value in (("heartbeatIntervalMs", self.heartbeat_ms), ("storeTimeoutMs", self.ttl_ms)):
            if value < 1:
                raise OptionError(f"{name} must be 1 or more", option=name)

    @property
    def selector(self) -> MessageSelector:
        """The filter that the broker applies."""
        return selector_of(self.tags, self.sql_filter)
