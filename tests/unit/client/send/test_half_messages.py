"""How half messages are ended: what is asked again, what is not, and what is told; brokers are scripts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from tests.support.clocks import FakeClock
from tests.support.fakes import Highest

from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.send import half_messages
from pyspark_rocketmq.client.send.half_messages import (
    HALF_SCHEMA,
    Ended,
    Ending,
    HalfMessages,
    end_half_messages,
    target_queues,
)
from pyspark_rocketmq.errors import (
    ConnectError,
    NameServerError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
)
from pyspark_rocketmq.model import BrokerData, MessageQueue, SendResult, SendStatus, TopicRoute
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.command import Command
from pyspark_rocketmq.remoting.header import EndTransactionRequest
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE
from pyspark_rocketmq.remoting.template import RequestTemplate

A, B = "broker-a", "broker-b"
ADDRESSES = {A: "10.0.0.1:10911", B: "10.0.0.2:10911"}
DONE = (ResponseCode.SUCCESS, "")
BUSY = (ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]")
NO_MASTER = (ResponseCode.SLAVE_NOT_AVAILABLE, "")
DOUBTFUL = (ResponseCode.SYSTEM_ERROR, "end transaction failed")
DENIED = (ResponseCode.NO_PERMISSION, "read only")
GONE = (ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")

Answer = tuple[int, str] | RocketMQError


def halves(*rows: tuple[str, int]) -> pa.Table:
    """Return half messages of these brokers and queues, numbered in their order."""
    found = HalfMessages()
    for number, (broker, queue_id) in enumerate(rows):
        found.add(
            SendResult(
                status=SendStatus.SEND_OK,
                queue=MessageQueue("orders", broker, queue_id),
                msg_id=f"id{number}",
                offset_msg_id=f"{'0' * 16}{5_000 + number:016X}",
                queue_offset=100 + number,
            )
        )
    return found.table()


class Brokers:
    """A client of brokers that answer the request of each half message from a list, and ``DONE`` after it."""

    request_timeout_ms = 3_000
    namespace = NO_NAMESPACE

    def __init__(self, script: Mapping[int, Sequence[Answer]] | None = None) -> None:
        self.clock, self.random = FakeClock(), Highest()
        self.script = {number: list(answers) for number, answers in (script or {}).items()}
        self.masters: dict[str, str] = dict(ADDRESSES)
        self.asked: list[tuple[str, int]] = []
        self.requests: list[EndTransactionRequest] = []
        self.stale: list[str] = []
        self.route: Callable[[], TopicRoute | None] = lambda: TopicRoute("orders", self.brokers(), ())
        self.connects: Callable[[str], None] = lambda _: None
        self.abandoned: list[int] = []
        self.most = 0

    def brokers(self) -> tuple[BrokerData, ...]:
        return tuple(
            BrokerData(name, "c", {0: self.masters[name]} if name in self.masters else {1: "10.0.0.9:10911"})
            for name in ADDRESSES
        )

    def deadline(self, timeout_ms: float) -> Deadline:
        return Deadline(self.clock, timeout_ms)

    def find_route(self, topic: str) -> TopicRoute | None:
        assert topic == "orders"
        return self.route()

    def find_broker(self, name: str) -> BrokerData | None:
        return next((data for data in self.brokers() if data.broker_name == name), None)

    def invalidate(self, topic: str) -> None:
        self.stale.append(topic)

    def connection(self, addr: str) -> Connection:
        self.connects(addr)
        return Connection(self, addr)


class Connection:
    def __init__(self, brokers: Brokers, addr: str) -> None:
        self.brokers, self.addr = brokers, addr
        self.waiting: dict[int, Answer] = {}

    def submit_many(
        self, template: RequestTemplate, values: Sequence[tuple[int, int, str]], *, deadline: Deadline
    ) -> list[int]:
        assert deadline.timeout_ms == 3_000
        name = next(name for name, addr in ADDRESSES.items() if addr == self.addr)
        numbers = []
        for given in values:
            request = template.request(given)
            assert isinstance(request, EndTransactionRequest)
            number = request.tran_state_table_offset - 100
            assert (request.commit_log_offset, request.msg_id) == (5_000 + number, f"id{number}")
            assert (request.topic, request.producer_group, request.broker_name) == ("orders", "g", name)
            self.brokers.requests.append(request)
            self.brokers.asked.append((name, number))
            answers = self.brokers.script.get(number)
            self.waiting[number] = answers.pop(0) if answers else DONE
            numbers.append(number)
        self.brokers.most = max(self.brokers.most, len(numbers))
        return numbers

    def wait_some(self, numbers: Collection[int], deadline: Deadline) -> list[tuple[int, Response]]:
        assert deadline.timeout_ms == 3_000
        number = min(numbers)
        answer = self.waiting.pop(number)
        if isinstance(answer, RocketMQError):
            raise answer
        command = Command(answer[0], number, flag=1, remark=answer[1])
        return [(number, Response(command, self.addr, bytearray(), 0, 0))]

    def abandon(self, *numbers: int) -> None:
        self.brokers.abandoned += numbers


def end(brokers: Brokers, some: pa.Table, ending: Ending = Ending.COMMIT, **options: object) -> Ended:
    return end_half_messages(brokers, "g", some, ending, **{"outage_timeout_ms": 10_000, **options})


def numbers(table: pa.Table) -> list[int]:
    return [offset - 100 for offset in table["halfOffset"].to_pylist()]


def outcome(ended: Ended) -> tuple[list[int], list[int]]:
    return numbers(ended.unknown), numbers(ended.gone)


SIX = halves(*[(A, 0), (B, 0), (A, 1)] * 2)


@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize("in_order", [False, True])
def test_each_half_message_is_ended_once_at_its_broker(ending: Ending, in_order: bool) -> None:
    brokers = Brokers()
    ended = end(brokers, SIX, ending, in_order=in_order)
    assert (outcome(ended), ended.cause) == (([], []), None)
    assert sorted(brokers.asked) == [(A, 0), (A, 2), (A, 3), (A, 5), (B, 1), (B, 4)]
    assert {request.commit_or_rollback for request in brokers.requests} == {int(ending)}
    assert (brokers.clock.sleeps, brokers.stale) == ([], [])


@pytest.mark.parametrize("first", [BUSY, NO_MASTER])
@pytest.mark.parametrize("ending", list(Ending))
def test_what_was_certainly_not_executed_is_asked_again(first: Answer, ending: Ending) -> None:
    brokers = Brokers({2: [first, first]})
    ended = end(brokers, SIX, ending)
    assert outcome(ended) == ([], [])
    assert brokers.asked.count((A, 2)) == 3
    assert len(brokers.asked) == 8
    assert brokers.clock.sleeps == [0.05, 0.1]
    assert brokers.stale == ["orders", "orders"]


@pytest.mark.parametrize("doubt", [DOUBTFUL, RequestTimeoutError("no answer")])
def test_a_commit_that_may_be_stored_is_not_asked_again_and_a_rollback_is(doubt: Answer) -> None:
    brokers = Brokers({0: [doubt]})
    ended = end(brokers, halves((A, 0), (B, 0)))
    assert outcome(ended) == ([0], [])
    assert isinstance(ended.cause, type(doubt) if isinstance(doubt, RocketMQError) else RocketMQError)
    assert brokers.asked.count((A, 0)) == 1
    brokers = Brokers({0: [doubt]})
    assert outcome(end(brokers, halves((A, 0), (B, 0)), Ending.ROLLBACK)) == ([], [])
    assert brokers.asked.count((A, 0)) == 2


def test_commits_in_doubt_of_several_rounds_are_told_together() -> None:
    brokers = Brokers({0: [BUSY, DOUBTFUL], 1: [DOUBTFUL], 2: [BUSY, BUSY], 4: [BUSY, BUSY, DOUBTFUL]})
    assert outcome(end(brokers, SIX)) == ([0, 1, 4], [])
    assert [brokers.asked.count(each) for each in [(A, 0), (B, 1), (A, 2), (B, 4)]] == [2, 1, 3, 3]


def test_answers_that_do_not_come_put_all_of_their_connection_in_doubt() -> None:
    brokers = Brokers({2: [RequestTimeoutError("no answer")]})
    assert outcome(end(brokers, SIX)) == ([2, 3, 5], [])
    assert brokers.abandoned == [2, 3, 5]


@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize("remark", half_messages._GONE)
def test_what_a_broker_does_not_have_is_told_and_spoils_no_other(ending: Ending, remark: str) -> None:
    brokers = Brokers({3: [(ResponseCode.SYSTEM_ERROR, f"java: {remark.upper()}, it")], 4: [BUSY]})
    assert outcome(end(brokers, SIX, ending)) == ([], [3])
    assert brokers.asked.count((A, 3)) == 1
    assert brokers.asked.count((B, 4)) == 2


def test_a_remark_is_of_what_is_gone_only_with_its_code() -> None:
    brokers = Brokers({0: [(ResponseCode.SYSTEM_BUSY, GONE[1])]})
    assert outcome(end(brokers, SIX)) == ([], [])
    assert brokers.asked.count((A, 0)) == 2


def test_in_order_nothing_overtakes_what_is_asked_again() -> None:
    brokers = Brokers({0: [BUSY], 1: [BUSY, BUSY]})
    assert outcome(end(brokers, SIX, in_order=True)) == ([], [])
    assert [number for _, number in brokers.asked[:3]] == [0, 2, 1]
    for first, second in ((0, 3), (2, 5), (1, 4)):
        asked = [number for _, number in brokers.asked]
        assert max(at for at, number in enumerate(asked) if number == first) < asked.index(second)


def test_in_order_all_that_follows_a_commit_in_doubt_is_in_doubt_too() -> None:
    brokers = Brokers({0: [DOUBTFUL]})
    ended = end(brokers, SIX, in_order=True)
    assert outcome(ended) == ([0, 3, 4, 5], [])
    assert isinstance(ended.cause, RocketMQError)
    assert {number for _, number in brokers.asked} == {0, 1, 2}


def test_a_refusal_is_an_error_that_counts_what_is_left_and_not_what_is_done() -> None:
    with pytest.raises(SendError, match="2 half messages could not be ended") as raised:
        end(Brokers({0: [BUSY], 1: [DENIED]}), SIX)
    assert raised.value.facts["failed"] == 2
    assert raised.value.facts["addr"] == ADDRESSES[B]
    assert raised.value.__cause__ is not None


def test_of_two_errors_the_permanent_one_counts_whichever_came_first() -> None:
    for first, second in ((BUSY, DENIED), (DENIED, BUSY)):
        brokers = Brokers({0: [first], 2: [second]})
        with pytest.raises(SendError, match="read only"):
            end(brokers, SIX)
        assert brokers.clock.sleeps == []


def test_an_outage_is_waited_for_as_long_as_it_may_take() -> None:
    brokers = Brokers()
    brokers.masters.pop(B)
    began_s = brokers.clock.now_s
    with pytest.raises(SendError, match="2 half messages could not be ended") as raised:
        end(brokers, SIX)
    assert 7 < brokers.clock.now_s - began_s <= 10
    assert raised.value.facts["broker_name"] == B
    assert len(brokers.asked) == 4
    brokers.clock.on_sleep = lambda: brokers.masters.update(ADDRESSES)
    assert outcome(end(brokers, SIX)) == ([], [])


def test_the_time_of_an_outage_begins_again_with_each_success() -> None:
    """Seven requests that fail for 6.15 s each: together longer than the outage may take, each shorter."""
    rows = halves(*[(A, 0)] * 7)
    brokers = Brokers({number: [BUSY] * 7 * (number + 1) for number in range(7)})
    assert outcome(end(brokers, rows)) == ([], [])
    assert sum(brokers.clock.sleeps) > 30
    assert brokers.clock.sleeps[7] == 0.05, "pauses begin again, too"


def test_a_broker_is_found_without_a_route_and_an_outage_of_name_servers_is_one_of_brokers() -> None:
    brokers = Brokers()
    brokers.route = lambda: None
    assert outcome(end(brokers, SIX)) == ([], [])
    brokers = Brokers()
    down = iter([NameServerError("no name server answers")] * 2)

    def route() -> TopicRoute | None:
        for error in down:
            raise error
        return None

    brokers.route = route
    assert outcome(end(brokers, SIX)) == ([], [])
    assert brokers.clock.sleeps == [0.05]
    brokers.masters.clear()
    with pytest.raises(SendError, match="the broker of half messages is down"):
        end(brokers, SIX)


def test_a_connection_that_is_not_made_is_no_doubt() -> None:
    brokers, failures = Brokers(), [ConnectError("away", addr=ADDRESSES[A])]

    def connect(addr: str) -> None:
        if addr == ADDRESSES[A] and failures:
            raise failures.pop()

    brokers.connects = connect
    assert outcome(end(brokers, SIX)) == ([], [])
    assert len(brokers.asked) == 6


def test_a_claim_is_checked_before_requests_are_sent_at_most_256_to_a_broker() -> None:
    checks: list[int] = []
    brokers = Brokers()
    rows = halves(*[(A, number % 4) for number in range(600)], (B, 0))
    end(brokers, rows, before_send=lambda: checks.append(len(brokers.asked)))
    assert checks == [0, 256, 257, 513]
    assert brokers.most == 256

    def lost() -> None:
        raise ValueError("the claim is lost")

    brokers = Brokers()
    with pytest.raises(ValueError, match="the claim is lost"):
        end(brokers, rows, before_send=lost)
    assert brokers.asked == []


@pytest.mark.parametrize("in_order", [False, True])
def test_rounds_hold_each_row_once_and_a_queue_s_in_order(in_order: bool) -> None:
    table = halves(*[((A, B)[number % 2], number % 3) for number in range(40)])
    rows = np.arange(3, 40)
    rounds = [each.tolist() for each in half_messages._rounds(table, rows, in_order=in_order)]
    assert sorted(row for each in rounds for row in each) == rows.tolist()
    assert len(rounds) == (7 if in_order else 1)
    for number in range(6):
        assert [row for each in rounds for row in each if row % 6 == number] == list(
            range(3 + (number - 3) % 6, 40, 6)
        )
        if in_order:
            assert max(sum(row % 6 == number for row in each) for each in rounds) == 1


def test_half_messages_of_several_tasks_are_one_table() -> None:
    first, second = HalfMessages(), HalfMessages()
    result = SendResult(
        status=SendStatus.SEND_OK,
        queue=MessageQueue("orders", B, 3),
        msg_id="id",
        offset_msg_id=f"{'F' * 16}{2**40:016X}",
        queue_offset=7,
    )
    second.add(result)
    second.add(result)
    assert (len(first), len(second)) == (0, 2)
    table = HalfMessages.unpack([first.pack(), b"", second.pack(), second.pack()])
    row = ("orders", B, 3, 7, 2**40, "id")
    assert [tuple(each.values()) for each in table.to_pylist()] == [row] * 4
    assert table.schema == HALF_SCHEMA
    assert HalfMessages.unpack([b""]).equals(HALF_SCHEMA.empty_table())
    assert target_queues(SIX) == tuple(MessageQueue("orders", *at) for at in [(A, 0), (A, 1), (B, 0)])


def test_half_messages_take_little_room_on_their_way_to_the_driver() -> None:
    halves = HalfMessages()
    for number in range(2_000):
        halves.add(
            SendResult(
                status=SendStatus.SEND_OK,
                queue=MessageQueue("orders", B, 3),
                msg_id=f"7F00000100002A9F0000{number:012X}",
                offset_msg_id=f"{'F' * 16}{2**40 + 300 * number:016X}",
                queue_offset=number,
            )
        )
    assert len(halves.pack()) < halves.table().nbytes / 2
