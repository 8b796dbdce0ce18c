"""What becomes of messages that a listener takes, and of those that it does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from tests.support.clocks import FakeClock
from tests.support.wait import eventually

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.groups import push_delivery
from pyspark_rocketmq.client.groups.push_delivery import (
    Delivery,
    send_back_request,
    send_messages_back,
    with_original_topic,
)
from pyspark_rocketmq.client.groups.push_options import ConsumeResult, PushOptions
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.host import SYSTEM_HOST
from pyspark_rocketmq.client.paced_warnings import PacedWarnings
from pyspark_rocketmq.client.trace.records import WatchedCall
from pyspark_rocketmq.errors import ConnectError
from pyspark_rocketmq.model import BrokerData, Message, MessageQueue, OutgoingMessage, TopicRoute
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.header import ConsumerSendMsgBackRequest
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE

QUEUE = MessageQueue("orders", "broker-a", 0)
MOVING = MessageQueue("orders", "__syslo__global__", 0)
ADDR, SLAVE, ELSEWHERE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
IPV6 = "fd00::1:10911"
"""As routes have it: without brackets."""
LATER = ConsumeResult.LATER


def messages(*bodies: bytes, **parts: object) -> list[Message]:
    """Return messages of the queue, from offset 0 on, each 100 bytes after the last one in the commit log."""
    records = [
        encode_message(b, topic="orders", queue_offset=n, commit_log_offset=1_000 + 100 * n, **parts)
        for n, b in enumerate(bodies)
    ]
    return decode_messages(b"".join(records), broker_name="broker-a")


class Worker:
    """A queue's worker that notes what happens to messages."""

    def __init__(self) -> None:
        self.queue, self.stopped, self.idle = QUEUE, False, True
        self.finished: list[bytes] = []
        self.put_back: list[bytes] = []
        self.pauses: list[float] = []
        self.accepted: list[bytes] = []
        self.failed: dict[bytes, bool] = {}

    def finish(self, some: Sequence[Message]) -> None:
        self.finished += [message.body for message in some]

    def defer(self, some: Sequence[Message]) -> None:
        self.put_back += [message.body for message in some]

    def call_in_order(self, call: Callable[[], None]) -> None:
        call()

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def record_sent_back(self, message: Message) -> None:
        self.accepted.append(message.body)

    def record_not_sent_back(self, message: Message, *, refused: bool) -> None:
        self.failed[message.body] = refused


class Client:
    """A client of a broker that answers each message with a code, by its place in the commit log."""

    request_timeout_ms = 1_000
    host = SYSTEM_HOST
    namespace = NO_NAMESPACE

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.warnings = PacedWarnings(self.clock)
        self.dead: list[ConsumerSendMsgBackRequest] = []
        self.sent: list[tuple[str, int]] = []
        self.codes: dict[int, int] = {}
        self.away = 0
        self._addr = ""
        self._asked: dict[int, ConsumerSendMsgBackRequest] = {}

    def queue_address(self, queue: MessageQueue) -> str:
        assert queue == QUEUE
        return ADDR

    def served_route(self, topic: str) -> TopicRoute:
        assert topic == "orders"
        found = {"broker-a": {0: ADDR, 1: SLAVE}, "broker-b": {}, "broker-c": {0: "named.example:1", 1: IPV6}}
        brokers = tuple(BrokerData(name, "c", addresses) for name, addresses in found.items())
        return TopicRoute(topic, brokers, ())

    def deadline(self, timeout_ms: float) -> Deadline:
        return Deadline(self.clock, timeout_ms)

    def connection(self, addr: str) -> Client:
        if self.away > 0:
            self.away -= 1
            raise ConnectError("away")
        self._addr = addr
        return self

    def call(self, request: ConsumerSendMsgBackRequest, *, deadline: Deadline) -> Response:
        (number,) = self.submit_all([(request, b"")], deadline=deadline)
        ((_, answer),) = self.wait_some([number], deadline)
        return answer

    def submit_all(
        self, requests: Sequence[tuple[ConsumerSendMsgBackRequest, bytes]], *, deadline: Deadline
    ) -> list[int]:
        assert deadline.remaining_s == 1.0
        first = len(self.dead)
        self.dead += [request for request, _ in requests]
        self.sent += [(self._addr, request.offset) for request, _ in requests]
        return list(range(first, len(self.dead)))

    def wait_some(self, numbers: Sequence[int], deadline: Deadline) -> list[tuple[int, Response]]:
        assert deadline.remaining_s == 1.0
        codes = {number: self.codes.get(self.dead[number].offset, 0) for number in numbers}
        return [
            (number, Response(Command(code, number, flag=1), self._addr, bytearray(), 0, 0))
            for number, code in codes.items()
        ]

    def abandon(self, *numbers: int) -> None:
        assert not numbers


Deliver = Callable[..., tuple[Worker, Client]]


@pytest.fixture
def deliver() -> Iterator[Deliver]:
    """``deliver(listener, messages, **options)``: its threads end with the test."""
    with ExitStack() as closes:

        def deliver(
            listener: Callable[..., object], some: list[Message], **options: object
        ) -> tuple[Worker, Client]:
            worker, client = Worker(), Client()
            delivery = Delivery(client, "billing", PushOptions(**options), listener)
            closes.callback(delivery.close, [worker], 30.0)
            delivery(worker, some)
            return worker, client

        yield deliver


def test_in_order_a_message_is_tried_until_it_is_taken(deliver: Deliver):
    seen: list[tuple[bytes, int]] = []

    def listener(some: Sequence[Message]) -> ConsumeResult | None:
        seen.append((some[0].body, some[0].reconsume_times))
        return LATER if len(seen) < 4 else None

    worker, client = deliver(listener, messages(b"a", b"b"), ordered=True, order_pause_ms=30)
    assert seen == [(b"a", 0), (b"a", 1), (b"a", 2), (b"a", 3), (b"b", 0)]
    assert (worker.finished, worker.pauses, client.dead) == ([b"a", b"b"], [0.03] * 3, [])


@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("before", [0, 1])
def test_in_order_it_is_a_dead_letter_after_as_many_tries(deliver: Deliver, most: int, before: int):
    tries: list[int] = []

    def listener(some: Sequence[Message]) -> ConsumeResult:
        tries.append(some[0].reconsume_times)
        return LATER

    some = messages(b"a", reconsume_times=before)
    worker, client = deliver(listener, some, ordered=True, max_reconsume_times=most)
    assert tries == list(range(before, max(most, before) + 1))
    assert [(request.group, request.delay_level) for request in client.dead] == [("billing", -1)]
    assert client.sent == [(ADDR, 1_000)]
    assert worker.finished == [b"a"]


def test_in_order_a_batch_is_given_up_message_by_message():
    calls: list[list[bytes]] = []
    client = Client()

    def listener(some: Sequence[Message]) -> ConsumeResult:
        calls.append([message.body for message in some])
        client.away = 1 if len(calls) == 1 else 0  # the first dead letter of the first try is not taken
        return LATER

    worker = Worker()
    options = PushOptions(ordered=True, max_reconsume_times=0, batch_size=3)
    Delivery(client, "billing", options, listener)(worker, messages(b"a", b"b", b"c"))
    assert calls == [[b"a", b"b", b"c"], [b"a"]]
    assert worker.finished == [b"b", b"c", b"a"]
    assert len(client.dead) == 3


def test_in_order_a_dead_letter_that_the_broker_refuses_is_tried_again(caplog: pytest.LogCaptureFixture):
    client, worker = Client(), Worker()
    client.codes = {1_000: ResponseCode.SYSTEM_BUSY}
    tries: list[int] = []

    def listener(some: Sequence[Message]) -> ConsumeResult:
        tries.append(some[0].reconsume_times)
        if len(tries) == 3:
            client.codes.clear()
        return LATER

    options = PushOptions(ordered=True, max_reconsume_times=1)
    Delivery(client, "billing", options, listener)(worker, messages(b"a"))
    assert (tries, worker.finished) == ([0, 1, 2], [b"a"])
    (warning,) = caplog.messages
    assert warning.startswith(f"a dead letter of {QUEUE} could not be stored yet: ")
    assert f"queue={QUEUE}" in warning


def test_in_order_nothing_more_is_called_when_the_queue_is_taken_away():
    worker = Worker()

    def listener(_: Sequence[Message]) -> ConsumeResult:
        worker.stopped = True
        return LATER

    Delivery(Client(), "billing", PushOptions(ordered=True), listener)(worker, messages(b"a", b"b"))
    assert worker.finished == []


@pytest.mark.parametrize("failure", [None, ValueError, SystemExit])
@pytest.mark.parametrize("broadcasting", [False, True])
def test_side_by_side_a_message_is_deferred_at_once(
    deliver: Deliver,
    failure: type[BaseException] | None,
    broadcasting: bool,
    caplog: pytest.LogCaptureFixture,
):
    def listener(some: Sequence[Message]) -> ConsumeResult | None:
        if some[0].body == b"a" and failure:
            raise failure("the listener")
        return LATER if some[0].body == b"a" else None

    worker, _ = deliver(listener, messages(b"a", b"b"), threads=1, broadcasting=broadcasting)
    eventually(lambda: sorted(worker.finished + worker.put_back) == [b"a", b"b"], what="both messages")
    assert worker.put_back == ([] if broadcasting else [b"a"])
    assert ("are lost" in caplog.text) is broadcasting
    assert ("the listener of group billing failed" in caplog.text) is (failure is not None)


def test_a_message_that_came_again_shows_the_topic_it_was_sent_to():
    (again,) = messages(b"a", properties={"RETRY_TOPIC": "payments"})
    (first,) = messages(b"a")
    assert with_original_topic(again).topic == "payments"
    assert with_original_topic(first).topic == "orders"


def test_side_by_side_no_more_threads_call_than_it_says(deliver: Deliver):
    names: list[str] = []
    released = threading.Event()

    def listener(_: Sequence[Message]) -> None:
        names.append(threading.current_thread().name)
        released.wait(30)

    worker, _ = deliver(listener, messages(b"a", b"b", b"c", b"d"), threads=2)
    eventually(lambda: len(names) >= 2, what="the first calls")
    threads = [each.name for each in threading.enumerate() if each.name.startswith("consume-billing_")]
    released.set()
    eventually(lambda: len(worker.finished) == 4, what="all calls")
    assert sorted(threads) == ["consume-billing_1", "consume-billing_2"]


@pytest.mark.parametrize(("most", "told"), [(-1, 16), (0, 0), (1, 1), (30, 30)])
def test_a_broker_gets_a_message_back_by_its_place_in_the_commit_log(most: int, told: int):
    _, second = messages(b"a", b"b", properties={"RETRY_TOPIC": "payments"})
    options = PushOptions(retry_delay_level=3, max_reconsume_times=most)
    assert send_back_request("billing", options, second) == ConsumerSendMsgBackRequest(
        offset=1_100,
        group="billing",
        delay_level=3,
        origin_msg_id=second.msg_id,
        origin_topic="payments",
        max_reconsume_times=told,
        broker_name="broker-a",
    )


def test_messages_that_are_sent_back_have_an_outcome_each():
    client, worker = Client(), Worker()
    client.codes = {1_100: ResponseCode.SYSTEM_BUSY, 1_200: ResponseCode.SYSTEM_ERROR}
    client.away = 1
    away, *others = messages(b"away", b"busy", b"refused", b"accepted")
    waiting = [(worker, message) for message in (away, *others)]
    send_messages_back(client, "billing", PushOptions(retry_delay_level=3), waiting)
    assert client.sent == [(ADDR, 1_100), (ADDR, 1_200), (ADDR, 1_300)]
    assert {(request.group, request.delay_level) for request in client.dead} == {("billing", 3)}
    assert worker.failed == {b"away": False, b"busy": False, b"refused": True}
    assert worker.accepted == [b"accepted"]


def test_a_static_topic_s_message_goes_to_the_broker_that_stores_it():
    """Not to the one that has the queue now; and to none that is not registered."""
    client, worker = Client(), Worker()
    worker.queue = MOVING
    stored = [messages(b"%d" % n, store_host=addr)[0] for n, addr in enumerate([ADDR, SLAVE, ELSEWHERE])]
    send_messages_back(client, "billing", PushOptions(), [(worker, message) for message in stored])
    assert [request.origin_msg_id for request in client.dead] == [stored[0].msg_id, stored[1].msg_id]
    assert (worker.accepted, worker.failed) == ([b"0", b"1"], {b"2": False})


def test_a_static_topic_s_message_goes_to_a_broker_with_an_ipv6_address():
    client, worker = Client(), Worker()
    worker.queue = MOVING
    (stored,) = messages(b"a", store_host="[fd00::1]:10911")
    send_messages_back(client, "billing", PushOptions(), [(worker, stored)])
    assert (client.sent, worker.accepted) == ([(IPV6, 1_000)], [b"a"])


@pytest.mark.parametrize("seconds", [0.0, 0.05, 60.0])
def test_in_order_closing_waits_for_calls_at_most_as_long_as_it_is_told(seconds: float):
    client, worker, idle = Client(), Worker(), Worker()
    worker.idle = False
    ends_s = client.clock.monotonic() + 0.03

    def end_call() -> None:
        worker.idle = client.clock.monotonic() >= ends_s

    client.clock.on_sleep = end_call
    Delivery(client, "billing", PushOptions(ordered=True), lambda _: None).close([idle, worker], seconds)
    assert client.clock.sleeps == ([0.02, 0.02] if seconds else [])
    worker.idle, client.clock.on_sleep = False, lambda: None
    client.clock.sleeps.clear()
    Delivery(client, "billing", PushOptions(ordered=True), lambda _: None).close([idle, worker], seconds)
    assert sum(client.clock.sleeps) == pytest.approx(seconds)


def test_a_dead_letter_of_a_static_topic_is_stored_where_its_message_is():
    client, worker = Client(), Worker()
    worker.queue = MOVING
    options = PushOptions(ordered=True, max_reconsume_times=0)
    delivery = Delivery(client, "billing", options, lambda _: LATER)
    delivery(worker, messages(b"a", store_host=SLAVE))
    assert (client.sent, worker.finished) == ([(SLAVE, 1_000)], [b"a"])


def test_side_by_side_closing_waits_for_calls_at_most_as_long_as_it_is_told():
    begun, may_end = threading.Event(), threading.Event()

    def listener(_: object) -> None:
        begun.set()
        may_end.wait(60)

    worker = Worker()
    delivery = Delivery(Client(), "billing", PushOptions(threads=1), listener)
    delivery(worker, messages(b"a"))
    begun.wait(60)
    delivery.close([worker], 0.01)
    assert worker.finished == []
    may_end.set()
    delivery.close([worker], 60)
    assert worker.finished == [b"a"]


def test_every_call_is_written_to_the_trace_topic_with_its_end(monkeypatch: pytest.MonkeyPatch):
    """Success, later (1) or an exception (2), how often it was tried, and how long it took."""
    client, worker = Client(), Worker()
    producers: list[tuple[object, str]] = []
    sent: list[OutgoingMessage] = []

    class Producer:
        def __init__(self, *given: object) -> None:
            producers.append(given)  # type: ignore[arg-type]

        def send_one_way(self, message: OutgoingMessage) -> None:
            sent.append(message)

    def listener(_: Sequence[Message]) -> ConsumeResult | None:
        client.clock.now_s += 0.25
        if not sent:
            raise ValueError("the listener")
        return LATER if len(sent) == 1 else None

    monkeypatch.setattr(push_delivery, "Producer", Producer)
    options = PushOptions(ordered=True, trace_topic="traces")
    (message,) = messages(b"a", properties={"KEYS": "k1"})
    Delivery(client, "billing", options, listener)(worker, [message])
    assert producers == [(client, "_INNER_TRACE_PRODUCER")]
    assert {(each.topic, each.keys) for each in sent} == {("traces", f"{message.msg_id} k1")}
    calls = [[row.split("\x01") for row in each.body.decode().split("\x02")[:-1]] for each in sent]
    assert [(before[3], after[-1]) for before, after in calls] == [("billing", "billing")] * 3
    assert [before[6] for before, _ in calls] == ["0", "1", "2"]
    assert [tuple(after[2:7]) for _, after in calls] == [
        (message.msg_id, "250", "false", "k1", "2"),
        (message.msg_id, "250", "false", "k1", "1"),
        (message.msg_id, "250", "true", "k1", "0"),
    ]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_call_that_cannot_be_traced_leaves_no_message_in_flight(
    ordered: bool, begun: bool, caplog: pytest.LogCaptureFixture
):
    """A processor of spans may be the user's: one that always fails must not make dead letters of them."""

    class Tracing:
        @contextmanager
        def watch(self, _: Sequence[Message]) -> Iterator[WatchedCall]:
            if begun:
                yield WatchedCall()
            raise ValueError("the span")

    worker, calls = Worker(), list[bytes]()
    delivery = Delivery(
        Client(), "billing", PushOptions(ordered=ordered), lambda some: calls.append(some[0].body)
    )
    delivery._tracing = Tracing()
    delivery(worker, messages(b"a"))
    eventually(lambda: worker.finished or worker.put_back, what="an end")
    assert (worker.finished, worker.put_back) == ([b"a"], [])
    assert calls == [b"a"]
    delivery.close([worker], 60)
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize("result", ["LATER", "CONSUME_SUCCESS", True])
def test_a_result_of_another_type_defers_the_messages(
    deliver: Deliver, result: object, caplog: pytest.LogCaptureFixture
):
    worker, _ = deliver(lambda _: result, messages(b"a"), threads=1)
    eventually(lambda: worker.put_back == [b"a"], what="the message")
    assert worker.finished == [], "it is not, until the broker has it"
    assert "the listener's result must be ConsumeResult." in caplog.text
