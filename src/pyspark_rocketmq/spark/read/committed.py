"""The readers of ``isolation=read_committed``: only committed batches of transactional writes are rows.

Unmarked messages are read by their offsets, as without isolation. The messages of a transactional write are
read when its commit is: the batch that follows the commit has all of them, wherever they are in their queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.commits.commit_log import (
    CommitLog,
    Committed,
    find_commit_queues,
    read_committed,
    warn_of_lost_commits,
    warn_of_waiting_commit,
    warn_of_waiting_log,
)
from pyspark_rocketmq.client.commits.holds import HoldTimes
from pyspark_rocketmq.client.read.settled_ends import settle_ends
from pyspark_rocketmq.client.send.readable import wait_until_readable
from pyspark_rocketmq.errors import BrokerNotFoundError, RocketMQError
from pyspark_rocketmq.model import Latest, MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.planning_client import OPERATION_TIMEOUT_MS, Ends
from pyspark_rocketmq.offsets.queue_lookup import is_outage, retry_until
from pyspark_rocketmq.offsets.stream_offset import CommitPosition, SourceOffset
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning.commits.records import Commit, Ranges
from pyspark_rocketmq.planning.commits.visible import (
    Entry,
    clip,
    expand,
    find_holds,
    find_open,
    join,
    listed,
    shrink,
    subtract,
)
from pyspark_rocketmq.planning.topics.discovery import plan_ranges
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import ReadLimit, ReadMaxRows
from pyspark_rocketmq.spark.read.batch import RocketMQBatchReader
from pyspark_rocketmq.spark.read.partition import (
    RangesPartition,
    UnmarkedPartition,
    plan_partitions,
)
from pyspark_rocketmq.spark.read.stream import OUTAGE_PATIENCE_MS, RocketMQStreamReader

__all__ = ["CommittedBatchReader", "CommittedStreamReader"]

T = TypeVar("T")

MAX_KNOWN: Final = 20_000
"""How many of the last records are kept to skip messages by; older ones are read twice at most."""


_READABLE_MS: Final = 10_000
"""How long a batch waits until committed messages can be read. It takes milliseconds."""


@dataclass(slots=True)
class _Look:
    """What a commit topic says now, up to ``end``, and the part of it in the next micro-batch."""

    at: CommitPosition
    end: int
    commits: Sequence[tuple[int, Commit]]
    """Those that were not read."""
    ranges: Ranges
    """What commits list, also those that were read, as far as queues may still have such messages."""
    begun: Sequence[Entry]


@called_by_spark
class CommittedStreamReader(RocketMQStreamReader):
    """Reads each committed batch of a transactional write as a whole, in one micro-batch.

    Delivery promise: as `RocketMQStreamReader`, and no message of a batch that is not committed is a row. A
    limit of rows is exceeded where one committed batch is larger: batches are not divided.

    Parameters as of `RocketMQStreamReader`.
    """

    def __init__(self, options: SourceOptions, schema: StructType, **injected: Any) -> None:
        super().__init__(options, schema, **injected)
        self._logs: dict[MessageQueue, CommitLog] = {}
        self._looks: Mapping[MessageQueue, _Look] = {}
        self._frozen_commits: Mapping[MessageQueue, int] | None = None
        self._times = HoldTimes(self._clock)
        self._sifted: dict[MessageQueue, tuple[Any, int, Sequence[tuple[int, Commit]], Sequence[Entry]]] = {}

    # --- what Spark calls ---

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the ends at which the run stops: of commit topics first, queues then have all of it."""
        client = self._open_client()
        self._frozen_commits = self._patiently(
            lambda: client.max_offsets(_commit_queues(client, self._options))
        )
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` itself if there is nothing to read. Raises as there.

        Raises
        ------
        DataLossError
            ``COMMITS_LOST``: records of a commit topic are lost.
        """
        last = self._check(start)
        # Before the ends of the queues: these then contain everything that is committed.
        self._looks = self._patiently(lambda: self._look(last))
        document = super().latestOffset(start, limit)
        commits = {q: replace(at, begin=at.read, needed=at.known) for q, at in last.commits.items()}
        commits |= {queue: look.at for queue, look in self._looks.items()}
        if document is start:
            if all(at.begin == at.read for at in commits.values()):
                return start
            return replace(last.advance({}, {}), commits=commits).to_dict()
        end = SourceOffset.from_dict(document)
        # What was written before the start is no row, also in a queue whose broker was down then.
        floor = {} if isinstance(end.start or self._policy, Latest) else {**end.begin, **end.floor}
        return replace(end, commits=commits, floor=floor).to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch from its two offsets, the options, and records of the commit topics: none changes."""
        begin, until = self._check(start), self._check(end)
        return [] if begin == until else self._patiently(lambda: self._plan(begin, until))

    # --- how ---

    def _plan(self, begin: SourceOffset, until: SourceOffset) -> list[InputPartition]:
        known: list[Ranges] = []
        rows: list[Ranges] = []
        for queue, at in until.commits.items():
            if at.begin == at.read and at.needed == at.known:  # nothing is read of it: its broker may be down
                continue
            log = self._log(queue)
            log.check_last(at.known, at.stored_at_ms)
            known.append(log.ranges(at.needed, at.known))
            rows.append(log.ranges(at.begin, at.read))
        unmarked = subtract(plan_ranges(begin.offsets, until.offsets, until.begin), join(known))
        marked = clip(_selected(join(rows), self._options), begins=until.floor)
        return [*_plan(unmarked, listed(marked), self._options, _commit_topics(self._options))]

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Retry while the brokers of commit topics are down, as long as for those of the queues."""
        deadline = Deadline(self._clock, OUTAGE_PATIENCE_MS)
        return retry_until(ask, is_outage, clock=self._clock, deadline=deadline)

    def _resolve_start(self) -> SourceOffset:
        """Resolve the start once per reader. What was written before it is no row, whenever it is committed.

        At the latest offsets: what was committed before it.
        """
        if self._origin is None:
            origin = super()._resolve_start()
            floor = {} if isinstance(self._policy, Latest) else origin.offsets
            for queue in self._looks if floor else ():
                warn_of_lost_commits(self._open_client(), queue, floor)
            self._origin = replace(origin, committed_only=True, floor=floor)
        return self._origin

    def _look(self, last: SourceOffset) -> dict[MessageQueue, _Look]:
        """Read the commit topics up to their ends, as far as they can be read now.

        What is committed in the others is read later. A run that ends when everything is read needs all.
        """
        client, frozen = self._open_client(), self._frozen_commits
        # A commit topic that appears in a run that ends waits for the next one.
        queues = {*last.commits, *(_commit_queues(client, self._options) if frozen is None else frozen)}
        known = {queue: at.known for queue, at in last.commits.items()}
        told = Ends()

        def ask() -> Mapping[MessageQueue, int]:
            nonlocal told
            told = client.ends(queues, patience_ms=None if frozen is None else OPERATION_TIMEOUT_MS)
            return told.masters

        looks = {}
        ends = settle_ends(ask(), known, ask, self._clock)
        failed = dict(told.failed)
        for queue, end in ends.items():
            try:
                looks[queue] = self._look_at(queue, end, last)
            except RocketMQError as error:
                failed[queue] = error
        for queue, failure in failed.items():
            if frozen is not None or not is_outage(failure):
                raise failure
            warn_of_waiting_log(client, queue, failure)
        return looks

    def _look_at(self, queue: MessageQueue, end: int, last: SourceOffset) -> _Look:
        log = self._log(queue)
        at = last.commits.get(queue) or self._start_at(queue, end, last)
        first = log.check(at.read, at.known, end=end, stored_at_ms=at.stored_at_ms)
        if self._frozen_commits is not None:
            end = max(min(end, self._frozen_commits.get(queue, end)), at.known)
        key = (at, first, end, last.offsets)
        if self._sifted.get(queue, (None,))[0] != key:  # an idle query asks the same again and again
            self._sifted[queue] = (key, *self._sift(log, at, first, end, last))
        _, needed, commits, open_ = self._sifted[queue]
        begun = self._times.holding(queue, open_)
        needed = min([needed, *(entry.offset for entry in begun)])
        needed = min(max(first, end - MAX_KNOWN, needed), at.read)
        at = CommitPosition(at.read, at.read, needed, end, log.stored_at_ms(end) if end > first else 0)
        commits = [each for each in commits if each[0] >= at.read]
        return _Look(at, end, commits, log.ranges(needed, end), begun)

    def _sift(
        self, log: CommitLog, at: CommitPosition, first: int, end: int, last: SourceOffset
    ) -> tuple[int, Sequence[tuple[int, Commit]], Sequence[Entry]]:
        """Return the first record that is still needed, the commits from there on, and the open batches."""
        begin = max(first, min(at.needed, at.read))
        needed = at.read
        for offset, commit in log.commits(begin, at.read):
            mine = _selected(commit.ranges, self._options)
            if any(parts[-1][1] > last.offsets.get(each, 0) for each, parts in mine.items()):
                needed = offset
                break
        open_ = find_open(log.entries(begin, end))
        oldest = max(first, end - MAX_KNOWN, min([needed, *(entry.offset for entry in open_)]))
        commits = log.commits(min(oldest, at.read), end)
        log.forget(min(begin, end - 1))  # what the same start needs again
        return needed, commits, open_

    def _start_at(self, queue: MessageQueue, end: int, last: SourceOffset) -> CommitPosition:
        """Return where a commit topic is read first."""
        client = self._open_client()
        if not isinstance(last.start or self._policy, Latest):
            at = client.min_offsets([queue])[queue]
        elif last.started_at_ms is None:
            at = end
        else:  # a topic that was created later, or that had no broker at the start
            at = client.offsets_at({queue: last.started_at_ms})[queue]
        return CommitPosition(at, at, at, at)

    def _log(self, queue: MessageQueue) -> CommitLog:
        return self._logs.setdefault(queue, CommitLog(self._open_client(), queue))

    def _admit(
        self, positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int], limit: ReadLimit
    ) -> dict[MessageQueue, int]:
        """Return where the unmarked messages of the next micro-batch end, and choose its commits."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        rows = 0
        for look in self._looks.values():  # half of the limit, so that neither kind of message starves
            read, rows = self._choose(look, reach, most and max(1, most // 2), rows)
            look.at = replace(look.at, read=read)
        known = join(look.ranges for look in self._looks.values())
        begun = [entry for look in self._looks.values() for entry in look.begun]
        holds = find_holds(begun) if self._frozen is None else {}
        open_to = {
            queue: max(positions[queue], min(end, holds.get(queue, end))) for queue, end in reach.items()
        }
        left = limit if most is None else ReadMaxRows(max(1, most // 2, most - rows))
        until = super()._admit(positions, shrink(positions, open_to, known), left)
        return expand(positions, until, open_to, known)

    def _choose(
        self, look: _Look, reach: Mapping[MessageQueue, int], most: int | None, rows: int
    ) -> tuple[int, int]:
        """Return up to where commits are read now, and the number of all rows with theirs."""
        total = sum(commit.rows for _, commit in look.commits)
        all_ends = {queue: parts[-1][1] for queue, parts in _selected(look.ranges, self._options).items()}
        if (most is None or rows + total <= most) and all(
            end <= reach.get(queue, 0) for queue, end in all_ends.items()
        ):
            return look.end, rows + total
        for offset, commit in look.commits:
            mine = _selected(commit.ranges, self._options)
            behind = [queue for queue, parts in mine.items() if parts[-1][1] > reach.get(queue, 0)]
            if behind:
                warn_of_waiting_commit(self._open_client(), commit, behind[0])
                return offset, rows
            if rows and most is not None and rows + commit.rows > most:
                return offset, rows
            rows += commit.rows
        return look.end, rows


@called_by_spark
class CommittedBatchReader(RocketMQBatchReader):
    """Reads the committed batches of transactional writes, and all unmarked messages.

    Delivery promise: as `RocketMQBatchReader`. A batch that is committed before the read is planned is read
    as a whole, unless the read's start or end divides it.

    Parameters as of `RocketMQBatchReader`.
    """

    def partitions(self) -> list[RangesPartition]:
        """Resolve both ends of every queue, after those of the commit topics. Raises as there.

        Raises
        ------
        RocketMQError
            Committed messages cannot be read after ten seconds.
        """
        with closing(self._connect(self._options.client)) as client:
            committed = read_committed(client, _commit_topics(self._options))
            rows = _selected(committed.ranges, self._options)
            last = {queue: parts[-1][1] for queue, parts in rows.items()}
            if isinstance(self._end, Latest) and not wait_until_readable(
                client, last, timeout_ms=_READABLE_MS
            ):
                raise BrokerNotFoundError(
                    "a batch is committed, and not all of its messages can be read now: a broker is down",
                    topic=", ".join(sorted({queue.topic for queue in last})),
                )
            ranges = self._ranges(client)
            begins = {each.queue: each.from_offset for each in ranges}
            for queue in _commit_queues(client, self._options):
                warn_of_lost_commits(client, queue, begins)
            within = clip(
                rows,
                begins=begins,
                ends={each.queue: each.until_offset for each in ranges},
            )
            unmarked = subtract(ranges, rows)
            return _plan(unmarked, listed(within), self._options, committed.by)


def _plan(
    unmarked: Iterable[OffsetRange],
    marked: Iterable[OffsetRange],
    options: SourceOptions,
    by: Mapping[str, str],
) -> list[RangesPartition]:
    """Return the partitions of unmarked messages, then those of committed batches.

    Parameters
    ----------
    by : Mapping
        By topic, the commit topic that was read: marked messages that it decides about are left out.
    """
    partitions: list[RangesPartition] = [
        UnmarkedPartition(partition.value, Committed(by)) for partition in plan_partitions(unmarked, options)
    ]
    return partitions + plan_partitions(marked, options)


def _commit_topics(options: SourceOptions) -> dict[str, str]:
    """Return the commit topic of each topic."""
    topics = options.topics or tuple(sorted({queue.topic for queue in options.assign}))
    return {topic: options.isolation.commit_topic_of(topic) for topic in topics}


def _selected(ranges: Ranges, options: SourceOptions) -> dict[MessageQueue, Sequence[tuple[int, int]]]:
    """Return the ranges of the queues that the query reads."""
    return {
        queue: parts
        for queue, parts in ranges.items()
        if (queue in options.assign if options.assign else queue.topic in options.topics)
        and not options.forgets(queue)
    }


def _commit_queues(client: Client, options: SourceOptions) -> tuple[MessageQueue, ...]:
    """Return the queues of the commit topics that exist."""
    return find_commit_queues(client, _commit_topics(options).values())
