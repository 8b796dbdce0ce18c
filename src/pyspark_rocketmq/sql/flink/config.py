"""The names of rocketmq-flink's properties, and the corresponding options."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

__all__ = ["OffsetResetStrategy", "RocketMQConfig", "to_options"]


class OffsetResetStrategy(enum.Enum):
    """The start of a queue without a committed offset of the group."""

    EARLIEST = "earliest"
    LATEST = "latest"


class RocketMQConfig:
    """The constants of ``org.apache.rocketmq.flink.legacy.RocketMQConfig``."""

    NAME_SERVER_ADDR: Final = "nameserver.address"
    NAME_SERVER_POLL_INTERVAL: Final = "nameserver.poll.interval"
    BROKER_HEART_BEAT_INTERVAL: Final = "brokerserver.heartbeat.interval"
    ACCESS_KEY: Final = "access.key"
    SECRET_KEY: Final = "secret.key"  # noqa: S105 - a property's name
    ACCESS_CHANNEL: Final = "access.channel"
    UNIT_NAME: Final = "unit.name"

    PRODUCER_GROUP: Final = "producer.group"
    PRODUCER_RETRY_TIMES: Final = "producer.retry.times"
    PRODUCER_TIMEOUT: Final = "producer.timeout"
    MSG_DELAY_LEVEL: Final = "msg.delay.level"

    CONSUMER_GROUP: Final = "consumer.group"
    CONSUMER_TOPIC: Final = "consumer.topic"
    CONSUMER_TAG: Final = "consumer.tag"
    CONSUMER_SQL: Final = "consumer.sql"
    CONSUMER_TIMEOUT: Final = "consumer.timeout"
    CONSUMER_OFFSET_RESET_TO: Final = "consumer.offset.reset.to"
    CONSUMER_OFFSET_EARLIEST: Final = "earliest"
    CONSUMER_OFFSET_LATEST: Final = "latest"
    CONSUMER_OFFSET_TIMESTAMP: Final = "timestamp"
    CONSUMER_OFFSET_FROM_TIMESTAMP: Final = "consumer.offset.from.timestamp"
    CONSUMER_OFFSET_PERSIST_INTERVAL: Final = "consumer.offset.persist.interval"
    CONSUMER_PULL_POOL_SIZE: Final = "consumer.pull.thread.pool.size"
    CONSUMER_BATCH_SIZE: Final = "consumer.batch.size"
    CONSUMER_DELAY_WHEN_MESSAGE_NOT_FOUND: Final = "consumer.delay.when.message.not.found"


_OURS: Final = {
    RocketMQConfig.ACCESS_KEY: "accessKey",
    RocketMQConfig.SECRET_KEY: "secretKey",
    RocketMQConfig.CONSUMER_SQL: "sqlFilter",
    RocketMQConfig.MSG_DELAY_LEVEL: "delayLevel",
}
"""Properties whose names are not aliases of options."""


def to_options(props: Mapping[str, object]) -> dict[str, str]:
    """Return properties as options of the data source, which accepts the other names as aliases."""
    given = {_OURS.get(name, name): str(value) for name, value in props.items()}
    if given.get("delayLevel") == "0":  # no delay
        del given["delayLevel"]
    return given
