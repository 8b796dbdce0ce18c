"""Data loss is decided here and nowhere else."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import assert_never

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import LostRange, OffsetRange

__all__ = ["LossDecision", "PullVerdict", "decide_loss"]


class PullVerdict(enum.Enum):
    """Why a broker does not hand out a planned offset."""

    BELOW_MIN = "BELOW_MIN"
    """The offset lies before the queue's min offset."""
    BEYOND_MAX = "BEYOND_MAX"
    """The offset lies at or behind the queue's max offset."""
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
        The queue's min offset for ``BELOW_MIN``, its max offset for ``BEYOND_MAX``.
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
        case PullVerdict.BEYOND_MAX:
            condition = "OFFSET_WENT_BACK"
            cause = f"the queue now ends at {bound}: its log was truncated, or the topic was created anew"
            resume = wanted.until_offset
        case PullVerdict.QUEUE_GONE:
            condition, cause = "QUEUE_LOST", "the topic or the queue does not exist any more"
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
