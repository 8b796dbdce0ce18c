"""Commits the batches of a transactional write in a commit topic, see ``planning.commits.records``."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.commits.commit_log import read_entries, require_commit_queue
from pyspark_rocketmq.client.send.producer import Producer, ProducerOptions
from pyspark_rocketmq.client.send.readable import wait_until_readable
from pyspark_rocketmq.errors import RocketMQError, SendError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OutgoingMessage, SendResult
from pyspark_rocketmq.model.names import commit_topic_of
from pyspark_rocketmq.offsets.queue_lookup import outlast_outage
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.planning.commits.records import Abort, Begin, Commit, Ranges, Record, encode_record
from pyspark_rocketmq.planning.commits.visible import Entry, is_valid, join
from pyspark_rocketmq.record.properties import PROPERTY_COMMIT_TOPIC, encode_properties
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

__all__ = ["RangeCommits", "TaskRanges"]

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

_FIRST_WINDOW: Final = 4_096
"""How many of the last records are searched for a batch's commit first; each further window is longer."""

_READABLE_MS: Final = 10_000

_HINT_MS: Final = 1_000
"""How long a failed task tries to tell readers about it."""

_LEAST_COMMITS: Final = 3
"""How often a commit is sent, at least, before it fails because others come in between."""


class _NotDurableError(SendError):
    """A commit is stored, and a crash may lose it."""

    retriable = True


def _commit_topic_of(options: SinkOptions) -> str:
    """Return the commit topic of a write."""
    return commit_topic_of(str(options.topic), options.commit_topic)


class RangeCommits:
    """Reads and writes a commit topic, for one write.

    Promise: of all commits of a batch, whoever sends them and however often, one is valid. What it lists is
    visible to readers with ``isolation=read_committed`` from then on, in all queues at once.

    Every method raises `RocketMQError` if the brokers do not answer for ``outageTimeout``.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    """

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self._client = client
        self._options = options
        self._topic = _commit_topic_of(options)
        settings = ProducerOptions(
            send_timeout_ms=options.send_timeout_ms, accept_statuses=options.accept_statuses
        )
        self._producer = Producer(client, options.producer_group, settings)
        self._queue: MessageQueue | None = None

    def begin(self, name: TransactionName, queues: Iterable[MessageQueue]) -> None:
        """Tell readers that messages of a batch will be written, so that they do not read them twice.

        It is a hint: if a broker does not answer, it is left out.
        """
        try:
            ends = self._client.max_offsets(queues)
            self._append(Begin(owner=self.owner(name), number=name.number, ends=ends))
        except RocketMQError as error:
            if not (error.retriable or isinstance(error, SendError)):
                raise
            _LOG.info("readers are not told that batch %s begins: %s", name, error)

    def is_committed(self, name: TransactionName, *, thorough: bool = True) -> bool:
        """Whether a batch of the owner is committed, or a later one.

        Parameters
        ----------
        name : TransactionName
        thorough : bool
            Whether to search all records, or only the last ones.
        """
        return self._find(name, thorough=thorough)[0]

    def find_commit(self, name: TransactionName) -> tuple[int, Commit] | None:
        """Return the valid commit of a batch, and its offset; None if another one is the owner's last."""
        newest = self._newest(name)
        return newest if newest is not None and newest[1].number == name.number else None

    def newest_done(self, name: TransactionName) -> int | None:
        """Return the number of the newest batch of the owner that is committed."""
        newest = self._newest(name)
        return None if newest is None else newest[1].number

    def commit(self, name: TransactionName, parts: Iterable[Ranges | None]) -> bool:
        """Make the messages of a batch visible, unless the batch is committed already, or has none.

        Returns whether it did.

        Parameters
        ----------
        name : TransactionName
        parts : iterable of Ranges
            Where the messages of each task are; None for a task that has sent nothing.
        """
        begun = [part for part in parts if part is not None]
        ranges = join(begun)
        if not ranges:  # dead letters only, or no rows at all
            if begun:
                self.abandon(name)
            return False
        if self._decide(name, ranges):
            return True
        _LOG.warning("batch %s is committed already: what was written now are no rows", name)
        self.abandon(name)
        return False

    def give_up(self, name: TransactionName) -> bool:
        """Decide that a batch has no rows, whoever continues with it; False if it is committed already."""
        return self._decide(name, {})

    def _decide(self, name: TransactionName, ranges: Ranges) -> bool:
        """Send the valid commit of a batch; False if another one is valid."""
        patience = self._client.deadline(self._options.outage_timeout_ms)
        for attempt in itertools.count(1):
            committed, end = self._find(name, thorough=True)
            if committed:
                return False
            commit = Commit(owner=self.owner(name), number=name.number, since=end, ranges=ranges)
            offset = self.add(commit)
            others = self.records(name, end, offset)
            # It may be there twice: an answer was lost, or the slave had not stored it in time.
            copies = [*(entry.offset for entry in others if entry.record == commit), offset]
            if any(is_valid(copy, commit, others) for copy in copies):
                break
            # Another process was faster, or too many records came in between: look again.
            if patience.expired and attempt >= _LEAST_COMMITS:
                raise SendError(f"batch {name} is not committed: too many records came in between", failed=0)
        return True

    def abandon(self, name: TransactionName, *, timeout_ms: float | None = None) -> None:
        """Tell readers not to wait for what was written so far for a batch. It is a hint.

        Parameters
        ----------
        name : TransactionName
        timeout_ms : float, optional
            How long it is tried; by default, brokers that are down are waited for, as long as
            ``outageTimeout`` says.
        """
        try:
            self._append(Abort(owner=self.owner(name), number=name.number), timeout_ms=timeout_ms)
        except RocketMQError as error:
            _LOG.warning("readers are not told that batch %s was abandoned: %s", name, error)

    # --- for those who act on commits ---

    def add(self, record: Record) -> int:
        """Add a record, at least once, and return its offset when readers see it."""
        offset = self._append(record)
        wait_until_readable(self._client, {self._log_queue(): offset + 1}, timeout_ms=_READABLE_MS)
        return offset

    def end(self) -> int:
        """Return the end of the commit topic now."""
        queue = self._log_queue()
        return self._client.max_offsets([queue])[queue]

    def records(self, name: TransactionName, begin: int, end: int) -> list[Entry]:
        """Return the owner's records in a range of offsets. Raises `DataLossError` if one has expired."""
        return self.patiently(lambda: self._records(name, begin, end, strict=True))

    def owner(self, name: TransactionName) -> str:
        """Return the owner in records: a job's id may be the same for several topics."""
        return f"{self._options.topic}/{name.owner}"

    # --- how ---

    def _find(self, name: TransactionName, *, thorough: bool) -> tuple[bool, int]:
        """Return whether a batch is committed, and the end of the log at which that was found."""
        newest, end = self.patiently(lambda: self._search(name, thorough=thorough))
        return newest is not None and newest[1].number >= name.number, end

    def _newest(self, name: TransactionName) -> tuple[int, Commit] | None:
        """Return the owner's last valid commit, and its offset."""
        return self.patiently(lambda: self._search(name, thorough=True))[0]

    def _search(self, name: TransactionName, *, thorough: bool) -> tuple[tuple[int, Commit] | None, int]:
        """Return the owner's last valid commit, and the end of the log at which it was searched."""
        queue = self._log_queue()
        end = self._client.max_offsets([queue])[queue]
        first = self._client.min_offsets([queue])[queue]
        until, window = end, _FIRST_WINDOW
        while until > first:
            begin = max(first, until - window)
            newest = self._newest_commit(name, begin, until, first)
            if newest is not None:
                return newest, end
            if not thorough:
                break
            until, window = begin, window * 8
        return None, end

    def _newest_commit(
        self, name: TransactionName, begin: int, end: int, first: int
    ) -> tuple[int, Commit] | None:
        """Return the owner's last valid commit in a range of offsets: numbers only grow."""
        entries = self._records(name, begin, end, strict=False)
        for entry in reversed(entries):
            if isinstance(entry.record, Commit):
                since = max(first, entry.record.since)
                others = entries if since >= begin else self._records(name, since, entry.offset, strict=False)
                if is_valid(entry.offset, entry.record, others):
                    return entry.offset, entry.record
        return None

    def _records(self, name: TransactionName, begin: int, end: int, *, strict: bool) -> list[Entry]:
        """Return the owner's records in a range of offsets; unless ``strict``, those that are left."""
        selector = MessageSelector.by_tag(_tag(self.owner(name)))
        found = read_entries(
            self._client, self._log_queue(), begin, end, selector=selector, fail_on_data_loss=strict
        )
        return [entry for entry in found if entry.record.owner == self.owner(name)]

    def _append(self, record: Record, *, timeout_ms: float | None = None) -> int:
        """Add a record, at least once, and return its offset.

        A commit that the broker's slave, or its disk, does not have in time is sent again: what is
        acknowledged later is stored after it, and so both are. Other records are hints.
        """
        message = OutgoingMessage(self._topic, encode_record(record), tags=_tag(record.owner))

        def attempt() -> int:
            queue = self._log_queue()
            try:
                return self._producer.send(message, queue, timeout_ms=timeout_ms).queue_offset
            except SendError as error:
                if "status" in error.facts:  # it is stored
                    if isinstance(record, Begin | Abort):
                        return int(error.facts["queue_offset"])
                    raise _NotDurableError(error.message, **error.facts) from error
                cause = error.__cause__
                raise (cause if isinstance(cause, RocketMQError) and cause.retriable else error) from None

        return self.patiently(attempt) if timeout_ms is None else attempt()

    def _log_queue(self) -> MessageQueue:
        """Return the commit topic's only queue.

        It is never created here: whether it is missing, or its broker is down, cannot be told apart, and a
        second one at another broker would divide the commits.
        """
        if self._queue is None:
            self._client.invalidate(self._topic)
            self._queue = require_commit_queue(self._client, self._topic)
        return self._queue

    def patiently(self, ask: Callable[[], T]) -> T:
        """Retry while brokers or name servers are down, as long as ``outageTimeout`` says."""

        def attempt() -> T:
            try:
                return ask()
            except RocketMQError:
                self._client.invalidate(self._topic)
                raise

        clock, deadline = self._client.clock, self._client.deadline(self._options.outage_timeout_ms)
        return outlast_outage(attempt, clock=clock, deadline=deadline)


class TaskRanges:
    """Where the messages of a task are stored, which belong to a batch that is committed by ranges.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    name : TransactionName
        The batch.
    """

    def __init__(self, client: Client, options: SinkOptions, name: TransactionName) -> None:
        self._commits = RangeCommits(client, options)
        self._name = name
        self._parts: dict[MessageQueue, list[tuple[int, int]]] = {}
        self._begun = False
        self.committed = False
        """Whether the batch was committed before: nothing is sent then."""
        self.marks: Final = encode_properties({PROPERTY_COMMIT_TOPIC: _commit_topic_of(options)})
        """The encoded property that marks a message of such a batch."""

    def begin(self, queues: Iterable[MessageQueue]) -> bool:
        """Return whether messages may be sent to the queues. Raises as `RangeCommits`."""
        if not self._begun:
            self._begun = True
            self.committed = self._commits.is_committed(self._name, thorough=False)
            if not self.committed:
                self._commits.begin(self._name, queues)
        return not self.committed

    def add(self, stored: SendResult, count: int) -> None:
        """Add the messages of one send, which have consecutive offsets."""
        begin = stored.queue_offset
        self._parts.setdefault(stored.queue, []).append((begin, begin + count))

    def abandon(self) -> None:
        """Tell readers not to wait for the batch: the task has failed. It is a hint, and is not waited for.

        The messages of other tasks may still be committed, and are then read twice by those who do not wait.
        """
        if self._begun and not self.committed:
            self._commits.abandon(self._name, timeout_ms=_HINT_MS)

    def joined(self) -> Ranges | None:
        """Return the ranges, adjacent ones joined; None if readers were told of none."""
        return join([self._parts]) if self._begun and not self.committed else None


def _tag(owner: str) -> str:
    """Return the tag of an owner's records: brokers filter by it, and owners may be any text."""
    return hashlib.sha256(owner.encode()).hexdigest()[:16]
