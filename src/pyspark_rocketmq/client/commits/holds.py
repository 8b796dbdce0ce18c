"""For how long other messages wait for a batch that has begun and is not committed."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.commits.visible import HOLD_MS, Entry

__all__ = ["HoldTimes"]


class HoldTimes:
    """Limits the waiting for open batches, whatever the clocks of the brokers say.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[MessageQueue, dict[int, float]] = {}

    def holding(self, log: MessageQueue, begun: Sequence[Entry]) -> list[Entry]:
        """Return the open batches that unmarked messages still wait for.

        Parameters
        ----------
        log : MessageQueue
            The commit topic's queue.
        begun : sequence of Entry
            The first record of each open batch.
        """
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        before = self._seen.get(log, {})
        seen = self._seen[log] = {each.offset: before.get(each.offset, now_s) for each in begun}
        return [
            each
            for each in begun
            if max(now_ms - each.stored_at_ms, (now_s - seen[each.offset]) * 1000) < HOLD_MS
        ]
