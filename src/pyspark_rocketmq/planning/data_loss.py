"""Data loss is decided here and nowhere else.

Three named conditions, and what ``failOnDataLoss=false`` makes of them:

OFFSETS_EXPIRED
    The queue's min offset has passed the range, or the broker has deleted the files of messages within it:
    the deleted part is skipped and counted. Compacted and static topics have holes that are no loss.
OFFSET_WENT_BACK
    The queue ends before the range, or another message stands where one was read: its log was truncated (an
    unclean crash, a failover to a replica that lagged) or the topic was created anew. The range is skipped
    and counted; a stream goes on at the queue's end, or where it was, never before that: what lies there may
    have been read already.
QUEUE_LOST
    The topic or the queue was deleted, or the topic's number of read queues lowered: the range is skipped
    and counted.

RANGE_UNACCOUNTED (`planning.account`) is none of the user's: what a task read does not add up to what was
planned, and no setting lets that pass.

A broker that is away, or out of the route, is none of these: its queues wait.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import assert_never

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import LostRange, MessageQueue, OffsetRange

__all__ = [
    "LossDecision",
    "PullVerdict",
    "decide_hidden",
    "decide_loss",
    "decide_moved_back",
    "decide_replaced",
]


class PullVerdict(enum.Enum):
    """Why a broker does not hand out a planned offset."""

    BELOW_MIN = "BELOW_MIN"
    """The offset lies before the queue's min offset."""
    BEYOND_MAX = "BEYOND_MAX"
    """The offset lies at or behind the queue's max offset."""
    REMOVED = "REMOVED"
    """The queue has the offset, but its message is gone: the file that held it was deleted."""
    QUEUE_GONE = "QUEUE_GONE"
    """The topic or queue does not exist any more."""


@dataclass(frozen=True, slots=True)
class LossDecision:
    """Go on at ``offset``; ``lost`` is what lies before it."""

    offset: int
    lost: LostRange


def decide_loss(
    wanted: OffsetRange, verdict: PullVerdict, bound: int, *, fail_on_data_loss: bool
) -> LossDecision:
    """Decide what becomes of a planned range that its broker cannot give.

    Parameters
    ----------
    wanted : OffsetRange
        What is still to be read.
    verdict : PullVerdict
    bound : int
        The queue's min offset for ``BELOW_MIN``, its max offset for ``BEYOND_MAX``, the next offset that has
        a message for ``REMOVED``.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        If ``fail_on_data_loss`` is set; names queue, range, cause, and what the option would do.
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
            cause = f"the queue now ends at {bound}: its log was truncated, or the topic was created anew"
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
            f"lost and reading goes on at {resume}",
            condition=condition,
            queue=str(wanted.queue),
            from_offset=lost.from_offset,
            until_offset=lost.until_offset,
        )
    return LossDecision(resume, LostRange(lost, condition))


def decide_moved_back(
    queue: MessageQueue, position: int, *, min_offset: int, max_offset: int, fail_on_data_loss: bool
) -> int:
    """Decide where a stream goes on in a queue that now ends before the stream's position.

    Call it only for offsets that a master has confirmed for a while: a broker that restarts builds its index
    anew, and a replica may lag.

    Parameters
    ----------
    queue : MessageQueue
    position : int
        The next offset that the stream would read, above ``max_offset``.
    min_offset, max_offset : int
        What the queue holds now.
    fail_on_data_loss : bool

    Returns
    -------
    int
        ``max_offset``: offsets below it were used before, so reading them could repeat messages.

    Raises
    ------
    DataLossError
        OFFSET_WENT_BACK, if ``fail_on_data_loss`` is set.
    """
    if fail_on_data_loss:
        raise DataLossError(
            f"the queue now holds [{min_offset}, {max_offset}), but everything up to {position} was read: "
            "its log was truncated, or the topic was created anew, and offsets are being used again. With "
            f"failOnDataLoss=false the query goes on at {max_offset} without the messages before it; to read "
            "a topic that was created anew from its beginning, start with another checkpointLocation",
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
    """Decide about a queue in which another message stands where one was read: offsets were used again.

    Parameters
    ----------
    queue : MessageQueue
    offset : int
        Of a message that was read.
    stored_at_ms, found_ms : int
        When that message was stored, and the one that is there now.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        OFFSET_WENT_BACK, if ``fail_on_data_loss`` is set.
    """
    if fail_on_data_loss:
        raise DataLossError(
            f"the message at {offset} was stored at {found_ms}, but the one that was read there at "
            f"{stored_at_ms} (ms since the epoch): the topic was created anew, or its log was truncated, and "
            "offsets are being used again. With failOnDataLoss=false the query goes on where it was, without "
            "the new messages before that; to read a topic that was created anew from its beginning, start "
            "with another checkpointLocation",
            condition="OFFSET_WENT_BACK",
            queue=str(queue),
            offset=offset,
        )


def decide_hidden(queue: MessageQueue, position: int, *, max_offset: int, fail_on_data_loss: bool) -> int:
    """Decide what becomes of a queue that its topic's lowered number of read queues hides.

    Brokers (4.9 and 5.4) keep its messages and tell its offsets, but hand none out.

    Parameters
    ----------
    queue : MessageQueue
    position : int
        The next offset that the stream would read.
    max_offset : int
        What the queue's broker says.
    fail_on_data_loss : bool

    Returns
    -------
    int
        How many messages wait unread, until the queue can be read again; its position is kept for that.

    Raises
    ------
    DataLossError
        QUEUE_LOST, if there are such messages and ``fail_on_data_loss`` is set.
    """
    unread = max(0, max_offset - position)
    if unread and fail_on_data_loss:
        raise DataLossError(
            f"{unread} unread messages are in a queue that cannot be read: the topic's number of read "
            f"queues was lowered to {queue.queue_id} or less: raise it to {queue.queue_id + 1} or more "
            "(mqadmin updateTopic -r) and restart the query, which goes on where it was; lower only that "
            "of write queues while a queue is read. With failOnDataLoss=false the query goes on without them",
            condition="QUEUE_LOST",
            queue=str(queue),
            position=position,
            max_offset=max_offset,
        )
    return unread
