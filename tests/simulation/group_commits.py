"""Who committed what in a group, and whether a member sets back what others committed while it was frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.history import History
from tests.simulation.network import Session
from tests.simulation.scheduler import Process, Scheduler

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import UpdateConsumerOffsetRequest
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["GroupCommits"]

_LONG_S: Final = 6.0
"""A member that was frozen for this time has to ask whether its queues are another one's."""

_OF_GROUPS: Final = (
    RequestCode.HEART_BEAT,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
)


@dataclass(frozen=True, slots=True)
class _Commit:
    process: Process
    offset: int
    at_s: float
    generation: int


@dataclass(slots=True)
class GroupCommits:
    """The newest commit in each queue, and when each member was frozen last.

    Parameters
    ----------
    scheduler : Scheduler
    history : History
    restarts : Mapping
        When a broker last restarted: it may have lost commits then.
    """

    scheduler: Scheduler
    history: History
    restarts: Mapping[str, float]
    _newest: dict[MessageQueue, _Commit] = field(default_factory=dict)
    _frozen: dict[Process, tuple[float, float]] = field(default_factory=dict)
    _freezing: dict[Process, float] = field(default_factory=dict)

    def freeze(self, process: Process, until_s: float) -> None:
        """Freeze a member."""
        now = self.scheduler.now
        begin_s = self._frozen[process][0] if process.frozen_until > now else now
        process.freeze(until_s)
        self._frozen[process] = (begin_s, process.frozen_until)

    def freeze_within(self, process: Process, lasts_s: float) -> None:
        """Freeze a member when a broker has its next request of a group."""
        self._freezing[process] = lasts_s

    def executed(self, broker: str, session: Session, frame: Frame, reply: Reply) -> None:
        """Learn from a commit, and judge it by when it was sent."""
        if frame.command.code in _OF_GROUPS and session.process in self._freezing:
            self.freeze(session.process, self.scheduler.now + self._freezing.pop(session.process))
        if frame.command.code != RequestCode.UPDATE_CONSUMER_OFFSET or reply.code:
            return
        asked = UpdateConsumerOffsetRequest.parse(frame.command.fields)
        queue = MessageQueue(asked.topic, broker, asked.queue_id)
        now, process = self.scheduler.now, session.process
        generation = self.history.generations[asked.topic, broker, asked.queue_id]
        former = self._newest.get(queue)
        self._newest[queue] = _Commit(process, asked.commit_offset, now, generation)
        begin_s, end_s = self._frozen.get(process, (0.0, 0.0))
        if (
            former is not None
            and former.process is not process
            and former.generation == generation
            and former.offset > asked.commit_offset
            and self.restarts.get(broker, 0.0) < former.at_s
            and end_s - begin_s > _LONG_S
            and begin_s < former.at_s < end_s <= session.owed.get(frame.command.opaque, 0.0)
        ):
            self.history.set_back.append(
                f"{queue}: {process.name}, frozen from {begin_s:.3f} to {end_s:.3f} s, commits "
                f"{asked.commit_offset} at {now:.3f} s, {former.process.name} {former.offset} at "
                f"{former.at_s:.3f} s"
            )
