"""The types of values that only reading or only writing options have."""

from __future__ import annotations

import enum
from typing import Final, Literal, TypeAlias, assert_never

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.queues import split_tags
from pyspark_rocketmq.options.declare import Kind
from pyspark_rocketmq.options.text.kinds import names, whole_number

__all__ = [
    "COLUMNS",
    "COUNT",
    "COUNT_OR_NONE",
    "KAFKA_COLUMNS",
    "KAFKA_RESET",
    "KAFKA_SOURCE",
    "TAGS",
    "BodyAs",
    "BodyType",
    "Compressor",
    "CorruptPolicy",
    "EventTime",
    "Guarantee",
    "Isolation",
    "ObjectPolicy",
    "TimestampStrategy",
    "Visibility",
]

KAFKA_RESET: Final = {
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
}
"""The values of Kafka's ``auto.offset.reset``, old and new, and the values of this package's options."""

KAFKA_COLUMNS: Final = {"value": "body", "partition": "queueId", "headers": "properties"}
"""Columns of Spark's Kafka source and sink that have another name here, and this name."""

KAFKA_SOURCE: Final = {
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "kafka.auto.offset.reset": "startingOffsets",
    "kafka.max.poll.records": "pullBatchSize",
    "kafkaconsumer.polltimeoutms": "requestTimeoutMs",
    "includeheaders": "includeProperties",
}
"""Keys of Spark's Kafka source, in lower case, and the options to use instead."""


BodyType: TypeAlias = Literal["binary", "string"]
"""The type of a body, as methods take it."""

ObjectPolicy: TypeAlias = Literal["fail", "skip"]
"""How a message that cannot be decoded is handled where each message is an object."""


class BodyAs(enum.Enum):
    """The type of the body column."""

    BINARY = "binary"
    STRING = "string"


class CorruptPolicy(enum.Enum):
    """How a message that cannot be decoded is handled."""

    FAIL = "fail"
    NULL = "null"
    SKIP = "skip"


class TimestampStrategy(enum.Enum):
    """Where a queue starts if the start time is after its last message."""

    LATEST = "latest"
    ERROR = "error"


class EventTime(enum.Enum):
    """The message time by which queues are aligned."""

    OFF = "off"
    STORE = "store"
    BORN = "born"


class Isolation(enum.Enum):
    """Whether messages of transactional writes are rows before, or only after, their commit."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


def policy_of_objects(policy: CorruptPolicy) -> ObjectPolicy:
    """Return how messages that cannot be decoded are handled where each message is an object.

    Raises
    ------
    OptionError
        The policy is null.
    """
    match policy:
        case CorruptPolicy.FAIL:
            return "fail"
        case CorruptPolicy.SKIP:
            return "skip"
        case CorruptPolicy.NULL:
            raise OptionError(
                "a message object cannot have nulls: use onCorrupt=skip, or record batches",
                option="onCorrupt",
            )
        case _:
            assert_never(policy)


def _tags(text: str) -> tuple[str, ...]:
    if text in ("", "*"):
        return ()
    tags = split_tags(text)
    if not all(tags):
        raise ValueError("a tag between || is empty")
    if "*" in tags:
        raise ValueError("* stands alone: it means every message")
    return tuple(dict.fromkeys(tags))


def _count_or_none(text: str) -> int | None:
    return None if text == "-1" else COUNT.parse(text)


COUNT: Final = whole_number(1, example=100_000)
COUNT_OR_NONE: Final = Kind("a whole number from 1 on, or -1 for no limit", "100000", _count_or_none)
TAGS: Final = Kind("tags between ||, or *", "TagA || TagB", _tags)
COLUMNS: Final = names("column names, or *", "topic,queueOffset,body")


class Compressor(enum.Enum):
    """The compression of large bodies."""

    NONE = "none"
    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Visibility(enum.Enum):
    """Who sees the rows of a transactional write only once they are committed."""

    PLAIN = "plain"
    STAGED = "staged"
    COMMITTED = "committed"


class Guarantee(enum.Enum):
    """The delivery guarantee of a write."""

    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"
    TRANSACTIONAL = "transactional"
