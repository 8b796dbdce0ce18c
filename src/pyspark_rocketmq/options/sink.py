"""The options of writing, batch and streaming alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import SendStatus
from pyspark_rocketmq.model.names import commit_topic_of, staging_topic_of
from pyspark_rocketmq.options.choices import Compressor, Guarantee, Visibility
from pyspark_rocketmq.options.client import KAFKA_CLIENT, ClientOptions
from pyspark_rocketmq.options.declare import Options, group, option
from pyspark_rocketmq.options.text.kinds import (
    BOOLEAN,
    DURATION_MS,
    FILE,
    GROUP,
    SIZE,
    STATUSES,
    TEXT,
    TOPIC,
    choice,
    whole_number,
)

__all__ = ["TRANSACTIONS_FOLDER", "SinkOptions", "TransactionOptions"]

DEFAULT_PRODUCER_GROUP: Final = "PYSPARK_ROCKETMQ_PRODUCER"

TRANSACTIONS_FOLDER: Final = "rocketmq-transactions"

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""A broker's default ``maxMessageSize``, which holds for a batch as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOptions:
    """A transactional write's log folder and producer group."""

    folder: str
    group: str


_SEND_OK: Final = frozenset({SendStatus.SEND_OK})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(Options):
    """The options of a write.

    Raises
    ------
    OptionError
        Options contradict one another.
    """

    # The last two are Spark's, for queries with asyncProgressTrackingEnabled.
    IGNORED: ClassVar[frozenset[str]] = frozenset(
        {
            "queryname",
            "asyncprogresstrackingcheckpointintervalms",
            "_asyncprogresstrackingoverridesinksupportcheck",
        }
    )
    COMPATIBILITY: ClassVar[Mapping[str, str]] = {
        "brokerserver.heartbeat.interval": "sends need no heartbeat",
        "access.channel": "it selects where Alibaba Cloud's message traces go, and none are sent",
        "unit.name": "a client's unit has no meaning for its sends",
        "vipChannel": "the normal port answers everything",
        "vipChannelEnabled": "the normal port answers everything",
    }

    ELSEWHERE: ClassVar[Mapping[str, str]] = KAFKA_CLIENT | {
        "kafka.acks": "acceptStatuses",
        "kafka.batch.size": "batchBytes",
        "kafka.compression.type": "compression",
        "kafka.max.request.size": "maxMessageBytes",
        "kafka.retries": "retries",
        "kafka.transactional.id": "deliveryGuarantee",
    }

    client: ClientOptions = group(ClientOptions)

    # --- what every message gets -------------------------------------------------------------
    topic: str | None = option(
        "topic", TOPIC, default=None, doc="Topic of every row. Overrides the topic column."
    )
    tags: str | None = option("tags", TEXT, default=None, doc="Tag of every row. Overrides the column.")
    keys: str | None = option(
        "keys",
        TEXT,
        default=None,
        aliases=("key",),
        example="order-42",
        doc="The keys of every row; takes precedence over a column.",
    )
    sharding_key: str | None = option(
        "shardingKey",
        TEXT,
        default=None,
        aliases=("messageGroup",),
        example="customer-7",
        doc="Sharding key of every row: all rows go to one queue. Overrides the column.",
    )
    delay_level: int | None = option(
        "delayLevel",
        whole_number(1, example=3, maximum=18),
        default=None,
        doc="Delay of every row, as one of the broker's 18 delay levels. Overrides the column.",
    )

    traceparent: str | None = option(
        "traceparent",
        TEXT,
        default=None,
        example="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        doc="W3C trace context of every row, such as `current_traceparent()`. Overrides the column.",
    )

    # --- how they are sent -------------------------------------------------------------------
    producer_group: str = option(
        "producerGroup",
        GROUP,
        default=DEFAULT_PRODUCER_GROUP,
        aliases=("produceGroup", "producer.group"),
        example="orders-writer",
        doc="Producer group. Used for transactions only; by default, each transaction log has a separate "
        "group.",
    )
    send_timeout_ms: int = option(
        "sendTimeoutMs",
        whole_number(1, example=10_000),
        default=10_000,
        aliases=("producer.timeout",),
        doc="Timeout of one send attempt, in ms, counted from the last response to an earlier one. Above the "
        "brokers' own timeouts (3 s for slaves, 5 s for the disk, 8 s), so that a slow store is answered.",
    )
    retries: int = option(
        "retries",
        whole_number(0, example=3),
        default=3,
        aliases=("producer.retry.times",),
        doc="Retries after the first attempt, at other brokers if order allows. See also outageTimeout.",
    )
    outage_timeout_ms: int = option(
        "outageTimeout",
        DURATION_MS,
        default=60_000,
        default_text="60s",
        example="60s",
        doc="How long sends are retried, in addition to retries, while brokers are down or overloaded.",
    )
    accept_statuses: frozenset[SendStatus] = option(
        "acceptStatuses",
        STATUSES,
        default=_SEND_OK,
        default_text="SEND_OK",
        doc="Send statuses that count as success. A status other than SEND_OK: stored, but a crash may lose "
        "it.",
    )
    sends_in_flight: int = option(
        "sendsInFlight",
        whole_number(1, example=16, maximum=256),
        default=8,
        doc="Maximum concurrent sends per task. 1: synchronous.",
    )
    ordered: bool | None = option(
        "ordered",
        BOOLEAN,
        default=None,
        default_text="true if rows have a sharding key",
        doc="Allow one send in flight per queue, so that each queue keeps the task's row order, even on "
        "retries.",
    )
    batch_size: int = option(
        "batchSize",
        whole_number(1, example=500, maximum=100_000),
        default=2_000,
        doc="Maximum messages per send. 1: no batching.",
    )
    batch_bytes: int = option(
        "batchBytes",
        SIZE,
        default=1024 * 1024,
        default_text="1m",
        example="1m",
        doc="Approximate maximum bytes per send. Smaller batches cost the client and the broker more.",
    )
    max_message_bytes: int = option(
        "maxMessageBytes",
        SIZE,
        default=MAX_BATCH_BYTES,
        default_text="4m",
        example="4m",
        doc="Maximum body size as sent (after compression). Should equal the broker's maxMessageSize.",
    )
    compression: Compressor = option(
        "compression",
        choice(Compressor),
        default=Compressor.ZLIB,
        default_text="zlib",
        example="zstd",
        doc="Compression of message bodies.",
    )
    compress_above: int = option(
        "compressAbove",
        SIZE,
        default=4_096,
        default_text="4k",
        aliases=("compressMsgBodyOverHowmuch",),
        example="4k",
        doc="Bodies of at least this size are compressed.",
    )

    # --- guarantees --------------------------------------------------------------------------
    guarantee: Guarantee = option(
        "deliveryGuarantee",
        choice(Guarantee),
        default=Guarantee.AT_LEAST_ONCE,
        default_text="at-least-once",
        example="effectively-once",
        doc="effectively-once adds a write id to each row, so that a reader can drop duplicates. "
        "transactional makes the rows of a batch visible only when all of them are stored; with "
        "transactionVisibility=plain it adds write ids, too.",
    )
    transaction_visibility: Visibility = option(
        "transactionVisibility",
        choice(Visibility),
        default=Visibility.PLAIN,
        default_text="plain",
        example="committed",
        doc="plain: every consumer sees the rows of a transactional write only once they are committed; each "
        "row costs two requests. staged: the same; rows are sent in batches to a staging topic, and from "
        "there to the topic. committed: readers with isolation=read_committed see them once they are "
        "committed, others see all that is sent; rows are sent in batches, as in a plain write.",
    )
    commit_topic: str | None = option(
        "commitTopic",
        TOPIC,
        default=None,
        default_text="the topic's name with -commits",
        example="orders-commits",
        doc="The topic that says which batches of transactional writes are committed. It has one queue. With "
        "transactionVisibility=staged, its default name is that of the staging topic with -commits.",
    )
    staging_topic: str | None = option(
        "stagingTopic",
        TOPIC,
        default=None,
        default_text="the topic's name with -staging",
        example="orders-staging",
        doc="The topic in which the rows of a write with transactionVisibility=staged wait until they are "
        "committed. It has the queues of the topic.",
    )
    transaction_log: str | None = option(
        "transactionLog",
        FILE,
        default=None,
        default_text="rocketmq-transactions in checkpointLocation",
        example="/checkpoints/orders/transactions",
        doc="Folder for the decisions of a transactional write (a path or URI that the driver can write). "
        "A commit that a crash interrupted is completed from it.",
    )
    checkpoint_location: str | None = option(
        "checkpointLocation",
        TEXT,
        default=None,
        default_text="Spark's setting",
        example="/checkpoints/orders",
        doc="Spark's checkpointLocation of the query.",
    )
    asynchronous_progress: bool = option(
        "asyncProgressTrackingEnabled",
        BOOLEAN,
        default=False,
        only=("writeStream",),
        doc="Spark's asyncProgressTrackingEnabled of the query, for deliveryGuarantee=at-least-once only.",
    )
    job_id: str | None = option(
        "jobId",
        TEXT,
        default=None,
        only=("write",),
        example="orders-2030-01-31",
        doc="Id from which the write ids of a batch write are derived. Set the same id to run the job again.",
    )
    job_batch: int | None = option(
        "jobBatch",
        whole_number(0, example=42),
        default=None,
        default_text="none: the job is one write",
        only=("write",),
        doc="Number of the batch that is written, in a job of many writes, such as one by foreachBatch. Each "
        "is higher than the one before; in a transaction, a lower one is an error. What is noted of a job "
        "does not grow with its batches.",
    )

    # --- what cannot be sent -----------------------------------------------------------------
    dead_letter_topic: str | None = option(
        "deadLetterTopic",
        TOPIC,
        default=None,
        default_text="none: fail",
        example="orders-dead",
        doc="Topic for rows that cannot be sent or that brokers refuse, with the cause.",
    )
    dead_letter_path: str | None = option(
        "deadLetterPath",
        FILE,
        default=None,
        default_text="none: fail",
        example="/data/orders-dead",
        doc="Folder for dead letters, as Parquet files: a path or URI that every executor can write.",
    )
    create_topic: bool = option("createTopic", BOOLEAN, default=False, doc="Create topics that do not exist.")
    topic_queues: int = option(
        "topicQueues",
        whole_number(1, example=8, maximum=1_024),
        default=8,
        doc="Number of queues per broker of topics that createTopic creates.",
    )

    def __post_init__(self) -> None:
        if self.batch_bytes > self.max_message_bytes:
            raise OptionError("batchBytes is larger than maxMessageBytes", option="batchBytes")
        if self.dead_letter_topic is not None and self.dead_letter_path is not None:
            raise OptionError("give one of deadLetterTopic and deadLetterPath", option="deadLetterTopic")
        if self.dead_letter_topic is not None and self.dead_letter_topic == self.topic:
            raise OptionError("deadLetterTopic is the topic itself", option="deadLetterTopic")
        visibility = self.transaction_visibility.value
        if self.commits_ranges and self.guarantee is not Guarantee.TRANSACTIONAL:
            problem = "transactionVisibility needs deliveryGuarantee=transactional"
            raise OptionError(problem, option="transactionVisibility")
        if self.commits_ranges and self.topic is None:
            raise OptionError(
                f"transactionVisibility={visibility} needs one topic for all rows: set topic", option="topic"
            )
        if self.staging_topic is not None and not self.is_staged:
            raise OptionError("stagingTopic needs transactionVisibility=staged", option="stagingTopic")
        staging = staging_topic_of(str(self.topic), self.staging_topic) if self.is_staged else None
        if staging is not None and staging in (self.topic, self.dead_letter_topic):
            problem = f"stagingTopic is for staged rows only, and {staging} has another use: choose another"
            raise OptionError(problem, option="stagingTopic")
        if self.commits_ranges and self.transaction_log is not None:
            raise OptionError(
                "transactionLog is for transactionVisibility=plain: commits are in the commit topic",
                option="transactionLog",
            )
        if self.commit_topic is not None and not self.commits_ranges:
            problem = "commitTopic needs transactionVisibility=committed or staged"
            raise OptionError(problem, option="commitTopic")
        commits = commit_topic_of(str(staging or self.topic), self.commit_topic)
        if self.commits_ranges and commits in (self.topic, staging, self.dead_letter_topic):
            problem = f"commitTopic is for commits only, and {commits} has another use: choose another"
            raise OptionError(problem, option="commitTopic")
        if self.guarantee is Guarantee.TRANSACTIONAL and not (
            self.commits_ranges or self.transaction_log or self.checkpoint_location
        ):
            raise OptionError(
                "a transactional write needs a folder to note its decisions in: give checkpointLocation as "
                "an option of the query, or transactionLog",
                option="transactionLog",
            )

    @property
    def commits_ranges(self) -> bool:
        """Whether batches are committed in a commit topic."""
        return self.transaction_visibility is not Visibility.PLAIN

    @property
    def is_staged(self) -> bool:
        """Whether rows are sent to a staging topic first."""
        return self.transaction_visibility is Visibility.STAGED

    @property
    def transactions(self) -> TransactionOptions | None:
        """The log folder and producer group if the write sends half messages, else None."""
        if self.guarantee is not Guarantee.TRANSACTIONAL or self.commits_ranges:
            return None
        checkpoint = (self.checkpoint_location or "").rstrip("/")
        folder = self.transaction_log or f"{checkpoint}/{TRANSACTIONS_FOLDER}"
        group = self.producer_group
        if group == DEFAULT_PRODUCER_GROUP:  # brokers ask any member of a group: each log has its own
            group = f"{group}-{hashlib.sha256(folder.encode()).hexdigest()[:16]}"
        return TransactionOptions(folder=folder, group=group)

    @property
    def takes_dead_letters(self) -> bool:
        """Whether dead letters have a destination."""
        return self.dead_letter_topic is not None or self.dead_letter_path is not None
