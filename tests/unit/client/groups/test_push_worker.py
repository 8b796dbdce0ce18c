"""What a queue's worker commits, and what it does with messages that were put off."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.support.clocks import FakeClock, WrongClock
from tests.support.threads import NO_THREAD, HostWithoutThreads

from pyspark_rocketmq.client.clock import Since
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_delivery import Delivery
from pyspark_rocketmq.client.groups.push_options import ConsumeResult, PushOptions
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.client.groups.threads import Pool
from pyspark_rocketmq.client.net.host import SYSTEM_HOST
from pyspark_rocketmq.client.paced_warnings import PacedWarnings
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE

QUEUE = MessageQueue("orders", "broker-a", 0)


def messages(*offsets: int) -> list[Message]:
    records = [encode_message(b"x" * 10, topic="orders", queue_offset=offset) for offset in offsets]
    return decode_messages(b"".join(records), broker_name="broker-a")


class World:
    """A worker that pulled what the test says."""

    host = SYSTEM_HOST
    namespace = NO_NAMESPACE

    def __init__(self, *offsets: int, runs: bool = False, **options: object) -> None:
        self.clock = FakeClock()
        self.warnings = PacedWarnings(self.clock)
        self.delivered: list[list[Message]] = []
        self.wakes = 0
        self.keeps_lock = True
        self.worker = QueueWorker(
            self,
            "billing",
            QUEUE,
            0,
            selector=MessageSelector(),
            options=PushOptions(**options),
            deliver=self._deliver,
            take_run=(lambda _, run: None) if runs else None,
            on_deferred=self._wake,
            keeps_lock=lambda: self.keeps_lock,
        )
        self.messages = messages(*offsets)
        sizes = [(message.queue_offset, len(message.body)) for message in self.messages]
        self.worker._in_flight.add(sizes, next_offset=max(offsets, default=-1) + 1)
        self.worker._next = max(offsets, default=-1) + 1

    def _deliver(self, worker: QueueWorker, some: Sequence[Message]) -> None:
        assert worker is self.worker
        self.delivered.append(list(some))

    def _wake(self) -> None:
        self.wakes += 1

    def defer(self, some: Sequence[Message]) -> None:
        self.worker.defer(some)
        self.worker.finish(some)


def test_the_position_is_the_lowest_offset_that_is_not_finished():
    world = World(3, 4, 7)
    assert world.worker.position == 3
    world.worker.finish(world.messages[1:])
    assert world.worker.position == 3
    world.worker.finish(world.messages[:1])
    assert world.worker.position == 8


def test_a_message_that_is_put_off_is_not_committed_until_the_broker_has_taken_it():
    world = World(0, 1, 2)
    first, second, third = world.messages
    world.defer([first, second])
    world.worker.finish([third])
    assert (world.worker.position, world.wakes) == (0, 1)
    assert world.worker.messages_to_send_back() == [first, second]
    world.worker.record_sent_back(first)
    assert world.worker.position == 1
    world.worker.record_not_sent_back(second, refused=False)
    assert world.worker.messages_to_send_back() == []
    world.clock.sleep(5.0)
    assert world.worker.messages_to_send_back() == [second]
    world.worker.record_sent_back(second)
    assert world.worker.position == 3
    assert world.delivered == []


def test_a_message_that_the_broker_refuses_goes_to_the_listener_again_and_counts_its_tries():
    world = World(0, 1)
    world.defer(world.messages[:1])
    world.worker.record_not_sent_back(world.messages[0], refused=True)
    assert world.worker.messages_to_send_back() == []
    assert world.delivered == [], "not at once: it may be refused whenever it is put off"
    world.clock.sleep(5.0)
    assert world.worker.messages_to_send_back() == []
    ((again,),) = world.delivered
    assert (again.queue_offset, again.reconsume_times) == (0, 1)
    assert world.worker.messages_to_send_back() == []
    world.worker.finish([world.messages[1]])
    assert world.worker.position == 0
    world.worker.finish([again])
    assert world.worker.position == 2


def test_a_broker_may_refuse_a_message_before_the_call_that_put_it_off_has_returned():
    """The lane asks the broker as soon as the message is put off, while the listener's thread goes on."""
    world = World(0, 1)

    class Refuses:
        stopped = False

        def defer(self, some: Sequence[Message]) -> None:
            world.worker.defer(some)
            world.worker.record_not_sent_back(some[0], refused=True)
            world.clock.sleep(5.0)
            world.worker.messages_to_send_back()

        def finish(self, some: Sequence[Message]) -> None:
            world.worker.finish(some)

    delivery = Delivery(world, "billing", PushOptions(), lambda _: ConsumeResult.LATER)
    delivery._consume(Refuses(), world.messages[:1])
    ((again,),) = world.delivered
    world.worker.finish(world.messages[1:])
    assert world.worker.position == 0, "the listener has it again, and is not done with it"
    world.worker.finish([again])
    assert world.worker.position == 2


def test_a_message_for_which_no_thread_is_left_is_delivered_later(caplog: pytest.LogCaptureFixture):
    world = World(0, 1)
    world.defer(world.messages)
    pool = Pool(HostWithoutThreads(2), 1, name="calls")
    world.worker._deliver = lambda *_: pool.submit(lambda: None)
    world.worker.record_not_sent_back(world.messages[0], refused=True)
    for _ in range(2):
        world.clock.sleep(5.0)
        assert world.worker.messages_to_send_back() == world.messages[1:], "others are not held up"
        assert world.worker.position == 0
        assert world.worker.messages_to_send_back() == world.messages[1:], "not at once"
    assert [NO_THREAD in record.getMessage() for record in caplog.records] == [True], "not each time"


def test_a_message_that_two_answers_accept_is_sent_back_once():
    world = World(0, 1)
    world.defer(world.messages)
    for _ in range(2):
        world.worker.record_sent_back(world.messages[0])
    assert world.worker.messages_to_send_back() == world.messages[1:]
    assert world.worker.position == 1


def test_a_thread_is_waited_for_as_long_as_it_is_told():
    world, may_end = World(), threading.Event()
    world.worker._pull = lambda: may_end.wait(60) and world.worker.stop()
    world.worker.start()
    world.worker.join(0.01)
    assert not world.worker.broken
    assert not world.worker.stopped
    may_end.set()
    world.worker.join(30.0)
    assert world.worker.stopped


def test_a_thread_has_the_name_of_its_queue():
    world, names = World(), list[str]()
    world.worker._pull = lambda: names.append(threading.current_thread().name) or world.worker.stop()
    world.worker.start()
    world.worker.join(30.0)
    assert names == [f"push-{QUEUE}"]


def test_a_queue_without_messages_is_never_full():
    assert not World(max_span=1, max_queued=1, max_queued_bytes=1).worker._is_full()


def test_a_message_of_a_run_is_tried_again_at_the_broker_only():
    world = World(runs=True)
    run = PulledRun(QUEUE, 0, 0, b"")
    world.worker._in_flight.add([(0, 0)], next_offset=3)
    world.worker.defer(messages(1))
    world.worker.finish_run(run)
    assert world.worker.position == 1
    world.worker.record_not_sent_back(messages(1)[0], refused=True)
    assert world.delivered == []
    world.clock.sleep(5.0)
    assert [message.queue_offset for message in world.worker.messages_to_send_back()] == [1]


def test_what_another_member_has_now_does_not_count():
    world = World(0, 1)
    world.defer(world.messages[:1])
    world.worker.drop()
    world.worker.finish(world.messages)
    world.worker.defer(world.messages[1:])
    world.worker.record_not_sent_back(world.messages[0], refused=True)
    assert (world.worker.position, world.delivered, world.wakes) == (0, [], 1)
    assert world.worker.stopped


def test_a_message_that_is_refused_after_the_worker_was_stopped_stays_for_the_next_owner():
    world = World(0, 1)
    world.defer(world.messages[:1])
    world.worker.finish(world.messages[1:])
    world.worker.stop()
    world.worker.record_not_sent_back(world.messages[0], refused=True)
    assert (world.worker.position, world.delivered) == (0, [])


@pytest.mark.parametrize("runs", [False, True])
def test_a_queue_is_idle_when_no_run_of_it_is_in_work(runs: bool):
    world = World(runs=runs)
    assert world.worker.idle
    world.worker._in_flight.add([(0, 0)], next_offset=3)
    assert world.worker.idle is not runs
    world.worker.finish_run(PulledRun(QUEUE, 0, 0, b""))
    assert world.worker.idle


def test_a_queue_with_a_run_that_was_given_up_is_idle_and_begins_with_it_at_its_next_owner():
    world = World(runs=True)
    world.worker._in_flight.add([(0, 0), (3, 0)], next_offset=6)
    world.worker.give_up(PulledRun(QUEUE, 0, 0, b""))
    assert not world.worker.idle, "the other one is in work"
    world.worker.finish_run(PulledRun(QUEUE, 3, 0, b""))
    assert (world.worker.idle, world.worker.position) == (True, 0)


@pytest.mark.parametrize("locked", [True, False])
def test_who_calls_in_order_is_told_whether_it_was_called(locked: bool):
    world, calls = World(), list[int]()
    world.worker.record_lock(held=locked, asked=Since(world.clock))
    if not locked:
        world.worker.stop()
    assert world.worker.call_in_order(lambda: calls.append(1)) is locked
    assert len(calls) == locked


def test_queues_whose_threads_end_each_second_do_not_fill_the_log(caplog: pytest.LogCaptureFixture):
    warnings = PacedWarnings(FakeClock())
    for _ in range(5):
        world = World()
        world.warnings = warnings
        pauses: list[float] = []
        world.worker.pause = pauses.append
        world.worker._pull = lambda: 1 // 0
        world.worker._run()
        assert pauses == [1.0], "it would be replaced, and pull, at once"
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize("stopped", [False, True])
def test_a_thread_that_ended_by_itself_is_broken(stopped: bool):
    world = World()
    if stopped:
        world.worker.stop()
    else:
        world.worker._pull = lambda: 1 // 0
    world.worker.start()
    world.worker.join(30.0)
    assert world.worker.broken is not stopped


@pytest.mark.parametrize(
    ("options", "full"),
    [
        ({"max_queued": 3}, True),
        ({"max_queued": 4}, False),
        ({"max_queued_bytes": 10}, True),
        ({"max_queued_bytes": 11}, False),
        ({"max_span": 10}, True),
        ({"max_span": 11}, False),
        ({"max_span": 1, "ordered": True}, False),
    ],
)
def test_what_waits_to_be_sent_back_counts_as_waiting(options: dict[str, object], full: bool):
    world = World(0, 1, 9, **options)
    world.defer(world.messages[:2])
    assert world.worker._is_full() is full


@pytest.mark.parametrize(("max_span", "full"), [(9, True), (10, False)])
def test_the_span_of_what_waits_counts_from_its_first_offset(max_span: int, full: bool):
    world = World(100, 108, max_span=max_span)
    world.defer(world.messages[:1])
    world.worker.finish(world.messages[1:])
    assert world.worker._is_full() is full


def test_a_pause_ends_after_its_time_or_when_the_worker_is_stopped():
    worker = World().worker
    assert worker.pause(0.001) is False
    worker.stop()
    assert worker.pause(60.0) is True


def test_what_is_finished_after_the_queue_was_taken_away_is_not_committed():
    """The next owner begins at the position: a commit of the former one would skip messages."""
    world = World(0, 1)
    world.worker.drop()
    world.worker.finish(world.messages)
    assert world.worker.position == 0


def called_in_order(world: World) -> bool:
    """Return whether a call is made at once; else the worker is stopped when it would wait."""
    calls: list[bool] = []
    waits: list[float] = []
    world.worker.pause = lambda seconds: waits.append(seconds) or world.worker.stop() or True
    world.worker.call_in_order(lambda: calls.append(world.worker.idle))
    assert calls in ([], [False]), "a worker is not idle during a call"
    assert world.worker.idle
    assert waits == ([] if calls else [0.05]), "it waits for a lock, and after a call for nothing"
    return bool(calls)


@pytest.mark.parametrize(
    ("answers", "seconds", "called"),
    [
        ([], 0, False),
        ([True], 0, True),
        ([True], 29, True),
        ([True], 30, False),
        ([True, False], 0, False),
        ([False, True], 0, True),
    ],
)
def test_messages_go_to_an_ordered_listener_only_under_a_lock(
    answers: list[bool], seconds: float, called: bool
):
    world = World(ordered=True)
    for held in answers:
        world.worker.record_lock(held=held, asked=Since(world.clock))
    world.clock.sleep(seconds)
    assert called_in_order(world) is called


@pytest.mark.parametrize("kept", [True, False])
def test_a_lock_is_relied_on_while_its_broker_keeps_it(kept: bool):
    world = World(ordered=True)
    world.worker.record_lock(held=True, asked=Since(world.clock))
    world.keeps_lock = kept
    assert called_in_order(world) is kept


@pytest.mark.parametrize(("slept_s", "called"), [(29, True), (31, False), (-600, True)])
def test_a_lock_ends_while_the_machine_sleeps(slept_s: float, called: bool):
    """Linux's monotonic clock stands still meanwhile. A wall clock that is set back is no reason."""
    world = World(ordered=True)
    clock = WrongClock(base=world.clock)
    world.worker.record_lock(held=True, asked=Since(clock))
    clock.ahead_s += slept_s
    assert called_in_order(world) is called


def test_a_broadcasting_member_needs_no_lock():
    world = World(ordered=True, broadcasting=True)
    world.keeps_lock = False
    assert called_in_order(world)
