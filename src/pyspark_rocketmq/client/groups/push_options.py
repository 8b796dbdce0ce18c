"""How a `PushConsumer` reads."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.planning.assign import AllocateStrategy

__all__ = ["ConsumeFromWhere", "ConsumeResult", "PushOptions"]


class ConsumeResult(enum.Enum):
    """What a listener makes of the messages it was given."""

    SUCCESS = "success"
    """They are done with."""
    LATER = "later"
    """Not now: they come again, through ``%RETRY%group``, or, consumed in order, in a moment."""


class ConsumeFromWhere(enum.Enum):
    """Where a group starts in a topic that it has no offsets of; the values are Java's.

    Queues that the topic gains later are read from their first message.
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    """At its end. (Java's consumer begins at 0 where a broker has the queue's first message in memory.)"""
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    """At its begin."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """At the first message that was stored at ``timestamp_ms`` or later; in later queues, too, if given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    """How a `PushConsumer` reads; defaults are those of Java's ``DefaultMQPushConsumer``.

    Parameters
    ----------
    broadcasting : bool
        Every member gets every message; what a listener puts off does not come again.
    ordered : bool
        Messages of a queue one after the other; the queue is locked for this member.
    start : ConsumeFromWhere
    timestamp_ms : int, optional
        For ``TIMESTAMP``; half an hour ago when absent.
    allocate : AllocateStrategy
        How queues are dealt out; the same for all members.
    threads : int
        How many listener calls there are at once; consumed in order it is one a queue instead.
    batch_size : int
        The most messages of one call.
    pull_batch_size : int
        The most messages to ask for in one pull.
    max_queued, max_queued_bytes, max_span : int
        How much of a queue may be waiting or under way, in messages, in bytes, and from the first to the
        last offset: Java's ``pullThresholdForQueue``, ``pullThresholdSizeForQueue`` and
        ``consumeConcurrentlyMaxSpan``.
    max_reconsume_times : int
        How often a message comes again before it goes to ``%DLQ%group``; -1 is 16, and without end where
        messages are consumed in order.
    retry_delay_level : int
        After what time it comes again: 0 leaves it to the broker (10 s, 30 s, 1 min, ... 2 h), 1 to 18 is a
        level of its table (1 s, 5 s, 10 s, ...), -1 sends it to ``%DLQ%group`` at once.
    suspend_ms : int
        How long a broker lets a pull wait for messages.
    order_pause_ms : int
        After what time messages come again that were put off and are consumed in order.
    heartbeat_ms, rebalance_ms, commit_ms : int
        How often a member tells that it is there, compares the queues, and stores its offsets.
    on_corrupt : {"fail", "skip"}
        What becomes of a message that does not decode: its pull is repeated, and the queue waits, until it
        has expired; or it is left out, with a warning that names its offset.
    check_crc : bool
        Compare each stored body with its checksum.
    progress_file : Path, optional
        Where a broadcasting member keeps its offsets; without one it begins at ``start`` each time.

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
    on_corrupt: Literal["fail", "skip"] = "fail"
    check_crc: bool = False
    progress_file: Path | None = None

    def __post_init__(self) -> None:
        for name in (
            *("threads", "batch_size", "pull_batch_size", "max_queued", "max_queued_bytes", "max_span"),
            *("order_pause_ms", "heartbeat_ms", "rebalance_ms", "commit_ms"),
        ):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be 1 or more", value=getattr(self, name))
        if self.on_corrupt not in ("fail", "skip"):
            raise OptionError("on_corrupt is fail or skip", value=self.on_corrupt)
        if not -1 <= self.retry_delay_level <= 18:
            raise OptionError("retry_delay_level goes from -1 to 18", value=self.retry_delay_level)
        if self.max_reconsume_times < -1:
            raise OptionError("max_reconsume_times is -1 or more", value=self.max_reconsume_times)
        if self.progress_file is not None and not self.broadcasting:
            raise OptionError("progress_file is for broadcasting: a group's offsets are kept by the brokers")
