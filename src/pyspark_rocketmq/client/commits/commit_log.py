"""Reads commit topics: which messages of transactional writes are rows."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import BrokerNotFoundError, DataLossError, OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange
from pyspark_rocketmq.planning.commits.records import Commit, Ranges, decode_record
from pyspark_rocketmq.planning.commits.visible import MAX_SPAN, Entry, is_valid, join
from pyspark_rocketmq.record.decode.commit_marks import Decided

__all__ = ["CommitLog", "Committed", "find_commit_queue", "find_commit_queues"]
__all__ += ["read_committed", "read_entries", "require_commit_queue", "warn_of_lost_commits"]
__all__ += ["warn_of_waiting_commit", "warn_of_waiting_log"]

_LOG: Final = logging.getLogger(__name__)

_EVERYTHING: Final = MessageSelector()

_DECODE: Final = DecodeOptions(columns=("queueOffset", "storeTimestamp", "body"))


@dataclass(frozen=True, slots=True)
class Committed:
    """Which messages of transactional writes are rows: called with a queue. Picklable for Spark.

    Parameters
    ----------
    by : Mapping
        By topic, its commit topic; empty if that was not found.
    ranges : Ranges
        Which marked messages are rows.
    """

    by: Mapping[str, str]
    ranges: Ranges = field(default_factory=dict)

    def __call__(self, queue: MessageQueue) -> Decided:
        """Return the part of a queue."""
        return Decided(queue.topic, self.by[queue.topic], self.ranges.get(queue, ()))


def find_commit_queues(client: Client, topics: Iterable[str]) -> tuple[MessageQueue, ...]:
    """Return the queues of the commit topics that exist. Raises as `find_commit_queue`."""
    found = (find_commit_queue(client, name) for name in dict.fromkeys(topics))
    return tuple(queue for queue in found if queue is not None)


def find_commit_queue(client: Client, topic: str) -> MessageQueue | None:
    """Return the only queue of a commit topic; None if the topic does not exist.

    Raises
    ------
    OptionError
        It has several queues: it is no commit topic.
    NameServerError
    """
    route = client.find_route(topic)
    if route is None:
        return None
    queues = route.read_queues()
    if len(queues) > 1:
        raise OptionError(
            f"{topic} has {len(queues)} queues, and a commit topic has one: choose another commitTopic",
            option="commitTopic",
            topic=topic,
        )
    return queues[0] if queues else None


def require_commit_queue(client: Client, topic: str) -> MessageQueue:
    """Return the only queue of a commit topic.

    Raises
    ------
    BrokerNotFoundError
        The topic does not exist, or its broker is down, which cannot be told apart.
    OptionError, NameServerError
        As `find_commit_queue`.
    """
    queue = find_commit_queue(client, topic)
    if queue is None:
        raise BrokerNotFoundError(
            f"the commit topic {topic} does not exist, or its broker is down. Create it once, with one queue "
            f"at one broker: pyspark-rocketmq topic create {topic} --queues 1 --broker NAME",
            topic=topic,
        )
    return queue


def read_entries(
    client: Client,
    queue: MessageQueue,
    begin: int,
    end: int,
    *,
    selector: MessageSelector = _EVERYTHING,
    fail_on_data_loss: bool = True,
) -> Iterator[Entry]:
    """Read records of a commit topic, in order; without ``fail_on_data_loss``, those that are there.

    Raises
    ------
    DataLossError
        A record is lost.
    RemoteProtocolError
        A message is no record.
    RocketMQError
        The broker does not answer.
    """
    if begin >= end:
        return
    options = ReadOptions(consumer_group=TOOLS_GROUP, selector=selector, fail_on_data_loss=fail_on_data_loss)
    for batch in read_batches(client, [OffsetRange(queue, begin, end)], options, _DECODE):
        offsets, times, bodies = batch.columns
        stored_at_ms = times.cast(pa.timestamp("ms", times.type.tz)).cast(pa.int64()).to_pylist()
        for offset, at_ms, body in zip(offsets.to_pylist(), stored_at_ms, bodies.to_pylist(), strict=True):
            yield Entry(offset, at_ms, decode_record(body, queue=queue, queue_offset=offset))


class CommitLog:
    """The records of one commit topic, as far as they are needed; read once and kept.

    Parameters
    ----------
    client : Client
    queue : MessageQueue
        The commit topic's only queue.
    """

    def __init__(self, client: Client, queue: MessageQueue) -> None:
        self._client = client
        self.queue = queue
        self._entries: list[Entry] = []
        self._offsets: list[int] = []
        self._commits: dict[str, tuple[list[int], list[Entry]]] = {}
        """The commits of each owner, and their offsets."""
        self._valid: dict[int, bool] = {}
        self._joined: dict[tuple[int, int], Ranges] = {}
        self._first = 0
        self._begin = 0
        self._end = 0

    def entries(self, begin: int, end: int) -> list[Entry]:
        """Return the records of a range of offsets. Raises as `read_entries`, and `check`."""
        self._cover(begin, end)
        return self._entries[bisect_left(self._offsets, begin) : bisect_left(self._offsets, end)]

    def commits(self, begin: int, end: int) -> list[tuple[int, Commit]]:
        """Return the valid commits of a range of offsets, with their offsets. Raises as `entries`."""
        found = [
            (entry.offset, entry.record)
            for entry in self.entries(begin, end)
            if isinstance(entry.record, Commit)
        ]
        judged = [commit.since for offset, commit in found if offset - commit.since <= MAX_SPAN]
        if judged and min(judged) < self._begin:
            first = self._client.min_offsets([self.queue])[self.queue]
            if first < self._begin:
                self._cover(max(min(judged), first), end)
        return [each for each in found if self._judge(*each)]

    def ranges(self, begin: int, end: int) -> Ranges:
        """Return what the valid commits of a range of offsets list, joined. Raises as `entries`."""
        self._cover(begin, end)
        known = self._joined.get((begin, end))
        if known is None:
            known = join(commit.ranges for _, commit in self.commits(begin, end))
            latest = list(self._joined.items())[-1:]  # a micro-batch asks for one or two
            self._joined = {**dict(latest), (begin, end): known}
        return known

    def forget(self, before: int) -> None:
        """Drop the records before an offset: they are read again if they are needed."""
        if before > self._begin:
            self._keep([entry for entry in self._entries if entry.offset >= before])
            self._begin = min(before, self._end)

    def check(self, read: int, known: int, *, end: int, stored_at_ms: int = 0) -> int:
        """Check that no record was lost unread, and return the offset of the first record.

        Parameters
        ----------
        read, known : int
            The first record that was not read, and the first one that was not known.
        end : int
            The end of the commit topic now.
        stored_at_ms : int
            When the last known record was stored; 0 if it is not known.

        Raises
        ------
        DataLossError
            ``COMMITS_LOST``: the topic ends before ``known``, its records from ``read`` on have expired, or
            it has another record before ``known`` now: it was deleted and created again.
        """
        self._first = self._client.min_offsets([self.queue])[self.queue]
        if known > end:
            raise self._lost(f"ends at {end}", known)
        if read < self._first:
            raise self._lost(f"begins at {self._first}", read)
        if known > self._first:
            self.check_last(known, stored_at_ms)
        return self._first

    def check_last(self, known: int, stored_at_ms: int) -> None:
        """Check that the last known record is the one that was stored at a time, unless that is 0.

        Raises
        ------
        DataLossError
            ``COMMITS_LOST``: it is another one. The topic was deleted and created again.
        """
        if stored_at_ms:
            last = self.entries(known - 1, known)
            if not last or last[0].stored_at_ms != stored_at_ms:
                raise self._lost("has other records now", known)

    def stored_at_ms(self, end: int) -> int:
        """Return when the last record before an offset was stored; 0 if that is not known."""
        place = bisect_left(self._offsets, end) - 1
        return self._entries[place].stored_at_ms if place >= 0 and self._offsets[place] == end - 1 else 0

    def _lost(self, what: str, position: int) -> DataLossError:
        return DataLossError(
            f"the commit topic {self.queue.topic} {what}, and was read up to {position}: it is not known any "
            "more which messages of transactional writes are rows. Start with a new checkpoint, or read with "
            "isolation=read_uncommitted",
            condition="COMMITS_LOST",
            queue=self.queue,
        )

    def _judge(self, offset: int, commit: Commit) -> bool:
        if offset not in self._valid:
            offsets, mine = self._commits[commit.owner]
            between = slice(bisect_left(offsets, commit.since), bisect_left(offsets, offset))
            self._valid[offset] = is_valid(offset, commit, mine[between])
        return self._valid[offset]

    def _cover(self, begin: int, end: int) -> None:
        """Read what is missing. The last record is read again: it tells whether the topic is the same."""
        if self._begin == self._end:
            self._begin = self._end = begin
        if begin < self._begin:
            self._keep([*read_entries(self._client, self.queue, begin, self._begin), *self._entries])
            self._begin = begin
        if end > self._end:
            last = self._entries[-1] if self._entries and self._offsets[-1] >= self._first else None
            since = self._end if last is None or last.offset != self._end - 1 else last.offset
            news = list(read_entries(self._client, self.queue, since, end))
            if last is not None and since < self._end:
                if not news or news[0].stored_at_ms != last.stored_at_ms:
                    raise self._lost("has other records now", self._end)
                del news[0]
            self._keep([*self._entries, *news])
            self._end = end

    def _keep(self, entries: list[Entry]) -> None:
        self._entries = entries
        self._offsets = [entry.offset for entry in entries]
        self._commits = {}
        for entry in entries:
            if isinstance(entry.record, Commit):
                offsets, mine = self._commits.setdefault(entry.record.owner, ([], []))
                offsets.append(entry.offset)
                mine.append(entry)
        first = self._offsets[0] if entries else 0
        self._valid = {offset: valid for offset, valid in self._valid.items() if offset >= first}


def read_committed(client: Client, by: Mapping[str, str]) -> Committed:
    """Read whole commit topics: what they say now. Take the ends of the queues after that.

    Parameters
    ----------
    client : Client
    by : Mapping
        By topic, its commit topic.

    Raises
    ------
    OptionError, RemoteProtocolError, RocketMQError
        As `find_commit_queue` and `read_entries`.
    """
    queues = find_commit_queues(client, by.values())
    begins, ends = client.min_offsets(queues), client.max_offsets(queues)
    commits = [
        commit.ranges
        for queue in queues
        for _, commit in CommitLog(client, queue).commits(begins[queue], ends[queue])
    ]
    known = {queue.topic for queue in queues}
    return Committed({topic: name if name in known else "" for topic, name in by.items()}, join(commits))


def warn_of_lost_commits(client: Client, log: MessageQueue, begins: Mapping[MessageQueue, int]) -> None:
    """Warn if a read begins with messages whose commits may have expired.

    Brokers delete whole files: at the broker of the commit topic, a commit never expires before its messages.
    At another one it does if that has less retention, or more traffic.
    """
    elsewhere = {queue: at for queue, at in begins.items() if queue.broker_name != log.broker_name}
    try:
        first = client.min_offsets([log])[log]
        if not first or not elsewhere:
            return
        for entry in read_entries(client, log, first, first + 1):
            found = client.offsets_at(dict.fromkeys(elsewhere, entry.stored_at_ms))
            older = {queue: at - begins[queue] for queue, at in found.items() if at > begins[queue]}
            if older:
                _LOG.warning(
                    "the first records of the commit topic %s have expired, and %d messages are older than "
                    "the first that is left, such as those of %s: if they are of committed batches, they are "
                    "no rows. Give the broker of a commit topic at least the retention of the others",
                    log.topic,
                    sum(older.values()),
                    min(older),
                )
    except RocketMQError as error:
        _LOG.info("whether commits have expired is not known: %s", error)


def warn_of_waiting_log(client: Client, log: MessageQueue, error: RocketMQError) -> None:
    """Warn now and then that a commit topic cannot be read now."""
    text = "the commit topic %s cannot be read, and its batches wait: %s"
    client.warnings.warn(_LOG, text, log.topic, error, about=log)


def warn_of_waiting_commit(client: Client, commit: Commit, queue: MessageQueue) -> None:
    """Warn now and then that a committed batch waits for a queue."""
    client.warnings.warn(
        _LOG,
        "batch %d of %s is committed and waits: %s ends before its messages, or does not answer",
        *(commit.number, commit.owner, queue),
        about=(commit.number, commit.owner),
    )
