"""Commits of the group's progress to the brokers, so that RocketMQ's tools show the correct lag.

Only the checkpoint determines what is read. The committed offsets are for people, and for queries that start
from the group's offsets. So a commit never delays or ends a query: a separate thread makes it, which runs
while there is something to commit. A failed commit is logged and retried.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.queue_requests import gravest
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient

__all__ = ["GroupCommits"]

_LOG: Final = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
"""Between the last commits of a run, while they fail."""

_RETRIED: Final = "offsets of group %s are not committed, tried again later: %s"


class GroupCommits:
    """Commits the ends of finished micro-batches, at most every ``interval_ms``; the newest wins.

    Delivery promise: the committed offset is the next offset after a finished micro-batch, never more.

    Parameters
    ----------
    group : str
    client : PlanningClient
        Used by several threads.
    interval_ms : int
        ``commitIntervalMs``.
    clock : Clock
    host : Host
    """

    def __init__(
        self,
        group: str,
        client: PlanningClient,
        *,
        interval_ms: int,
        clock: Clock,
        host: Host = SYSTEM_HOST,
    ) -> None:
        self._group = group
        self._client = client
        self._interval_s = interval_ms / 1000
        self._clock = clock
        self._host = host
        self._turn = host.condition()
        self._finished: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._failed: tuple[RocketMQError, ...] = ()
        self._due = clock.monotonic()
        self._working = False

    def record_finished(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Record that everything before these offsets is finished; commit it if the interval has passed."""
        with self._turn:
            self._finished = dict(offsets)
            if self._clock.monotonic() >= self._due:
                self._start()

    def flush(self, timeout_s: float) -> None:
        """Commit what is finished now, and wait up to ``timeout_s``: this may be the last call."""
        deadline = Deadline(self._clock, timeout_s * 1000)
        with self._turn:
            while not deadline.expired:
                self._wait(deadline)  # a commit under way may be of an earlier batch
                self._start()
                if not self._wait(deadline) or not any(error.retriable for error in self._failed):
                    break
                self._turn.wait(min(_PAUSE_S, deadline.remaining_s))
            missing = len(self._news())
        if missing:
            _LOG.warning("offsets of group %s in %d queues are not committed", self._group, missing)

    def _wait(self, deadline: Deadline) -> bool:
        """Wait until no commit is under way, and return whether that is so. Requires the lock."""
        return self._turn.wait_for(lambda: not self._working, deadline.remaining_s)

    def _start(self) -> None:
        """Start the commit thread, unless it runs or there is nothing to commit. Requires the lock."""
        if not self._working and self._news():
            self._working = True
            try:
                self._host.start(self._work, name="group-commits")
            except RuntimeError as error:  # the machine has no thread left
                self._working = False
                _LOG.warning(_RETRIED, self._group, error)

    def _news(self) -> dict[MessageQueue, int]:
        return {q: offset for q, offset in self._finished.items() if self._committed.get(q) != offset}

    def _work(self) -> None:
        """Commit what is new. A query keeps the positions of topics that are deleted: they fail each time."""
        failed: Mapping[MessageQueue, RocketMQError] = {}
        news: Mapping[MessageQueue, int] = {}
        try:
            with self._turn:
                news = self._news()
            try:
                failed = self._client.try_commit_offsets(self._group, news)
            except RocketMQError as error:
                failed = dict.fromkeys(news, error)
            if failed:  # with each commit, where a topic is gone
                worst = gravest(failed.values())
                about = (self._group, type(worst))
                self._client.warnings.warn(_LOG, _RETRIED, self._group, worst, about=about)
        finally:
            with self._turn:
                self._failed = tuple(failed.values())
                self._committed |= {queue: at for queue, at in news.items() if queue not in failed}
                self._due = self._clock.monotonic() + self._interval_s
                self._working = False
                self._turn.notify_all()
