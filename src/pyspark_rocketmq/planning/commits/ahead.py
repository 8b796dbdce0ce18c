"""What commit topics say of messages that a direct stream has not read, and how far its next batch goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.commits.records import Commit, Ranges
from pyspark_rocketmq.planning.commits.visible import expand, shrink
from pyspark_rocketmq.planning.limit import Limits, admit

__all__ = ["CommitsAhead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsAhead:
    """The unread records of commit topics, whose queues are queues of the stream.

    Parameters
    ----------
    topics : frozenset of str
        The commit topics.
    ends : Mapping
        Where the queues of commit topics end, as far as they can be read now.
    commits : Mapping
        The valid commits before these ends that were not read, with their offsets, by commit topic's queue.
        They list queues of the stream's topics only.
    holds : Mapping
        Where the messages of batches begin that will soon be committed.
    known : Ranges
        What commits list: offsets that are no unmarked messages.
    on_wait : Callable
        Called with a commit that has to wait, and a queue that cannot be read up to its messages now.
    """

    topics: frozenset[str]
    ends: Mapping[MessageQueue, int]
    commits: Mapping[MessageQueue, Sequence[tuple[int, Commit]]]
    holds: Mapping[MessageQueue, int]
    known: Ranges
    on_wait: Callable[[Commit, MessageQueue], None]

    def admit(
        self,
        positions: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        readable: Mapping[MessageQueue, int],
        limits: Limits,
        *,
        elapsed_ms: int,
    ) -> dict[MessageQueue, int]:
        """Return where each queue's part of the next batch ends.

        Limits apply to unmarked messages, and again to the rows of commits. No committed batch is divided.

        Parameters
        ----------
        positions, reach, limits, elapsed_ms
            As of `planning.limit.admit`.
        readable : Mapping
            Where queues end whose broker answers: taken after the ends of the commit topics.
        """
        records = self._admit_records(positions, readable, _most_rows(limits, len(positions), elapsed_ms))
        at = {queue: position for queue, position in positions.items() if queue.topic not in self.topics}
        open_to = {
            queue: max(position, min(reach[queue], self.holds.get(queue, reach[queue])))
            for queue, position in at.items()
        }
        left = admit(at, shrink(at, open_to, self.known), limits, elapsed_ms=elapsed_ms)
        return {**expand(at, left, open_to, self.known), **records}

    def _admit_records(
        self,
        positions: Mapping[MessageQueue, int],
        readable: Mapping[MessageQueue, int],
        most: int | None,
    ) -> dict[MessageQueue, int]:
        """Return where the batch ends in commit topics: before a commit that must wait."""
        ends: dict[MessageQueue, int] = {}
        rows = 0
        for queue, position in positions.items():
            if queue.topic in self.topics:
                ends[queue] = max(position, self.ends.get(queue, position))
                for offset, commit in self.commits.get(queue, ()):
                    if (most is not None and rows and rows + commit.rows > most) or not self._is_readable(
                        commit, positions, readable
                    ):
                        ends[queue] = max(position, offset)
                        break
                    rows += commit.rows
        return ends

    def _is_readable(
        self, commit: Commit, positions: Mapping[MessageQueue, int], readable: Mapping[MessageQueue, int]
    ) -> bool:
        """Whether all rows of a commit can be read now."""
        for queue, parts in commit.ranges.items():
            if queue not in positions or parts[-1][1] > readable.get(queue, 0):
                self.on_wait(commit, queue)
                return False
        return True


def _most_rows(limits: Limits, queues: int, elapsed_ms: int) -> int | None:
    """Return how many rows limits allow a batch, over all queues."""
    each = limits.max_rate_per_queue
    wanted = [limits.max_offsets, None if each is None else each * queues * elapsed_ms // 1000]
    return min((most for most in wanted if most is not None), default=None)
