"""The first message at or after a moment, where the broker's own search only comes close, or fails.

Brokers before 5.1.4 ignore ``boundaryType`` and answer SEARCH_OFFSET_BY_TIMESTAMP with any message of
that moment, or with the nearest neighbor on either side (``ConsumeQueue.getOffsetInQueueByTime`` of 4.9).
Once a static topic's queue has moved, the answer may be 0 whatever the moment: the last part that is looked
at overwrites the answer of the part that has it (``AdminBrokerProcessor.rewriteRequestForStaticTopic``, 5.4).
"""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.record.decode.times import first_times

__all__ = ["LowerBoundSearch", "probe"]

_ALL: Final = MessageSelector()


class LowerBoundSearch:
    """Which offset to look at next, until the first one stored at or after ``timestamp_ms`` is known.

    Gallops away from the broker's hint until the answer is enclosed, then halves: a good hint costs a few
    probes, a bad one about twice the binary logarithm of the queue. Store times never decrease in a queue.

    Parameters
    ----------
    timestamp_ms : int
    min_offset, max_offset : int
        The queue's; the answer is ``max_offset`` if every message is older.
    hint : int
        The broker's answer.
    """

    def __init__(self, timestamp_ms: int, *, min_offset: int, max_offset: int, hint: int) -> None:
        self._timestamp_ms = timestamp_ms
        self._low = min_offset  # everything below is older
        self._high = max(min_offset, max_offset)  # this one (if there is one) and everything above is not
        self._end = self._high
        self._all_older = True
        self._next = hint
        self._step = 1
        self._downwards: bool | None = None
        self._galloping = True
        self._gap_from: int | None = None

    @property
    def answer(self) -> int | None:
        """The answer, once it is known."""
        if self._low < self._high:
            return None
        return (
            self._end if self._all_older else self._low
        )  # a gap may lie between the last message and the end

    @property
    def probe(self) -> int:
        """The offset to look at next; meaningful until there is an answer."""
        return min(max(self._next, self._low), self._high - 1)

    def record_found(self, offset: int, store_timestamp: int) -> None:
        """Record the message that a read at ``probe`` found: the first one at or after it."""
        begin = self.probe if self._gap_from is None else self._gap_from
        if store_timestamp >= self._timestamp_ms:
            self._all_older = False
            self._narrow(self._low, begin)
        else:
            self._narrow(min(max(offset, begin) + 1, self._high), self._high)

    def record_expired(self, min_offset: int) -> None:
        """Record that the queue now begins after ``probe``."""
        self._narrow(min(max(min_offset, self.probe + 1), self._high), self._high)

    def record_gone(self, next_offset: int) -> None:
        """Record that there is no message between ``probe`` and ``next_offset``."""
        begin = self.probe if self._gap_from is None else self._gap_from
        if self.probe < next_offset < self._high:
            self._gap_from, self._next = begin, next_offset  # the message after the gap decides
        else:
            self._narrow(self._low, begin)

    def _narrow(self, low: int, high: int) -> None:
        downwards = high < self._high
        self._low, self._high = low, high
        self._gap_from = None
        if self._downwards is not None and downwards != self._downwards:
            self._galloping = False
        self._downwards = downwards
        if self._galloping:
            self._next = high - self._step if downwards else low + self._step - 1
            self._step *= 2
        else:
            self._next = (low + high) // 2


def probe(queue: MessageQueue, search: LowerBoundSearch, group: str) -> Call[None]:
    """Look at the first message at or after ``search.probe`` and tell the search."""
    offset = search.probe
    look = broker.pull(queue, offset, group=group, max_nums=1, selector=_ALL)

    def parse(response: Response) -> None:
        answer = look.parse(response)
        if answer.status is not PullStatus.FOUND:
            # Between the parts of a static topic's queue the answer tells the bounds of the next part alone.
            moved = answer.status is PullStatus.OFFSET_ILLEGAL or not queue.logical
            if offset < answer.header.min_offset and moved:
                search.record_expired(answer.header.min_offset)
            else:
                search.record_gone(answer.header.next_begin_offset)
            return
        # Only the head: what a producer made of the rest is the reader's business. An inner batch is
        # returned whole: the offset may lie after its first message.
        times = first_times(answer.records)
        first = times.queue_offset + (answer.header.offset_delta or 0)
        search.record_found(max(first, offset), times.store_timestamp)

    return Call(look.request, parse)
