"""What a query promises that aligns its queues by store time, and adds the column ``alignedTimestamp``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.simulation.history import History, Row

from pyspark_rocketmq.model import MessageQueue

__all__ = ["Alignment"]


@dataclass(frozen=True, slots=True)
class _Batch:
    """A micro-batch that was planned while every known broker answered.

    Parameters
    ----------
    planned_s : float
        Everything that was stored before this virtual second was seen.
    aligned_ms : int
    newest_ms : int
        The store time of its newest row.
    known : collection of MessageQueue
    """

    planned_s: float
    aligned_ms: int
    newest_ms: int
    known: Collection[MessageQueue]


class Alignment:
    """Compares each micro-batch with the store times of later rows.

    Parameters
    ----------
    history : History
    ahead_ms : int
        How far the driver's clock is ahead of the slowest broker's, at most: a message may be stored that
        much before the moment at which the driver planned without it.
    """

    def __init__(self, history: History, *, ahead_ms: int) -> None:
        self._history = history
        self._ahead_ms = ahead_ms
        self._batches: list[_Batch] = []
        self._aligned_ms: int | None = None

    def check(
        self,
        number: int,
        aligned_ms: int,
        known: Collection[MessageQueue],
        rows: Sequence[Row],
        *,
        planned_s: float,
    ) -> None:
        """Check a micro-batch.

        Parameters
        ----------
        number, aligned_ms : int
        known : collection of MessageQueue
            The queues that have a position at its end.
        rows : sequence of Row
        planned_s : float
        """
        times_ms = self._history.stored_ms
        self._history.unaligned += [
            f"{row.place} of batch {number}: {found}"
            for row in rows
            if row.place in times_ms and (found := self._late(row, times_ms[row.place]))
        ]
        before_ms, self._aligned_ms = self._aligned_ms, aligned_ms
        if before_ms is not None and aligned_ms < before_ms:
            self._history.unaligned.append(f"batch {number} is aligned at {aligned_ms} after {before_ms}")
        # It moves while every known broker answers. The first time does not say that they did.
        if before_ms is not None and aligned_ms > before_ms:
            newest_ms = max((times_ms.get(row.place, 0) for row in rows), default=0)
            self._batches.append(_Batch(planned_s, aligned_ms, newest_ms, known))

    def _late(self, row: Row, time_ms: int) -> str:
        """Return what is wrong with a row, after the batches so far."""
        queue, stored_s = MessageQueue(*row.place[:3]), self._history.stored_at[row.place]
        for batch in reversed(self._batches):
            if queue in batch.known and time_ms < batch.aligned_ms - self._ahead_ms:
                return f"stored {batch.aligned_ms - time_ms} ms before what all queues were read to"
            if queue in batch.known and stored_s < batch.planned_s and time_ms < batch.newest_ms:
                return f"stored {batch.newest_ms - time_ms} ms before a row of another queue that was read"
        return ""
