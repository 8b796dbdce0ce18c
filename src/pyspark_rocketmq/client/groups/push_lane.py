"""A member's requests to one broker, in one thread per broker: a broker that is down does not delay others.

Heartbeats, locks, start offsets, commits and messages that are sent back are requests to one broker. Each
broker has a lane with the member's queues there, by topic. A topic whose step fails delays no other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Since
from pyspark_rocketmq.client.groups.membership import Membership
from pyspark_rocketmq.client.groups.push_delivery import send_messages_back
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.groups.push_progress import UNHEARD_S, OwnCommits, Progress, StartOffsets
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.client.groups.threads import Event, Worker, wait_for_work
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue

__all__ = ["BrokerLane", "LaneMember"]

_LOG: Final = logging.getLogger(__name__)

_Step: TypeAlias = Literal[
    "begin", "check", "commit", "leave", "heartbeat", "lock", "release", "run", "unlock"
]

_LOCK_S: Final = 20.0
_LOCK_RETRY_S: Final = 2.0
_HAND_OVER_S: Final = 25.0
"""How long the last commit of a released queue is retried, counted from the last renewal of its lock."""
_LOST: Final = -math.inf
"""When a lost queue was released: its position is not committed."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 8.0
_MOST_SENT_BACK: Final = 64


@dataclass(frozen=True, slots=True)
class LaneMember:
    """What the lanes of a member share.

    Parameters
    ----------
    client : Client
    group : str
    options : PushOptions
    membership : Membership
    progress : Progress
    start_offsets : StartOffsets
    make_worker : Callable
        Creates the worker of a queue for an offset, without starting it.
    on_registered : Callable
        Called when a broker has registered this member. Must return immediately.
    """

    client: Client
    group: str
    options: PushOptions
    membership: Membership
    progress: Progress
    start_offsets: StartOffsets
    make_worker: Callable[[MessageQueue, int, Callable[[], None]], QueueWorker]
    on_registered: Callable[[], None]

    @property
    def locks(self) -> bool:
        """Whether queues are locked: ordered, and not broadcasting."""
        return self.options.ordered and not self.options.broadcasting


class BrokerLane:
    """The member at one broker.

    `assign` and `set_addresses` set the goal. The thread calls `run_once` repeatedly, which takes the steps
    that are due, as far as the broker can be reached.

    Parameters
    ----------
    name : str
        The broker's name.
    member : LaneMember
    """

    def __init__(self, name: str, member: LaneMember) -> None:
        self.name = name
        self._member = member
        self._wanted: dict[str, frozenset[MessageQueue]] = {}
        self._addrs: tuple[str, ...] = ()
        self._workers: dict[MessageQueue, QueueWorker] = {}
        self._leaving: dict[QueueWorker, float] = {}
        self._commits = OwnCommits(member.progress)
        self._ran = Since(member.client.clock)
        self._due: dict[_Step, float] = {}
        self._pauses: dict[tuple[_Step, str], tuple[float, float]] = {}
        self._wake = Event(member.client.host)
        self._accepting = True
        self._ends = False
        self._thread = Worker(member.client.host, self._run, name=f"push-{member.group}-{name}")

    # --- from other threads ---

    def start(self) -> None:
        """Start the thread, unless it was started. Raises as `Worker.start`."""
        if not self._thread.started:
            self._thread.start()

    def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Set the member's queues of a topic at this broker."""
        wanted = frozenset(queues)
        if self._wanted.get(topic, frozenset()) != wanted:
            self._wanted = {**self._wanted, topic: wanted}
            self.wake()

    def set_addresses(self, addrs: Collection[str]) -> None:
        """Set the addresses of the broker's servers; none if no route contains the broker."""
        if self._addrs != tuple(addrs):
            self._addrs = tuple(addrs)
            self.wake()

    def request_heartbeat(self) -> None:
        """Send a heartbeat in the next run."""
        self._due.pop("heartbeat", None)
        self.wake()

    def wake(self) -> None:
        """Start the next run now."""
        self._wake.set()

    @property
    def workers(self) -> tuple[QueueWorker, ...]:
        """The workers of the member's queues here, including those that it is releasing."""
        return (*list(self._workers.values()), *list(self._leaving))

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The member's queues here."""
        return tuple(self._workers)

    @property
    def unused(self) -> bool:
        """Whether no route contains the broker, and the member has no queue there."""
        return not self._addrs and not self.workers and not any(self._wanted.values())

    def stop_pulling(self) -> None:
        """Stop pulling and accept no more queues; heartbeats, locks and commits continue."""
        self._accepting = False
        for worker in self.workers:
            worker.stop()

    def finish(self) -> None:
        """Commit, release the queues, leave the group at this broker, and end the thread."""
        self.stop_pulling()
        self._ends = True
        self.wake()

    @property
    def ended(self) -> bool:
        """Whether the thread was started and has ended."""
        return self._thread.started and not self._thread.alive

    def join(self, timeout_s: float) -> None:
        """Wait for the thread, if it was started."""
        self._thread.join(timeout_s)

    # --- the lane's own thread ---

    def _run(self) -> None:
        while not self._ends:
            self._attempt(("run", self.name), self.run_once)
            wait_for_work(self._wake, self._member.options.commit_ms)
        self.stop_pulling()  # including workers that were started meanwhile
        self._attempt(("leave", self.name), self._leave_group)

    def run_once(self) -> None:
        """Take the steps that are due. A step that fails is retried after a pause."""
        if not self._accepting:
            self.stop_pulling()  # including workers that were started meanwhile
        if self._is_due("check", _LOCK_S):  # others commit late
            self._doubt_queues()
        self._register()
        if not self._is_registered():
            self._stop_unwanted()
            return
        if self._member.locks and self._is_due("lock", _LOCK_S):
            self._renew_locks()
        self._check_owners()
        self._send_back()
        commits = self._is_due("commit", self._member.options.commit_ms / 1000)
        self._stop_unwanted()
        for topic in sorted({*self._wanted, *(worker.queue.topic for worker in self.workers)}):
            if commits:
                self._attempt(("commit", topic), partial(self._commit, topic))
            for worker in self._released(topic):
                self._attempt(("release", topic), partial(self._release, worker))
            if self._accepting:
                self._attempt(("begin", topic), partial(self._start_workers, topic))

    def _is_registered(self) -> bool:
        """Whether the broker accepts heartbeats; the queues of static topics have no fixed broker."""
        return not self._addrs or self._member.membership.is_registered(self._addrs)

    def _register(self) -> None:
        again = self._is_due("heartbeat", self._member.options.heartbeat_ms / 1000)
        for addr in self._addrs:
            self._attempt(("heartbeat", addr), partial(self._send_heartbeat, addr, again=again))

    def _send_heartbeat(self, addr: str, *, again: bool) -> None:
        if self._member.membership.send_heartbeat(addr, again=again):
            self._pauses.clear()  # the broker is back: retry now
            self._due.pop("lock", None)  # it may have restarted without its locks
            self._doubt_queues()
            self._member.on_registered()

    def _renew_locks(self) -> None:
        asked = Since(self._member.client.clock)
        workers = [worker for worker in self.workers if not self._is_lost(worker)]
        answers = self._member.membership.lock([worker.queue for worker in workers])
        for worker in [worker for worker in workers if answers.get(worker.queue) is False]:
            worker.record_lock(held=False, asked=asked)
            self._lose(worker)
        self._check_owners()  # before a call: another member may have had the lock, and gone
        for worker in workers:
            if not answers.get(worker.queue) or worker.queue in self._commits.doubted:
                self._due["lock"] = self._now() + _LOCK_RETRY_S
            elif not self._is_lost(worker):
                worker.record_lock(held=True, asked=asked)
                if worker in self._leaving:
                    self._leaving[worker] = asked.begun_s

    # --- queues ---

    def _stop_unwanted(self) -> None:
        wanted = {queue for queues in self._wanted.values() for queue in queues}
        for queue, worker in list(self._workers.items()):
            if queue in wanted and not worker.broken:
                continue
            del self._workers[queue]
            self._end(worker)
            self._leaving[worker] = self._now()

    def _doubt_queues(self) -> None:
        """Commit nothing until `_check_owner` knows that no other member has had the queues."""
        self._commits.doubted |= {worker.queue for worker in self.workers}

    def _check_owners(self) -> None:
        self._notice_pause()
        for topic in sorted({queue.topic for queue in self._commits.doubted}):
            self._attempt(("check", topic), partial(self._check_owner, topic))

    def _check_owner(self, topic: str) -> None:
        """Lose the queues that another member has committed since this member did."""
        workers = [worker for worker in self.workers if worker.queue.topic == topic]
        lost = self._commits.find_lost([worker.queue for worker in workers])
        for worker in workers:
            if worker.queue in lost:
                self._lose(worker)

    def _lose(self, worker: QueueWorker) -> None:
        """Release a queue that another member has or had. A commit would set back that member's."""
        _LOG.warning("%s: another member has had the queue. It continues at its offset.", worker.queue)
        if self._workers.get(worker.queue) is worker:
            del self._workers[worker.queue]
        self._end(worker)
        self._leaving[worker] = _LOST

    def _is_lost(self, worker: QueueWorker) -> bool:
        return self._leaving.get(worker) == _LOST

    def _end(self, worker: QueueWorker) -> None:
        if self._member.options.ordered:
            worker.stop()  # the running call counts: no other worker gets the queue before it ends
        else:
            worker.drop()

    def _released(self, topic: str) -> list[QueueWorker]:
        """Return the workers that are being released; ordered ones after the running call."""
        ordered = self._member.options.ordered
        return [w for w in self._leaving if w.queue.topic == topic and (w.idle or not ordered)]

    def _release(self, worker: QueueWorker) -> None:
        """Commit and unlock a queue that is being released."""
        if self._now() < self._leaving[worker] + _HAND_OVER_S:
            if worker.queue in self._commits.doubted:
                return
            self._commits.write({worker.queue: worker.position})
        elif not self._is_lost(worker):  # its next owner may have committed since
            _LOG.warning("%s was released, and its last commit failed", worker.queue)
        if self._member.locks:
            self._member.membership.unlock([worker.queue])
        self._forget(worker)

    def _forget(self, worker: QueueWorker) -> None:
        if not self._is_lost(worker):
            self._member.start_offsets.record_position(worker.queue, worker.position)
        self._leaving.pop(worker, None)
        self._commits.forget(worker.queue)

    def _start_workers(self, topic: str) -> None:
        member = self._member
        leaving = {worker.queue for worker in self._leaving}
        wanted = sorted(self._wanted.get(topic, frozenset()) - self._workers.keys() - leaving)
        asked = Since(member.client.clock)
        if wanted and member.locks:
            answers = member.membership.lock(wanted)
            wanted = [queue for queue in wanted if answers.get(queue)]  # the others when released
        if not wanted:
            return
        # After the lock: the previous owner may have committed until then.
        begins = member.start_offsets.offsets(wanted)
        try:
            for queue in wanted:
                if not self._accepting:
                    return
                worker = member.make_worker(queue, begins[queue], self.wake)
                worker.record_lock(held=True, asked=asked)
                self._workers[queue] = worker
                worker.start()
        finally:  # immediately: without an offset the queue would start elsewhere after a crash
            mine = {queue: at for queue, at in begins.items() if queue in self._workers}
            self._attempt(("commit", topic), partial(self._commits.write, mine))

    # --- offsets and deferred messages ---

    def _commit(self, topic: str) -> None:
        self._commits.write({q: worker.position for q, worker in self._workers.items() if q.topic == topic})

    def _send_back(self) -> None:
        member = self._member
        waiting = [
            (worker, message)
            for worker in self._workers.values()
            if worker.queue not in self._commits.doubted
            for message in worker.messages_to_send_back()
        ]
        if not waiting:
            return
        if len(waiting) > _MOST_SENT_BACK:
            self.wake()
        send_messages_back(member.client, member.group, member.options, waiting[:_MOST_SENT_BACK])

    # --- the end ---

    def _leave_group(self) -> None:
        member = self._member
        if self._is_registered():
            self._doubt_queues()  # a process that was frozen may end as it wakes up
            self._check_owners()
            self._send_back()
            for topic in {worker.queue.topic for worker in self.workers}:
                kept = [worker for worker in self.workers if not self._is_lost(worker)]
                some = {w.queue: w.position for w in kept if w.queue.topic == topic}
                self._attempt(("leave", topic), partial(self._commits.write, some))
                if member.locks:
                    self._attempt(("unlock", topic), partial(member.membership.unlock, list(some)))
        for addr in self._addrs:
            member.membership.leave(addr)

    # --- time ---

    def _now(self) -> float:
        return self._member.client.clock.monotonic()

    def _is_due(self, what: _Step, every_s: float) -> bool:
        now = self._now()
        if now < self._due.get(what, now):
            return False
        self._due[what] = now + every_s
        return True

    def _notice_pause(self) -> None:
        if self._ran.seconds > UNHEARD_S:  # it was frozen between two steps, or within the last one
            self._doubt_queues()
        self._ran = Since(self._member.client.clock)

    def _attempt(self, what: tuple[_Step, str], step: Callable[[], None]) -> None:
        """Take a step, unless it pauses after a failure; the pause doubles with each failure."""
        self._notice_pause()
        until, pause_s = self._pauses.get(what, (0.0, _FIRST_PAUSE_S))
        if self._now() < until:
            return
        try:
            step()
        except Exception as error:  # noqa: BLE001 - no thread or memory is left, say: other steps follow
            text, about = "group %s, %s of %s at %s: %s", (self.name, what, type(error))
            told = (self._member.group, *what, self.name, error)
            trace = not isinstance(error, RocketMQError)
            self._member.client.warnings.warn(_LOG, text, *told, about=about, trace=trace)
            if isinstance(error, RocketMQError) and error.stale_route and what[0] != "heartbeat":
                self._member.client.invalidate(what[1])
            self._pauses[what] = (self._now() + pause_s, min(2 * pause_s, _LONGEST_PAUSE_S))
        else:
            self._pauses.pop(what, None)
