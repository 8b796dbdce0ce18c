"""Committed batches of transactional writes in a direct stream.

The queue of a commit topic is a queue of the stream. The records in a batch's range of it decide: the rows of
their commits are elements of that batch, all of them, in the partitions of the queues that have them. The
offsets of other queues are those of unmarked messages. So a batch's ranges determine its elements, and the
offsets that the group, or a user's own store, has of all queues are enough to continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.commits.commit_log import (
    CommitLog,
    Committed,
    require_commit_queue,
    warn_of_lost_commits,
    warn_of_waiting_commit,
    warn_of_waiting_log,
)
from pyspark_rocketmq.client.commits.holds import HoldTimes
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError
from pyspark_rocketmq.model import AtOffsets, GroupOffsets, Latest, MessageQueue, OffsetRange, StartPolicy
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.offsets.queue_lookup import is_outage, retry_until
from pyspark_rocketmq.planning.commits.ahead import CommitsAhead
from pyspark_rocketmq.planning.commits.records import Commit, Ranges
from pyspark_rocketmq.planning.commits.visible import (
    Entry,
    clip,
    find_holds,
    find_open,
    join,
    listed,
    subtract,
)

__all__ = ["BatchRows", "CommittedRows", "first_positions", "require_commit_queues"]

_PATIENCE_MS: Final = 60_000
"""How long a batch that comes again waits for the broker of its commit topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRows:
    """What the tasks of a batch read. Picklable for Spark.

    Parameters
    ----------
    committed : Committed
        Which messages of transactional writes are elements.
    parts : Mapping
        The ranges that each partition reads, by queue, in order. Queues without a partition are absent.
    """

    committed: Committed
    parts: Mapping[MessageQueue, tuple[OffsetRange, ...]]


class CommittedRows:
    """Reads the commit topics of a direct stream. Not thread-safe: the thread that plans batches calls it.

    Parameters
    ----------
    client : PlanningClient
    by : Mapping
        By topic, its commit topic.
    """

    def __init__(self, client: PlanningClient, by: Mapping[str, str]) -> None:
        self._client = client
        self._by = dict(by)
        self._topics = frozenset(by.values())
        self._logs: dict[MessageQueue, CommitLog] = {}
        self._times = HoldTimes(client.clock)
        self._open: dict[MessageQueue, tuple[int, list[Entry]]] = {}
        """By commit topic's queue, up to where it was read for open batches, and those."""
        self._known: Ranges = {}

    def look(self, positions: Mapping[MessageQueue, int]) -> CommitsAhead:
        """Read the commit topics up to their ends. Take the ends of the other queues after that.

        While the broker of a commit topic does not answer, no more is read of it.

        Raises
        ------
        DataLossError
            ``COMMITS_LOST``: unread records have expired, or the topic has other ones now.
        RemoteProtocolError
            A message is no record.
        """
        logs = [queue for queue in positions if queue.topic in self._topics]
        found = self._client.ends(logs)
        ends: dict[MessageQueue, int] = {}
        commits: dict[MessageQueue, list[tuple[int, Commit]]] = {}
        for queue in logs:
            error = found.failed.get(queue)
            try:
                if error is not None:
                    raise error
                end = found.masters[queue]
                if end >= positions[queue]:  # else its broker has restarted, and rebuilds its index
                    commits[queue] = self._read(queue, positions[queue], end)
                    ends[queue] = end
            except RocketMQError as failure:
                if not is_outage(failure):
                    raise
                warn_of_waiting_log(self._client, queue, failure)
        ahead = [commit.ranges for each in commits.values() for _, commit in each]
        self._known = join([clip(self._known, begins=positions), *ahead])
        begun = [each for log, (_, found) in self._open.items() for each in self._times.holding(log, found)]
        return CommitsAhead(
            topics=self._topics,
            ends=ends,
            commits=commits,
            holds=find_holds(begun),
            known=self._known,
            on_wait=partial(warn_of_waiting_commit, self._client),
        )

    def split(self, ranges: Iterable[OffsetRange], floor: Mapping[MessageQueue, int]) -> BatchRows:
        """Return what the tasks of a batch read. The same ranges give the same elements, in the same order.

        Parameters
        ----------
        ranges : iterable of OffsetRange
        floor : Mapping
            What is stored before these offsets is no element, whenever it is committed.

        Raises
        ------
        RocketMQError
            The broker of a commit topic has not answered for a minute; or as `look`.
        """
        ranges = list(ranges)
        logs = [found for found in ranges if found.topic in self._topics and len(found)]
        deadline = Deadline(self._client.clock, _PATIENCE_MS)
        marked = retry_until(
            lambda: join(commit.ranges for found in logs for _, commit in self._commits(found)),
            is_outage,
            clock=self._client.clock,
            deadline=deadline,
        )
        rows = clip(marked, begins=floor)
        known = join([self._known, marked])
        parts = {
            found.queue: tuple(
                sorted([*subtract([found], known), *listed({found.queue: rows.get(found.queue, ())})])
            )
            for found in ranges
            if found.topic in self._by and (len(found) or found.queue in rows)
        }
        return BatchRows(committed=Committed(self._by, rows), parts=parts)

    def check(self, positions: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> None:
        """Reject a commit topic that ends before its position, whatever ``failOnDataLoss`` says.

        Raises
        ------
        DataLossError
            ``COMMITS_LOST``.
        """
        for queue, position in positions.items():
            if queue.topic in self._topics and ends.get(queue, position) < position:
                self._log(queue).check(position, position, end=ends[queue])

    # --- how ---

    def _read(self, queue: MessageQueue, position: int, end: int) -> list[tuple[int, Commit]]:
        log = self._log(queue)
        log.check(position, position, end=end)
        since, begun = self._open.get(queue, (position, []))
        self._open[queue] = end, find_open([*begun, *log.entries(since, end)])
        found = self._commits(OffsetRange(queue, position, end))
        log.forget(min(position, end - 1))
        return found

    def _commits(self, records: OffsetRange) -> list[tuple[int, Commit]]:
        """Return the valid commits of a range of records, as far as they are about the stream's topics."""
        topics = {topic for topic, name in self._by.items() if name == records.topic}
        log = self._log(records.queue)
        return [
            (offset, replace(commit, ranges={q: p for q, p in commit.ranges.items() if q.topic in topics}))
            for offset, commit in log.commits(records.from_offset, records.until_offset)
        ]

    def _log(self, queue: MessageQueue) -> CommitLog:
        return self._logs.setdefault(queue, CommitLog(self._client, queue))


def require_commit_queues(client: Client, by: Mapping[str, str]) -> tuple[MessageQueue, ...]:
    """Return the queues of commit topics. Raises as `require_commit_queue`."""
    return tuple(require_commit_queue(client, name) for name in dict.fromkeys(by.values()))


def first_positions(
    client: Client,
    policy: StartPolicy,
    positions: Mapping[MessageQueue, int],
    by: Mapping[str, str],
    group: str,
) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
    """Return where a stream starts in its commit topics as well, and what is stored before its start.

    A commit topic that has an offset of the group, or a specific one, is read from there, and its batches are
    read whole. Another one is read from its end if all queues start at theirs. Else it is read from its
    begin, and what is stored before the start of a queue is no element.

    Parameters
    ----------
    client : Client
    policy : StartPolicy
    positions : Mapping
        What the policy means for all queues.
    by : Mapping
        By topic, its commit topic.
    group : str

    Raises
    ------
    BrokerNotFoundError
        A commit topic's broker does not answer.
    RocketMQError
    """
    if not by:
        return dict(positions), {}
    logs = require_commit_queues(client, by)
    away = [log for log in logs if log not in positions]
    if away:
        raise BrokerNotFoundError("the broker of the commit topic does not answer", topic=away[0].topic)
    stored: Mapping[MessageQueue, int | None] = {}
    specific: Mapping[MessageQueue, object] = {}
    match policy:
        case GroupOffsets():
            stored = client.committed_offsets(group, positions)
        case AtOffsets(specific, GroupOffsets()):
            stored = client.committed_offsets(group, [queue for queue in positions if queue not in specific])
        case AtOffsets(specific):
            pass
    given = {queue for queue, offset in stored.items() if offset is not None} | specific.keys()
    if policy == GroupOffsets(Latest()) and not given:
        return dict(positions), {}
    begun = [log for log in logs if log not in given]
    floor = {
        queue: at for queue, at in positions.items() if by.get(queue.topic) in {log.topic for log in begun}
    }
    for log in begun:
        warn_of_lost_commits(
            client, log, {queue: at for queue, at in floor.items() if by[queue.topic] == log.topic}
        )
    return {**positions, **(client.min_offsets(begun) if begun else {})}, floor
