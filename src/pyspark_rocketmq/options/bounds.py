"""Where a query starts, where a batch ends, and whether uncommitted messages between are rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Ago, AtOffsets, AtTimestamp, Earliest, GroupOffsets, Latest, StartPolicy
from pyspark_rocketmq.model.names import commit_topic_of
from pyspark_rocketmq.options.choices import Isolation, TimestampStrategy
from pyspark_rocketmq.options.declare import Options, Where, option
from pyspark_rocketmq.options.text.kinds import TOPIC, choice
from pyspark_rocketmq.options.text.policies import (
    OFFSETS,
    OFFSETS_BY_TIMESTAMP,
    RESET,
    UNLISTED,
    complete,
    mentions,
)
from pyspark_rocketmq.options.text.times import (
    TIME_ZONE,
    TIMESTAMP,
    Moment,
    TimesByQueue,
    resolve_time,
    resolve_times,
)

__all__ = ["IsolationOptions", "OffsetBounds"]

_BATCH: Final[tuple[Where, ...]] = ("read",)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds(Options):
    """The options of start and end. A time overrides times by queue; these override offsets."""

    starting_offsets: StartPolicy | None = option(
        "startingOffsets",
        OFFSETS,
        default=None,
        default_text="latest for a stream, earliest for a batch",
        aliases=("auto.offset.reset",),
        doc="Start position of a query without a checkpoint.",
    )
    starting_timestamp: Moment | None = option(
        "startingTimestamp",
        TIMESTAMP,
        default=None,
        doc="Start at the first message stored at or after this time. Overrides the two other forms.",
    )
    starting_offsets_by_timestamp: TimesByQueue | None = option(
        "startingOffsetsByTimestamp",
        OFFSETS_BY_TIMESTAMP,
        default=None,
        doc="Start times by topic or queue. Overrides startingOffsets.",
    )
    starting_timestamp_strategy: TimestampStrategy = option(
        "startingOffsetsByTimestampStrategy",
        choice(TimestampStrategy),
        default=TimestampStrategy.LATEST,
        default_text="latest",
        example="error",
        doc="If a start time is after a queue's last message: start at the queue's end, or fail.",
    )
    starting_offsets_default: Earliest | Latest | GroupOffsets | None = option(
        "startingOffsetsDefault",
        UNLISTED,
        default=None,
        default_text="fail",
        doc="Start position of queues that startingOffsets or startingOffsetsByTimestamp does not list.",
    )
    group_offset_reset: Earliest | Latest | None = option(
        "groupOffsetReset",
        RESET,
        default=Earliest(),
        default_text="earliest",
        doc="Start position, with startingOffsets=group, of a queue for which the group has no committed "
        "offset.",
    )
    ending_offsets: StartPolicy | None = option(
        "endingOffsets",
        OFFSETS,
        default=None,
        default_text="latest",
        only=_BATCH,
        ends=True,
        example='{"orders": {"broker-a": {"0": 500, "1": -1}}}',
        doc="End position of a batch (exclusive).",
    )
    ending_timestamp: Moment | None = option(
        "endingTimestamp",
        TIMESTAMP,
        default=None,
        only=_BATCH,
        ends=True,
        example="2030-01-31T08:00:00Z",
        doc="End before the first message stored at or after this time. Overrides the two other forms.",
    )
    ending_offsets_by_timestamp: TimesByQueue | None = option(
        "endingOffsetsByTimestamp",
        OFFSETS_BY_TIMESTAMP,
        default=None,
        only=_BATCH,
        ends=True,
        doc="End times by topic or queue. Overrides endingOffsets.",
    )
    ending_offsets_default: Earliest | Latest | GroupOffsets | None = option(
        "endingOffsetsDefault",
        UNLISTED,
        default=None,
        default_text="fail",
        only=_BATCH,
        ends=True,
        example="latest",
        doc="End position of queues that endingOffsets or endingOffsetsByTimestamp does not list.",
    )

    time_zone: tzinfo | None = option(
        "timeZone",
        TIME_ZONE,
        default=None,
        default_text="none; SQL jobs and streams: Spark's session time zone",
        doc="Time zone of times without an offset. Without it, such a time is an error.",
    )

    def start_policy(self, *, streaming: bool) -> StartPolicy:
        """Return where a query without a checkpoint starts: a time, else times by queue, else offsets.

        Raises
        ------
        OptionError
            A batch would start at ``latest``.
        """
        policy = complete(
            self._at_time("starting", self.starting_timestamp, self.starting_offsets_by_timestamp)
            or self.starting_offsets,
            unlisted=self.starting_offsets_default,
            reset=self.group_offset_reset,
        )
        if policy is None:
            return Latest() if streaming else Earliest()
        if not streaming and mentions(policy, Latest):
            raise OptionError("a batch that starts at latest reads nothing", option="startingOffsets")
        return policy

    def end_policy(self) -> StartPolicy:
        """Return where a batch ends, with the same precedence.

        Raises
        ------
        OptionError
            A batch would end at ``earliest``.
        """
        policy = complete(
            self._at_time("ending", self.ending_timestamp, self.ending_offsets_by_timestamp)
            or self.ending_offsets,
            unlisted=self.ending_offsets_default,
            reset=self.group_offset_reset,
        )
        if policy is not None and mentions(policy, Earliest):
            raise OptionError("a batch that ends at earliest reads nothing", option="endingOffsets")
        return policy or Latest()

    def _at_time(
        self, prefix: str, moment: Moment | None, by_queue: TimesByQueue | None
    ) -> AtTimestamp | Ago | AtOffsets | None:
        if moment is not None:
            return resolve_time(moment, self.time_zone, f"{prefix}Timestamp")
        if by_queue is not None:
            return resolve_times(by_queue, self.time_zone, f"{prefix}OffsetsByTimestamp")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationOptions(Options):
    """The options for writes with ``transactionVisibility=committed``."""

    isolation: Isolation = option(
        "isolation",
        choice(Isolation),
        default=Isolation.READ_UNCOMMITTED,
        default_text="read_uncommitted",
        example="read_committed",
        doc="read_committed: of writes with transactionVisibility=committed, only committed batches are "
        "rows, each whole.",
    )
    commit_topic: str | None = option(
        "commitTopic",
        TOPIC,
        default=None,
        default_text="the topic's name with -commits",
        example="orders-commits",
        doc="The topic that says which batches of transactional writes are committed. It has one queue.",
    )

    @property
    def committed_only(self) -> bool:
        """Whether uncommitted batches are left out."""
        return self.isolation is Isolation.READ_COMMITTED

    def check(self) -> None:
        """Check that the options belong together.

        Raises
        ------
        OptionError
        """
        if self.commit_topic is not None and not self.committed_only:
            raise OptionError("commitTopic needs isolation=read_committed", option="commitTopic")

    def commit_topic_of(self, topic: str) -> str:
        """Return the topic that says which transactional writes to a topic are committed."""
        return commit_topic_of(topic, self.commit_topic)
