"""Pulls ranges one after the other, and limits how much each may request from its broker.

Ranges are emitted one after the other, each in offset order and exactly once. Pulls are pipelined over all
ranges, so that many small ranges cost little more than one.
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
    """Pull ranges; yield their undecoded records in order, and each range's end.

    Raises
    ------
    DataLossError
        Messages are gone and ``options.fail_on_data_loss`` is set.
    RocketMQError
        A range made no progress for ``options.stall_timeout_ms``, or failed permanently.
    """
    yield from RangeReader(client, ranges, options)


class RangeReader:
    """Reads ranges, for `read_chunks`.

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
        """Keep the allowed number of pulls in flight, those of the first range first.

        The ranges between the first and the last have requested all that they may: a later range only begins
        if there is room left, and their answers are not taken before they are the first.
        """
        if self._active:
            # All others wait for the first range, so it has its own share: they may have taken
            # everything while its broker was down.
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
        """Whether there is room for a request of another range."""
        expected_bytes = self._client.pull_hints.of(offsets.queue, self._options.selector).expected_bytes
        return self._pulls_left() > 0 and self._room_bytes(ahead=True) >= expected_bytes

    def _pulls_left(self) -> int:
        return self._depth.limit - sum(pull.in_flight for pull in self._active)

    def _room_bytes(self, *, ahead: bool) -> int:
        """Return how many bytes may still be requested. A quarter is reserved for the first range."""
        most = self._options.max_bytes_in_flight
        return (most * 3 // 4 if ahead else most) - sum(pull.bytes_due for pull in self._active)
