"""``commitAsync``: committing the ends of offset ranges in the background."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.shared import shared_client
from pyspark_rocketmq.dstream.ranges import CanCommitOffsets, RangesLike, to_ranges
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import parse_direct_options

__all__ = ["LAST_COMMIT_PATIENCE_S", "CommitCallback", "CommitQueue", "Committer"]

_LOG: Final = logging.getLogger(__name__)

LAST_COMMIT_PATIENCE_S: Final = 10.0
"""How long a program that ends waits for its last commit."""

CommitCallback: TypeAlias = Callable[[Mapping[MessageQueue, int], RocketMQError | None], None]
"""Called with the offsets, and with None or the error."""


class Committer(CanCommitOffsets):
    """Commits a group's offsets in a thread that ends after the last commit. The last call counts.

    Closures of a stream's output operations may contain a committer: the checkpoint contains its options.

    Parameters
    ----------
    given : Mapping
        The options as the user set them: values from the environment are not written to checkpoints.
    group : str
    """

    def __init__(self, given: Mapping[str, Any], group: str) -> None:
        self._given = dict(given)
        self._group = group
        self._queue = CommitQueue(self._commit)  # at once: two threads may make the first call
        self._used = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Committer, (self._given, self._group)

    def commitAsync(self, offsetRanges: RangesLike, callback: CommitCallback | None = None) -> None:
        """Commit the ends of the ranges. Call it after the output of the batch is stored.

        Delivery promise: at least once. The committed offset is the next one to read, so a new stream of the
        group begins exactly there. Batches that were not committed before a crash are read again. Call it on
        the driver. Without a callback, a failure is logged. Calls that wait for a commit under way are made
        together, and told of the same error. A program that ends waits up to 10 s for its last commit.
        """
        if ends := to_ranges(offsetRanges).ends:
            if not self._used:
                self._used = True
                atexit.register(self._queue.finish, LAST_COMMIT_PATIENCE_S)
            self._queue.add(ends, callback)

    def _commit(self, ends: Mapping[MessageQueue, int]) -> None:
        shared_client(parse_direct_options(self._given).client).commit_offsets(self._group, ends)


class CommitQueue:
    """Makes commits in a thread that ends after the last one. Those that wait meanwhile are made together.

    A broker that is away delays offsets at the others by one commit, however many calls wait. The offset of
    a queue is that of the last call. Calls that are made together are told of the same error.

    Parameters
    ----------
    commit : Callable
    host : Host
    """

    def __init__(
        self, commit: Callable[[Mapping[MessageQueue, int]], None], host: Host = SYSTEM_HOST
    ) -> None:
        self._commit = commit
        self._host = host
        self._turn = host.condition()
        self._waiting: list[tuple[dict[MessageQueue, int], CommitCallback | None]] = []
        self._works = False

    def add(self, ends: dict[MessageQueue, int], callback: CommitCallback | None) -> None:
        """Commit offsets soon.

        Raises
        ------
        RuntimeError
            No thread can be started. The offsets are not committed.
        """
        with self._turn:
            self._waiting.append((ends, callback))
            if not self._works:
                self._works = True
                try:
                    self._host.start(self._work, name="commit-async")
                except RuntimeError:
                    self._works = False
                    self._waiting.pop()
                    raise

    def finish(self, timeout_s: float) -> None:
        """Wait until everything is committed, or could not be, or until the time is over."""
        with self._turn:
            if not self._turn.wait_for(lambda: not self._works, timeout_s):
                _LOG.warning("the last offsets are not committed after %.0f s", timeout_s)

    def _work(self) -> None:
        while True:
            with self._turn:
                if not self._waiting:
                    self._works = False
                    self._turn.notify_all()
                    return
                calls, self._waiting = self._waiting, []
            together: dict[MessageQueue, int] = {}
            for ends, _ in calls:
                together |= ends
            error: RocketMQError | None = None
            try:
                self._commit(together)
            except RocketMQError as failure:
                error = failure
                if any(callback is None for _, callback in calls):
                    _LOG.warning("offsets are not committed: %s", failure)
            except Exception as failure:  # noqa: BLE001 - the outermost frame; later commits continue
                _LOG.exception("offsets are not committed")
                error = RocketMQError(f"offsets are not committed: {failure!r}")
                error.__cause__ = failure
            for ends, callback in calls:
                if callback is not None:
                    self._call(callback, ends, error)

    @staticmethod
    def _call(callback: CommitCallback, ends: dict[MessageQueue, int], error: RocketMQError | None) -> None:
        try:
            callback(ends, error)
        except BaseException:  # noqa: BLE001 - the thread's outermost frame; sys.exit() must not end it, either
            _LOG.exception("a callback of commitAsync failed")
