"""The only module that decides about data loss.

Three named conditions, and the effect of ``failOnDataLoss=false``:

OFFSETS_EXPIRED
    The queue's min offset has passed the range, or the broker has deleted the files of messages within it:
    the deleted part is skipped and counted. Gaps of compacted and static topics are no loss.
OFFSET_WENT_BACK
    The queue ends before the range, or an offset that was read has another message: its log was truncated
    (an unclean crash, a failover to a lagging replica) or the topic was re-created. The range is skipped and
    counted. A stream continues at the queue's end, or at its position, never before that: messages there may
    have been read already.
QUEUE_LOST
    The topic or the queue was deleted, or the topic's number of read queues was reduced: the range is skipped
    and counted.

RANGE_UNACCOUNTED (`planning.completeness`) is an internal error: the offsets that a task read do not add up
to the plan. No option disables it.

A broker that is down, or not in the route, is none of these: its queues wait.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import LostRange, MessageQueue, OffsetRange
from pyspark_rocketmq.planning.topics.queue_names import rename_queues

__all__ = [
    "LossDecision",
    "PullVerdict",
    "decide_hidden",
    "decide_loss",
    "decide_moved_back",
    "decide_replaced",
    "find_shortened",
]


class PullVerdict(enum.Enum):
    """Why a broker does not return a planned offset."""

    BELOW_MIN = "BELOW_MIN"
    """The offset is below the queue's min offset."""
    BEYOND_MAX = "BEYOND_MAX"
    """The offset is at or above the queue's max offset."""
    REMOVED = "REMOVED"
    """The queue has the offset, but the file with its message was deleted."""
    QUEUE_GONE = "QUEUE_GONE"
    """The topic or queue no longer exists."""


@dataclass(frozen=True, slots=True)
class LossDecision:
    """Continue at ``offset``; ``lost`` counts the messages before it."""

    offset: int
    lost: LostRange


def decide_loss(
    wanted: OffsetRange, verdict: PullVerdict, bound: int, *, fail_on_data_loss: bool
) -> LossDecision:
    """Decide about a planned range that its broker cannot return.

    Parameters
    ----------
    wanted : OffsetRange
        The part that is still to be read.
    verdict : PullVerdict
    bound : int
        For ``BELOW_MIN`` the queue's min offset, for ``BEYOND_MAX`` its max offset, for ``REMOVED`` the next
        offset that has a message.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        ``fail_on_data_loss`` is set. Names queue, range, cause, and the effect of the option.
    """
    match verdict:
        case PullVerdict.BELOW_MIN:
            condition, cause = (
                "OFFSETS_EXPIRED",
                f"the queue now begins at {bound}: older messages were deleted",
            )
            resume = min(max(bound, wanted.from_offset), wanted.until_offset)
        case PullVerdict.REMOVED:
            condition = "OFFSETS_EXPIRED"
            cause = "the broker has deleted the files that held them"
            resume = min(max(bound, wanted.from_offset), wanted.until_offset)
        case PullVerdict.BEYOND_MAX:
            condition = "OFFSET_WENT_BACK"
            cause = f"the queue now ends at {bound}: its log was truncated, or the topic was created again"
            resume = wanted.until_offset
        case PullVerdict.QUEUE_GONE:
            condition = "QUEUE_LOST"
            cause = (
                "the topic or the queue does not exist any more, or the topic's number of read queues was "
                "lowered (raise it again until the queue is read: the messages are still there)"
            )
            resume = wanted.until_offset
        case _:
            assert_never(verdict)
    lost = OffsetRange(wanted.queue, wanted.from_offset, resume)
    if fail_on_data_loss:
        raise DataLossError(
            f"{len(lost)} messages cannot be read: {cause}. With failOnDataLoss=false they are counted as "
            f"lost and reading continues at {resume}",
            condition=condition,
            queue=str(wanted.queue),
            from_offset=lost.from_offset,
            until_offset=lost.until_offset,
        )
    return LossDecision(resume, LostRange(lost, condition))


def decide_moved_back(
    queue: MessageQueue, position: int, *, min_offset: int, max_offset: int, fail_on_data_loss: bool
) -> int:
    """Decide where a stream continues in a queue that now ends before the stream's position.

    Call it only for offsets that a master has confirmed for some time: a broker that restarts rebuilds its
    index, and a replica may lag.

    Parameters
    ----------
    queue : MessageQueue
    position : int
        The next offset that the stream would read, above ``max_offset``.
    min_offset, max_offset : int
        The queue's current offsets.
    fail_on_data_loss : bool

    Returns
    -------
    int
        ``max_offset``: offsets below it were used before, so messages could be read twice.

    Raises
    ------
    DataLossError
        OFFSET_WENT_BACK, if ``fail_on_data_loss`` is set.
    """
    if fail_on_data_loss:
        raise DataLossError(
            f"the queue now holds [{min_offset}, {max_offset}), but everything up to {position} was read: "
            "its log was truncated, or the topic was created again, and offsets are being used again. With "
            f"failOnDataLoss=false the query continues at {max_offset} without the messages before it; to "
            "read a topic that was created again from its beginning, start with startingOffsets=earliest and "
            "another checkpointLocation",
            condition="OFFSET_WENT_BACK",
            queue=str(queue),
            position=position,
            min_offset=min_offset,
            max_offset=max_offset,
        )
    return max_offset


def decide_replaced(
    queue: MessageQueue, offset: int, *, stored_at_ms: int, found_ms: int, fail_on_data_loss: bool
) -> None:
    """Decide about a queue in which an offset that was read has another message: offsets were used again.

    Parameters
    ----------
    queue : MessageQueue
    offset : int
        The offset of a message that was read.
    stored_at_ms, found_ms : int
        The store times of that message and of the one at its offset now.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        OFFSET_WENT_BACK, if ``fail_on_data_loss`` is set.
    """
    if fail_on_data_loss:
        raise DataLossError(
            f"the message at {offset} was stored at {found_ms}, but the one that was read there at "
            f"{stored_at_ms} (ms since the epoch): the topic was created again, or its log was truncated, "
            "and offsets are being used again. With failOnDataLoss=false the query continues where it was, "
            "without the new messages before that; to read a topic that was created again from its start, "
            "start with another checkpointLocation",
            condition="OFFSET_WENT_BACK",
            queue=str(queue),
            offset=offset,
        )


def decide_hidden(queue: MessageQueue, position: int, *, max_offset: int, fail_on_data_loss: bool) -> int:
    """Decide about a queue that is hidden because its topic's number of read queues was reduced.

    Brokers (4.9 and 5.4) keep its messages and report its offsets, but return no messages.

    Parameters
    ----------
    queue : MessageQueue
    position : int
        The next offset that the stream would read.
    max_offset : int
        The max offset that the queue's broker reports.
    fail_on_data_loss : bool

    Returns
    -------
    int
        Number of unread messages. The position is kept until the queue can be read again.

    Raises
    ------
    DataLossError
        QUEUE_LOST: unread messages exist and ``fail_on_data_loss`` is set.
    """
    unread = max(0, max_offset - position)
    if unread and fail_on_data_loss:
        raise DataLossError(
            f"{unread} unread messages are in a queue that cannot be read: the topic's number of read "
            f"queues was lowered to {queue.queue_id} or less: raise it to {queue.queue_id + 1} or more "
            "(mqadmin updateTopic -r) and restart the query, which continues where it was; lower only that "
            "of write queues while a queue is read. With failOnDataLoss=false it continues without them",
            condition="QUEUE_LOST",
            queue=str(queue),
            position=position,
            max_offset=max_offset,
        )
    return unread


def find_shortened(known: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> list[MessageQueue]:
    """Return the queues that end before their position."""
    known = rename_queues(known, ends, choose=max)
    return [queue for queue, end in ends.items() if end < known.get(queue, end)]
