"""Decides which pulls of one offset range are in flight, and puts their answers in order.

A broker answers a pull with a limited number of messages (by default 32, or 256 KiB), and with the offset
of the next pull. Waiting for that offset costs a round trip per pull, so the window *predicts* it: pulls are
sent at ``from``, ``from + stride``, ``from + 2 * stride``, and so on; ``stride`` is adapted to the answers. A
prediction may be too short or too long, and answers may arrive in any order: the window returns exactly the
range, once, in order.

Every offset between what was taken and the last prediction is in one of four places: in an answer that waits
for earlier ones, owed by a pull in flight, in a hole (pulled next, the first hole first), or postponed (its
pull returned nothing; it is pulled again when everything before it has been taken).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pyspark_rocketmq.model import OffsetRange

__all__ = ["Ask", "PullWindow", "Taken"]

# Facts: a broker transfers at most 32 messages a pull from memory and 8 from disk unless configured
# otherwise (MessageStoreConfig.maxTransferCountOnMessageIn{Memory,Disk}), and scans at least 800
# entries for a filter (maxFilterMessageSize / 20, DefaultMessageStore.getMessage).
_DEFAULT_STRIDE: Final = 32
_DEFAULT_SCAN: Final = 800
_FIRST_PROBE: Final = 64
_LAST_PROBE: Final = 4096

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Ask:
    """A pull to send: at most ``max_messages`` from ``offset``."""

    offset: int
    max_messages: int


@dataclass(frozen=True, slots=True)
class Taken(Generic[P]):
    """The next answer in order. Only its messages in ``[from_offset, until_offset)`` count."""

    payload: P
    from_offset: int
    until_offset: int


@dataclass(slots=True)
class _InFlight:
    """A pull: its maximum number of messages, and the offsets that no other pull returns."""

    size: int
    owed_from: int
    owed_until: int


class PullWindow(Generic[P]):
    """The pulls of one range.

    Parameters
    ----------
    offsets : OffsetRange
    batch_size : int
        The maximum number of messages per pull (for a filtered read: of entries to scan).
    filtered : bool
        Whether the broker filters messages: an answer then covers more offsets than it has messages.
    stride : int, optional
        The stride of an earlier window of the same topic, broker and filter.
    """

    __slots__ = ("_answers", "_asks", "_filtered", "_holes", "_in_flight", "_next", "_order", "_postponed",
                 "_probe_at", "_probe_every", "batch_size", "expected", "held_bytes", "stride",
                 "until")  # fmt: skip

    def __init__(
        self, offsets: OffsetRange, *, batch_size: int, filtered: bool = False, stride: int | None = None
    ) -> None:
        self.expected = offsets.from_offset
        """The next offset to take."""
        self.held_bytes = 0
        """The bytes of answers that wait for an earlier one."""
        self.until = offsets.until_offset
        self.batch_size = batch_size
        self.stride = min(batch_size, stride or (_DEFAULT_SCAN if filtered else _DEFAULT_STRIDE))
        self._filtered = filtered
        self._next = self.expected
        self._in_flight: dict[int, _InFlight] = {}
        self._answers: list[tuple[int, int, int, P, int]] = []
        self._holes: list[tuple[int, int]] = []
        self._postponed: list[tuple[int, int]] = []
        self._order = 0
        self._asks = 0
        self._probe_every = _FIRST_PROBE
        self._probe_at = 1 if stride is None else _FIRST_PROBE

    @property
    def done(self) -> bool:
        """Whether the whole range has been taken."""
        return self.expected >= self.until

    def ask(self) -> Ask | None:
        """Return the next pull to send, which is then in flight; None if there is nothing to pull now."""
        if self.done:
            return None
        hole = self._first_hole()
        if hole is not None:
            start, end = hole
            size = min(self.stride, end - start)
            if start + size < end:
                heapq.heappush(self._holes, (start + size, end))
            return self._send(start, size, start + size)
        offset = max(self._next, self.expected)
        if offset >= self.until:
            return None
        self._next = min(offset + self.stride, self.until)
        self._asks += 1
        size = self.stride
        if not self._filtered and self._asks >= self._probe_at:
            # Request the maximum, but predict as before. If the broker returns more, the stride grows and the
            # overlap is cut; if not, it costs nothing.
            size = self.batch_size
            self._probe_at = self._asks + self._probe_every
            self._probe_every = min(_LAST_PROBE, 2 * self._probe_every)
        return self._send(offset, size, self._next)

    def record_answer(
        self, asked: int, next_offset: int, *, messages: int, payload: P, payload_bytes: int = 0
    ) -> None:
        """Record the answer to the pull at ``asked``, which covers the offsets up to ``next_offset``."""
        pull = self._in_flight.pop(asked, None)
        if pull is None:
            return
        end = min(next_offset, self.until)
        if end <= asked:
            self._give_back(pull, self._postponed)
            return
        self._learn(pull.size, end - asked, messages)
        if end > self.expected:
            self._order += 1
            heapq.heappush(self._answers, (asked, self._order, end, payload, payload_bytes))
            self.held_bytes += payload_bytes
        if end > pull.owed_until:
            self._reduce_owed(asked, end)
        else:
            pull.owed_from = max(pull.owed_from, end)
            self._give_back(pull, self._holes)

    def take(self) -> list[Taken[P]]:
        """Return the next answers in order, cut to the offsets that were not taken yet."""
        taken: list[Taken[P]] = []
        while self._answers and self._answers[0][0] <= self.expected:
            _, _, until, payload, payload_bytes = heapq.heappop(self._answers)
            self.held_bytes -= payload_bytes
            if until > self.expected:
                taken.append(Taken(payload, self.expected, until))
                self.expected = until
        return taken

    def skip_to(self, offset: int) -> None:
        """Skip the offsets before ``offset``: the broker no longer has them."""
        self.expected = min(max(self.expected, offset), self.until)

    def record_refusal(self, asked: int) -> None:
        """Record that the broker rejected the pull at ``asked``; it is among the next pulls again."""
        pull = self._in_flight.pop(asked, None)
        if pull is not None:
            self._give_back(pull, self._holes)

    def postpone(self, asked: int) -> None:
        """Record that there was nothing at ``asked``; it is pulled again when the reader has reached it."""
        pull = self._in_flight.pop(asked, None)
        if pull is not None:
            self._give_back(pull, self._postponed)

    def restart(self) -> None:
        """Forget the pulls in flight: their connection is closed. Answers that have arrived are kept."""
        for pull in self._in_flight.values():
            self._give_back(pull, self._holes)
        self._in_flight.clear()
        for hole in self._postponed:
            heapq.heappush(self._holes, hole)
        self._postponed.clear()

    def _first_hole(self) -> tuple[int, int] | None:
        """Remove and return the first hole, or the postponed pull that the reader has reached."""
        while self._postponed and self._postponed[0][0] <= self.expected:
            heapq.heappush(self._holes, heapq.heappop(self._postponed))
        while self._holes:
            start, end = heapq.heappop(self._holes)
            start = max(start, self.expected)
            if start < end:
                return start, end
        return None

    def _give_back(self, pull: _InFlight, to: list[tuple[int, int]]) -> None:
        if pull.owed_from < pull.owed_until:
            heapq.heappush(to, (pull.owed_from, pull.owed_until))

    def _reduce_owed(self, start: int, end: int) -> None:
        """Record an answer that covers more than was predicted: no other pull has to return that."""
        for pull in self._in_flight.values():
            if start <= pull.owed_from < end:
                pull.owed_from = min(end, pull.owed_until)
        for holes in (self._holes, self._postponed):
            if holes and holes[0][0] < end:
                holes[:] = [(max(a, min(end, b)) if a >= start else a, b) for a, b in holes]
                holes[:] = [hole for hole in holes if hole[0] < hole[1]]
                heapq.heapify(holes)
        self._next = max(self._next, end)

    def _send(self, offset: int, size: int, owed_until: int) -> Ask:
        size = min(size, self.until - offset)
        self._in_flight[offset] = _InFlight(size, offset, owed_until)
        return Ask(offset, size)

    def _learn(self, size: int, advance: int, messages: int) -> None:
        """Adapt the stride to an answer that covers ``advance`` of ``size`` requested offsets."""
        if self._filtered:
            if advance < size:  # the answer was full before its scan ended
                self.stride = max(_DEFAULT_STRIDE, advance * 3 // 4)
            elif size >= self.stride and messages <= _DEFAULT_STRIDE // 4:
                self.stride = min(self.batch_size, 2 * self.stride)
        elif messages and advance < size:
            self.stride = advance if advance > self.stride else max(1, min(self.stride, advance))
        elif messages and size > self.stride:
            self.stride = min(self.batch_size, size)
