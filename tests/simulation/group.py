"""A consumer group: members of the real push consumer that come, freeze and go."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.simulation.group_commits import GroupCommits
from tests.simulation.history import Place, Row
from tests.simulation.host import SimulatedHost
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.stage import Stage

from pyspark_rocketmq.client import PushConsumer
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere, ConsumeResult, PushOptions
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.dstream.receiver.block import BlockReading, block_elements, count_records, encode_runs
from pyspark_rocketmq.dstream.receiver.collect import Collected, Collector
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector
from pyspark_rocketmq.options import ClientOptions

__all__ = ["WITHIN", "Group", "GroupPlan", "Move"]

WITHIN: Final = "freezes within a request"
"""What a member does that freezes when a broker has its next request, and before it has the answer."""

_BLOCK_S: Final = 0.2
_LOCK_VALID_S: Final = 15.0
"""Of the 60 s of a lock, a call that begins in the 30 s of its member's trust has at least these left."""


@dataclass(frozen=True, slots=True)
class Move:
    """What a member does: ``leaves``, ``dies`` (its connections close), ``vanishes`` (nobody hears),
    ``freezes`` or `WITHIN`; after some time it is back.
    """

    at_s: float
    slot: int
    what: str
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The members of a group.

    Parameters
    ----------
    slots : int
        How many members there may be.
    options : PushOptions
    moves : tuple of Move
    fails, slow : float
        How often a call of the listener fails, and takes its time.
    slow_s : float
        That time, on average.
    receives : bool
        Whether members store whole pulls in blocks, as receivers do, instead of listening.
    """

    slots: int = 1
    options: PushOptions = PushOptions(start=ConsumeFromWhere.FIRST_OFFSET)  # noqa: RUF009 - frozen
    moves: tuple[Move, ...] = ()
    fails: float = 0.0
    slow: float = 0.0
    slow_s: float = 0.0
    receives: bool = False

    @classmethod
    def drawn(cls, chance: random.Random, span_s: float) -> GroupPlan:
        """Draw a plan of which everything moves within ``span_s``."""
        one_of = chance.choice
        options = PushOptions(
            ordered=chance.random() < 0.5,
            start=ConsumeFromWhere.FIRST_OFFSET,
            threads=one_of((1, 3, 20)),
            batch_size=one_of((1, 1, 7)),
            pull_batch_size=one_of((1, 7, 32)),
            max_queued=one_of((2, 50, 1_000)),
            suspend_ms=one_of((500, 15_000)),
            order_pause_ms=one_of((100, 1_000)),
            heartbeat_ms=one_of((5_000, 30_000)),
            rebalance_ms=one_of((2_000, 20_000)),
            commit_ms=one_of((200, 5_000)),
        )
        slots = one_of((1, 2, 3, 4))
        moves = [
            Move(
                chance.uniform(0.5, span_s),
                chance.randrange(slots),
                one_of(("leaves", "dies", "vanishes", "freezes", "freezes")),
                one_of((0.5, 5.0, 20.0, 70.0)),
            )
            for _ in range(one_of((0, 2, 4, 8, 16)))
        ]
        return cls(
            slots=slots,
            options=options,
            moves=tuple(sorted(moves, key=lambda move: move.at_s)),
            fails=one_of((0.0, 0.05, 0.3)),
            slow=one_of((0.0, 0.1, 0.5, 0.9)),
            slow_s=one_of((0.05, 1.0, 3.0)),
        )


@dataclass(slots=True)
class _Slot:
    """A place for a member, and who has it."""

    number: int
    process: Process | None = None
    leaving: bool = False
    lives: int = 0


def _send_of(message: Message) -> tuple[bytes, str]:
    """Return what the messages of one send have in common, also those that come again."""
    return message.body.rstrip(), message.properties.get("UNIQ_KEY", "")


def _collect(collector: Collector, worker: QueueWorker, run: PulledRun) -> None:
    collector.add(Collected(worker, run, count_records(run)))


class Group:
    """The members of a group, which together read a topic.

    Parameters
    ----------
    stage : Stage
    plan : GroupPlan
    name, topic : str
    options : ClientOptions
    chance : random.Random
    selector : MessageSelector
        What the group subscribes to.
    committed : callable
        Returns the group's offsets at the brokers.
    lost_locks : Mapping
        When a broker last lost the locks of its queues.
    """

    def __init__(
        self,
        stage: Stage,
        plan: GroupPlan,
        name: str,
        topic: str,
        options: ClientOptions,
        chance: random.Random,
        *,
        selector: MessageSelector,
        committed: Callable[[], list[tuple[MessageQueue, int]]],
        lost_locks: Mapping[str, float],
    ) -> None:
        self._stage = stage
        self._history = stage.history
        self._plan = plan
        self._name = name
        self._topic = topic
        self._options = options
        self._chance = chance
        self._selector = selector
        self._committed = committed
        self._lost_locks = lost_locks
        self.commits = GroupCommits(stage.scheduler, stage.history, lost_locks)
        self._slots = [_Slot(number) for number in range(plan.slots)]
        self._running: dict[MessageQueue, dict[Process, float]] = {}
        self._newest: dict[MessageQueue, int] = {}
        self._deferred: dict[tuple[bytes, str], list[Place]] = {}
        """The places of each send's message, which may be stored twice, and given again where it is."""
        self._given: set[Place] = set()
        self._checked: dict[MessageQueue, int] = {}
        self._history.batches[0] = []

    # --- as a reader of the life ---

    def start(self) -> None:
        """Begin."""
        for slot in self._slots:
            self._stage.scheduler.after(self._chance.uniform(0.0, 3.0), partial(self._join, slot))
        for move in self._plan.moves:
            self._stage.scheduler.at(move.at_s, partial(self._move, move))

    def jump(self, skew_ms: int) -> None:
        """Set the members' clocks."""
        for slot in self._slots:
            if slot.process is not None:
                slot.process.skew_ms = skew_ms

    @property
    def finished(self) -> Mapping[MessageQueue, int]:
        """Where each queue is committed."""
        return dict(self._committed())

    planned = begun = finished

    # --- members ---

    def _join(self, slot: _Slot) -> None:
        if slot.process is not None and not slot.process.dead:
            return
        slot.lives += 1
        slot.leaving = False
        process = slot.process = Process(f"member-{slot.number}")
        self._history.did["a member joins"] += 1
        self._stage.note(f"{process.name} joins")
        self._stage.scheduler.start(partial(self._live, slot, process), process, "main")

    def _live(self, slot: _Slot, process: Process) -> None:
        scheduler = self._stage.scheduler
        consumer = PushConsumer(
            self._name,
            self._options,
            self._plan.options,
            clock=SimulatedClock(scheduler, process),
            random=random.Random(self._chance.random()),
            host=SimulatedHost(self._stage.network, process),
        )
        consumer.client_id = f"10.9.0.{slot.number}@{slot.lives:05d}"
        consumer.subscribe(self._topic, self._selector)
        while True:
            try:
                if self._plan.receives:
                    collector = Collector()
                    consumer.start_runs(partial(_collect, collector))
                    scheduler.start(partial(self._store_blocks, collector), process, "blocks")
                else:
                    consumer.start(partial(self._listen, process))
                break
            except RocketMQError as error:
                self._stage.note(f"{process.name} cannot join: {error}")
                scheduler.park(1.0)
        while not slot.leaving:
            scheduler.park(0.5)
        consumer.close()
        self._stage.note(f"{process.name} has left")
        scheduler.kill(process)

    def _move(self, move: Move) -> None:
        slot = self._slots[move.slot % len(self._slots)]  # a plainer life has fewer members
        process = slot.process
        if self._stage.healed or process is None or process.dead:
            return
        self._history.did[f"a member {move.what}"] += 1
        self._stage.note(f"{process.name} {move.what}, for {move.lasts_s} s")
        match move.what:
            case "leaves":
                slot.leaving = True
            case "freezes":
                self.commits.freeze(process, self._stage.scheduler.now + move.lasts_s)
                return
            case what if what == WITHIN:
                self.commits.freeze_within(process, move.lasts_s)
                return
            case how:
                self._stage.scheduler.kill(process)
                if how == "dies":
                    self._stage.network.hang_up(process)
        self._stage.scheduler.after(move.lasts_s + 1.0, partial(self._join_at_last, slot))

    def _join_at_last(self, slot: _Slot) -> None:
        """Join as soon as the former member has ended."""
        if slot.process is None or slot.process.dead:
            self._join(slot)
        else:
            self._stage.scheduler.after(1.0, partial(self._join_at_last, slot))

    # --- as receivers ---

    def _store_blocks(self, collector: Collector) -> None:
        """Store what a member has collected, and finish it then."""
        reading = BlockReading(self._selector.tags)
        while True:
            self._stage.scheduler.park(_BLOCK_S)
            taken = [each for each in collector.take() if isinstance(each, Collected)]
            if not taken:
                continue
            block = encode_runs([each.run for each in taken])
            self._take_time()
            for message in block_elements(block, reading):
                self._finish(message)
            self._history.did["a block is stored"] += 1
            self._stage.scheduler.park(0.001)  # until the member knows it
            for each in taken:
                each.worker.finish_run(each.run)

    # --- the listener ---

    def _listen(self, process: Process, messages: Sequence[Message]) -> ConsumeResult:
        first = messages[0]
        queue = MessageQueue(first.topic, first.broker_name, first.queue_id)
        self._check_owner(queue, process)
        self._running.setdefault(queue, {})[process] = self._stage.scheduler.now
        try:
            self._take_time()
            if self._chance.random() < self._plan.fails and not self._stage.healed:
                self._defer(messages)
                return ConsumeResult.LATER
            for message in messages:
                self._finish(message)
            return ConsumeResult.SUCCESS
        finally:
            self._running[queue].pop(process, None)

    def _take_time(self) -> None:
        if self._chance.random() < self._plan.slow and self._plan.slow_s and not self._stage.healed:
            self._stage.scheduler.park(self._chance.expovariate(1 / self._plan.slow_s))

    def _check_owner(self, queue: MessageQueue, process: Process) -> None:
        """A queue in order has one owner, for as long as the lock of its call is valid."""
        if not self._plan.options.ordered:
            return
        now = self._stage.scheduler.now
        locked_s = max(now - _LOCK_VALID_S, self._lost_locks.get(queue.broker_name, 0.0))
        for other, since in self._running.get(queue, {}).items():
            if other is not process and not other.dead and since > locked_s:
                self._history.overlaps.append(f"{queue}: {process.name} beside {other.name} at {now:.3f} s")

    def _place(self, message: Message) -> Place | None:
        """Return where a message is stored, or was before it came again; None for another copy of one."""
        body = message.body.rstrip()
        if "RETRY_TOPIC" in message.properties:
            places = self._deferred.get(_send_of(message), [])
            unread = [each for each in places if each not in self._history.read]
            return next(iter([*unread, *places]), None)
        names = (message.topic, message.broker_name, message.queue_id)
        return self._history.row((*names, message.queue_offset), body).place

    def _defer(self, messages: Sequence[Message]) -> None:
        self._history.did["a listener defers messages"] += 1
        for message in messages:
            place = self._place(message)
            if place is not None and not self._plan.options.ordered:
                self._given.add(place)
                places = self._deferred.setdefault(_send_of(message), [])
                if place not in places:
                    places.append(place)

    def _finish(self, message: Message) -> None:
        place, body = self._place(message), message.body.rstrip()
        if place is None:
            return
        if "RETRY_TOPIC" in message.properties:
            self._history.did["a deferred message is finished"] += 1
            self._deferred[_send_of(message)].remove(place)
        if place in self._history.read:
            self._history.did["a message is finished again"] += 1
            return
        self._history.read.add(place)
        self._history.batches[0].append(Row(place, body))
        self._check_order(place)

    def _check_order(self, place: Place) -> None:
        if not self._plan.options.ordered:
            return
        queue = MessageQueue(*place[:3])
        if place[3] < self._newest.get(queue, -1):
            self._history.disordered.append(f"{place} is finished after {self._newest[queue]}")
        self._newest[queue] = max(place[3], self._newest.get(queue, -1))

    # --- offsets ---

    def check_commit(self, queue: MessageQueue, offset: int) -> None:
        """Nothing may be committed that was neither finished nor sent back."""
        history = self._history
        start = self._checked.get(queue, 0)
        for number in range(start, offset):
            place = history.place(queue.topic, queue.broker_name, queue.queue_id, number)
            if place in history.stored and not (
                place in history.read or place in self._given or place in history.expired
            ):
                history.ahead.append(f"{queue}: {offset} is committed, {number} is not finished")
                break
        self._checked[queue] = max(start, offset)
