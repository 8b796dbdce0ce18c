"""What a queue's worker pulls, where it continues, and what it delivers: with brokers that are scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from tests.support.lockstep import MASTER, SLAVE, Answer, LockstepClient

from pyspark_rocketmq.client.groups import push_worker
from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.groups.push_options import PushOptions
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import BrokerError, ConnectError, RocketMQError, ServiceNotAvailableError
from pyspark_rocketmq.model import Message, MessageQueue, MessageSelector, OffsetRange
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.remoting.codes import ResponseCode

QUEUE = MessageQueue("orders", "broker-a", 0)
RETRY, NOTHING, MOVED = (
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_OFFSET_MOVED,
)


def found(start: int, end: int, *, max_offset: int = 0) -> Answer:
    records = [
        encode_message(b"x" * 10, {"TAGS": f"t{number % 2}"}, topic="orders", queue_offset=number)
        for number in range(start, end)
    ]
    return Answer(end, b"".join(records), max_offset=max_offset)


class World:
    """A worker at offset 10 that pulls when the test says."""

    def __init__(
        self,
        script: Callable[[str, int, int], Answer],
        *,
        runs: bool = False,
        slave: bool = False,
        selector: MessageSelector | None = None,
        **options: object,
    ) -> None:
        self.client = LockstepClient(script, slave=slave)
        self.delivered: list[list[int]] = []
        self.messages: list[Message] = []
        self.runs: list[PulledRun] = []
        self.pauses: list[float] = []
        self.on_run: Callable[[], None] = lambda: None
        self.worker = QueueWorker(
            self.client,
            "billing",
            QUEUE,
            10,
            selector=selector or MessageSelector(),
            options=PushOptions(**{"pull_batch_size": 4, **options}),
            deliver=self._deliver,
            take_run=self._take if runs else None,
        )
        self.worker.pause = self._pause  # type: ignore[method-assign]

    def _deliver(self, worker: QueueWorker, messages: Sequence[Message]) -> None:
        assert worker is self.worker
        self.delivered.append([message.queue_offset for message in messages])
        self.messages += messages

    def _take(self, worker: QueueWorker, run: PulledRun) -> None:
        assert worker is self.worker
        self.runs.append(run)
        self.on_run()

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return self.worker.stopped

    @property
    def run_offsets(self) -> list[list[int]]:
        """The offsets that count of each run."""
        return [
            [
                message.queue_offset
                for message in decode_messages(bytes(run.records), broker_name="broker-a")
                if run.from_offset <= message.queue_offset < run.until_offset
            ]
            for run in self.runs
        ]


def test_pulls_continue_where_the_last_one_ended_and_count_when_they_are_finished() -> None:
    world = World(lambda addr, offset, most: found(offset, offset + most))
    world.worker._pull()
    world.worker._pull()
    assert world.client.pulls == [(MASTER, 10), (MASTER, 14)]
    assert world.delivered == [[10, 11, 12, 13], [14, 15, 16, 17]]
    assert world.worker.position == 10
    world.worker.finish(world.messages[1:])
    assert world.worker.position == 10
    world.worker.finish(world.messages[:1])
    assert world.worker.position == 18
    assert world.pauses == []


def test_a_pull_may_wait_at_the_broker_and_five_seconds_longer_at_the_client() -> None:
    world = World(lambda addr, offset, most: found(offset, offset + most), suspend_ms=20_000)
    world.worker._pull()
    ((request, deadline),) = world.client.single
    assert (request.consumer_group, request.suspend_timeout_millis) == ("billing", 20_000)
    assert deadline.remaining_s * 1000 == 20_000 + 5_000 + world.client.request_timeout_ms


def test_a_record_that_breaks_the_layout_is_skipped_alone() -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        whole = found(offset, offset + most)
        at = whole.records.find((11).to_bytes(8, "big")) - 20
        return (
            whole
            if at < 0
            else replace(whole, records=whole.records[:at] + b"\xff" + whole.records[at + 1 :])
        )

    world = World(script, on_corrupt="skip")
    world.worker._pull()
    assert world.delivered == [[10, 12, 13]]
    assert {request.consumer_group for request, _ in world.client.single} == {"billing"}
    again = [template.request((10, 1)) for template in world.client.connection(MASTER).templates]
    assert {request.consumer_group for request in again} == {"billing"}
    world.worker.finish(world.messages)
    assert world.worker.position == 14


def test_tags_that_were_not_asked_for_are_not_delivered_but_passed() -> None:
    world = World(lambda addr, offset, most: found(offset, offset + 4), selector=MessageSelector.by_tag("t1"))
    world.worker._pull()
    assert world.delivered == [[11, 13]]
    world.worker.finish(world.messages)
    assert world.worker.position == 14


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize(
    ("answer", "pauses"),
    [
        pytest.param(Answer(90, code=RETRY, remark="NO_MATCHED_MESSAGE"), [], id="a filter's scan"),
        pytest.param(Answer(90, code=MOVED, remark="OFFSET_TOO_SMALL", max_offset=99), [], id="expired"),
        pytest.param(Answer(3, code=MOVED, remark="OFFSET_OVERFLOW_BADLY", max_offset=3), [], id="shorter"),
        pytest.param(Answer(10, code=NOTHING, remark="OFFSET_OVERFLOW_ONE"), [], id="the end"),
        pytest.param(Answer(10, code=RETRY, remark="OFFSET_TOO_SMALL"), [1.0], id="no progress"),
    ],
)
def test_without_messages_it_continues_where_the_master_says(
    answer: Answer, pauses: list[float], runs: bool
) -> None:
    world = World(lambda *_: answer, runs=runs, selector=MessageSelector.by_tag("t1"))
    world.worker._pull()
    assert world.worker._next == answer.next_offset
    assert world.pauses == pauses
    assert (world.delivered, world.runs) == ([], [])
    if answer.next_offset >= 10:
        assert world.worker.position == answer.next_offset


@pytest.mark.parametrize("answer", [Answer(90, code=MOVED), found(12, 14)], ids=["expired", "has a hole"])
def test_a_slave_does_not_lead_past_messages(answer: Answer) -> None:
    world = World(lambda *_: answer, slave=True)
    world.client.addresses = {1: SLAVE}
    with pytest.raises(ServiceNotAvailableError, match="its master may"):
        world.worker._pull()
    assert world.client.pulls == [(SLAVE, 10)]
    assert (world.worker._next, world.worker.position, world.delivered) == (10, 10, [])


@pytest.mark.parametrize("runs", [False, True])
def test_what_arrives_after_the_worker_was_stopped_does_not_count(runs: bool) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        world.worker.stop()
        return found(offset, offset + most)

    world = World(script, runs=runs)
    world.worker._pull()
    assert (world.worker._next, world.worker.position) == (10, 10)
    assert (world.delivered, world.runs) == ([], [])


# --- runs -----------------------------------------------------------------------------------


def test_a_run_is_finished_as_a_whole() -> None:
    world = World(lambda addr, offset, most: found(offset, offset + most), runs=True)
    world.worker._pull()
    world.worker._pull()
    first, second = world.runs
    assert (first.queue, first.from_offset, first.until_offset) == (QUEUE, 10, 14)
    assert (second.queue, second.from_offset, second.until_offset) == (QUEUE, 14, 18)
    assert world.run_offsets == [[10, 11, 12, 13], [14, 15, 16, 17]]
    assert len(world.worker._in_flight) == 2
    world.worker.finish_run(second)
    assert world.worker.position == 10
    world.worker.finish_run(first)
    assert world.worker.position == 18


@pytest.mark.parametrize(("lag", "caught_up"), [(16, False), (17, True)])
def test_a_queue_that_is_far_ahead_is_read_with_several_pulls_in_flight(lag: int, caught_up: bool) -> None:
    world = World(lambda addr, offset, most: found(offset, offset + most, max_offset=14 + lag), runs=True)
    world.worker._pull()
    end = 14 + lag if caught_up else 14
    assert [offset for offsets in world.run_offsets for offset in offsets] == list(range(10, end))
    assert world.worker._next == end
    for run in world.runs:
        assert world.worker.position == run.from_offset
        world.worker.finish_run(run)
    assert world.worker.position == end


def test_not_more_than_10_000_messages_are_caught_up_at_once() -> None:
    world = World(
        lambda addr, offset, most: found(offset, offset + most, max_offset=1_000_000),
        runs=True,
        pull_batch_size=1_024,
    )
    world.on_run = lambda: world.worker.finish_run(world.runs[-1])
    world.worker._pull()
    assert world.worker._next == 10 + 1_024 + 10_000


def test_a_worker_that_is_stopped_while_it_catches_up_begins_no_further_run() -> None:
    world = World(lambda addr, offset, most: found(offset, offset + most, max_offset=100), runs=True)
    world.on_run = lambda: world.worker.stop() if len(world.runs) == 3 else None
    world.worker._pull()
    assert len(world.runs) == 3
    assert world.worker._next == world.runs[-1].until_offset < 100
    for run in world.runs:
        world.worker.finish_run(run)
    assert world.worker.position == world.runs[-1].until_offset


def test_a_static_topic_s_runs_have_its_offsets() -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        stored = found(offset - 1_000, offset - 1_000 + most, max_offset=1_010 + 100)
        return replace(stored, next_offset=offset + most, offset_delta=1_000)

    world = World(script, runs=True)
    world.worker._next = 1_010
    world.worker._pull()
    assert len(world.runs) > 2, "the second pull catches up"
    for run in world.runs:
        assert (run.queue, run.offset_delta) == (QUEUE, 1_000)


@pytest.mark.parametrize("selector", [MessageSelector(), MessageSelector.by_tag("t1")])
def test_a_member_that_catches_up_reads_as_itself_with_eight_pulls_in_flight(
    selector: MessageSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ReadOptions] = []
    read_chunks = push_worker.read_chunks

    def note(client: LockstepClient, wanted: Sequence[OffsetRange], options: ReadOptions) -> Iterator[object]:
        seen.append(options)
        return read_chunks(client, wanted, options)

    monkeypatch.setattr(push_worker, "read_chunks", note)
    script = lambda addr, offset, most: found(offset, offset + most, max_offset=100)  # noqa: E731
    World(script, runs=True, selector=selector).worker._pull()
    (options,) = seen
    assert (options.consumer_group, options.selector) == ("billing", selector)
    assert (options.pull_batch_size, options.pulls_in_flight) == (4, 8)
    assert options.stall_timeout_ms == 20_000, "then the thread looks for the queue's broker anew"


def test_a_filter_is_agreed_on_with_the_broker_for_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, asked = MessageSelector.by_tag("t1"), list[tuple[object, ...]]()

    def agree(_: object, connection: object, *given: object) -> MessageSelector:
        asked.append((connection, *given))
        return selector

    monkeypatch.setattr(push_worker, "agree_on_selector", agree)
    world = World(lambda addr, offset, most: found(offset, offset + most), selector=selector)
    world.worker._pull()
    assert asked == [(world.client.connection(MASTER), "orders", selector, "billing")]


@pytest.mark.parametrize("last", [55, 60], ids=["some remain", "nothing remains"])
def test_what_expired_while_catching_up_is_passed_over_and_told_once(
    last: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue goes on at its end, also if no run reaches it."""

    def script(addr: str, offset: int, most: int) -> Answer:
        if 14 <= offset < last:
            return Answer(last, code=MOVED, remark="OFFSET_TOO_SMALL", min_offset=last, max_offset=60)
        return found(offset, min(offset + most, 60), max_offset=60)

    world = World(script, runs=True)
    while world.worker._next < 60:
        world.worker._pull()
    assert [offset for offsets in world.run_offsets for offset in offsets] == [
        *range(10, 14),
        *range(last, 60),
    ]
    for run in world.runs:
        world.worker.finish_run(run)
    assert world.worker.position == 60
    (warning,) = caplog.messages
    assert warning.endswith(f"has no offset 14: continuing at {last}")


def test_a_queue_that_is_hidden_for_a_moment_while_catching_up_loses_nothing() -> None:
    hidden = iter([True])

    def script(addr: str, offset: int, most: int) -> Answer:
        if offset >= 14 and next(hidden, False):
            return Answer(0, code=ResponseCode.SYSTEM_ERROR, remark="queueId[0] is illegal, topic:[orders]")
        return found(offset, min(offset + most, 60), max_offset=60)

    world = World(script, runs=True)
    while world.worker._next < 60:
        world.worker._pull()
    assert [offset for offsets in world.run_offsets for offset in offsets] == [*range(10, 60)]


def test_a_run_s_records_may_lie_in_a_larger_buffer() -> None:
    run = PulledRun(QUEUE, 10, 5, b"abc", 14)
    alone, within = run.chunk(), run.chunk(memoryview(b"..abc."), 2)
    assert bytes(alone.buffer[alone.start : alone.end]) == b"abc"
    assert bytes(within.buffer[within.start : within.end]) == b"abc"
    assert (within.from_offset, within.until_offset, within.offset_delta) == (10, 14, 5)


# --- the thread's loop ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "looked_up"),
    [(ConnectError("no connection"), ["orders"]), (BrokerError("refused", code=1), [])],
    ids=["an error of a stale route", "another error"],
)
def test_a_pull_that_fails_is_repeated_after_a_pause(
    error: RocketMQError, looked_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        if len(world.client.pulls) == 1:
            raise error
        world.worker.stop()
        return found(offset, offset + most)

    world = World(script)
    invalidated: list[str] = []
    monkeypatch.setattr(world.client, "invalidate", invalidated.append)
    world.worker._run()
    assert world.client.pulls == [(MASTER, 10), (MASTER, 10)]
    assert world.pauses == [1.0]
    assert invalidated == looked_up


def test_pulls_that_fail_for_hours_are_a_line_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        if len(world.client.pulls) == 7_200:
            world.worker.stop()
        world.client.clock.now_s += 1
        raise ConnectError("no connection")

    world = World(script)
    world.worker._run()
    assert len(caplog.messages) == 24


def test_an_error_after_the_worker_was_stopped_is_nothing_to_report(caplog: pytest.LogCaptureFixture) -> None:
    def script(addr: str, offset: int, most: int) -> Answer:
        world.worker.stop()
        raise ConnectError("the connection was closed")

    world = World(script)
    world.worker._run()
    assert (world.pauses, caplog.records) == ([], [])


def test_a_full_queue_is_not_pulled_until_something_is_finished() -> None:
    world = World(lambda addr, offset, most: found(offset, offset + most), max_queued=4)
    waited: list[float] = []

    def wait(timeout_s: float) -> None:
        waited.append(timeout_s)
        world.worker._in_flight.finish([10])

    world.worker._state.wait = wait  # type: ignore[method-assign,assignment]
    world.worker._wait_for_room()
    assert waited == []
    world.worker._pull()
    world.worker._wait_for_room()
    assert waited == [1.0], "a wake-up that is missed costs a second"
