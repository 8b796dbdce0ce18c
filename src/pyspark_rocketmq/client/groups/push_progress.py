"""The offsets of a push consumer: the group's at the brokers, or a member's own in a local file."""

# Facts (RebalancePushImpl.computePullFromWhere, ConsumerManageProcessor, ConsumerOffsetManager; 5.4.0, 4.9.7)
# - Java starts at 0 in a queue without an offset whose first message is still in the broker's memory
#   (setZeroIfNotFound): so a queue that was added to a topic later is read from its start. Brokers before 5.0
#   answer 0 to every client.
# - A broker that gets a group's first commits of a topic concurrently creates a table for each and keeps only
#   the last one: the first commit of a topic must be acknowledged before others are sent.

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Since
from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.names import RETRY_PREFIX

__all__ = [
    "UNHEARD_S",
    "FileProgress",
    "GroupProgress",
    "OwnCommits",
    "Progress",
    "StartOffsets",
    "starting_offsets",
]

_LOG: Final = logging.getLogger(__name__)

UNHEARD_S: Final = 5.0
"""A member that did not run for this time, frozen or asleep, may not have heard who has its queues now."""

_V5: Final = 413
"""``MQVersion.V5_0_0``."""
_HALF_AN_HOUR_MS = 30 * 60 * 1000


class OffsetReader(Protocol):
    """Reads the next offset of queues."""

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Return the next offset of each queue, or None."""
        ...


class Progress(OffsetReader, Protocol):
    """Reads and writes the next offset of queues."""

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store offsets; those of other queues are unchanged."""
        ...

    def reads(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether one of the queues has an offset."""
        ...


class GroupProgress:
    """The group's offsets, which brokers accept from members that send heartbeats.

    Safe for threads that write different queues. Raises as `Client.ask`.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._committed: set[tuple[str, str]] = set()

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Request them from the brokers."""
        return self._client.committed_offsets(self._group, queues)

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit at the brokers.

        Raises
        ------
        RocketMQError
            Also if the process was frozen meanwhile, so that another member may have queues now.
        """
        begun = Since(self._client.clock)

        def check() -> None:
            if begun.seconds > UNHEARD_S:
                raise RocketMQError(f"offsets to commit are {begun.seconds:.0f} s old, and are not sent")

        calls = {
            queue: replace(broker.commit_offset(self._group, queue, at), before_send=check)
            for queue, at in offsets.items()
        }
        owners = self._client.owners(offsets)
        first = {(owners[queue] or queue.broker_name, queue.topic): queue for queue in offsets}
        first_calls = {queue: calls.pop(queue) for key, queue in first.items() if key not in self._committed}
        self._client.ask(first_calls)
        self._committed |= first.keys()
        self._client.ask(calls)

    def reads(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether the group has an offset in one of the queues; brokers that are down are skipped."""
        for name in dict.fromkeys(queue.broker_name for queue in queues):
            calls = {q: _is_committed(self._group, q) for q in queues if q.broker_name == name}
            try:
                if any(self._client.ask(calls).values()):
                    return True
            except RocketMQError as error:
                _LOG.warning("group %s: the offsets at %s are unknown: %s", self._group, name, error)
        return False


def _is_committed(group: str, queue: MessageQueue) -> Call[bool]:
    call = broker.committed_offset(group, queue)

    def parse(answer: Response) -> bool:
        offset = call.parse(answer)
        return offset is not None and (offset > 0 or answer.command.version >= _V5)

    return Call(call.request, parse)


class FileProgress:
    """Offsets of one broadcasting member, in a JSON file, or only in memory.

    Parameters
    ----------
    path : Path, optional

    Raises
    ------
    OptionError
        The file cannot be read or written, or has another format.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._lock = threading.Lock()
        if path is None:
            return
        try:
            if not path.exists():
                self.write({})
            rows = json.loads(path.read_text(encoding="utf-8"))["offsets"]
            self._offsets = {
                MessageQueue(topic, broker, int(queue)): int(n) for topic, broker, queue, n in rows
            }
        except (OSError, RocketMQError) as error:
            raise OptionError(f"a member's offsets cannot be kept there: {error}", path=path) from error
        except (ValueError, KeyError, TypeError) as error:
            raise OptionError("the file does not hold a member's offsets", path=path) from error

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Return the stored offsets."""
        return {queue: self._offsets.get(queue) for queue in queues}

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the file atomically.

        Raises
        ------
        RocketMQError
            It cannot be written. The offsets are written with the next ones.
        """
        with self._lock:
            self._offsets.update(offsets)
            if self._path is None:
                return
            rows = [[q.topic, q.broker_name, q.queue_id, at] for q, at in sorted(self._offsets.items())]
            draft = self._path.with_name(f"{self._path.name}.new")
            try:
                draft.write_text(json.dumps({"offsets": rows}), encoding="utf-8")
                draft.replace(self._path)
            except OSError as error:
                raise RocketMQError(f"a member's offsets cannot be kept: {error}", path=self._path) from error

    def reads(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether one of the queues has an offset."""
        return any(queue in self._offsets for queue in queues)


class OwnCommits:
    """What a member has committed in its queues at a broker, and which of them it doubts that it still has.

    Parameters
    ----------
    progress : Progress
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._committed: dict[MessageQueue, int | None] = {}
        self._tried: set[tuple[MessageQueue, int | None]] = set()  # stored if only their answers are lost
        self.doubted: set[MessageQueue] = set()
        """Queues of which nothing is committed until `find_lost` knows that no other member has had them."""

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit what is new.

        Raises
        ------
        RocketMQError
            A broker does not answer.
        """
        known, doubted = self._committed, self.doubted
        changed = {q: at for q, at in offsets.items() if known.get(q) != at and q not in doubted}
        if changed:
            self._tried |= changed.items()
            self._progress.write(changed)
            self._committed |= changed
            self._tried = {each for each in self._tried if each[0] not in changed}

    def find_lost(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Return the doubted queues that another member has committed since this member did.

        The others are no longer doubted.

        Raises
        ------
        RocketMQError
            A broker does not answer.
        """
        asked = [queue for queue in queues if queue in self.doubted]
        stored = self._progress.read(asked) if asked else {}
        lost = {
            queue
            for queue, found in stored.items()
            if (found or 0) > (self._committed.get(queue) or 0) and (queue, found) not in self._tried
        }
        self._committed |= stored  # a crash loses the newest commits
        self.doubted -= stored.keys()
        return lost

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that the member has no longer."""
        self._committed.pop(queue, None)
        self._tried = {each for each in self._tried if each[0] != queue}
        self.doubted.discard(queue)


class StartOffsets:
    """Computes the start offset of each queue that is assigned to a member. Thread-safe.

    ``consumeFromWhere`` applies to the queues that a topic has when the group starts. A queue that is added
    later is read from its first message: it was written while the group read the topic. So is a queue without
    an offset if the group has an offset in another queue of the topic: it was added while no member ran.

    Parameters
    ----------
    client : Client
    progress : Progress
    options : PushOptions
    group : str
    """

    def __init__(self, client: Client, progress: Progress, options: PushOptions, group: str) -> None:
        self._client = client
        self._progress = progress
        self._options = options
        self._started_ms = client.clock.now_ms()
        self._group = group
        self._first: dict[str, frozenset[MessageQueue]] = {}
        self._released: dict[MessageQueue, int] = {}

    def record_queues(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Record the queues of a topic, before the member joins the group.

        After that it could see the first offsets of other members that start at the same time.
        """
        started = self._options.start is not ConsumeFromWhere.FIRST_OFFSET and self._progress.reads(queues)
        self._first[topic] = frozenset() if started else frozenset(queues)

    def record_position(self, queue: MessageQueue, position: int) -> None:
        """Record the member's position in a queue that it releases."""
        self._released[queue] = position

    def offsets(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the start offset of each queue.

        Raises
        ------
        RocketMQError
            A broker does not answer.
        """
        later = {queue for queue in queues if queue not in self._first.get(queue.topic, ())}
        stored = _WithReleased(self._progress, self._released)
        return starting_offsets(
            *(self._client, stored, queues, self._options, self._group),
            later=later,
            started_ms=self._started_ms,
        )


class _WithReleased:
    """The stored offsets, else those of this member: a broker may lose its last seconds in a crash."""

    def __init__(self, progress: Progress, released: Mapping[MessageQueue, int]) -> None:
        self._progress = progress
        self._released = released

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        stored = self._progress.read(queues)
        return {queue: self._released.get(queue) if at is None else at for queue, at in stored.items()}


def starting_offsets(
    client: Client,
    progress: OffsetReader,
    queues: Collection[MessageQueue],
    options: PushOptions,
    group: str,
    *,
    later: Collection[MessageQueue] = (),
    started_ms: int | None = None,
) -> dict[MessageQueue, int]:
    """Return the start offset of each queue: the stored one, else as ``consumeFromWhere`` sets it.

    As in Java's ``RebalancePushImpl.computePullFromWhere``, the queues of ``%RETRY%group`` are read from
    their first message. So are ``later`` queues, which were added while the group read the topic, unless the
    user set a time.

    Raises
    ------
    RocketMQError
        A broker does not answer.
    """
    stored = progress.read(queues)
    begins = {queue: offset for queue, offset in stored.items() if offset is not None}
    new = [queue for queue in queues if queue not in begins]
    given = options.start is ConsumeFromWhere.TIMESTAMP and options.timestamp_ms is not None
    whole = [q for q in new if q.topic.startswith(RETRY_PREFIX) or (q in later and not given)]
    others = [queue for queue in new if queue not in whole]
    begins |= client.min_offsets(whole)
    match options.start:
        case ConsumeFromWhere.LAST_OFFSET:
            begins |= client.max_offsets(others)
        case ConsumeFromWhere.FIRST_OFFSET:
            begins |= client.min_offsets(others)
        case ConsumeFromWhere.TIMESTAMP:
            moment = options.timestamp_ms
            if moment is None:
                now_ms = client.clock.now_ms() if started_ms is None else started_ms
                moment = now_ms - _HALF_AN_HOUR_MS
            begins |= client.offsets_at(dict.fromkeys(others, moment), group=group)
    return begins
