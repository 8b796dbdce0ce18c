"""The options of the RDD and of the direct stream, by rocketmq-spark's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.bounds import IsolationOptions
from pyspark_rocketmq.options.choices import COUNT_OR_NONE, CorruptPolicy
from pyspark_rocketmq.options.client import ClientOptions
from pyspark_rocketmq.options.declare import Options, group, option
from pyspark_rocketmq.options.parse import parse_options
from pyspark_rocketmq.options.pulling import (
    check_crc_option,
    on_corrupt_option,
    pull_batch_size_option,
    pulls_in_flight_option,
    selector_of,
    sql_filter_option,
    tags_option,
)
from pyspark_rocketmq.options.source import SourceOptions
from pyspark_rocketmq.options.text.kinds import BOOLEAN

__all__ = ["DirectOptions", "parse_direct_options"]

_DEFAULT_TIMEOUT_MS: Final = "3000"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectOptions(Options):
    """The options of `createRDD` and `createMQPullStream`, besides their arguments.

    Raises
    ------
    OptionError
        Options contradict one another.
    """

    COMPATIBILITY: ClassVar[Mapping[str, str]] = {
        "pull.consumer.cache.initialCapacity": "a Java map's initial size",
        "pull.consumer.cache.maxCapacity": "connections are pooled by broker, not by queue",
        "pull.consumer.cache.loadFactor": "a Java map's load factor",
    }

    client: ClientOptions = group(ClientOptions)

    max_speed_per_partition: int | None = option(
        "pull.max.speed.per.partition",
        COUNT_OR_NONE,
        default=None,
        default_text="-1",
        aliases=("maxRatePerQueue",),
        doc="Maximum messages per second per queue. -1: no limit.",
    )
    pull_batch_size: int = pull_batch_size_option("pull.max.batch.size", 32, "pullBatchSize")
    pulls_in_flight: int | None = pulls_in_flight_option()
    tags: tuple[str, ...] = tags_option()
    sql_filter: str | None = sql_filter_option()
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        BOOLEAN,
        default=True,
        doc="Fail if messages of a range are lost. For a stream, the argument of the same name overrides it.",
    )

    isolation: IsolationOptions = group(IsolationOptions, has_defaults=True)
    on_corrupt: CorruptPolicy = on_corrupt_option(objects=True)
    check_crc: bool = check_crc_option()

    def __post_init__(self) -> None:
        selector_of(self.tags, self.sql_filter)  # raises where both are given
        self.isolation.check()

    def source(self, topics: tuple[str, ...], consumer_group: str) -> SourceOptions:
        """Return the options of reading that every API shares."""
        return SourceOptions(
            client=self.client,
            topics=topics,
            consumer_group=consumer_group,
            max_rate_per_queue=self.max_speed_per_partition,
            partition_per_queue=True,
            tags=self.tags,
            sql_filter=self.sql_filter,
            pull_batch_size=self.pull_batch_size,
            pulls_in_flight=self.pulls_in_flight,
            fail_on_data_loss=self.fail_on_data_loss,
            on_corrupt=self.on_corrupt,
            check_crc=self.check_crc,
        )

    def commit_topics(self, topics: tuple[str, ...]) -> dict[str, str]:
        """Return the commit topic of each topic; nothing without ``isolation=read_committed``.

        Raises
        ------
        OptionError
            A topic is the commit topic of another one.
        """
        if not self.isolation.committed_only:
            return {}
        by = {topic: self.isolation.commit_topic_of(topic) for topic in topics}
        for topic in topics:
            if topic in by.values():
                raise OptionError(
                    f"{topic} is a commit topic: its records are no messages. Leave it out of the topics",
                    option="topics",
                )
        return by

    def source_of_stream(self, topics: tuple[str, ...], consumer_group: str) -> SourceOptions:
        """Return the options of reading of a direct stream, to whose topics commit topics belong.

        Raises
        ------
        OptionError
            As `commit_topics`.
        """
        commit_topics = self.commit_topics(topics).values()
        return self.source((*topics, *dict.fromkeys(commit_topics)), consumer_group)


def parse_direct_options(given: Mapping[str, Any]) -> DirectOptions:
    """Parse the options. As in rocketmq-spark, the default request timeout is 3 s.

    Raises
    ------
    OptionError
        As `parse_options`.
    """
    return parse_options(DirectOptions, given, defaults={"requestTimeoutMs": _DEFAULT_TIMEOUT_MS})
