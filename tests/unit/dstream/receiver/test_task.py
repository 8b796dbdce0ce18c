"""A receiver's task without Spark and without a broker."""

from __future__ import annotations

import contextlib
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.support.clocks import FakeClock
from tests.support.receiver_driver import SECRET, ReceiverDriver
from tests.support.wait import eventually

from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_options import ConsumeFromWhere
from pyspark_rocketmq.dstream.compat import RocketMQConfig
from pyspark_rocketmq.dstream.receiver.block import block_elements
from pyspark_rocketmq.dstream.receiver.collect import Collected, Collector, InTurn, RateLimiter
from pyspark_rocketmq.dstream.receiver.group_options import push_options
from pyspark_rocketmq.dstream.receiver.link import (
    FrameKind,
    Link,
    ReceiverSpec,
    Reply,
    ReplyStatus,
)
from pyspark_rocketmq.dstream.receiver.receivers import (
    ReliableRocketMQReceiver,
    RocketMQReceiver,
    storage_level,
)
from pyspark_rocketmq.dstream.receiver.server import FailureRow
from pyspark_rocketmq.dstream.receiver.task import ReceiverTask
from pyspark_rocketmq.errors import ConnectionLostError, OptionError, RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.options import ReceiverOptions, option_reference, parse_options
from pyspark_rocketmq.planning.assign import AllocateStrategy
from pyspark_rocketmq.record.message import encode_message

NAMES = {"nameServer": "127.0.0.1:1"}
QUEUE = MessageQueue("orders", "broker-a", 0)


class Worker:
    """A queue's worker that notes what was finished."""

    def __init__(self) -> None:
        self.stopped = False
        self.finished: list[int] = []
        self.came_again: list[int] = []
        self.given_up: list[int] = []
        self.queue = QUEUE

    def finish_run(self, run: PulledRun) -> None:
        self.finished.append(run.from_offset)

    def defer(self, messages: list[Message]) -> None:
        self.came_again += [message.queue_offset for message in messages]

    def pause(self, seconds: float) -> bool:
        del seconds
        return self.stopped

    def call_in_order(self, call: Callable[[], None]) -> bool:
        call()
        return True

    def give_up(self, run: PulledRun) -> None:
        self.given_up.append(run.from_offset)


class Fed(RocketMQReceiver):
    """A receiver whose consumer is the test."""

    started = 0

    def onStart(self) -> None:
        self.started += 1

    def onStop(self) -> None:
        pass


class Numbers(Fed):
    def deserialize(self, body: bytes) -> int | None:
        return None if body == b"skip" else int(body)


def a_run(first: int, *bodies: bytes) -> PulledRun:
    records = [
        encode_message(body, topic="orders", queue_offset=first + at) for at, body in enumerate(bodies)
    ]
    return PulledRun(QUEUE, first, 0, b"".join(records))


@pytest.fixture
def running():
    """``running(receiver)``: a task in a thread, and its driver; stopped at the end."""
    started = []

    def start(receiver: RocketMQReceiver) -> tuple[ReceiverTask, ReceiverDriver]:
        driver = ReceiverDriver()
        task = ReceiverTask(receiver, receiver.parsed(), driver.spec, restart_delay_s=0.01)
        thread = threading.Thread(target=task.run, daemon=True)
        thread.start()
        started.append((driver, thread))
        eventually(lambda: driver.known and receiver.started, what="the start")
        return task, driver

    yield start
    for driver, thread in started:
        driver.stop = True
        thread.join(30)
        assert not thread.is_alive()


def test_what_is_pulled_is_finished_when_the_driver_has_stored_it(running):
    task, driver = running(Fed(None, "orders", "g", options=NAMES))
    driver.refuse = 2
    worker = Worker()
    task._take(worker, a_run(3, b"a", b"b"))
    eventually(lambda: worker.finished == [3], what="the acknowledgement")
    assert [m.body for m in block_elements(driver.blocks[0])] == [b"a", b"b"]
    assert [frame for frame in driver.frames if frame[0] == FrameKind.BLOCK] == [(0, 2, b"")] * 3
    assert not task.stopped


def test_a_block_that_stays_refused_restarts_the_receiver_and_is_not_finished(running):
    receiver = Fed(None, "orders", "g", options={**NAMES, "spout.messages.max.retry": 1})
    task, driver = running(receiver)
    driver.refuse = 2
    worker = Worker()
    task._take(worker, a_run(3, b"a", b"b"))
    eventually(lambda: receiver.started == 2, what="the restart")
    (told,) = [payload for kind, _, payload in driver.frames if kind == FrameKind.RESTART]
    assert told == b"a block of 2 messages could not be stored"
    assert worker.finished == []
    task._take(worker, a_run(3, b"a", b"b"))
    eventually(lambda: worker.finished == [3], what="the messages that came again")


def test_deserialize_skips_with_none_and_puts_off_with_an_error(running, caplog):
    receiver = Numbers(None, {"orders": 1}, "g", options=NAMES)
    task, driver = running(receiver)
    worker = Worker()
    task._take(worker, a_run(0, b"1", b"skip", b"x", b"4"))
    eventually(lambda: worker.finished == [0], what="the acknowledgement")
    assert [made for block in driver.blocks for made in block_elements(block)] == [1, 4]
    assert worker.came_again == [2]
    task._take(worker, a_run(9, b"skip"))
    eventually(lambda: worker.finished == [0, 9], what="a run of which nothing is left")
    eventually(lambda: driver.skipped == 2, what="the count of skipped messages")
    assert "could not be deserialized" in caplog.text


class Exits(Numbers):
    """Its parser exits, as that of a command line does, the first time that it gets what is wrong."""

    exits = 0

    def deserialize(self, body: bytes) -> int | None:
        if body == b"x" and not self.exits:
            self.exits += 1
            sys.exit("usage: ...")
        return super().deserialize(body.replace(b"x", b"9"))


@pytest.mark.parametrize("ordered", ["false", "true"])
def test_a_deserialize_that_exits_is_an_error_as_any_other(running, caplog, ordered):
    receiver = Exits(None, {"orders": 1}, "g", options={**NAMES, "consumer.messages.orderly": ordered})
    task, driver = running(receiver)
    worker = Worker()
    task._take(worker, a_run(0, b"1", b"x"))
    task._take(worker, a_run(2, b"3"))
    eventually(lambda: worker.finished == [0, 2], what="the acknowledgements")
    assert elements_of(driver) == ([1, 9, 3] if ordered == "true" else [1, 3])
    assert worker.came_again == ([] if ordered == "true" else [1])
    assert "could not be deserialized" in caplog.text


class Consumer:
    """What the task needs of a PushConsumer."""

    def __init__(self) -> None:
        self.closed = 0

    def stop_pulling(self) -> None:
        pass

    def take_warning(self) -> str:
        return ""

    def close(self) -> None:
        self.closed += 1


class Careless(Fed):
    """Its consumer is not closed by onStop, which fails when it is asked to."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.consumers: list[Consumer] = []
        self.fails = False

    def onStart(self) -> None:
        self._task._consumer = Consumer()
        self.consumers.append(self._task._consumer)
        super().onStart()

    def onStop(self) -> None:
        if self.fails:
            raise ValueError("no")


@pytest.mark.parametrize("fails", [False, True])
def test_a_receiver_that_stops_leaves_the_group_whatever_its_code_does(running, fails):
    receiver = Careless("127.0.0.1:1", "orders", "g")
    task, driver = running(receiver)
    receiver.fails = fails
    receiver.restart("again")
    eventually(lambda: receiver.started == 2, what="the restart")
    assert [consumer.closed for consumer in receiver.consumers] == [1, 0]
    task._take(Worker(), a_run(3, b"1"))
    eventually(lambda: driver.blocks, what="a block after the restart")


def test_what_is_too_large_for_a_block_is_stored_in_several(running, monkeypatch):
    receiver = Numbers("127.0.0.1:1", "orders", "g", deserialize=None)
    task, driver = running(receiver)
    monkeypatch.setattr("pyspark_rocketmq.dstream.receiver.task.MAX_FRAME_BYTES", 250)
    worker = Worker()
    collected = [Collected(worker, a_run(at, b"1"), 1, ("x" * 100 + str(at),)) for at in range(4)]
    for each in collected:
        task._collector.add(each)
    eventually(lambda: sorted(worker.finished) == [0, 1, 2, 3], what="the blocks")
    assert elements_of(driver) == [each.objects[0] for each in collected]
    task._collector.add(Collected(worker, a_run(4, b"1"), 1, ("x" * 300,)))
    eventually(lambda: receiver.started == 2, what="the restart")
    assert worker.finished[4:] == []
    (reason,) = [text for kind, _, text in driver.frames if kind == FrameKind.RESTART]
    assert b"more than the 250 of a block" in reason


def elements_of(driver: ReceiverDriver) -> list[object]:
    return [made for block in driver.blocks for made in block_elements(block)]


class Several(Fed):
    """Stores a first element, and returns an iterator of the others."""

    def deserialize(self, body: bytes) -> Iterator[int]:
        if body.startswith(b"1"):
            self.store(-1)
        return (int(part) for part in body.split())


def test_a_message_may_be_several_elements_or_none(running):
    task, driver = running(Several(None, {"orders": 1}, "g", options=NAMES))
    worker = Worker()
    task._take(worker, a_run(0, b"1 2", b"", b"10 x", b"3"))
    eventually(lambda: worker.finished == [0], what="the acknowledgement")
    assert elements_of(driver) == [-1, 1, 2, 3]
    assert worker.came_again == [2]
    eventually(lambda: driver.skipped == 1, what="the count of messages without elements")


def test_what_java_serialized_is_said_with_what_reads_it(running, caplog):
    task, _ = running(Numbers(None, {"orders": 1}, "g", options=NAMES))
    worker = Worker()
    task._take(worker, a_run(0, b"\xac\xed\x00\x05sr\x00\x05Order"))
    eventually(lambda: worker.finished == [0], what="the end of the run")
    assert "written by Java's ObjectOutputStream: javaobj.loads(body)" in caplog.text


def test_other_threads_store_and_go_on_when_it_is_stored(running):
    receiver = Fed(None, "orders", "g", options=NAMES)
    task, driver = running(receiver)
    driver.refuse = 1
    stored: dict[int, list[object]] = {}

    def run(number: int) -> None:
        receiver.store(number) if number else receiver.store(iter("ab"))
        stored[number] = elements_of(driver)

    threads = [threading.Thread(target=run, args=[number], daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    worker = Worker()
    task._take(worker, a_run(7, b"pulled"))
    for thread in threads:
        thread.join(30)
    assert all(number in found for number, found in stored.items() if number)
    assert len(stored) == 4
    assert "b" in stored[0]
    eventually(lambda: worker.finished == [7], what="records that were pulled, in blocks of their own")


def test_who_waits_for_a_receiver_that_stops_is_told(running):
    receiver = Fed(None, "orders", "g", options={**NAMES, "spout.messages.max.retry": 1_000_000})
    _, driver = running(receiver)
    driver.refuse = 1_000_000
    errors: list[str] = []

    def run() -> None:
        try:
            receiver.store(1)
        except RocketMQError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    eventually(lambda: any(frame[0] == FrameKind.BLOCK for frame in driver.frames), what="a block")
    receiver.restart("because")
    driver.refuse = 0
    thread.join(30)
    eventually(lambda: receiver.started == 2, what="the restart")
    assert not thread.is_alive(), "it waits for ever"
    assert errors or 1 in elements_of(driver), "it was told that the element is stored"
    assert all("before it stored" in error for error in errors)
    receiver.store(2)
    assert 2 in elements_of(driver)


class Elsewhere(Fed):
    """Has another thread store, and waits for it, until the test lets it."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.gate = threading.Event()

    def deserialize(self, body: bytes) -> None:
        assert self.gate.wait(30)
        thread = threading.Thread(target=self.attempt, args=[body])
        thread.start()
        thread.join()

    def attempt(self, body: bytes) -> None:
        with contextlib.suppress(RocketMQError):
            self.store(int(body))


def test_a_receiver_ends_while_deserialize_waits_for_a_thread_that_stores(running):
    receiver = Elsewhere(None, {"orders": 1}, "g", options=NAMES)
    task, driver = running(receiver)
    worker = Worker()
    task._take(worker, a_run(0, b"1"))
    driver.stop = True
    eventually(lambda: not task._storing, what="the end of storing")
    receiver.gate.set()  # the fixture waits for the task to end


class Stubborn(Fed):
    """Fails twice with each message."""

    failures = 0

    def deserialize(self, body: bytes) -> int:
        self.failures += 1
        if self.failures % 3:
            raise ValueError(body)
        return int(body)


def test_in_order_a_failing_message_is_tried_again_before_the_next_one(running):
    receiver = Stubborn(None, "orders", "g", options={**NAMES, "consumer.messages.orderly": "true"})
    task, driver = running(receiver)
    worker = Worker()
    for number in range(3):
        task._take(worker, a_run(number, str(number).encode()))
    eventually(lambda: worker.finished == [0, 1, 2], what="the acknowledgements")
    assert [made for block in driver.blocks for made in block_elements(block)] == [0, 1, 2]
    assert receiver.failures == 9


class Slow(Numbers):
    """Its odd numbers wait for the test."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.gate = threading.Event()
        self.made: list[int] = []

    def deserialize(self, body: bytes) -> int | None:
        if int(body) % 2:
            assert self.gate.wait(30)
        self.made.append(int(body))
        return int(body)


def test_several_threads_keep_the_order_within_a_queue(running):
    receiver = Slow(None, {"orders": 4}, "g", options=NAMES)
    task, driver = running(receiver)
    worker, other = Worker(), Worker()
    for number in range(1, 5):
        task._take(worker, a_run(number, str(number).encode()))
    eventually(lambda: sorted(receiver.made) == [2, 4], what="the later runs, on other threads")
    task._take(other, a_run(0, b"6"))
    eventually(lambda: other.finished == [0], what="another queue, which waits for none of them")
    assert worker.finished == []
    receiver.gate.set()
    eventually(lambda: worker.finished == [1, 2, 3, 4], what="the acknowledgements")
    assert [made for block in driver.blocks for made in block_elements(block)] == [6, 1, 2, 3, 4]


def test_what_threads_make_is_handed_on_in_turn():
    handed: list[int] = []
    turns, worker, other = InTurn(lambda made: handed.append(made.run.from_offset)), Worker(), Worker()
    places = [turns.enter(worker) for _ in range(3)]
    elsewhere = turns.enter(other)

    def made(number: int) -> Collected:
        return Collected(worker, PulledRun(QUEUE, number, 0, b""), 1)

    turns.leave(worker, places[1], made(1))
    turns.leave(other, elsewhere, made(9))
    assert handed == [9]
    turns.leave(worker, places[0], made(0))
    assert handed == [9, 0, 1]
    turns.clear()
    turns.leave(worker, places[2], made(2))
    assert handed == [9, 0, 1], "what was forgotten comes again from the broker"


def test_what_waits_for_a_queue_that_went_to_another_member_is_dropped():
    turns, gone, other = InTurn(lambda made: None), Worker(), Worker()
    first, second = turns.enter(gone), turns.enter(gone)
    waits = Collected(gone, PulledRun(QUEUE, 1, 0, b""), 1)
    turns.leave(gone, second, waits)
    gone.stopped = True  # its first run never leaves
    turns.enter(other)
    assert list(turns._places) == [other]
    turns.leave(gone, first, waits)


def test_failures_in_a_row_age():
    row = FailureRow()
    assert [row.add(60.0 * n, after_success=False) for n in range(4)] == [1, 2, 3, 4]
    assert row.add(300.0, after_success=True) == 1, "a block was stored in between"
    day = 86_400.0
    assert {row.add(day * n, after_success=False) for n in range(1, 30)} == {1}
    assert [row.add(day * 40 + n, after_success=False) for n in (0.0, 3_599.0, 3_600.0)] == [1, 2, 2]


def test_a_reliable_receiver_needs_offsets_that_somebody_keeps():
    broadcasting = {**NAMES, "messageModel": "broadcasting"}
    with pytest.raises(OptionError, match="cannot broadcast"):
        ReliableRocketMQReceiver(None, "a", "g", options=broadcasting)
    assert not RocketMQReceiver(None, "a", "g", options=broadcasting).reliable


def test_a_deserialize_that_cannot_be_called_is_refused():
    with pytest.raises(OptionError, match=r"deserialize is a function .*deserialize=json"):
        RocketMQReceiver("h:1", "orders", "g", deserialize="json")


def test_a_message_that_everybody_gets_cannot_come_again_and_is_counted(running):
    receiver = Numbers(None, "orders", "g", options={**NAMES, "messageModel": "broadcasting"})
    task, driver = running(receiver)
    worker = Worker()
    task._take(worker, a_run(0, b"x", b"2"))
    eventually(lambda: worker.finished == [0], what="the acknowledgement")
    assert [made for block in driver.blocks for made in block_elements(block)] == [2]
    eventually(lambda: driver.skipped == 1, what="the count")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("makes_objects", [False, True])
def test_a_message_that_does_not_decode_restarts_the_receiver(running, ordered: bool, makes_objects: bool):
    options = {**NAMES, "consumer.messages.orderly": str(ordered).lower()}
    task, driver = running((Numbers if makes_objects else Fed)(None, "orders", "g", options=options))
    worker, run = Worker(), a_run(0, b"1", b"2")
    with contextlib.suppress(RocketMQError):
        task._take(worker, replace(run, records=run.records[:-10]))
    eventually(lambda: [kind for kind, *_ in driver.frames if kind == FrameKind.RESTART], what="the restart")
    assert worker.finished == []


def test_each_topic_has_its_own_threads(running):
    receiver = Numbers(None, {"orders": 3, "payments": 1}, "g", options=NAMES)
    task, _ = running(receiver)
    assert [task._pool(name)._max_workers for name in ("orders", "payments", "orders")] == [3, 1, 3]
    assert task._pool("orders") is task._pool("orders")


def test_restart_is_told_and_who_is_no_task_cannot(running):
    receiver = Fed(None, "orders", "g", options=NAMES)
    with pytest.raises(RocketMQError, match="receiverStream"):
        receiver.restart("why")
    assert receiver.isStopped()
    _, driver = running(receiver)
    receiver.restart("for a test", KeyError("k"))
    eventually(lambda: receiver.started == 2, what="the restart")
    assert (FrameKind.RESTART, 0, b"for a test: 'k'") in driver.frames
    assert receiver.receiverId == 0
    assert pickle.loads(pickle.dumps(receiver)).isStopped()


class Unable(Fed):
    """A receiver that finds no server whenever it starts."""

    def onStart(self) -> None:
        super().onStart()
        raise ConnectionLostError("no name server answers", addr="127.0.0.1:1")


def test_a_receiver_that_cannot_start_is_stopped_as_any_other(running):
    receiver = Unable(None, "orders", "g", options=NAMES)
    _, driver = running(receiver)
    eventually(lambda: receiver.started >= 3, what="more tries")
    driver.stop = True
    eventually(lambda: driver.ended, 15, what="the task to end")


def test_a_driver_that_goes_away_ends_the_task():
    server = socket.create_server(("127.0.0.1", 0))
    spec = ReceiverSpec(0, "127.0.0.1", server.getsockname()[1], SECRET, 20)
    assert "sss" not in repr(spec)

    def hang_up():
        connection, _ = server.accept()
        connection.sendall(b"n" * 16)
        connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    receiver = Fed(None, "orders", "g", options=NAMES)
    task = ReceiverTask(receiver, receiver.parsed(), spec)
    with pytest.raises(ConnectionLostError, match="does not answer"):
        task.run()
    thread.join()
    server.close()
    with pytest.raises(ConnectionLostError):
        Link(spec, 1.0)


def test_the_limiter_spreads_messages():
    clock = FakeClock()
    limiter = RateLimiter(clock)

    def waits(*counts: int) -> list[float]:
        return [limiter.wait_s(limiter.reserve(count)) for count in counts]

    assert waits(1_000) == [0]
    limiter.rate = 100.0
    assert waits(50, 25, 1) == [0, 0.5, 0.75]
    limiter.rate = 50.0
    assert waits(4) == [76 / 50]
    clock.sleep(10)
    assert waits(1) == [0]
    limiter.rate = None
    clock.sleep(1)
    assert waits(10_000, 1) == [0, 0]


class Patient(Worker):
    """A worker of a fake clock; after its first wait, the driver allows more."""

    def __init__(self, clock: FakeClock, task: ReceiverTask) -> None:
        super().__init__()
        self.clock, self.task = clock, task

    def pause(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        self.task._obey(Reply(ReplyStatus.STORED, 1_000.0))
        return self.stopped


@pytest.mark.parametrize("waiting", [1, 100])
def test_a_queue_that_waits_for_its_turn_has_it_sooner_when_the_rate_rises(waiting):
    clock, spec = FakeClock(), ReceiverSpec(0, "127.0.0.1", 1, SECRET, 20)
    receiver = Fed(None, "orders", "g", options=NAMES)
    task = ReceiverTask(receiver, receiver.parsed(), spec, clock=clock)
    task._obey(Reply(ReplyStatus.STORED, 1.0))
    begin = clock.monotonic()
    for _ in range(waiting):
        task._limiter.reserve(32)  # other queues, in their threads
    task._take(Patient(clock, task), a_run(0, b"a"))
    assert clock.monotonic() - begin == pytest.approx(1 + (32 * waiting - 1) / 1_000)


def test_a_receiver_that_restarts_does_not_wait_for_the_turns_of_what_it_dropped(running):
    receiver = Fed(None, "orders", "g", options=NAMES)
    task, driver = running(receiver)
    driver.rate = 100.0
    eventually(lambda: task._limiter.rate == 100.0, what="the rate")
    task._limiter.reserve(1_000_000)  # of queues whose pulls wait
    receiver.restart("again")
    eventually(lambda: receiver.started == 2, what="the restart")
    assert task._limiter.wait_s(task._limiter.reserve(32)) < 1.0


def test_blocks_are_cut_and_the_oldest_comes_first():
    collector, worker = Collector(), Worker()
    for number in range(3):
        collector.add(Collected(worker, PulledRun(QUEUE, number, 0, bytes(5 << 20)), 1))
    assert collector.full.is_set()
    assert [c.run.from_offset for c in collector.take()] == [0, 1]
    assert not collector.full.is_set()
    assert [c.run.from_offset for c in collector.take()] == [2]
    assert collector.take() == []


def test_every_key_of_rocketmq_spark_is_known():
    keys = {value for name, value in vars(RocketMQConfig).items() if name.isupper() and "." in str(value)}
    rows = option_reference(ReceiverOptions)
    spellings = {spelling for row in rows for spelling in (row.name, *row.aliases)}
    assert keys - spellings - ReceiverOptions.COMPATIBILITY.keys() == set()


def test_each_setting_of_a_receiver_has_a_name_of_its_own():
    named = {"topic": "a", "consumerGroup": "g", "consumerThreads": 2, "receiverQueueSize": 3}
    given = named | {"storeRetries": 5, "storeTimeoutMs": "7s", "heartbeatIntervalMs": "11s"}
    options = parse_options(ReceiverOptions, {**NAMES, **given})
    assert (options.threads, options.queue_size, options.max_retry) == (2, 3, 5)
    assert (options.ttl_ms, options.heartbeat_ms) == (7_000, 11_000)
    push = push_options(options)
    assert (push.max_queued, push.heartbeat_ms) == (3, 11_000)
    for name in ("storeTimeoutMs", "heartbeatIntervalMs"):
        with pytest.raises(OptionError, match=f"{name} must be 1 or more"):
            parse_options(ReceiverOptions, {**NAMES, **given, name: 0})


def test_options_become_those_of_the_consumer():
    given = {
        **NAMES,
        "consumer.group": "g",
        "consumer.topic": "a,b",
        "consumer.offset.reset.to": "timestamp",
        "startTimestamp": 17,
        "consumer.messages.orderly": "true",
        "consumer.offset.persist.interval": 100,
        "brokerserver.heartbeat.interval": 200,
        "pull.max.batch.size": 8,
        "spout.queue.size": 9,
        "allocateStrategy": "consistentHash",
        "consumer.tag": "x || y",
    }
    options = parse_options(ReceiverOptions, given)
    push = push_options(options)
    assert (push.start, push.timestamp_ms, push.ordered) == (ConsumeFromWhere.TIMESTAMP, 17, True)
    assert (push.commit_ms, push.heartbeat_ms, push.pull_batch_size, push.max_queued) == (100, 200, 8, 9)
    assert push.allocate is AllocateStrategy.CONSISTENT_HASH
    assert options.selector.tags == {"x", "y"}
    assert push_options(parse_options(ReceiverOptions, {**NAMES, "topic": "a", "groupId": "g"})).start is (
        ConsumeFromWhere.LAST_OFFSET
    )
    with pytest.raises(OptionError, match="startFrom=timestamp"):
        parse_options(ReceiverOptions, {**NAMES, "topic": "a", "groupId": "g", "startTimestamp": 1})


def test_receivers_take_spark_s_names_of_levels():
    assert storage_level("MEMORY_AND_DISK_SER_2").replication == 2
    assert storage_level("MEMORY_ONLY").useMemory
    assert not storage_level("DISK_ONLY").useMemory
    with pytest.raises(OptionError, match="unknown storage level: use one of DISK_ONLY"):
        storage_level("RAM")
    assert ReliableRocketMQReceiver(None, ["a", "b"], "g", options=NAMES).parsed().topics == ("a", "b")
    with pytest.raises(OptionError, match="a topic needs a thread"):
        RocketMQReceiver(None, {"a": 0}, "g", options=NAMES)
