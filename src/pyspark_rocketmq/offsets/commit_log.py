"""Reads commit topics: which messages of transactional writes are rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import DataLossError, OptionError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange
from pyspark_rocketmq.planning.commits.records import Commit, decode_record
from pyspark_rocketmq.planning.commits.visible import MAX_SPAN, Entry, is_valid

__all__ = ["CommitLog", "find_commit_queue", "read_entries"]

_EVERYTHING: Final = MessageSelector()


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


def read_entries(
    client: Client, queue: MessageQueue, begin: int, end: int, *, selector: MessageSelector = _EVERYTHING
) -> Iterator[Entry]:
    """Read records of a commit topic, in order.

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
    options = ReadOptions(consumer_group=TOOLS_GROUP, selector=selector)
    for message in read_messages(client, [OffsetRange(queue, begin, end)], options):
        record = decode_record(message.body, queue=queue, queue_offset=message.queue_offset)
        yield Entry(message.queue_offset, message.store_timestamp, record)


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
        self._commits: dict[str, list[Entry]] = {}
        """The commits of each owner."""
        self._valid: dict[int, bool] = {}
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
            mine = self._commits[commit.owner]
            begin = bisect_left(mine, commit.since, key=lambda entry: entry.offset)
            end = bisect_left(mine, offset, key=lambda entry: entry.offset)
            self._valid[offset] = is_valid(offset, commit, mine[begin:end])
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
                self._commits.setdefault(entry.record.owner, []).append(entry)
        first = self._offsets[0] if entries else 0
        self._valid = {offset: valid for offset, valid in self._valid.items() if offset >= first}
