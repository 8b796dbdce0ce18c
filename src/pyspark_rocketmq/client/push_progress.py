"""Where a push consumer's offsets are kept: at the brokers for the group, or in a file of its own."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from pyspark_rocketmq.client.core import Client
from pyspark_rocketmq.client.push_options import ConsumeFromWhere, PushOptions
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue

__all__ = ["FileProgress", "GroupProgress", "Progress", "starting_offsets"]

_HALF_AN_HOUR_MS = 30 * 60 * 1000


class Progress(Protocol):
    """Keeps the next offset of queues."""

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Return the next offset of each queue, None where there is none yet."""
        ...

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep offsets; others stay."""
        ...


class GroupProgress:
    """The group's offsets at the brokers.

    Raises as `Client.committed_offsets` and `Client.commit_offsets`.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    def read(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Ask the brokers."""
        return self._client.committed_offsets(self._group, queues)

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit at the brokers."""
        self._client.commit_offsets(self._group, offsets)


class FileProgress:
    """Offsets of one broadcasting member, in a JSON file; without one only in memory.

    Parameters
    ----------
    path : Path, optional

    Raises
    ------
    OptionError
        The file is there and is not one of these.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
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
        self._offsets.update(offsets)
        if self._path is None:
            return
        rows = [[q.topic, q.broker_name, q.queue_id, offset] for q, offset in sorted(self._offsets.items())]
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.write_text(json.dumps({"offsets": rows}), encoding="utf-8")
        draft.replace(self._path)


def starting_offsets(
    client: Client, progress: Progress, queues: Collection[MessageQueue], options: PushOptions, group: str
) -> dict[MessageQueue, int]:
    """Return where to begin in each queue: at what is kept, else where ``consumeFromWhere`` says.

    As Java's ``RebalancePushImpl.computePullFromWhere``: what comes back through ``%RETRY%group`` is read
    from its begin, whatever the start.

    Raises
    ------
    RocketMQError
        A broker does not answer.
    """
    known = progress.read(queues)
    begins = {queue: offset for queue, offset in known.items() if offset is not None}
    new = [queue for queue in queues if queue not in begins]
    retries = [queue for queue in new if queue.topic.startswith("%RETRY%")]
    others = [queue for queue in new if queue not in retries]
    begins |= client.min_offsets(retries)
    match options.start:
        case ConsumeFromWhere.LAST_OFFSET:
            begins |= client.max_offsets(others)
        case ConsumeFromWhere.FIRST_OFFSET:
            begins |= client.min_offsets(others)
        case ConsumeFromWhere.TIMESTAMP:
            moment = options.timestamp_ms
            if moment is None:
                moment = client.clock.now_ms() - _HALF_AN_HOUR_MS
            begins |= client.offsets_at(dict.fromkeys(others, moment), group=group)
    return begins
