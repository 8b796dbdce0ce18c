"""What a member does at one broker, turn by turn, on a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.support.clocks import FakeClock, WrongClock
from tests.support.threads import NO_THREAD

from pyspark_rocketmq.client.groups import push_lane
from pyspark_rocketmq.client.groups.push_lane import BrokerLane, LaneMember
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.client.net.host import SYSTEM_HOST
from pyspark_rocketmq.client.paced_warnings import PacedWarnings
from pyspark_rocketmq.errors import ConnectError, RequestTimeoutError, RocketMQError, ServiceNotAvailableError
from pyspark_rocketmq.model import MessageQueue

A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
P0 = MessageQueue("payments", "broker-a", 0)
ADDR = "10.0.0.1:10911"


class Broker:
    """The broker: what it knows of the member, of offsets and of locks, and whom it fails."""

    host = SYSTEM_HOST

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.warnings = PacedWarnings(self.clock)
        self.offsets: dict[MessageQueue, int] = {}
        self.asked: Counter[str] = Counter()
        self.away = False
        self.answers_after_s = 0.0
        self.fails: set[str] = set()
        self.loses_answers = False
        self.error: RocketMQError = ServiceNotAvailableError("no", code=14)
        self.taken: set[MessageQueue] = set()
        self.unlocked: list[MessageQueue] = []
        self.registered = False
        self.left: dict[MessageQueue, int] = {}
        self.stale: list[str] = []
        self.lock_times: list[float] = []
        self.meanwhile: dict[str, Callable[[], None]] = {}

    def answer(self, what: str) -> None:
        self.asked[what] += 1
        self.meanwhile.pop(what, lambda: None)()
        if self.away or what in self.fails:
            raise ConnectError("away") if self.away else self.error

    # the membership

    def send_heartbeat(self, addr: str, *, again: bool) -> bool:
        assert addr == ADDR
        new = not self.registered
        if new or again:
            self.registered = False
            self.answer("heartbeat")
            self.registered = True
        return new

    def is_registered(self, addrs: Collection[str]) -> bool:
        return self.registered and ADDR in addrs

    def lock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        self.asked["lock"] += 1
        self.lock_times.append(self.clock.monotonic())
        self.clock.sleep(self.answers_after_s)
        silent = self.away or "lock" in self.fails
        return {} if silent else {queue: queue not in self.taken for queue in queues}

    def unlock(self, queues: Collection[MessageQueue]) -> None:
        self.answer("unlock")
        self.unlocked += queues

    def leave(self, addr: str) -> None:
        assert addr == ADDR
        self.asked["goodbye"] += 1

    # offsets

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        for topic in {queue.topic for queue in offsets}:
            self.answer(f"commit {topic}")
        self.offsets.update(offsets)
        if self.loses_answers:
            raise RequestTimeoutError("no answer")

    def read(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int | None]:
        found = {queue: self.offsets.get(queue) for queue in queues}
        for topic in {queue.topic for queue in queues}:
            self.answer(f"read {topic}")
        return found

    def begin(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        for topic in {queue.topic for queue in queues}:
            self.answer(f"begin {topic}")
        return {queue: self.offsets.get(queue, 7) for queue in queues}

    # the client

    def invalidate(self, topic: str) -> None:
        self.stale.append(topic)


class StartOffsets:
    def __init__(self, broker: Broker) -> None:
        self.offsets, self.record_position = broker.begin, broker.left.__setitem__


class Worker:
    """A queue's worker whose position the test says."""

    def __init__(self, queue: MessageQueue, position: int) -> None:
        self.queue, self.position = queue, position
        self.idle, self.broken = True, False
        self.calls: list[str] = []
        self.given: list[dict[str, object]] = []

    def __getattr__(self, name: str) -> Callable[..., list[object]]:
        return lambda **given: self.calls.append(name) or self.given.append(given) or []


class World:
    """A lane with its broker; `turn` moves the clock by a second."""

    def __init__(self, **options: object) -> None:
        self.broker = Broker()
        self.made: list[Worker] = []
        self.registrations = 0
        member = LaneMember(
            client=self.broker,
            group="billing",
            options=PushOptions(**{"commit_ms": 1_000, **options}),
            membership=self.broker,
            progress=self.broker,
            start_offsets=StartOffsets(self.broker),
            make_worker=self._make,
            on_registered=self._registered,
        )
        self.lane = BrokerLane("broker-a", member)
        self.lane.set_addresses([ADDR])

    def _make(self, queue: MessageQueue, position: int, wake: Callable[[], None]) -> QueueWorker:
        assert callable(wake)
        self.made.append(Worker(queue, position))
        return self.made[-1]

    def _registered(self) -> None:
        self.registrations += 1

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.lane.run_once()
            self.broker.clock.sleep(1.0)

    def worker(self, queue: MessageQueue) -> Worker:
        return next(worker for worker in reversed(self.made) if worker.queue == queue)


def test_queues_begin_when_the_broker_knows_the_member_and_their_start_is_committed():
    world = World(commit_ms=600_000)
    world.broker.away = True
    world.lane.assign("orders", {A0, A1})
    world.turn()
    assert world.lane.queues == ()
    assert world.broker.asked == {"heartbeat": 1}, "nothing else is asked of a broker that is away"
    world.broker.away = False
    world.turn(2)
    assert set(world.lane.queues) == {A0, A1}
    assert world.registrations == 1
    assert world.broker.offsets == {A0: 7, A1: 7}
    assert world.worker(A0).calls == ["record_lock", "start", "messages_to_send_back"]


def test_a_broker_that_is_away_is_asked_less_and_less_often():
    world = World()
    world.broker.away = True
    world.turn(60)
    assert world.broker.asked["heartbeat"] == 10, "after 1, 2, 4, 8, 8 ... seconds"
    assert world.broker.stale == [], "a heartbeat is of no topic"


def test_heartbeats_are_repeated_in_time():
    world = World(heartbeat_ms=10_000)
    world.lane.request_heartbeat()
    world.turn(31)
    assert world.broker.asked["heartbeat"] == 4
    world.lane.request_heartbeat()
    world.turn()
    assert world.broker.asked["heartbeat"] == 5
    assert world.registrations == 1


def test_what_fails_for_one_topic_holds_up_no_other():
    world = World()
    world.broker.fails = {"begin payments"}
    world.lane.assign("payments", {P0})
    world.lane.assign("orders", {A0})
    world.turn()
    assert world.lane.queues == (A0,)
    assert "payments" in world.broker.stale, "its route is looked up again"
    world.broker.fails = {"commit orders"}
    world.worker(A0).position = 9
    world.turn(3)
    assert set(world.lane.queues) == {A0, P0}
    assert world.broker.offsets == {A0: 7, P0: 7}
    world.broker.fails = set()
    world.turn(8)
    assert world.broker.offsets == {A0: 9, P0: 7}


@pytest.mark.parametrize("error", [RuntimeError(NO_THREAD), MemoryError()])
def test_a_topic_that_meets_an_error_of_the_machine_holds_up_no_other_and_does_not_fill_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world, make = World(), World._make

    def refuse() -> None:
        raise error

    def make_worker(queue: MessageQueue, position: int, wake: Callable[[], None]) -> QueueWorker:
        worker = make(world, queue, position, wake)
        if queue == A1 and refusing:
            worker.start, worker.broken = refuse, True
        return worker

    refusing = True
    world.lane = BrokerLane("broker-a", replace(world.lane._member, make_worker=make_worker))
    world.lane.set_addresses([ADDR])
    world.lane.assign("orders", {A0, A1})
    world.lane.assign("payments", {P0})
    world.turn()
    assert world.broker.offsets == {A0: 7, A1: 7, P0: 7}
    world.worker(P0).position = 30
    world.turn(60)
    assert world.broker.offsets[P0] == 30
    assert len([each for each in world.made if each.queue == A1]) == 10, "after 1, 2, 4, 8, 8 ... seconds"
    (warning,) = caplog.records
    assert "begin of orders at broker-a" in warning.getMessage()
    assert "Traceback" in caplog.text, "it may be an error of this client"
    refusing = False
    world.turn(9)
    assert set(world.lane.queues) == {A0, A1, P0}


def test_only_news_is_committed():
    world = World()
    world.lane.assign("orders", {A0, A1})
    world.turn(5)
    assert world.broker.asked["commit orders"] == 1
    world.worker(A0).position = 8
    world.turn(5)
    assert world.broker.asked["commit orders"] == 2
    assert world.broker.offsets == {A0: 8, A1: 7}
    assert world.broker.asked["read orders"] == 0, "nobody else can have had them"


def test_a_step_that_succeeded_is_tried_again_after_a_second_when_it_fails():
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    for position in (8, 9):
        world.worker(A0).position = position
        asked = world.broker.asked["commit orders"]
        world.broker.fails = {"commit orders"}
        world.turn(4)
        assert world.broker.asked["commit orders"] == asked + 3, "after 1 and 2 seconds"
        world.broker.fails = set()
        world.turn(8)
        assert world.broker.offsets == {A0: position}


@pytest.mark.parametrize(
    ("step", "fails"),
    [
        ("heartbeat of 10.0.0.1:10911", "heartbeat"),
        ("begin of orders", "begin orders"),
        ("check of orders", "read orders"),
        ("commit of orders", "commit orders"),
        ("release of orders", "commit orders"),
        ("leave of orders", "commit orders"),
    ],
)
@pytest.mark.parametrize("stale", [False, True])
def test_a_step_that_fails_is_named_and_the_route_is_looked_up_where_it_may_be_old(
    step: str, fails: str, stale: bool, caplog: pytest.LogCaptureFixture
):
    world = World()
    world.broker.error = ConnectError("away") if stale else RequestTimeoutError("slow")
    world.broker.fails = {fails} if step.startswith(("heartbeat", "begin")) else set()
    world.lane.assign("orders", {A0})
    world.turn()
    world.broker.fails = {fails}
    for worker in world.made:
        worker.position = 8
    if step.startswith("check"):
        world.broker.registered = False
    if step.startswith("release"):
        world.lane.assign("orders", set())
    if step.startswith("leave"):
        world.lane._leave_group()
    else:
        world.turn(2)
    assert f"group billing, {step} at broker-a: " in caplog.text
    assert set(world.broker.stale) == ({"orders"} if stale and "heartbeat" not in step else set())


def test_a_broker_that_is_away_for_hours_is_a_line_every_five_minutes(caplog: pytest.LogCaptureFixture):
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    world.broker.away, world.broker.registered = True, False
    world.turn(7_200)
    assert 20 < len(caplog.messages) <= 25


@pytest.mark.parametrize(("left", "kept"), [(A0, A1), (A1, A0)])
def test_a_queue_that_is_given_up_is_dropped_and_committed(left: MessageQueue, kept: MessageQueue):
    world = World(commit_ms=600_000)
    world.lane.assign("orders", {A0, A1})
    world.turn()
    world.worker(left).position = 11
    world.lane.assign("orders", {kept})
    world.turn()
    assert world.lane.queues == (kept,)
    assert "drop" in world.worker(left).calls
    assert world.broker.offsets == {left: 11, kept: 7}
    assert world.broker.left == {left: 11}
    assert [worker.queue for worker in world.lane.workers] == [kept]


def test_a_late_last_commit_is_not_made(caplog: pytest.LogCaptureFixture):
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 11
    world.broker.fails = {"commit orders"}
    world.lane.assign("orders", set())
    world.turn(40)
    assert world.lane.workers == ()
    assert "orders@broker-a:0 was released, and its last commit failed" in caplog.text
    world.broker.offsets[A0] = 99  # the next owner's
    world.broker.fails = set()
    world.turn(20)
    assert world.broker.offsets == {A0: 99}


def test_in_order_a_queue_is_let_go_when_its_call_is_over_and_its_lock_is_held_until_then():
    world = World(ordered=True)
    world.broker.taken = {A1}
    world.lane.assign("orders", {A0, A1})
    world.turn()
    assert world.lane.queues == (A0,), "another member holds the lock of the other one"
    world.broker.taken = set()
    world.turn()
    assert set(world.lane.queues) == {A0, A1}
    busy = world.worker(A0)
    busy.idle, busy.position = False, 12
    world.lane.assign("orders", {A1})
    world.turn(100)
    assert "stop" in busy.calls
    assert "drop" not in busy.calls
    assert world.broker.unlocked == []
    assert busy.calls.count("record_lock") >= 5
    world.lane.assign("orders", {A0, A1})
    world.turn()
    assert world.lane.queues == (A1,), "it is not begun again before it is let go"
    busy.idle = True
    world.broker.fails = {"unlock"}
    world.turn()
    assert world.lane.queues == (A1,), "nor before the broker says that it is"
    world.broker.fails = set()
    world.turn(2)
    assert world.broker.unlocked == [A0]
    assert world.broker.offsets[A0] == 12
    assert set(world.lane.queues) == {A0, A1}


def test_a_lock_that_is_lost_is_tried_again_soon():
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn(25)
    renewed = world.broker.asked["lock"]
    world.broker.taken = {A0}
    world.turn(20)
    world.broker.taken = set()
    world.turn(4)
    assert world.broker.asked["lock"] > renewed + 1
    assert sum(worker.calls.count("record_lock") for worker in world.made) >= 2


def test_a_lock_that_another_member_has_is_not_relied_on():
    """After a restart, a broker knows no locks and may give one to another member."""
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn()
    world.broker.taken = {A0}
    world.turn(21)
    locks = [given["held"] for given in world.worker(A0).given if "held" in given]
    assert locks[0]
    assert not locks[-1]


def test_a_queue_that_another_member_locked_is_left_without_a_commit_and_begins_where_that_one_ended(
    caplog: pytest.LogCaptureFixture,
):
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn()
    busy = world.worker(A0)
    busy.idle, busy.position = False, 12
    world.turn()
    world.broker.taken = {A0}
    world.broker.offsets[A0] = 100
    world.turn(21)
    busy.position = 60
    world.turn(3)
    assert "stop" in busy.calls
    assert world.lane.queues == ()
    world.broker.taken = set()
    world.turn(3)
    assert len(world.made) == 1, "its call still runs"
    busy.idle = True
    world.turn(3)
    assert world.broker.offsets == {A0: 100}
    assert [worker.position for worker in world.made] == [60, 100]
    assert world.broker.left == {}, "where another member was is not known"
    assert "its last commit failed" not in caplog.text


def test_a_queue_that_another_member_locked_is_not_committed_at_the_end_either():
    world = World(ordered=True, commit_ms=600_000)
    world.lane.assign("orders", {A0, A1})
    world.turn()
    busy = world.worker(A0)
    busy.idle, busy.position, world.worker(A1).position = False, 60, 61
    world.broker.taken = {A0}
    world.broker.offsets[A0] = 100
    world.turn(21)
    world.lane._leave_group()
    assert world.broker.offsets == {A0: 100, A1: 61}
    assert world.broker.unlocked == [A1]


def test_a_queue_that_was_in_doubt_and_lost_begins_once():
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 60
    world.broker.fails = {"read orders"}
    world.broker.clock.sleep(600)
    world.broker.taken, world.broker.offsets[A0] = {A0}, 100
    world.turn(25)
    assert world.lane.workers == ()
    world.broker.taken, world.broker.fails = set(), set()
    world.turn(25)
    assert [worker.position for worker in world.made] == [60, 100]


def test_what_is_not_known_of_one_topic_leaves_no_other_in_doubt():
    world = World()
    world.lane.assign("orders", {A0})
    world.lane.assign("payments", {P0})
    world.turn()
    world.worker(A0).position = world.worker(P0).position = 60
    world.broker.fails = {"read orders"}
    world.broker.clock.sleep(600)
    world.turn(3)
    assert world.broker.offsets == {A0: 7, P0: 60}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("seconds", [10, 600])
def test_a_member_that_was_frozen_goes_on_where_another_one_ended(ordered, asks, seconds):
    world = World(ordered=ordered)
    world.lane.assign("orders", {A0, A1})
    world.turn()
    world.worker(A0).position, world.worker(A1).position = 60, 61
    world.broker.clock.sleep(seconds)
    world.broker.offsets[A0] = 100_000
    world.broker.fails = {"read orders"} if not asks else set()
    world.turn(3)
    assert world.broker.offsets[A0] == 100_000, "nothing is committed until the other's commits are known"
    world.broker.fails = set()
    world.turn(10)
    assert world.broker.offsets == {A0: 100_000, A1: 61}
    assert [worker.position for worker in world.made if worker.queue == A0] == [60, 100_000]
    assert len(world.made) == 3, "nobody had the other queue"


@pytest.mark.parametrize("within", ["heartbeat", "read payments", "commit orders"])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_member_that_was_frozen_within_a_request_sets_no_offset_back(within: str, wanted: bool) -> None:
    world = World(heartbeat_ms=1_000)
    for queue in (A0, P0):
        world.lane.assign(queue.topic, {queue})
    world.turn()
    world.worker(A0).position = world.worker(P0).position = 60

    def freeze() -> None:
        world.broker.clock.sleep(30)
        world.broker.offsets[P0] = 100_000
        if not wanted:
            world.lane.assign("payments", set())

    world.broker.meanwhile[within] = freeze
    if within == "read payments":
        world.broker.clock.sleep(20)
    for _ in range(10):
        world.turn()
        assert within in world.broker.meanwhile or world.broker.offsets[P0] == 100_000
    assert world.broker.meanwhile == {}
    assert world.broker.offsets == {A0: 60, P0: 100_000}
    assert [worker.position for worker in world.made if worker.queue == P0] == [60, 100_000][: 1 + wanted]


def test_what_is_released_in_doubt_is_committed_when_it_is_known_whose_it_is() -> None:
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 60
    world.broker.fails = {"read orders"}
    world.broker.clock.sleep(30)
    world.lane.assign("orders", set())
    world.turn(3)
    assert world.broker.offsets == {A0: 7}
    world.broker.fails = set()
    world.turn(3)
    assert world.broker.offsets == {A0: 60}
    assert world.lane.workers == ()


def test_a_member_whose_machine_slept_goes_on_where_another_one_ended() -> None:
    """Linux's monotonic clock stands still meanwhile."""
    world = World()
    clock = world.broker.clock = WrongClock(base=world.broker.clock)
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 60
    clock.ahead_s += 7_200
    world.broker.offsets[A0] = 100_000
    world.turn(10)
    assert world.broker.offsets == {A0: 100_000}
    assert [worker.position for worker in world.made] == [60, 100_000]


@pytest.mark.parametrize(("stored", "begins"), [(None, [7]), (1, [7, 1]), (9, [7, 9])])
def test_a_member_that_was_frozen_before_its_first_commit(stored: int | None, begins: list[int]):
    world = World()
    world.broker.fails = {"commit orders"}
    world.lane.assign("orders", {A0})
    world.turn()
    world.broker.clock.sleep(600)
    world.broker.offsets |= {} if stored is None else {A0: stored}
    world.broker.fails = set()
    world.turn(10)
    assert [worker.position for worker in world.made] == begins
    assert world.broker.offsets == {A0: begins[-1]}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_commit_whose_answer_is_lost_is_no_other_members(ordered: bool):
    world = World(ordered=ordered)
    world.broker.loses_answers = True
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 60
    world.turn(2)
    assert world.broker.offsets == {A0: 60}
    world.worker(A0).position = 70  # what was pulled before is finished, and not committed
    world.broker.fails = {"commit orders"}
    world.broker.clock.sleep(20)
    world.turn(3)
    world.broker.fails, world.broker.loses_answers = set(), False
    world.turn(10)
    assert world.broker.offsets == {A0: 70}
    assert len(world.made) == 1


def test_an_offset_that_a_former_owner_commits_late_is_put_right_without_a_message():
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 60
    world.turn(2)
    world.broker.offsets[A0] = 11
    world.turn(21)
    assert world.broker.offsets == {A0: 60}
    assert len(world.made) == 1


def test_a_member_that_a_broker_registers_again_sets_no_offset_back():
    world = World(commit_ms=600_000)
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 60
    world.broker.registered = False
    world.broker.offsets[A0] = 100
    world.turn(3)
    world.lane.finish()
    world.lane._leave_group()
    assert world.broker.offsets == {A0: 100}


def test_a_lock_counts_from_the_request_on():
    """A member that was frozen takes an answer late, when another may have the queue soon."""
    world = World(ordered=True)
    world.broker.answers_after_s = 50.0
    world.lane.assign("orders", {A0})
    world.turn()
    world.broker.answers_after_s = 3.0
    world.turn(100)
    locks = [given for given in world.worker(A0).given if "held" in given]
    assert len(locks) > 4
    assert all(lock["held"] is True for lock in locks)
    assert [lock["asked"].begun_s for lock in locks] == world.broker.lock_times[1:], (
        "the first round has no queue"
    )


def test_a_lock_that_a_broker_does_not_confirm_is_requested_again_every_two_seconds():
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn(19)
    assert world.broker.asked["lock"] == 2, "at its begin, and in the first round"
    world.broker.fails = {"lock"}
    world.turn(10)
    assert world.broker.asked["lock"] == 2 + 5
    world.broker.fails = set()
    world.turn(22)
    assert world.broker.asked["lock"] == 2 + 5 + 2, "20 s after an answer"
    assert world.lane.queues == (A0,), "what a broker does not say is no loss"


def test_locks_are_renewed_at_once_at_a_broker_that_may_have_forgotten_them():
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn(3)
    assert world.broker.asked["lock"] == 2, "at its begin, and in the first round"
    world.broker.registered = False
    world.turn()
    assert world.broker.asked["lock"] == 3


def test_a_worker_that_broke_is_replaced():
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).broken = True
    world.turn()
    assert len(world.made) == 2
    assert world.lane.queues == (A0,)


def test_without_pulling_no_queue_begins_but_commits_go_on():
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    world.lane.stop_pulling()
    world.worker(A0).position = 20
    world.lane.assign("orders", {A0, A1})
    world.turn(2)
    assert world.lane.queues == (A0,)
    assert world.broker.offsets[A0] == 20


def test_what_begins_while_another_thread_says_stop_is_stopped():
    world = World()
    begin = world.broker.begin

    def slow(queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        found = begin(queues)
        world.lane.stop_pulling()
        return found

    world.lane._member.start_offsets.offsets = slow
    world.lane.assign("orders", {A0})
    world.turn(2)
    assert world.made == []
    late = World()
    late.lane.assign("orders", {A0})
    late.turn()
    late.lane._accepting = False  # said a moment before the worker was there
    late.turn()
    assert "stop" in late.worker(A0).calls


@pytest.mark.parametrize(("waiting", "sent"), [(0, []), (64, [64]), (65, [64])])
def test_a_turn_sends_back_64_messages_at_most_and_the_next_one_follows_at_once(
    monkeypatch: pytest.MonkeyPatch, waiting: int, sent: list[int]
):
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(push_lane, "send_messages_back", lambda *given: calls.append(given))
    world = World()
    world.lane.assign("orders", {A0})
    world.turn()
    worker, deferred = world.worker(A0), list(range(waiting))
    worker.messages_to_send_back = lambda: deferred
    world.lane._wake.clear()
    world.turn()
    assert [len(call[-1]) for call in calls] == sent
    for client, group, options, messages in calls:
        assert (client, group, options) == (world.broker, "billing", world.lane._member.options)
        assert messages == [(worker, number) for number in range(64)]
    assert world.lane._wake.is_set() is (waiting > 64)


@pytest.mark.parametrize(("commit_ms", "tick_s"), [(1, 0.1), (500, 0.5), (60_000, 1.0)])
def test_turns_follow_commits_and_a_turn_that_fails_is_not_the_last(
    commit_ms: int, tick_s: float, caplog: pytest.LogCaptureFixture
):
    world = World(commit_ms=commit_ms)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.lane._ends = len(waits) == 3

    world.lane._wake = SimpleNamespace(wait=wait, clear=lambda: None, set=lambda: None)
    world.lane._member.membership.is_registered = lambda *_: 1 // 0
    world.lane._run()
    assert waits == [tick_s] * 3
    assert caplog.text.count("run of broker-a") == 1, "the next one after five minutes"
    assert caplog.text.count("leave of broker-a") == 1
    assert caplog.text.count("ZeroDivisionError") == 2
    assert world.lane.ended is False, "it was not started"
    world.lane._thread = SimpleNamespace(join=waits.append)
    world.lane.join(30.0)
    assert waits[3:] == [30.0]


@pytest.mark.parametrize("asks", [True, False])
def test_a_member_that_is_closed_as_it_wakes_up_sets_no_offset_back(asks: bool):
    world = World()
    world.lane.assign("orders", {A0, A1})
    world.turn()
    world.worker(A0).position, world.worker(A1).position = 60, 61
    world.broker.clock.sleep(600)
    world.broker.offsets[A0] = 100
    world.broker.fails = set() if asks else {"read orders"}
    world.lane.finish()
    world.lane._leave_group()
    assert world.broker.offsets == {A0: 100, A1: 61 if asks else 7}
    assert world.broker.asked["goodbye"] == 1


@pytest.mark.parametrize("away", [False, True])
def test_the_end_commits_unlocks_and_leaves(away: bool):
    world = World(ordered=True)
    world.lane.assign("orders", {A0})
    world.turn()
    world.worker(A0).position = 30
    world.broker.away = away
    world.broker.registered = not away
    world.lane.finish()
    world.lane.start()
    world.lane.join(30)
    assert world.lane.ended
    assert world.broker.offsets == {A0: 7 if away else 30}
    assert world.broker.unlocked == ([] if away else [A0])
    assert world.broker.asked["goodbye"] == 1


def test_a_lane_without_use_can_end():
    world = World()
    assert not world.lane.unused
    world.lane.assign("orders", {A0})
    world.turn()
    world.lane.set_addresses(())
    assert not world.lane.unused
    world.lane.assign("orders", set())
    world.turn()
    assert world.lane.unused


@pytest.mark.parametrize("within", ["commit orders", "unlock"])
def test_a_member_that_was_frozen_as_it_released_queues_sets_no_offset_of_the_others_back(
    within: str,
) -> None:
    world = World(ordered=within == "unlock", commit_ms=600_000)
    world.lane.assign("orders", {A0, A1})
    world.turn()
    world.worker(A0).position, world.worker(A1).position = 60, 61
    world.lane.assign("orders", set())

    def freeze() -> None:
        world.broker.clock.sleep(20)
        world.broker.offsets[A1] = 100_000

    world.broker.meanwhile[within] = freeze
    world.turn(3)
    assert world.broker.meanwhile == {}
    assert world.broker.offsets == {A0: 60, A1: 100_000}
    assert world.lane.workers == ()


@pytest.mark.parametrize("knows", [True, False])
def test_in_order_no_call_follows_a_pause_before_it_is_known_that_no_other_member_had_the_queue(
    knows: bool,
) -> None:
    """The other one has let the lock go again: this member gets it, but is not where the queue is."""
    world = World(ordered=True)
    world.lane.assign("orders", {A0, A1})
    world.turn()
    worker, kept = world.worker(A0), world.worker(A1)
    worker.position, kept.position = 60, 61
    world.turn()
    before = len(worker.calls)
    world.broker.clock.sleep(70)
    world.broker.offsets[A0] = 100_000
    world.broker.fails = set() if knows else {"read orders"}
    for _ in range(4):
        world.turn()
        assert "record_lock" not in worker.calls[before:]
    assert (kept.calls.count("record_lock") == 2) is knows
    world.broker.fails = set()
    world.turn(30)
    assert kept.calls.count("record_lock") >= 2
    assert [each.position for each in world.made if each.queue == A0] == [60, 100_000]


def test_nothing_is_sent_back_after_a_pause_before_it_is_known_that_no_other_member_had_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(push_lane, "send_messages_back", lambda *given: sent.extend(given[-1]))
    world = World(heartbeat_ms=1_000)
    world.lane.assign("orders", {A0, A1})
    world.turn()
    for queue in (A0, A1):
        world.worker(queue).messages_to_send_back = lambda: ["deferred"]

    def freeze() -> None:
        world.broker.clock.sleep(30)
        world.broker.offsets[A0] = 100_000

    world.broker.meanwhile["heartbeat"] = freeze
    before = world.worker(A0), world.worker(A1)
    world.turn()
    assert world.broker.meanwhile == {}
    assert sent == [(before[1], "deferred")]


@pytest.mark.parametrize("knows", [True, False])
def test_a_member_that_is_closed_as_it_wakes_up_sends_back_only_messages_of_its_queues(
    monkeypatch: pytest.MonkeyPatch, knows: bool
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(push_lane, "send_messages_back", lambda *given: sent.extend(given[-1]))
    world = World()
    world.lane.assign("orders", {A0, A1})
    world.turn()
    lost, kept = world.worker(A0), world.worker(A1)
    lost.messages_to_send_back = kept.messages_to_send_back = lambda: ["deferred"]
    world.broker.clock.sleep(600)
    world.broker.offsets[A0] = 100
    world.broker.fails = set() if knows else {"read orders"}
    world.lane.finish()
    world.lane._leave_group()
    assert sent == ([(kept, "deferred")] if knows else [])
