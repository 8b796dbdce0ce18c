"""Ranges pulled one after the other: which of them may ask a broker for how much at once.

Ranges are emitted in turn, each in offset order and exactly once; pulls are pipelined over all of them, so
that many small ranges cost little more than one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark_rocketmq.client.read.range_pull import RangePull
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.model import OffsetRange
from pyspark_rocketmq.planning.pulling.pull_concurrency import PullDepth
from pyspark_rocketmq.record.decode.arrow import Chunk

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client

__all__ = ["Pulled", "RangeEnd", "RangeReader", "ReadEvent", "read_chunks"]


@dataclass(frozen=True, slots=True)
class Pulled:
    """Records of a range, undecoded, in the order of their offsets; at least one chunk."""

    pull: RangePull
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class RangeEnd:
    """All of a range has been returned, except the offsets in `RangePull.lost`."""

    pull: RangePull


ReadEvent: TypeAlias = Pulled | RangeEnd


def read_chunks(client: Client, ranges: Sequence[OffsetRange], options: ReadOptions) -> Iterator[ReadEvent]:
    """Pull ranges and yield their raw records as they come in order, and each range's end.

    Raises
    ------
    DataLossError
        Messages are gone and ``options.fail_on_data_loss`` is set.
    RocketMQError
        A range made no progress for ``options.stall_timeout_ms``, or failed permanently.
    """
    yield from RangeReader(client, ranges, options)


class RangeReader:
    """Reads ranges; what `read_chunks` iterates over.

    Parameters
    ----------
    client : Client
    ranges : sequence of OffsetRange
    options : ReadOptions
    """

    def __init__(self, client: Client, ranges: Sequence[OffsetRange], options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._waiting = deque(ranges)
        self._active: deque[RangePull] = deque()
        self._depth = PullDepth(options.pulls_in_flight)

    def __iter__(self) -> Iterator[ReadEvent]:
        try:
            while self._waiting or self._active:
                self._ask()
                head = self._active[0]
                chunks = [] if head.done else head.advance()
                if chunks:
                    self._ask()  # the broker works while the caller does
                    yield Pulled(head, chunks)
                if head.done:
                    head.close()
                    self._active.popleft()
                    yield RangeEnd(head)
        finally:
            for pull in self._active:
                pull.close()

    def _ask(self) -> None:
        """Keep the allowed number of pulls in flight, the first range first.

        Those between the first and the last one have asked for all that they may: a later one was begun only
        when there was room left, and they get no answers before it is their turn.
        """
        if self._active:
            # The one that everything waits for has its own share: the others may have taken all
            # while its broker was away.
            head = self._active[0]
            head.ask(self._depth.limit - head.in_flight, self._room_bytes(ahead=False))
        if len(self._active) > 1:
            self._active[-1].ask(self._pulls_left(), self._room_bytes(ahead=True))
        while self._waiting and (not self._active or self._may_begin(self._waiting[0])):
            pull = RangePull(self._client, self._waiting.popleft(), self._options, self._depth)
            ahead = bool(self._active)
            self._active.append(pull)
            pull.ask(self._pulls_left(), self._room_bytes(ahead=ahead))

    def _may_begin(self, offsets: OffsetRange) -> bool:
        """Whether a further range would find room to ask for something."""
        expected_bytes = self._client.pull_hints.of(offsets.queue, self._options.selector).expected_bytes
        return self._pulls_left() > 0 and self._room_bytes(ahead=True) >= expected_bytes

    def _pulls_left(self) -> int:
        return self._depth.limit - sum(pull.in_flight for pull in self._active)

    def _room_bytes(self, *, ahead: bool) -> int:
        """Return how many bytes may still be asked for; a quarter is kept for the range whose turn it is."""
        most = self._options.max_bytes_in_flight
        return (most * 3 // 4 if ahead else most) - sum(pull.bytes_due for pull in self._active)
