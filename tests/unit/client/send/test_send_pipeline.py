"""When sends of a pipeline go out, in which order, and what becomes of each: with a scripted producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.support.lockstep import LockstepClient, at_most

from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.send.message_encoding import Outgoing
from pyspark_rocketmq.client.send.producer import Producer, ProducerOptions
from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
from pyspark_rocketmq.errors import (
    ConnectError,
    ConnectionLostError,
    FlowControlError,
    LocalProtocolError,
    MessageIllegalError,
    OptionError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
    SendRefusedError,
)
from pyspark_rocketmq.model import MessageQueue, SendResult, SendStatus

ONE, TWO = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)

Script = Callable[[str, int], "RocketMQError | None"]
"""From a body, and how often it was sent before, to the error of this attempt."""


def busy() -> FlowControlError:
    return FlowControlError("too many requests", code=2)


def illegal() -> MessageIllegalError:
    return MessageIllegalError("the message is too large", code=13)


class ScriptedProducer(Producer):
    """Its brokers answer as a script says, when they are waited for."""

    def __init__(self, script: Script = lambda *_: None, *, retries: int = 2) -> None:
        self.lockstep = LockstepClient(at_most(1))
        super().__init__(self.lockstep, options=ProducerOptions(retries=retries))
        self.script = script
        self.sent: list[tuple[str, float]] = []
        self.refuses_connections = 0
        self.failed: list[MessageQueue] = []
        self.asked: list[tuple[MessageQueue | None, str | None]] = []
        self.invalidated = 0
        self.in_flight: dict[int, str] = {}
        self.groups: list[str] = []
        self.broken: list[str] = []
        self.early: set[int] = set()
        self.addr = "broker:10911"
        self.lockstep.queue_address = lambda _: self.addr  # type: ignore[method-assign]
        self.most_in_flight = 0
        self._began_s = self.lockstep.manual_clock.now_s
        self.lockstep.invalidate = self._invalidate  # type: ignore[method-assign]

    def _invalidate(self, topic: str) -> None:
        assert topic == "orders"
        self.invalidated += 1

    @property
    def bodies(self) -> list[str]:
        return [body for body, _ in self.sent]

    def choose(self, topic: str, queue: MessageQueue | None = None, key: str | None = None) -> MessageQueue:
        assert topic == "orders"
        self.asked.append((queue, key))
        return queue or (ONE if key is None else TWO)

    def connect(self, queue: MessageQueue) -> ScriptedProducer:  # type: ignore[override]
        del queue
        if self.refuses_connections:
            self.refuses_connections -= 1
            raise ConnectError("cannot connect")
        return self

    def call_for(self, outgoing: Outgoing, queue: MessageQueue) -> Call[SendResult]:
        def parse(error: RocketMQError | None) -> SendResult:
            if error is not None:
                raise error
            return SendResult(
                status=SendStatus.SEND_OK, queue=queue, queue_offset=7, msg_id="id", offset_msg_id="place"
            )

        return Call(bytes(outgoing.body).decode(), parse)  # type: ignore[arg-type]

    def note_failure(self, queue: MessageQueue, error: RocketMQError) -> None:
        del error
        self.failed.append(queue)

    # --- its connection ---

    def submit_all(self, requests: list[tuple[str, bytes]], *, deadline: object) -> list[int]:
        del deadline
        together = "".join(request for request, _ in requests)
        if "!" in together:
            raise LocalProtocolError("the header has text without a UTF-8 form")
        if together in self.broken:
            self.broken.remove(together)
            raise ConnectionLostError("the connection broke")
        if len(requests) > 1:
            self.groups.append(together)
        return [self._take(request) for request, _ in requests]

    def _take(self, request: str) -> int:
        self.sent.append((request, round(self.lockstep.manual_clock.now_s - self._began_s, 3)))
        self.in_flight[len(self.sent)] = request
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        return len(self.sent)

    def wait(self, opaque: int, deadline: object) -> RocketMQError | None:
        del deadline
        body = self.in_flight[opaque]
        error = self.script(body, self.bodies[: opaque - 1].count(body))
        if isinstance(error, RequestTimeoutError):
            raise error
        del self.in_flight[opaque]
        return error

    def has_answer(self, opaque: int) -> bool:
        return opaque in self.early

    def abandon(self, *opaques: int) -> None:
        for opaque in opaques:
            self.in_flight.pop(opaque, None)


def message(body: str) -> Outgoing:
    return Outgoing(topic="orders", body=body.encode())


def send(
    producer: ScriptedProducer, bodies: str, queue: MessageQueue | None = None, **options: object
) -> dict[str, SendOutcome]:
    """Submit messages of one letter each; return the outcomes of all."""
    outcomes = []
    with SendPipeline(producer, **options) as pipeline:
        for body in bodies:
            outcomes += pipeline.submit(message(body), queue, token=body)
        outcomes += pipeline.flush()
        assert pipeline.unfinished == 0
    assert not producer.in_flight
    found = {bytes(outcome.outgoing.body).decode(): outcome for outcome in outcomes}
    assert len(found) == len(outcomes)
    return found


# --- what is in flight ----------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_are_in_flight_than_allowed(most: int) -> None:
    producer = ScriptedProducer()
    found = send(producer, "abcdefgh", max_in_flight=most)
    assert {body: outcome.token for body, outcome in found.items()} == {body: body for body in "abcdefgh"}
    assert producer.bodies == list("abcdefgh")
    assert producer.most_in_flight == most


def test_a_pipeline_of_none_is_refused() -> None:
    with pytest.raises(OptionError, match="at least 1"):
        SendPipeline(ScriptedProducer(), max_in_flight=0)


def test_a_queue_that_is_given_comes_before_a_key() -> None:
    producer = ScriptedProducer()
    with SendPipeline(producer) as pipeline:
        pipeline.submit(message("a"), TWO, key="k")
        pipeline.submit(message("b"), key="k")
        pipeline.submit(message("c"))
        pipeline.flush()
    assert producer.asked == [(TWO, None), (None, "k"), (TWO, None), (None, None)]


def test_outcomes_come_with_the_next_call() -> None:
    producer = ScriptedProducer()
    with SendPipeline(producer, max_in_flight=2) as pipeline:
        assert pipeline.submit(message("a")) == pipeline.submit(message("b")) == pipeline.collect() == []
        assert pipeline.unfinished == 2
        (outcome,) = pipeline.submit(message("c"))
        assert (outcome.outgoing, outcome.error, outcome.sent) == (message("a"), None, True)
        assert outcome.result is not None
        assert outcome.result.queue_offset == 7
        assert pipeline.unfinished == 2
        assert len(pipeline.flush()) == 2
        assert pipeline.flush() == []


# --- retries --------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_a_send_is_tried_again_after_longer_and_longer_pauses(ordered: bool) -> None:
    producer = ScriptedProducer(lambda body, before: busy() if before < 2 else None)
    found = send(producer, "a", ONE, ordered=ordered)
    assert found["a"].error is None
    assert producer.sent == [("a", 0.0), ("a", 0.05), ("a", 0.15)]
    assert producer.failed == [ONE, ONE]


def test_others_are_sent_while_one_waits_for_its_next_try() -> None:
    producer = ScriptedProducer(lambda body, before: busy() if body == "a" and not before else None)
    found = send(producer, "abc", max_in_flight=2)
    assert not [outcome for outcome in found.values() if outcome.error]
    assert producer.sent == [("a", 0.0), ("b", 0.0), ("c", 0.0), ("a", 0.05)]


def test_tries_end() -> None:
    producer = ScriptedProducer(lambda *_: busy(), retries=2)
    error = send(producer, "a")["a"].error
    assert isinstance(error, SendError)
    assert isinstance(error.__cause__, FlowControlError)
    assert len(producer.sent) == 3


def test_an_error_that_is_not_worth_a_retry_is_final() -> None:
    producer = ScriptedProducer(lambda *_: illegal())
    assert isinstance(send(producer, "a")["a"].error, MessageIllegalError)
    assert len(producer.sent) == 1


def test_an_outage_is_waited_for_from_the_first_failure_on() -> None:
    producer = ScriptedProducer(lambda *_: busy(), retries=1)
    assert send(producer, "a", outage_timeout_ms=10_000)["a"].error is not None
    assert 8 <= producer.sent[-1][1] <= 10
    producer = ScriptedProducer(lambda body, _: busy() if producer.sent[-1][1] < 9 else None, retries=1)
    assert send(producer, "a", outage_timeout_ms=20_000)["a"].error is None


def test_a_refusal_that_is_no_outage_is_not_waited_for() -> None:
    producer = ScriptedProducer(lambda *_: SendRefusedError("not stored", code=1), retries=1)
    assert send(producer, "a", outage_timeout_ms=10_000)["a"].error is not None
    assert len(producer.sent) == 2


def test_a_connection_that_is_refused_is_a_failed_try() -> None:
    producer = ScriptedProducer()
    producer.refuses_connections = 2
    assert send(producer, "a")["a"].error is None
    assert producer.sent == [("a", 0.15)]
    assert producer.failed == [ONE, ONE]


def test_an_answer_that_does_not_come_is_not_waited_for_any_more() -> None:
    producer = ScriptedProducer(
        lambda body, before: None if before else RequestTimeoutError("no answer within 10 s")
    )
    assert send(producer, "a")["a"].error is None  # and the connection keeps no place for the late answer
    assert producer.bodies == ["a", "a"]


@pytest.mark.parametrize(("stale", "times"), [(True, 3), (False, 2)])
def test_the_route_is_looked_up_again(stale: bool, times: int) -> None:
    """At once if the error says that it is outdated, else from the second failure on."""

    def script(body: str, before: int) -> RocketMQError | None:
        error = SendRefusedError("not stored", code=1)
        error.stale_route = stale  # type: ignore[misc]
        return error if before < 3 else None

    producer = ScriptedProducer(script, retries=3)
    assert send(producer, "a")["a"].error is None
    assert producer.invalidated == times


# --- order ----------------------------------------------------------------------------------


def test_in_order_one_send_of_a_queue_is_in_flight() -> None:
    producer = ScriptedProducer(lambda body, before: busy() if body == "b" and before < 2 else None)
    found = send(producer, "abcd", ONE, ordered=True)
    assert not [outcome for outcome in found.values() if outcome.error]
    assert producer.bodies == list("abbbcd")
    assert producer.most_in_flight == 1


def test_in_order_queues_do_not_wait_for_each_other() -> None:
    producer = ScriptedProducer(lambda body, before: busy() if body == "a" and before < 2 else None)
    with SendPipeline(producer, ordered=True) as pipeline:
        for body, queue in (("a", ONE), ("b", ONE), ("c", TWO), ("d", TWO)):
            pipeline.submit(message(body), queue)
        assert len(pipeline.flush()) == 4
    assert producer.bodies == list("acdaab")


def test_in_order_what_waits_for_a_failure_is_not_sent_until_it_is_returned() -> None:
    producer = ScriptedProducer(lambda body, before: illegal() if body == "b" else None)
    with SendPipeline(producer, max_in_flight=3, ordered=True) as pipeline:
        for body in "abc":
            assert pipeline.submit(message(body), ONE, token=body) == []
        assert [outcome.token for outcome in pipeline.submit(message("d"), ONE, token="d")] == ["a"]
        found = pipeline.submit(message("e"), ONE, token="e")
        assert [(outcome.token, outcome.sent) for outcome in found] == [
            ("b", True),
            ("c", False),
            ("d", False),
            ("e", False),
        ]
        assert isinstance(found[-1].error, SendError)
        assert isinstance(found[-1].error.__cause__, MessageIllegalError)
        assert producer.bodies == ["a", "b"]
        pipeline.submit(message("f"), ONE)
        assert [outcome.error for outcome in pipeline.flush()] == [None]
    assert producer.bodies == ["a", "b", "f"]


def test_in_order_only_the_queue_of_a_failure_stops() -> None:
    producer = ScriptedProducer(lambda body, before: illegal() if body == "a" else None)
    outcomes = []
    with SendPipeline(producer, ordered=True) as pipeline:
        for body, queue in (("a", ONE), ("b", ONE), ("c", TWO)):
            outcomes += pipeline.submit(message(body), queue, token=body)
        outcomes += pipeline.flush()
    assert {outcome.token: (outcome.error is None, outcome.sent) for outcome in outcomes} == {
        "a": (False, True),
        "b": (False, False),
        "c": (True, True),
    }


def test_without_order_a_failure_stops_nothing() -> None:
    producer = ScriptedProducer(lambda body, before: illegal() if body == "a" else None)
    found = send(producer, "abc", ONE)
    assert [outcome.error is None for outcome in found.values()] == [False, True, True]


# --- replacements ---------------------------------------------------------------------------


def replace_by(*others: str) -> Callable[[SendOutcome], Sequence[Outgoing] | None]:
    def replace(outcome: SendOutcome) -> Sequence[Outgoing] | None:
        return [message(body) for body in others] if outcome.outgoing == message("b") else None

    return replace


@pytest.mark.parametrize("others", ["", "x", "xyz"])
@pytest.mark.parametrize("ordered", [False, True])
def test_what_replaces_a_failed_send_comes_in_its_place(others: str, ordered: bool) -> None:
    producer = ScriptedProducer(lambda body, before: illegal() if body == "b" else None)
    found = send(producer, "abcd", ONE, ordered=ordered, max_in_flight=2, replace=replace_by(*others))
    assert "b" not in found
    assert not [outcome for outcome in found.values() if outcome.error]
    assert {body: outcome.token for body, outcome in found.items()} == {
        **{body: body for body in "acd"},
        **dict.fromkeys(others, "b"),
    }
    assert sorted(producer.bodies) == sorted("abcd" + others)
    assert producer.most_in_flight <= 2
    if ordered:
        assert producer.bodies == list("ab" + others + "cd")


def test_a_replacement_that_fails_is_reported() -> None:
    producer = ScriptedProducer(lambda body, before: illegal() if body in "bx" else None)
    found = send(producer, "abc", ONE, ordered=True, replace=replace_by("x", "y"))
    sent = {body: outcome.sent for body, outcome in found.items()}
    assert sent == {"a": True, "x": True, "y": False, "c": False}


# --- the end --------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_draining_waits_for_what_is_in_flight_and_sends_nothing_more(ordered: bool) -> None:
    producer = ScriptedProducer(lambda body, before: busy() if body == "b" else None)
    with SendPipeline(producer, ordered=ordered) as pipeline:
        for body, queue in (("a", ONE), ("b", TWO), ("c", ONE)):
            pipeline.submit(message(body), queue, token=body)
        found = {outcome.token: outcome.error for outcome in pipeline.drain()}
        assert pipeline.unfinished == 0
        assert pipeline.flush() == []
    assert found.keys() == ({"a", "b"} if ordered else {"a", "b", "c"})
    assert isinstance(found.pop("b"), FlowControlError)
    assert set(found.values()) == {None}
    assert producer.bodies == (["a", "b"] if ordered else ["a", "b", "c"])
    assert not producer.in_flight


def test_draining_drops_what_waits_for_its_next_try() -> None:
    producer = ScriptedProducer(lambda body, before: busy() if body == "a" else None)
    with SendPipeline(producer, max_in_flight=2) as pipeline:
        found = [outcome.token for body in "abc" for outcome in pipeline.submit(message(body), token=body)]
        found += [outcome.token for outcome in pipeline.drain()]
        assert found == ["b", "c"]
        producer.lockstep.manual_clock.now_s += 1  # its next try would be due
        pipeline.submit(message("d"), token="d")
        assert [outcome.token for outcome in pipeline.flush()] == ["d"]
    assert producer.bodies == list("abcd")


def test_leaving_forgets_what_has_no_outcome() -> None:
    producer = ScriptedProducer()
    with SendPipeline(producer, ordered=True) as pipeline:
        for body in "abc":
            pipeline.submit(message(body), ONE)
        assert pipeline.unfinished == 3
    assert not producer.in_flight
    assert pipeline.unfinished == 0
    assert pipeline.flush() == []
    assert producer.bodies == ["a"]
    pipeline.submit(message("d"), ONE)
    assert len(pipeline.flush()) == 1
    assert producer.bodies == ["a", "d"]


@pytest.mark.parametrize(
    ("most", "ordered", "groups"),
    [(16, False, ["abcd", "efgh", "ij"]), (8, False, ["ab", "cd", "ef", "gh", "ij"]), (16, True, [])],
)
def test_sends_leave_together_where_that_is_asked_for(most: int, ordered: bool, groups: list[str]) -> None:
    """At most a quarter of what may be in flight: the broker always has some. In order, one by one."""
    producer = ScriptedProducer()
    found = send(
        producer, "abcdefghij", ONE if ordered else None, max_in_flight=most, gather=4, ordered=ordered
    )
    assert producer.bodies == sorted(found) == list("abcdefghij")
    assert producer.groups == groups
    assert producer.most_in_flight <= most


def test_answers_that_are_here_are_taken_together_and_the_next_of_their_queues_leave_together() -> None:
    producer = ScriptedProducer()
    with SendPipeline(producer, max_in_flight=16, gather=4, ordered=True) as pipeline:
        for body, queue in zip("abcd", [ONE, TWO] * 2, strict=True):
            pipeline.submit(message(body), queue, token=body)
        assert producer.bodies == ["a", "b"]
        producer.early = {2}
        assert [outcome.token for outcome in pipeline.flush()] == list("abcd")
    assert producer.groups == ["cd"]


def test_answers_that_are_not_here_are_not_waited_for_before_the_next_sends() -> None:
    producer = ScriptedProducer()
    with SendPipeline(producer, max_in_flight=16, gather=4, ordered=True) as pipeline:
        for body, queue in zip("abcd", [ONE, TWO] * 2, strict=True):
            pipeline.submit(message(body), queue, token=body)
        producer.early = {3}
        assert [outcome.token for outcome in pipeline.flush()] == list("abcd")
    assert producer.groups == []


def test_of_sends_that_leave_together_one_that_cannot_be_encoded_fails_alone() -> None:
    producer = ScriptedProducer()
    found = send(producer, "ab!d", max_in_flight=16, gather=4)
    assert producer.bodies == list("abd")
    assert {body: outcome.error is None for body, outcome in found.items()} == {
        **dict.fromkeys("abd", True),
        "!": False,
    }


def test_sends_that_left_over_a_broken_connection_are_sent_again() -> None:
    producer = ScriptedProducer()
    producer.broken.append("abcd")
    found = send(producer, "abcde", max_in_flight=16, gather=4)
    assert sorted(producer.bodies) == sorted(found) == list("abcde")
    assert all(outcome.error is None for outcome in found.values())


def test_sends_that_wait_for_others_leave_when_nothing_is_in_flight() -> None:
    """A failed send that is replaced, too."""
    producer = ScriptedProducer(lambda body, _: illegal() if body == "a" else None)
    found = send(
        producer,
        "abc",
        max_in_flight=16,
        gather=4,
        replace=lambda outcome: [message("x")] if outcome.outgoing.body == b"a" else None,
    )
    assert sorted(found) == list("bcx")
