"""Where a push consumer's offsets are kept: at the brokers for the group, or in a local file."""

# Facts (RebalancePushImpl.computePullFromWhere, ConsumerManageProcessor, ConsumerOffsetManager; 5.4.0, 4.9.7)
# - Java starts at 0 in a queue without an offset whose first message is still in the broker's memory
#   (setZeroIfNotFound): that is how a queue that a topic gained later is read from its start. Brokers before
#   5.0 answer so to everybody.
# - A broker that gets a group's first commits of a topic side by side makes a table for each and keeps the
#   last one: one commit goes ahead.

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Protocol

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.model.names import RETRY_PREFIX

__all__ = ["Beginnings", "FileProgress", "GroupProgress", "Progress", "starting_offsets"]

_LOG: Final = logging.getLogger(__name__)

_V5: Final = 413
"""``MQVersion.V5_0_0``."""
_HALF_AN_HOUR_MS = 30 * 60 * 1000


class Known(Protocol):
    """Knows the next offset of queues."""

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Return the next offset of each queue, None where there is none yet."""
        ...


class Progress(Known, Protocol):
    """Keeps the next offset of queues."""

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep offsets; others stay."""
        ...

    def reads(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether there is an offset of one of the queues."""
        ...


class GroupProgress:
    """The group's offsets at the brokers, which know the group by its members' heartbeats.

    Safe for threads that write different queues. Raises as `Client.ask`.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._committed: set[tuple[str, str]] = set()

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Ask the brokers."""
        return self._client.committed_offsets(self._group, queues)

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit at the brokers."""
        calls = {queue: broker.commit_offset(self._group, queue, at) for queue, at in offsets.items()}
        owners = self._client.owners(offsets)
        first = {(owners[queue] or queue.broker_name, queue.topic): queue for queue in offsets}
        ahead = {queue: calls.pop(queue) for key, queue in first.items() if key not in self._committed}
        self._client.ask(ahead)
        self._committed |= first.keys()
        self._client.ask(calls)

    def reads(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether the group has an offset in one of the queues; brokers that are away do not count."""
        for name in dict.fromkeys(queue.broker_name for queue in queues):
            calls = {q: _is_committed(self._group, q) for q in queues if q.broker_name == name}
            try:
                if any(self._client.ask(calls).values()):
                    return True
            except RocketMQError as error:
                _LOG.warning("group %s: %s does not tell whether it is read: %s", self._group, name, error)
        return False


def _is_committed(group: str, queue: MessageQueue) -> Call[bool]:
    call = broker.committed_offset(group, queue)

    def parse(answer: Response) -> bool:
        offset = call.parse(answer)
        return offset is not None and (offset > 0 or answer.command.version >= _V5)

    return Call(call.request, parse)


class FileProgress:
    """Offsets of one broadcasting member, in a JSON file; without one only in memory.

    Parameters
    ----------
    path : Path, optional

    Raises
    ------
    OptionError
        The file exists and has another format.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._lock = threading.Lock()
        if path is None or not path.exists():
            return
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["offsets"]
            self._offsets = {
                MessageQueue(topic, broker, int(queue)): int(n) for topic, broker, queue, n in rows
            }
        except (ValueError, KeyError, TypeError) as error:
            raise OptionError("the file does not hold a member's offsets", path=path) from error

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Return what is known."""
        return {queue: self._offsets.get(queue) for queue in queues}

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the file, whole or not at all."""
        with self._lock:
            self._offsets.update(offsets)
            if self._path is None:
                return
            rows = [[q.topic, q.broker_name, q.queue_id, at] for q, at in sorted(self._offsets.items())]
            draft = self._path.with_name(f"{self._path.name}.new")
            draft.write_text(json.dumps({"offsets": rows}), encoding="utf-8")
            draft.replace(self._path)

    def reads(self, queues: Collection[MessageQueue]) -> bool:
        """Return whether one of the queues has an offset."""
        return any(queue in self._offsets for queue in queues)


class Beginnings:
    """Where a member begins in each queue that it is dealt; safe for threads.

    ``consumeFromWhere`` is about the queues that a topic has when its group starts. A queue that comes later
    is read from its first message: it was written while the group read the topic. So is a queue without an
    offset of a topic in which the group has an offset already: it came while no member was looking.

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
        self._left: dict[MessageQueue, int] = {}

    def look(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Record the queues of a topic, before the member joins the group.

        A member that joins later would see the first offsets of others that start at the same time.
        """
        started = self._options.start is not ConsumeFromWhere.FIRST_OFFSET and self._progress.reads(queues)
        self._first[topic] = frozenset() if started else frozenset(queues)

    def leave(self, queue: MessageQueue, position: int) -> None:
        """Record the position of the member in a queue that it gives up."""
        self._left[queue] = position

    def offsets(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return where to begin in each queue.

        Raises
        ------
        RocketMQError
            A broker does not answer.
        """
        later = {queue for queue in queues if queue not in self._first.get(queue.topic, ())}
        known = _Remembered(self._progress, self._left)
        return starting_offsets(
            *(self._client, known, queues, self._options, self._group),
            later=later,
            started_ms=self._started_ms,
        )


class _Remembered:
    """What is kept, else (a broker may lose its last seconds in a crash) what this member remembers."""

    def __init__(self, progress: Progress, left: Mapping[MessageQueue, int]) -> None:
        self._progress = progress
        self._left = left

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        kept = self._progress.read(queues)
        return {queue: self._left.get(queue) if at is None else at for queue, at in kept.items()}


def starting_offsets(
    client: Client,
    progress: Known,
    queues: Collection[MessageQueue],
    options: PushOptions,
    group: str,
    *,
    later: Collection[MessageQueue] = (),
    started_ms: int | None = None,
) -> dict[MessageQueue, int]:
    """Return where to begin in each queue: at what is kept, else where ``consumeFromWhere`` says.

    As Java's ``RebalancePushImpl.computePullFromWhere``: what comes back through ``%RETRY%group`` is read
    from its begin, whatever the start. So are ``later`` queues, which the topic gained while the group read
    it; a moment that the user gave holds for them, too.

    Raises
    ------
    RocketMQError
        A broker does not answer.
    """
    known = progress.read(queues)
    begins = {queue: offset for queue, offset in known.items() if offset is not None}
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
