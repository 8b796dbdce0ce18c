"""Which pulls of one offset range to have in flight, and how their answers fit together again.

A broker answers a pull with at most so many messages (32, or 256 KiB, by default) and says where the
next pull should begin. Waiting for that costs a round trip a pull, so the window *predicts* it: pulls
go out at ``from``, ``from + stride``, ``from + 2 * stride``, … while ``stride`` follows what the answers
show. A prediction may be wrong both ways, and answers may come in any order; the window lets pass
exactly the range, once, in order, whatever comes.
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
    """A pull to send: begin at ``offset``, ask for ``max_messages``."""

    offset: int
    max_messages: int


@dataclass(frozen=True, slots=True)
class Taken(Generic[P]):
    """An answer whose turn has come: of its messages, those in ``[from_offset, until_offset)`` count."""

    payload: P
    from_offset: int
    until_offset: int


class PullWindow(Generic[P]):
    """The pulls of one range.

    Parameters
    ----------
    offsets : OffsetRange
    batch_size : int
        The most messages to ask for in one pull (for a filtered read: the most entries to scan).
    filtered : bool
        Whether the broker leaves messages out: an answer then covers more offsets than it has messages.
    stride : int, optional
        What a former window of the same broker has learned.
    """

    __slots__ = ("_answers", "_asks", "_filtered", "_holes", "_in_flight", "_next", "_order", "_probe_at",
                 "_probe_every", "batch_size", "expected", "stride", "until")  # fmt: skip

    def __init__(
        self, offsets: OffsetRange, *, batch_size: int, filtered: bool = False, stride: int | None = None
    ) -> None:
        self.expected = offsets.from_offset
        """The offset that comes next: everything before it has been taken."""
        self.until = offsets.until_offset
        self.batch_size = batch_size
        self.stride = min(batch_size, stride or (_DEFAULT_SCAN if filtered else _DEFAULT_STRIDE))
        self._filtered = filtered
        self._next = self.expected
        self._in_flight: dict[int, int] = {}
        self._answers: list[tuple[int, int, int, P]] = []
        self._holes: list[int] = []
        self._order = 0
        self._asks = 0
        self._probe_every = _FIRST_PROBE
        self._probe_at = 1 if stride is None else _FIRST_PROBE

    @property
    def done(self) -> bool:
        """Whether the whole range has been taken."""
        return self.expected >= self.until

    @property
    def held(self) -> int:
        """How many answers wait for an earlier one."""
        return len(self._answers)

    @property
    def exhausted(self) -> bool:
        """Whether no further pull is predicted (holes may still open)."""
        return self._next >= self.until

    def ask(self) -> Ask | None:
        """Return the next pull to send and count it as in flight; None if there is nothing to ask for now."""
        if self.done:
            return None
        hole = self._hole()
        if hole is not None:
            return self._send(hole, min(self.stride, self._known_after(hole) - hole))
        if self.exhausted:
            return None
        offset = self._next
        self._next += self.stride
        self._asks += 1
        size = self.stride
        if not self._filtered and self._asks >= self._probe_at:
            # Ask for all we may while predicting as before: a broker that gives more teaches a longer stride,
            # one that does not costs nothing, and the overlap is cut away.
            size = self.batch_size
            self._probe_at = self._asks + self._probe_every
            self._probe_every = min(_LAST_PROBE, 2 * self._probe_every)
        return self._send(offset, size)

    def answered(self, asked: int, next_offset: int, messages: int, payload: P) -> None:
        """Take in the answer to the pull at ``asked``, which covers the offsets up to ``next_offset``."""
        size = self._in_flight.pop(asked, 0)
        if next_offset <= asked:
            return
        self._learn(size, min(next_offset, self.until) - asked, messages)
        if next_offset > self.expected:
            self._order += 1
            heapq.heappush(self._answers, (asked, self._order, next_offset, payload))
            self._next = max(self._next, next_offset)
            fits = next_offset == self._next or next_offset in self._in_flight  # nearly always, and cheap
            if not fits and next_offset < self._known_after(asked):
                self._holes.append(next_offset)

    def take(self) -> list[Taken[P]]:
        """Return the answers whose turn has come, in order, cut to what was not taken yet."""
        taken: list[Taken[P]] = []
        while self._answers and self._answers[0][0] <= self.expected:
            _, _, next_offset, payload = heapq.heappop(self._answers)
            until = min(next_offset, self.until)
            if until > self.expected:
                taken.append(Taken(payload, self.expected, until))
                self.expected = until
        return taken

    def skip_to(self, offset: int) -> None:
        """Give up what lies before ``offset``: the broker does not have it any more."""
        self.expected = min(max(self.expected, offset), self.until)
        self._next = max(self._next, self.expected)

    def refused(self, asked: int) -> None:
        """Take note that the pull at ``asked`` brought nothing; it is asked again when its turn comes."""
        self._in_flight.pop(asked, None)

    def restart(self) -> None:
        """Forget the pulls in flight (their connection is gone) and go on where the reader is."""
        self._in_flight.clear()
        self._answers.clear()
        self._holes.clear()
        self._next = self.expected

    def _hole(self) -> int | None:
        """Return an offset that the predictions have passed but that is neither in flight nor here."""
        if self._next <= self.expected:
            return None
        if self.expected not in self._in_flight and not (
            self._answers and self._answers[0][0] <= self.expected
        ):
            return self.expected
        while self._holes:
            hole = self._holes.pop()
            if self.expected < hole < self._next and hole not in self._in_flight:
                return hole
        return None

    def _known_after(self, offset: int) -> int:
        """Return the nearest later offset that is in flight, answered, or not yet predicted."""
        later = [asked for asked in self._in_flight if asked > offset]
        later += [answer[0] for answer in self._answers if answer[0] > offset]
        return min([self._next, self.until, *later])

    def _send(self, offset: int, size: int) -> Ask:
        size = min(size, self.until - offset)
        self._in_flight[offset] = size
        return Ask(offset, size)

    def _learn(self, size: int, advance: int, messages: int) -> None:
        """Adapt the stride to an answer that covers ``advance`` offsets of the ``size`` asked for."""
        if self._filtered:
            if advance < size:  # the answer was full before its scan ended
                self.stride = max(_DEFAULT_STRIDE, advance * 3 // 4)
            elif size >= self.stride and messages <= _DEFAULT_STRIDE // 4:
                self.stride = min(self.batch_size, 2 * self.stride)
        elif messages and advance < size:
            self.stride = advance if advance > self.stride else max(1, min(self.stride, advance))
        elif messages and size > self.stride:
            self.stride = min(self.batch_size, size)
