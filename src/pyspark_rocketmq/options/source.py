"""The options of reading, batch and streaming alike, named as in Spark's Kafka source where they agree."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import (
    MessageQueue,
    MessageSelector,
    StartPolicy,
)
from pyspark_rocketmq.options.bounds import IsolationOptions, OffsetBounds
from pyspark_rocketmq.options.choices import (
    COLUMNS,
    COUNT,
    COUNT_OR_NONE,
    KAFKA_RESET,
    KAFKA_SOURCE,
    BodyAs,
    CorruptPolicy,
    EventTime,
)
from pyspark_rocketmq.options.client import KAFKA_CLIENT, ClientOptions
from pyspark_rocketmq.options.declare import Options, Where, group, option
from pyspark_rocketmq.options.pulling import (
    check_crc_option,
    on_corrupt_option,
    pull_batch_size_option,
    pulls_in_flight_option,
    selector_of,
    sql_filter_option,
    tags_option,
)
from pyspark_rocketmq.options.text.kinds import (
    BOOLEAN,
    DURATION_MS,
    GROUP,
    PATTERN,
    SIZE,
    TOPICS,
    choice,
    whole_number,
)
from pyspark_rocketmq.options.text.policies import (
    ASSIGNMENT,
    asks_group,
)
from pyspark_rocketmq.options.text.queue_patterns import QUEUE_PATTERNS, QueuePattern, covers

__all__ = ["SourceOptions"]

_BATCH: Final[tuple[Where, ...]] = ("read",)
_STREAM: Final[tuple[Where, ...]] = ("readStream",)

DEFAULT_MAX_OFFSETS: Final = 10_000_000
"""The default of ``maxOffsetsPerTrigger``: a backlog of any size is read in bounded micro-batches."""

DEFAULT_GROUP: Final = "pyspark-rocketmq"
"""The group that pull requests name if the user sets none; nothing is committed for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(Options):
    """The options of a read.

    Raises
    ------
    OptionError
        Not exactly one of topic, subscribePattern and assign is set, or options contradict one another.
    """

    COMPATIBILITY: ClassVar[Mapping[str, str]] = {
        "pull.consumer.cache.initialCapacity": "a Java map's initial size",
        "pull.consumer.cache.maxCapacity": "connections are pooled by broker, not by queue",
        "pull.consumer.cache.loadFactor": "a Java map's load factor",
        "consumer.pull.thread.pool.size": "pulls are pipelined without threads: see pullsInFlight",
        "brokerserver.heartbeat.interval": "a reader by offsets joins no group and sends no heartbeat",
        "consumer.timeout": "a micro-batch reads what exists when it starts, and waits for nothing else",
        "access.channel": "it selects where Alibaba Cloud's message traces go, and none are sent",
        "unit.name": "a client's unit has no meaning for its reads",
        "vipChannel": "the VIP port answers no pulls, and the normal port answers everything",
        "vipChannelEnabled": "the VIP port answers no pulls, and the normal port answers everything",
        "fetchOffset.numRetries": "requests are retried until their deadline: see requestTimeoutMs",
        "fetchOffset.retryIntervalMs": "requests are retried until their deadline: see requestTimeoutMs",
    }

    TRANSLATED: ClassVar[Mapping[str, Mapping[str, str]]] = {"auto.offset.reset": KAFKA_RESET}
    ELSEWHERE: ClassVar[Mapping[str, str]] = KAFKA_CLIENT | KAFKA_SOURCE

    client: ClientOptions = group(ClientOptions)

    # --- which queues -----------------------------------------------------------------------
    topics: tuple[str, ...] = option(
        "topic",
        TOPICS,
        default=(),
        aliases=("topics", "subscribe", "consumer.topic"),
        doc="Topics to read, separated by commas. Set exactly one of topic, subscribePattern, assign.",
    )
    topic_pattern: re.Pattern[str] | None = option(
        "subscribePattern",
        PATTERN,
        default=None,
        doc="Reads every topic whose full name matches. A stream also reads topics created later.",
    )
    assign: tuple[MessageQueue, ...] = option("assign", ASSIGNMENT, default=(), doc="Queues to read.")
    forget_queues: tuple[QueuePattern, ...] = option(
        "forgetQueues",
        QUEUE_PATTERNS,
        default=(),
        only=_STREAM,
        doc="Queues to exclude permanently, even if they are in the checkpoint: deleted topics, retired "
        "brokers.",
    )
    consumer_group: str | None = option(
        "consumerGroup",
        GROUP,
        default=None,
        aliases=("consumer.group",),
        doc="Consumer group. A stream commits its progress for this group; startingOffsets=group starts "
        "there.",
    )

    commit_offsets: bool | None = option(
        "commitOffsets",
        BOOLEAN,
        default=None,
        default_text="true if consumerGroup is set",
        only=_STREAM,
        doc="Commit the offsets of finished micro-batches for consumerGroup. A restart uses the checkpoint "
        "only.",
    )
    commit_interval_ms: int = option(
        "commitIntervalMs",
        whole_number(0, example=5_000),
        default=5_000,
        only=_STREAM,
        aliases=("consumer.offset.persist.interval",),
        doc="Minimum time between two commits, in milliseconds.",
    )

    bounds: OffsetBounds = group(OffsetBounds, has_defaults=True)
    isolation: IsolationOptions = group(IsolationOptions, has_defaults=True)

    # --- how much a trigger -----------------------------------------------------------------
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        COUNT_OR_NONE,
        default=DEFAULT_MAX_OFFSETS,
        only=_STREAM,
        since="4.2",
        doc="Maximum offsets per micro-batch, divided among queues by backlog; no queue starves. -1: no "
        "limit.",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        SIZE,
        default=None,
        only=_STREAM,
        since="4.2",
        doc="Maximum bytes per micro-batch as sent by the brokers, estimated from samples of the next "
        "messages.",
    )
    max_rate_per_queue: int | None = option(
        "maxRatePerQueue",
        COUNT_OR_NONE,
        default=None,
        only=_STREAM,
        since="4.2",
        aliases=("pull.max.speed.per.partition",),
        doc="Maximum offsets per second per queue. -1: no limit.",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        COUNT,
        default=None,
        only=_STREAM,
        since="4.2",
        doc="Minimum offsets per micro-batch; a smaller backlog waits. Has no effect with availableNow.",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay",
        DURATION_MS,
        default=900_000,
        default_text="15m",
        only=_STREAM,
        since="4.2",
        doc="Maximum time that minOffsetsPerTrigger delays a micro-batch.",
    )

    # --- event time -------------------------------------------------------------------------
    event_time_alignment: EventTime = option(
        "eventTimeAlignment",
        choice(EventTime),
        default=EventTime.OFF,
        default_text="off",
        only=_STREAM,
        example="store",
        doc="No queue is read past the slowest queue with a backlog, by store or born time (for watermarks).",
    )
    include_aligned_timestamp: bool = option(
        "includeAlignedTimestamp",
        BOOLEAN,
        default=False,
        only=_STREAM,
        doc="Add the column alignedTimestamp: all queues are read up to it. Requires "
        "eventTimeAlignment=store.",
    )
    heartbeat_interval_ms: int | None = option(
        "heartbeatInterval",
        DURATION_MS,
        default=None,
        only=_STREAM,
        example="30s",
        doc="After this time without messages, emit a row that advances the watermark: only its times are "
        "set.",
    )

    heartbeat_patience_ms: int = option(
        "heartbeatPatience",
        DURATION_MS,
        default=600_000,
        default_text="10m",
        only=_STREAM,
        example="10m",
        doc="How long a broker that does not answer delays heartbeats and alignedTimestamp.",
    )

    # --- how parallel -----------------------------------------------------------------------
    min_partitions: int | None = option(
        "minPartitions",
        whole_number(1, example=16),
        default=None,
        doc="Minimum number of Spark partitions: large ranges are split. Fewer if there are fewer messages.",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        COUNT,
        default=None,
        doc="Maximum offsets per Spark partition: larger ranges are split.",
    )
    partition_per_queue: bool = option(
        "partitionPerQueue",
        BOOLEAN,
        default=False,
        doc="Exactly one Spark partition per queue: small ranges are not combined, large ranges not split.",
    )

    # --- which messages ---------------------------------------------------------------------
    tags: tuple[str, ...] = tags_option()
    sql_filter: str | None = sql_filter_option()

    push_down_filters: bool = option(
        "pushDownFilters",
        BOOLEAN,
        default=False,
        only=_BATCH,
        since="4.1",
        doc="Push the DataFrame's filters on queue, offset, store time and tags down to the read. Requires "
        "spark.sql.python.filterPushdown.enabled; then use the DataFrame with one filter only.",
    )

    # --- how to read ------------------------------------------------------------------------
    pull_batch_size: int = pull_batch_size_option(
        "pullBatchSize", 1024, "consumer.batch.size", "pull.max.batch.size"
    )
    pulls_in_flight: int | None = pulls_in_flight_option()
    empty_pull_delay_ms: int = option(
        "emptyPullDelayMs",
        whole_number(1, example=10, maximum=60_000),
        default=10,
        aliases=("consumer.delay.when.message.not.found",),
        doc="First delay (ms) before a task pulls again from a broker that does not have the planned "
        "messages.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        BOOLEAN,
        default=True,
        doc="Fail if messages of a planned range are lost. false skips them with a warning.",
    )

    on_corrupt: CorruptPolicy = on_corrupt_option()
    check_crc: bool = check_crc_option()

    # --- what a row is ----------------------------------------------------------------------
    columns: tuple[str, ...] = option(
        "columns",
        COLUMNS,
        default=(),
        default_text="the default columns",
        doc="Columns to return, in this order. Each column has a cost. * returns all.",
    )
    include_properties: bool = option(
        "includeProperties", BOOLEAN, default=False, doc="Add the column properties (map<string,string>)."
    )
    body_as: BodyAs = option(
        "bodyAs",
        choice(BodyAs),
        default=BodyAs.BINARY,
        default_text="binary",
        example="string",
        doc="Type of the body column.",
    )

    def __post_init__(self) -> None:
        given = [
            name
            for name, value in (
                ("topic", self.topics),
                ("subscribePattern", self.topic_pattern),
                ("assign", self.assign),
            )
            if value
        ]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise OptionError(f"exactly one of topic, subscribePattern and assign is needed, found {found}")
        if self.partition_per_queue and (self.min_partitions or self.max_records_per_partition):
            raise OptionError("partitionPerQueue contradicts minPartitions and maxRecordsPerPartition")
        selector_of(self.tags, self.sql_filter)  # raises where both are given
        if self.heartbeat_interval_ms == 0:
            raise OptionError("heartbeats need an interval above 0", option="heartbeatInterval")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise OptionError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
        self.isolation.check()
        if self.isolation.committed_only:
            self._check_isolation()
        if self.commit_offsets and self.consumer_group is None:
            raise OptionError("commitOffsets needs a group to commit for: give consumerGroup")
        for policy in (self.start_policy(streaming=True), self.end_policy()):
            if self.consumer_group is None and asks_group(policy):
                raise OptionError(
                    "the group's offsets need a group: set consumerGroup", option="consumerGroup"
                )

    def _check_isolation(self) -> None:
        """Check that the topics are known, and that nothing depends on the order or number of offsets.

        Raises
        ------
        OptionError
        """
        given: dict[str, object] = {
            "subscribePattern": self.topic_pattern,
            "pushDownFilters": self.push_down_filters,
            "eventTimeAlignment": self.event_time_alignment is not EventTime.OFF,
            "heartbeatInterval": self.heartbeat_interval_ms,
            "partitionPerQueue": self.partition_per_queue,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "maxRatePerQueue": self.max_rate_per_queue,
            "minOffsetsPerTrigger": self.min_offsets_per_trigger,
            "consumerGroup": self.consumer_group,
        }
        for name, value in given.items():
            if value:
                raise OptionError(f"{name} cannot be combined with isolation=read_committed", option=name)

    @property
    def group(self) -> str:
        """The group that pull requests name."""
        return self.consumer_group or DEFAULT_GROUP

    def forgets(self, queue: MessageQueue) -> bool:
        """Whether a stream excludes the queue."""
        return covers(self.forget_queues, queue)

    @property
    def commits(self) -> bool:
        """Whether a stream commits finished micro-batches."""
        return self.consumer_group is not None and self.commit_offsets is not False

    @property
    def selector(self) -> MessageSelector:
        """The filter that the broker applies."""
        return selector_of(self.tags, self.sql_filter)

    def start_policy(self, *, streaming: bool) -> StartPolicy:
        """Return where a query without a checkpoint starts; `OffsetBounds.start_policy` says how."""
        return self.bounds.start_policy(streaming=streaming)

    def end_policy(self) -> StartPolicy:
        """Return where a batch ends; `OffsetBounds.end_policy` says how."""
        return self.bounds.end_policy()
