"""Names that only programs written for rocketmq-spark need; new programs use the primary spelling."""

from __future__ import annotations

from typing import Any, Final

from pyspark import RDD

from pyspark_rocketmq.dstream.api import RocketMQUtils
from pyspark_rocketmq.dstream.ranges import OffsetRanges
from pyspark_rocketmq.errors import NoOffsetRangesError

__all__ = ["RocketMQConfig", "RocketMqUtils", "explain_missing_ranges"]

RocketMqUtils = RocketMQUtils
"""The spelling of rocketmq-spark's pull mode."""


class RocketMQConfig:
    """Names of properties for ``createInputDStream``, ``createReliableInputDStream`` and the pull mode."""

    NAME_SERVER_ADDR: Final = "nameserver.addr"
    CLIENT_NAME: Final = "client.name"
    CLIENT_IP: Final = "client.ip"
    CLIENT_CALLBACK_EXECUTOR_THREADS: Final = "client.callback.executor.threads"
    NAME_SERVER_POLL_INTERVAL: Final = "nameserver.poll.interval"
    DEFAULT_NAME_SERVER_POLL_INTERVAL: Final = 30_000
    BROKER_HEART_BEAT_INTERVAL: Final = "brokerserver.heartbeat.interval"
    DEFAULT_BROKER_HEART_BEAT_INTERVAL: Final = 30_000

    CONSUMER_GROUP: Final = "consumer.group"
    CONSUMER_TOPIC: Final = "consumer.topic"
    CONSUMER_TAG: Final = "consumer.tag"
    DEFAULT_TAG: Final = "*"
    CONSUMER_OFFSET_RESET_TO: Final = "consumer.offset.reset.to"
    CONSUMER_OFFSET_LATEST: Final = "latest"
    CONSUMER_OFFSET_EARLIEST: Final = "earliest"
    CONSUMER_OFFSET_TIMESTAMP: Final = "timestamp"
    CONSUMER_MESSAGES_ORDERLY: Final = "consumer.messages.orderly"
    CONSUMER_OFFSET_PERSIST_INTERVAL: Final = "consumer.offset.persist.interval"
    DEFAULT_CONSUMER_OFFSET_PERSIST_INTERVAL: Final = 5_000
    CONSUMER_MIN_THREADS: Final = "consumer.min.threads"
    CONSUMER_MAX_THREADS: Final = "consumer.max.threads"

    QUEUE_SIZE: Final = "spout.queue.size"
    DEFAULT_QUEUE_SIZE: Final = 500
    MESSAGES_MAX_RETRY: Final = "spout.messages.max.retry"
    DEFAULT_MESSAGES_MAX_RETRY: Final = 3
    MESSAGES_TTL: Final = "spout.messages.ttl"
    DEFAULT_MESSAGES_TTL: Final = 300_000

    MAX_PULL_SPEED_PER_PARTITION: Final = "pull.max.speed.per.partition"
    PULL_MAX_BATCH_SIZE: Final = "pull.max.batch.size"
    PULL_TIMEOUT_MS: Final = "pull.timeout.ms"
    PULL_CONSUMER_CACHE_INIT_CAPACITY: Final = "pull.consumer.cache.initialCapacity"
    PULL_CONSUMER_CACHE_MAX_CAPACITY: Final = "pull.consumer.cache.maxCapacity"
    PULL_CONSUMER_CACHE_LOAD_FACTOR: Final = "pull.consumer.cache.loadFactor"


def explain_missing_ranges() -> None:
    """Make ``offsetRanges`` of RDDs without ranges raise an explanation instead of a plain AttributeError.

    In rocketmq-spark a program casts an RDD to ``HasOffsetRanges``, and the cast fails if it has none. Call
    this once in a program that you port: it adds the property to PySpark's class ``RDD``, as PySpark adds
    ``toDF``. `RocketMQRDD` does not need it.
    """

    def offset_ranges(rdd: RDD[Any]) -> OffsetRanges:
        raise NoOffsetRangesError(
            "this RDD does not know its offset ranges any more: take them in the first transform or "
            "foreachRDD of the stream that createMQPullStream returned, or from what createRDD returned. "
            "Every further step makes an RDD whose partitions may mix queues",
            rdd=type(rdd).__name__,
        )

    RDD.offsetRanges = property(offset_ranges)  # type: ignore[attr-defined]
