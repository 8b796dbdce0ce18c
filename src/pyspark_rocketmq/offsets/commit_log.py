"""Reads commit topics: which messages of transactional writes are rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class CommitLog:
    """The records of one commit topic, as far as they are needed; read once and kept.

    Parameters
    ----------
    client : Client
    queue : MessageQueue
        The commit topic's only queue.
    """

    client: Client
    queue: MessageQueue
    _entries: list[Entry] = field(default_factory=list)
    _begin: int = 0
    _end: int = 0

    def entries(self, begin: int, end: int) -> list[Entry]:
        """Return the records of a range of offsets. Raises as `read_entries`."""
        self._cover(begin, end)
        return [entry for entry in self._entries if begin <= entry.offset < end]

    def commits(self, begin: int, end: int) -> list[tuple[int, Commit]]:
        """Return the valid commits of a range of offsets, with their offsets. Raises as `read_entries`."""
        found = [
            (entry.offset, entry.record)
            for entry in self.entries(begin, end)
            if isinstance(entry.record, Commit)
        ]
        judged = [commit.since for offset, commit in found if offset - commit.since <= MAX_SPAN]
        if judged and min(judged) < self._begin:
            self._cover(max(min(judged), self.client.min_offsets([self.queue])[self.queue]), end)
        return [each for each in found if is_valid(*each, self._entries)]

    def forget(self, before: int) -> None:
        """Drop the records before an offset: they are read again if they are needed."""
        self._entries = [entry for entry in self._entries if entry.offset >= before]
        self._begin = max(self._begin, min(before, self._end))

    def check(self, position: int, *, end: int) -> int:
        """Check that no record was lost unread, and return the offset of the first record.

        Raises
        ------
        DataLossError
            ``COMMITS_LOST``: the log ends before ``position``, or its records from there on have expired.
        """
        first = self.client.min_offsets([self.queue])[self.queue]
        if position > end or position < first:
            what = f"ends at {end}" if position > end else f"begins at {first}"
            raise DataLossError(
                f"the commit topic {self.queue.topic} {what}, and was read up to {position}: it is not known "
                "any more which messages of transactional writes are rows. Start with a new checkpoint, or "
                "read with isolation=read_uncommitted",
                condition="COMMITS_LOST",
                queue=self.queue,
            )
        return first

    def _cover(self, begin: int, end: int) -> None:
        if self._begin == self._end:
            self._begin = self._end = begin
        if begin < self._begin:
            self._entries[:0] = self._read(begin, self._begin)
            self._begin = begin
        if end > self._end:
            self._entries += self._read(self._end, end)
            self._end = end

    def _read(self, begin: int, end: int) -> Iterable[Entry]:
        return list(read_entries(self.client, self.queue, begin, end))
