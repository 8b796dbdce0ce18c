"""What becomes of messages that a listener takes, and of those that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from tests.support.wait import eventually

from pyspark_rocketmq.client.groups.push_delivery import Delivery, send_back_request, with_original_topic
from pyspark_rocketmq.client.groups.push_options import ConsumeResult, PushOptions
from pyspark_rocketmq.client.net.host import SYSTEM_HOST
from pyspark_rocketmq.errors import ConnectError
from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.remoting.header import ConsumerSendMsgBackRequest

QUEUE = MessageQueue("orders", "broker-a", 0)
LATER = ConsumeResult.LATER


def messages(*bodies: bytes, **parts: object) -> list[Message]:
    records = [encode_message(b, topic="orders", queue_offset=n, **parts) for n, b in enumerate(bodies)]
    return decode_messages(b"".join(records), broker_name="broker-a")


class Worker:
    """A queue's worker that notes what happens to messages."""

    def __init__(self) -> None:
        self.queue, self.stopped, self.idle = QUEUE, False, True
        self.finished: list[bytes] = []
        self.put_back: list[bytes] = []
        self.pauses: list[float] = []

    def finish(self, some: Sequence[Message]) -> None:
        self.finished += [message.body for message in some]

    def defer(self, some: Sequence[Message]) -> None:
        self.put_back += [message.body for message in some]

    def call_in_order(self, call: Callable[[], None]) -> None:
        call()

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


class Client:
    """A broker that takes dead letters, when it is there."""

    request_timeout_ms = 1_000
    host = SYSTEM_HOST

    def __init__(self) -> None:
        self.dead: list[ConsumerSendMsgBackRequest] = []
        self.away = 0

    def queue_address(self, *_: object, **__: object) -> str:
        return "10.0.0.1:10911"

    def deadline(self, _: float) -> None:
        return None

    def connection(self, _: str) -> Client:
        if self.away > 0:
            self.away -= 1
            raise ConnectError("away")
        return self

    def call(self, request: ConsumerSendMsgBackRequest, *, deadline: None) -> SimpleNamespace:
        self.dead.append(request)
        return SimpleNamespace(require=lambda **_: deadline)


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
    assert [request.delay_level for request in client.dead] == [-1]
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


def test_in_order_nothing_more_is_called_when_the_queue_is_taken_away():
    worker = Worker()

    def listener(_: Sequence[Message]) -> ConsumeResult:
        worker.stopped = True
        return LATER

    Delivery(Client(), "billing", PushOptions(ordered=True), listener)(worker, messages(b"a", b"b"))
    assert worker.finished == []


@pytest.mark.parametrize("failure", [False, True])
@pytest.mark.parametrize("broadcasting", [False, True])
def test_side_by_side_a_message_is_deferred_at_once(
    deliver: Deliver, failure: bool, broadcasting: bool, caplog: pytest.LogCaptureFixture
):
    def listener(some: Sequence[Message]) -> ConsumeResult | None:
        if some[0].body == b"a" and failure:
            raise ValueError("the listener")
        return LATER if some[0].body == b"a" else None

    worker, _ = deliver(listener, messages(b"a", b"b"), threads=1, broadcasting=broadcasting)
    eventually(lambda: sorted(worker.finished) == [b"a", b"b"], what="both messages")
    assert worker.put_back == ([] if broadcasting else [b"a"])
    assert ("are lost" in caplog.text) is broadcasting
    assert ("the listener of group billing failed" in caplog.text) is failure


def test_a_message_that_came_again_shows_the_topic_it_was_sent_to():
    (again,) = messages(b"a", properties={"RETRY_TOPIC": "payments"})
    assert with_original_topic(again).topic == "payments"
    request = send_back_request("billing", PushOptions(retry_delay_level=3), again)
    assert (request.origin_topic, request.delay_level, request.max_reconsume_times) == ("payments", 3, 16)
    assert request.broker_name == "broker-a"


@pytest.mark.parametrize("result", ["LATER", "CONSUME_SUCCESS", True])
def test_a_result_of_another_type_defers_the_messages(
    deliver: Deliver, result: object, caplog: pytest.LogCaptureFixture
):
    worker, _ = deliver(lambda _: result, messages(b"a"), threads=1)
    eventually(lambda: worker.finished == [b"a"], what="the message")
    assert worker.put_back == [b"a"]
    assert "the listener's result must be ConsumeResult." in caplog.text
