"""The messages of one queue in memory, and a broker's response to a pull of them."""

# Facts (DefaultMessageStore.getMessage, 5.4.0; the contract suite compares responses with a real broker's)
# - A response ends at the allowed count or bytes, whichever comes first. It always has its first message.
# - A filter checks max(800, maxMsgNums) entries per pull and compares hashes of tags.
# - Entries whose commit log file is deleted are skipped: a hole in a response, or 20 with
#   MESSAGE_WAS_REMOVING if nothing else is left.
# - Where a file of the queue's index is gone, a master responds 19 with OFFSET_FOUND_NULL and the start of
#   the next file, a slave with the same offset. A response ends before that.
# - Outside [min, max] a master responds 21; a slave responds 20 and repeats the offset.

from __future__ import annotations

import bisect
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["PullLimits", "Pulled", "QueueLog", "StoredMessage"]

_SCANNED_ENTRIES: Final = 800
_MOST_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of one pull response (``maxTransfer…OnMessageInMemory``)."""

    messages: int = 32
    body_bytes: int = 256 << 10


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A record at its offset. ``tag_hash`` is Java's hash of its tag, or None without a tag."""

    offset: int
    record: bytes
    store_timestamp: int
    tag_hash: int | None = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """The response to a pull. ``remark`` is the store's status."""

    code: ResponseCode
    remark: str
    next_begin_offset: int
    records: bytes = b""


@dataclass(slots=True)
class QueueLog:
    """Messages by ascending offset. An offset without a message is a gap.

    ``max_offset`` is the next offset to write.
    """

    min_offset: int = 0
    max_offset: int = 0
    _offsets: list[int] = field(default_factory=list)
    _messages: list[StoredMessage] = field(default_factory=list)
    _removed: list[tuple[int, int]] = field(default_factory=list)
    _unindexed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def messages(self) -> tuple[StoredMessage, ...]:
        """All stored messages."""
        return tuple(self._messages)

    def append(self, message: StoredMessage) -> None:
        """Store a message at ``max_offset``."""
        assert message.offset == self.max_offset
        self._offsets.append(message.offset)
        self._messages.append(message)
        self.max_offset += 1

    def skip(self, count: int) -> None:
        """Leave a gap: offsets without a message for consumers, as after compaction."""
        self.max_offset += count

    def expire(self, min_offset: int) -> None:
        """Delete messages before ``min_offset``."""
        self.min_offset = min(max(min_offset, self.min_offset), self.max_offset)
        kept = bisect.bisect_left(self._offsets, self.min_offset)
        del self._offsets[:kept], self._messages[:kept]

    def remove(self, from_offset: int, until_offset: int, *, index: bool = False) -> None:
        """Delete messages, or their entries in the index, but keep the min offset."""
        first, last = (bisect.bisect_left(self._offsets, offset) for offset in (from_offset, until_offset))
        del self._offsets[first:last], self._messages[first:last]
        (self._unindexed if index else self._removed).append((from_offset, until_offset))

    def truncate(self, max_offset: int) -> None:
        """Delete messages from ``max_offset`` on. Their offsets will be reused."""
        self.max_offset = max(0, min(max_offset, self.max_offset))
        self.min_offset = min(self.min_offset, self.max_offset)
        kept = bisect.bisect_left(self._offsets, self.max_offset)
        del self._offsets[kept:], self._messages[kept:]
        self._unindexed = [(start, min(until, self.max_offset)) for start, until in self._unindexed]

    def replace(self, message: StoredMessage) -> None:
        """Replace the message at an existing offset."""
        at = bisect.bisect_left(self._offsets, message.offset)
        if at == len(self._offsets) or self._offsets[at] != message.offset:
            raise KeyError(message.offset)
        self._messages[at] = message

    def search(self, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time, else max offset."""
        at = bisect.bisect_left(self._messages, timestamp_ms, key=lambda message: message.store_timestamp)
        if at == len(self._messages):
            return self.max_offset
        return self._offsets[at] if at else self.min_offset

    def pull(
        self,
        offset: int,
        max_messages: int,
        *,
        limits: PullLimits,
        tag_hashes: Collection[int] | None = None,
        max_offset: int | None = None,
        slave: bool = False,
    ) -> Pulled:
        """Return the response to a pull.

        Parameters
        ----------
        offset, max_messages : int
        limits : PullLimits
        tag_hashes : collection of int, optional
            Only messages with one of these.
        max_offset : int, optional
            The replica's max offset, if it lags.
        slave : bool
        """
        end = self.max_offset if max_offset is None else min(max_offset, self.max_offset)
        outside = self._outside(offset, end, slave=slave)
        if outside is not None:
            return outside
        unindexed = next((until for start, until in self._unindexed if start <= offset < until), None)
        if unindexed is not None:
            next_offset = offset if slave else unindexed
            return Pulled(ResponseCode.PULL_NOT_FOUND, "OFFSET_FOUND_NULL", next_offset)
        end = min([end, *(start for start, _ in self._unindexed if start > offset)])
        taken: list[bytes] = []
        size = 0
        scan_end = min(end, offset + max(_SCANNED_ENTRIES, max_messages))
        position = offset
        for at in range(bisect.bisect_left(self._offsets, offset), len(self._offsets)):
            message = self._messages[at]
            if message.offset >= scan_end:
                break
            full = len(taken) >= min(max(1, max_messages), limits.messages)
            if taken and (full or size + len(message.record) > min(limits.body_bytes, _MOST_BYTES)):
                return Pulled(ResponseCode.SUCCESS, "FOUND", position, b"".join(taken))
            if tag_hashes is None or message.tag_hash in tag_hashes:
                size += len(message.record)
                taken.append(message.record)
            position = message.offset + 1
        else:
            scan_end = end
        if not taken:
            removed = any(start < scan_end and offset < until for start, until in self._removed)
            remark = "MESSAGE_WAS_REMOVING" if removed else "NO_MATCHED_MESSAGE"
            return Pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, scan_end)
        return Pulled(
            ResponseCode.SUCCESS, "FOUND", position if tag_hashes is None else scan_end, b"".join(taken)
        )

    def _outside(self, offset: int, end: int, *, slave: bool) -> Pulled | None:
        """Return the response to a pull of an offset where no message can be."""
        if offset == end:
            remark = "OFFSET_OVERFLOW_ONE" if end else "NO_MESSAGE_IN_QUEUE"
            return Pulled(ResponseCode.PULL_NOT_FOUND, remark, offset)
        if self.min_offset <= offset < end:
            return None
        if end == 0:
            remark, bound = "NO_MESSAGE_IN_QUEUE", 0
        elif offset < self.min_offset:
            remark, bound = "OFFSET_TOO_SMALL", self.min_offset
        else:
            remark, bound = "OFFSET_OVERFLOW_BADLY", end
        if slave:
            return Pulled(ResponseCode.PULL_RETRY_IMMEDIATELY, remark, offset)
        return Pulled(ResponseCode.PULL_OFFSET_MOVED, remark, bound)
