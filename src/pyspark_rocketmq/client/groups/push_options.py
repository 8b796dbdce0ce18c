"""The options of a `PushConsumer`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.arguments import require, require_milliseconds, require_whole
from pyspark_rocketmq.options.choices import ObjectPolicy
from pyspark_rocketmq.options.text.kinds import require_member
from pyspark_rocketmq.planning.assign import AllocateStrategy

__all__ = ["ConsumeFromWhere", "ConsumeResult", "PushOptions"]


class ConsumeResult(enum.Enum):
    """The result of a listener call."""

    SUCCESS = "success"
    """The messages are finished."""
    LATER = "later"
    """The messages are redelivered later: through ``%RETRY%group``, or, if ordered, after a short pause."""


class ConsumeFromWhere(enum.Enum):
    """Where a group starts in a topic for which it has no offsets; the values are Java's.

    Queues that the topic gains later are read from their first message.
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    """At the end. (Java's consumer begins at 0 if the broker has the queue's first message in memory.)"""
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    """At the beginning."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """At the first message stored at or after ``timestamp_ms``; if set, also in queues added later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """The options of a `PushConsumer`. Defaults are those of Java's ``DefaultMQPushConsumer``.

    Parameters
    ----------
    broadcasting : bool
        Every member gets every message; messages that a listener defers are not redelivered.
    ordered : bool
        Messages of a queue are delivered one after the other; the queue is locked for this member.
    start : ConsumeFromWhere
    timestamp_ms : int, optional
        For ``TIMESTAMP``; default: 30 minutes ago.
    allocate : AllocateStrategy
        How queues are assigned to members; must be the same for all members.
    threads : int
        Maximum concurrent listener calls. With ``ordered``: one per queue instead.
    batch_size : int
        Maximum messages per listener call.
    pull_batch_size : int
        Maximum messages per pull.
    max_queued, max_queued_bytes, max_span : int
        Limits of a queue's unfinished messages: in messages, in bytes, and from the first to the last offset.
        Java's ``pullThresholdForQueue``, ``pullThresholdSizeForQueue`` and ``consumeConcurrentlyMaxSpan``.
    max_reconsume_times : int
        How often a message is redelivered before it is sent to ``%DLQ%group``. -1: 16 times, or unlimited
        with ``ordered``.
    retry_delay_level : int
        Delay of a redelivery. 0: the broker decides (10 s, 30 s, 1 min, ... 2 h). 1 to 18: a level of the
        broker's table (1 s, 5 s, 10 s, ...). -1: send the message to ``%DLQ%group`` immediately.
    suspend_ms : int
        How long a broker holds a pull that waits for messages.
    order_pause_ms : int
        With ``ordered``: delay before deferred messages are delivered again.
    heartbeat_ms, rebalance_ms, commit_ms : int
        Intervals of heartbeats, of rebalancing, and of commits.
    on_corrupt : {"fail", "skip"}
        For a message that cannot be decoded. fail: its pull is repeated, and the queue waits until the
        message has expired. skip: the message is skipped, with a warning that names its offset.
    check_crc : bool
        Verify the stored checksum of each body.
    progress_file : Path, optional
        File for the offsets of a broadcasting member. Without it, the member begins at ``start`` each time.
    trace_topic : str, optional
        The topic for RocketMQ's message trace, such as ``TRACE_TOPIC``. Each listener call then costs a send.

    Raises
    ------
    OptionError
        A value is out of range.
    """

    broadcasting: bool = False
    ordered: bool = False
    start: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    timestamp_ms: int | None = None
    allocate: AllocateStrategy = AllocateStrategy.AVERAGELY
    threads: int = 20
    batch_size: int = 1
    pull_batch_size: int = 32
    max_queued: int = 1_000
    max_queued_bytes: int = 100 << 20
    max_span: int = 2_000
    max_reconsume_times: int = -1
    retry_delay_level: int = 0
    suspend_ms: int = 15_000
    order_pause_ms: int = 1_000
    heartbeat_ms: int = 30_000
    rebalance_ms: int = 20_000
    commit_ms: int = 5_000
    on_corrupt: ObjectPolicy = "fail"
    check_crc: bool = False
    progress_file: Path | None = None
    trace_topic: str | None = None

    def __post_init__(self) -> None:
        require_member(ConsumeFromWhere, self.start, "start")
        require_member(AllocateStrategy, self.allocate, "allocate")
        for name in (
            *("threads", "batch_size", "pull_batch_size", "max_queued", "max_queued_bytes", "max_span"),
            *("order_pause_ms", "heartbeat_ms", "rebalance_ms", "commit_ms"),
        ):
            require_whole(getattr(self, name), name, 1)
        require_whole(self.suspend_ms, "suspend_ms", 0)
        if self.on_corrupt not in ("fail", "skip"):
            raise OptionError("on_corrupt is fail or skip", value=self.on_corrupt)
        require_whole(self.retry_delay_level, "retry_delay_level", -1, 18)
        require_whole(self.max_reconsume_times, "max_reconsume_times", -1)
        if self.timestamp_ms is not None and self.start is not ConsumeFromWhere.TIMESTAMP:
            raise OptionError("timestamp_ms needs start=ConsumeFromWhere.TIMESTAMP", value=self.timestamp_ms)
        if self.timestamp_ms is not None:
            require_milliseconds(self.timestamp_ms, "timestamp_ms")
        if self.progress_file is not None:
            require(self.progress_file, Path, "progress_file")
        if self.progress_file is not None and not self.broadcasting:
            raise OptionError("progress_file is for broadcasting: a group's offsets are kept by the brokers")
