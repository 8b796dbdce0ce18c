"""Reads a topic with the isolation of committed ranges, without Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.commits.commit_log import CommitLog, Committed, require_commit_queue
from pyspark_rocketmq.client.read.queue_reader import read_messages
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.read.settled_ends import settle_ends
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.errors import DataLossError, OptionError
from pyspark_rocketmq.model import Message, MessageQueue, OffsetRange
from pyspark_rocketmq.model.names import commit_topic_of
from pyspark_rocketmq.model.nested_offsets import flatten, nest
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.planning.commits.records import Commit, Ranges
from pyspark_rocketmq.planning.commits.visible import clip, join, listed, subtract
from pyspark_rocketmq.planning.data_loss import find_shortened

__all__ = ["CommittedConsumer"]

_LOG: Final = logging.getLogger(__name__)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class _Position:
    """What was read: unmarked messages before ``offsets``, and records of the commit topic before ``read``.

    ``floor``: what is stored before it is no row. ``known`` is the end of the commit topic that was seen, and
    ``stored_at_ms`` when its last record was stored, which tells whether the topic is the same.
    """

    offsets: Mapping[MessageQueue, int]
    floor: Mapping[MessageQueue, int]
    read: int = 0
    known: int = 0
    stored_at_ms: int = 0

    def to_json(self) -> str:
        commits = {"read": self.read, "known": self.known, "storedAtMs": self.stored_at_ms}
        document = {"version": _VERSION, "offsets": nest(self.offsets), "floor": nest(self.floor)}
        return json.dumps({**document, "commits": commits})

    @classmethod
    def from_json(cls, text: str) -> _Position:
        try:
            document = json.loads(text)
            if document["version"] != _VERSION:
                raise OptionError(f"a newer release wrote this position: version {document['version']}")
            offsets, floor = flatten(document["offsets"]), flatten(document["floor"])
            numbers = [document["commits"][name] for name in ("read", "known", "storedAtMs")]
            _check_offsets([*offsets.values(), *floor.values(), *numbers])
            return cls(offsets, floor, *numbers)
        except (ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError("this is no position of a committed consumer", position=text) from error


class CommittedConsumer:
    """Reads the rows of a topic: all messages but those of transactional writes that are not committed.

    Delivery promise: each message that no transactional write has marked is returned once, in order within
    its queue. A committed batch is returned once and whole, by one call of `read`. What is returned again
    after a crash is decided by the `position` that the caller keeps.

    Opens a client, or uses the given client and leaves it open. Not thread-safe.

    Parameters
    ----------
    topic : str
    name_server : str or ClientOptions, optional
        ``"host:port;host:port"``.
    client : Client, optional
        Instead of ``name_server``.
    commit_topic : str, optional
        By default the topic's name with ``-commits``.
    start : {"earliest", "latest"}
        "latest" returns what is committed, or sent without a transaction, from now on. Queues that appear
        later, also with a broker that was away, are returned from their first stored message.
    position : str, optional
        Instead of ``start``: the `position` of another consumer of the topic.

    Raises
    ------
    OptionError
        An argument is invalid.
    BrokerNotFoundError
        The commit topic does not exist, or its broker is down.
    RocketMQError
        A name server or broker does not answer.

    Examples
    --------
    >>> with CommittedConsumer("orders", name_server="127.0.0.1:9876") as consumer:  # doctest: +SKIP
    ...     while messages := consumer.read():
    ...         store(messages, consumer.position)
    """

    def __init__(
        self,
        topic: str,
        name_server: str | ClientOptions | None = None,
        *,
        client: Client | None = None,
        commit_topic: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        position: str | None = None,
    ) -> None:
        if (client is None) == (name_server is None):
            raise OptionError("a committed consumer needs either name_server or client")
        if start not in ("earliest", "latest"):
            raise OptionError("start is earliest or latest", start=start)
        self.topic = topic
        self._by: Final = {topic: commit_topic_of(topic, commit_topic)}
        at = None if position is None else _Position.from_json(position)
        others = sorted({queue.topic for queue in at.offsets} - {topic}) if at is not None else []
        if others:
            raise OptionError(f"the position is of the topic {others[0]}", topic=topic)
        self._own = Client(name_server) if name_server is not None else None
        self._client: Client = client or self._own  # type: ignore[assignment]  # one of both is set
        try:
            self._log = CommitLog(self._client, require_commit_queue(self._client, self._by[topic]))
            self._at = at or self._resolve(start)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, except those of a given client."""
        if self._own is not None:
            self._own.close()

    @property
    def position(self) -> str:
        """What was returned so far, as JSON: another consumer continues there."""
        return self._at.to_json()

    def read(self, max_messages: int = 10_000) -> list[Message]:
        """Return messages that were not returned before; an empty list if there are none now.

        First those of committed batches, each batch whole, then others. An error changes nothing: call it
        again.

        Parameters
        ----------
        max_messages : int
            After about this number, the rest is left to the next call. A larger batch is not divided.

        Raises
        ------
        DataLossError
            Messages are lost, a queue ends before what was read (``OFFSET_WENT_BACK``), or records of the
            commit topic are lost (``COMMITS_LOST``).
        OptionError
            Another commit topic decides about messages of the topic.
        RocketMQError
            A name server or broker does not answer.
        """
        while True:
            before = self._at
            found = self._read(max_messages)
            if found or (self._at.offsets, self._at.read) == (before.offsets, before.read):
                return found  # else there were only messages of batches that are not committed

    # --- how ---

    def _read(self, max_messages: int) -> list[Message]:
        log = self._log
        known = {log.queue: self._at.known}
        end = self._settle_ends(known, [log.queue])[log.queue]  # the queues then have all that is committed
        log.check(self._at.read, self._at.known, end=end, stored_at_ms=self._at.stored_at_ms)
        queues = self._client.read_queues(self.topic)
        at = self._with_new(queues)
        ends = self._settle_ends(at.offsets, queues)
        _check_ends(at.offsets, ends)
        ahead = log.commits(at.read, end)
        chosen, read = self._choose(ahead, end, ends, max_messages)
        rows = listed(clip(self._mine(chosen), begins=at.floor))
        left = max(1, max_messages - sum(map(len, rows)))
        unmarked, offsets = _find_unmarked(at, ends, self._mine([commit for _, commit in ahead]), left)
        options = ReadOptions(consumer_group=TOOLS_GROUP)
        found = [
            *read_messages(self._client, rows, options),
            *read_messages(self._client, unmarked, options, decided=Committed(self._by)),
        ]
        self._at = replace(
            at, offsets=offsets, read=read, known=end, stored_at_ms=log.stored_at_ms(end) or at.stored_at_ms
        )
        log.forget(min(read, end - 1))
        return found

    def _settle_ends(
        self, known: Mapping[MessageQueue, int], queues: Sequence[MessageQueue]
    ) -> Mapping[MessageQueue, int]:
        """Return the ends of queues. One that ends before what was known gets some time."""
        ask = partial(self._client.max_offsets, queues)
        return settle_ends(ask(), known, ask, self._client.clock)

    def _resolve(self, start: Literal["earliest", "latest"]) -> _Position:
        commits = [self._log.queue]
        if start == "latest":
            end = self._client.max_offsets(commits)[self._log.queue]
            ends = self._client.max_offsets(self._client.read_queues(self.topic))
            return _Position(offsets=ends, floor={}, read=end, known=end)
        first = self._client.min_offsets(commits)[self._log.queue]
        begins = self._client.min_offsets(self._client.read_queues(self.topic))
        return _Position(offsets=begins, floor=begins, read=first, known=first)

    def _with_new(self, queues: Sequence[MessageQueue]) -> _Position:
        """Return the position with queues that it lacks: added later, or of a broker that was away before."""
        at = self._at
        begins = self._client.min_offsets([queue for queue in queues if queue not in at.offsets])
        for queue, begin in begins.items():
            if begin:  # a new queue from which messages have expired, or an old one: both look the same
                _LOG.warning("%s is new here, and messages before offset %d have expired", queue, begin)
        return replace(at, offsets={**begins, **at.offsets}, floor={**begins, **at.floor})

    def _choose(
        self,
        ahead: Sequence[tuple[int, Commit]],
        end: int,
        ends: Mapping[MessageQueue, int],
        most: int,
    ) -> tuple[list[Commit], int]:
        """Return the commits to read now, and up to where these are all."""
        chosen: list[Commit] = []
        rows = 0
        for offset, commit in ahead:
            mine = self._mine([commit])
            size = sum(map(len, listed(mine)))
            unreadable = any(parts[-1][1] > ends.get(queue, 0) for queue, parts in mine.items())
            if unreadable or (rows and rows + size > most):
                return chosen, offset
            chosen.append(commit)
            rows += size
        return chosen, end

    def _mine(self, commits: Sequence[Commit]) -> dict[MessageQueue, tuple[tuple[int, int], ...]]:
        ranges = join(commit.ranges for commit in commits)
        return {queue: parts for queue, parts in ranges.items() if queue.topic == self.topic}


def _check_offsets(values: Sequence[object]) -> None:
    if any(type(value) is not int or value < 0 for value in values):
        raise ValueError("not an offset")


def _check_ends(known: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> None:
    """Reject a queue that ends before what was read: what it gets now would be passed over.

    Raises
    ------
    DataLossError
        ``OFFSET_WENT_BACK``.
    """
    for queue in find_shortened(known, ends):
        raise DataLossError(
            f"the queue ends at {ends[queue]}, and was read up to {known[queue]}: its log was truncated, or "
            "the topic was created again, and offsets are being used again. Continue with a new consumer: "
            "from the start, or with that offset of the queue in the position",
            condition="OFFSET_WENT_BACK",
            queue=str(queue),
        )


def _find_unmarked(
    at: _Position, ends: Mapping[MessageQueue, int], known: Ranges, most: int
) -> tuple[list[OffsetRange], dict[MessageQueue, int]]:
    """Return the ranges of messages that are not known to be of a batch, and where their queues are then."""
    ranges: list[OffsetRange] = []
    offsets = {**at.offsets}
    for queue, end in ends.items():
        begin, left = at.offsets[queue], max(1, most // len(ends))
        offsets[queue] = max(begin, end)
        for gap in subtract([OffsetRange(queue, begin, offsets[queue])], known):
            if len(gap) > left:
                offsets[queue] = gap.from_offset + left
                ranges.append(OffsetRange(queue, gap.from_offset, offsets[queue]))
                break
            ranges.append(gap)
            left -= len(gap)
    return [found for found in ranges if len(found)], offsets
