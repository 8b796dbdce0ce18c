"""Decides whether a batch is the next one for a store that keeps the end of the last one."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_rocketmq.errors import DataLossError
from pyspark_rocketmq.model import MessageQueue, OffsetRange

__all__ = ["BatchId", "BatchTurn", "StoredProgress", "decide_turn"]


class BatchTurn(enum.Enum):
    """The relation of a batch to a store."""

    NEXT = "next"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class BatchId:
    """A micro-batch: the id of its query, which lives in the checkpoint, and its number there."""

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class StoredProgress:
    """A store's state: the next offset of each queue, and the last batch; empty before the first one."""

    offsets: Mapping[MessageQueue, int] = field(default_factory=dict)
    batch: BatchId | None = None


def decide_turn(stored: StoredProgress, batch: BatchId, ranges: Sequence[OffsetRange]) -> BatchTurn:
    """Return whether a batch must be written now, or was written already.

    The offsets decide: every range must begin at the store's offset. A queue that the store does not contain
    may begin anywhere. For a batch without ranges (Spark runs them to close windows), the number decides.

    Raises
    ------
    DataLossError
        ``BATCH_SKIPPED``: messages between the store's end and the batch's begin were never written.
        ``BATCH_OVERLAPS``: part of the batch was written already, in another batch.
    """
    numbered_before = (
        stored.batch is not None
        and stored.batch.query_id == batch.query_id
        and batch.number <= stored.batch.number
    )
    if not ranges:
        return BatchTurn.REPEAT if numbered_before else BatchTurn.NEXT
    ends = {offsets.queue: stored.offsets.get(offsets.queue) for offsets in ranges}
    for offsets in ranges:
        end = ends[offsets.queue]
        if end is not None and end < offsets.from_offset:
            raise DataLossError(
                "the batch begins after the end of what is stored: batches between them were never written; "
                "start from the stored offsets with a new checkpoint",
                condition="BATCH_SKIPPED",
                range=offsets,
                stored_end=end,
                batch=batch.number,
            )
    if all((ends[offsets.queue] or 0) >= offsets.until_offset for offsets in ranges):
        return BatchTurn.REPEAT
    if not numbered_before and all(ends[o.queue] in (None, o.from_offset) for o in ranges):
        return BatchTurn.NEXT
    overlapped = next(o for o in ranges if ends[o.queue] != o.from_offset)
    raise DataLossError(
        "a part of the batch is stored already, from other batches: start from the stored offsets with a new "
        "checkpoint",
        condition="BATCH_OVERLAPS",
        range=overlapped,
        stored_end=ends[overlapped.queue],
        batch=batch.number,
    )
