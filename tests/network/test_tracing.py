"""Trace contexts and spans of clients, and RocketMQ's message trace, on a mock broker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from opentelemetry import trace
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.spans import Spans, context_of, links_of, spans
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    PushOptions,
    current_traceparent,
)
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.spark.write.sink_schema import sink_layout
from pyspark_rocketmq.testing import MockBroker

__all__ = ["spans"]

TRACES = "traces"
GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def mq() -> Iterator[MockBroker]:
    with MockBroker({"orders": 1, TRACES: 1}) as broker:
        yield broker


def stored(client: Client, topic: str = "orders") -> tuple[Message, ...]:
    consumer = PullConsumer("report", client=client)
    (queue,) = client.read_queues(topic)
    return consumer.pull(queue, "*", 0).messages


def test_a_send_is_a_span_and_its_context_travels(client: Client, spans: Spans) -> None:
    result = Producer(client, "shop").send(OutgoingMessage("orders", b"x", properties={"a": "b"}))
    span = spans.one("send orders")
    (message,) = stored(client)
    assert message.properties["traceparent"] == context_of(span)
    assert message.properties["a"] == "b"
    assert span.kind is trace.SpanKind.PRODUCER
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "orders",
        "messaging.rocketmq.client_group": "shop",
        "messaging.message.id": result.msg_id,
    }


def test_a_send_is_a_child_of_the_current_span(client: Client, spans: Spans) -> None:
    with trace.get_tracer("test").start_as_current_span("request") as request:
        assert current_traceparent() == context_of(request)  # type: ignore[arg-type]
        Producer(client).send(OutgoingMessage("orders", b"x"))
    parent = spans.one("send orders").parent
    assert parent is not None
    assert parent.span_id == request.get_span_context().span_id


def test_a_copy_keeps_its_context_and_the_span_has_a_link_to_it(client: Client, spans: Spans) -> None:
    copy = OutgoingMessage("orders", b"x", properties={"traceparent": GIVEN})
    Producer(client).send_batch([copy, OutgoingMessage("orders", b"y")])
    span = spans.one("send orders")
    assert links_of(span) == {GIVEN}
    assert (span.attributes or {})["messaging.batch.message_count"] == 2
    assert [message.properties["traceparent"] for message in stored(client)] == [GIVEN, context_of(span)]


def test_a_failed_send_is_an_error_in_its_span(client: Client, spans: Spans, mq: MockBroker) -> None:
    mq.fail(RequestCode.SEND_MESSAGE_V2, code=ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(RocketMQError):
        Producer(client).send(OutgoingMessage("orders", b"x"))
    span = spans.one("send orders")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_an_unused_or_absent_opentelemetry_adds_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    Producer(client).send(OutgoingMessage("orders", b"no SDK"))
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    Producer(client).send(OutgoingMessage("orders", b"no API"))
    found = stored(client)
    assert [message.body for message in found] == [b"no SDK", b"no API"]
    for message in found:
        assert message.properties.keys().isdisjoint({"traceparent", "tracestate"}), message.body


def consume(mq: MockBroker, answers: list[ConsumeResult | Exception], trace_topic: str | None = None) -> None:
    """Run a member until its listener has been called once for each answer."""
    called = threading.Event()

    def listen(_messages: object) -> ConsumeResult:
        answer = answers.pop(0) if answers else ConsumeResult.SUCCESS
        if not answers:
            called.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    options = PushOptions(
        start=ConsumeFromWhere.FIRST_OFFSET, batch_size=8, suspend_ms=200, trace_topic=trace_topic
    )
    with PushConsumer("billing", mq.name_server, options) as consumer:
        consumer.subscribe("orders")
        consumer.start(listen)
        assert called.wait(90)


def test_a_call_of_a_listener_is_a_span_with_links(client: Client, spans: Spans, mq: MockBroker) -> None:
    Producer(client).send_batch(
        [OutgoingMessage("orders", b"x", properties={"traceparent": GIVEN}), OutgoingMessage("orders", b"y")]
    )
    sent = context_of(spans.one("send orders"))
    consume(mq, [ConsumeResult.SUCCESS])
    span = eventually(lambda: next(iter(spans.named("process orders")), None), what="the span")
    assert links_of(span) == {GIVEN, sent}
    assert span.kind is trace.SpanKind.CONSUMER
    assert (span.attributes or {})["messaging.consumer.group.name"] == "billing"


def test_a_listener_that_fails_is_an_error_in_its_span(client: Client, spans: Spans, mq: MockBroker) -> None:
    Producer(client).send(OutgoingMessage("orders", b"x"))
    consume(mq, [ValueError("no")])
    span = eventually(lambda: next(iter(spans.named("process orders")), None), what="the span")
    assert (span.attributes or {})["error.type"] == "ValueError"
    assert span.status.status_code is trace.StatusCode.ERROR


# --- RocketMQ's message trace ---


def records(client: Client) -> list[list[str]]:
    """Return the records of the trace topic, as their fields."""
    texts = [message.body.decode() for message in stored(client, TRACES)]
    return [record.split("\x01") for text in texts for record in text.split("\x02")[:-1]]


def test_a_large_batch_is_recorded_in_several_messages(client: Client, mq: MockBroker) -> None:
    producer = Producer(client, "shop", ProducerOptions(trace_topic=TRACES))
    messages = [OutgoingMessage("orders", b"x", keys=f"key-{number}") for number in range(1_000)]
    result = producer.send_batch(messages)
    found = eventually(lambda: len(all_of := records(client)) >= 1_000 and all_of, what="the records")
    assert [record[7] for record in found] == [message.keys for message in messages]
    assert found[0][5] in result.msg_id
    assert max(len(message.keys or "") for message in stored(client, TRACES)) < 32_767


def test_sends_are_recorded_when_asked_for(client: Client, mq: MockBroker) -> None:
    producer = Producer(client, "shop", ProducerOptions(trace_topic=TRACES))
    result = producer.send(OutgoingMessage("orders", b"four", tags="new", keys=["k1", "k2"]))
    (record,) = eventually(lambda: records(client), what="the record")
    address = client.queue_address(result.queue)
    assert record[0] == "Pub"
    assert record[2:10] == [
        "DefaultRegion", "shop", "orders", result.msg_id, "new", "k1 k2", address, "4",
    ]  # fmt: skip
    assert record[11:] == ["0", result.offset_msg_id, "true"]
    (message,) = stored(client, TRACES)
    assert message.keys == f"{result.msg_id} k1 k2"


def test_each_message_of_a_batch_and_a_failed_send_are_recorded(client: Client, mq: MockBroker) -> None:
    producer = Producer(client, "shop", ProducerOptions(trace_topic=TRACES, retries=0))
    result = producer.send_batch([OutgoingMessage("orders", b"x"), OutgoingMessage("orders", b"y")])
    found = eventually(lambda: records(client), what="the records")
    assert [record[5] for record in found] == result.msg_id.split(",")
    mq.fail(RequestCode.SEND_MESSAGE_V2, code=ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(RocketMQError):
        producer.send(OutgoingMessage("orders", b"x", sharding_key="k"))
    last = eventually(lambda: records(client)[2:], what="the failure's record")[0]
    assert (last[11], last[-1]) == ("4", "false")


def test_calls_are_recorded_with_their_outcome(client: Client, mq: MockBroker) -> None:
    result = Producer(client).send(OutgoingMessage("orders", b"x", keys="k"))
    consume(mq, [ConsumeResult.LATER], TRACES)
    before, after = eventually(lambda: records(client)[:2], what="the records")
    assert (before[0], before[3], before[5:]) == ("SubBefore", "billing", [result.msg_id, "0", "k"])
    assert (after[0], after[1], after[2]) == ("SubAfter", before[4], result.msg_id)
    assert (after[4:7], after[8]) == (["false", "k", "1"], "billing")


def test_a_trace_topic_that_does_not_exist_fails_no_send(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(client, "shop", ProducerOptions(trace_topic="missing"))
    for _ in range(2):
        producer.send(OutgoingMessage("orders", b"x"))
    assert len(stored(client)) == 2
    assert caplog.text.count("messages are not traced in missing for 30 s") == 1


def test_a_trace_whose_broker_cannot_be_named_fails_no_send(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(client, "shop", ProducerOptions(trace_topic=TRACES))

    def unknown(_queue: object) -> str:
        raise RocketMQError("no route")

    monkeypatch.setattr(producer._tracing, "_address", unknown)
    producer.send(OutgoingMessage("orders", b"x"))
    assert "messages are not traced" in caplog.text


# --- the sink's column ---

ROWS = {"body": ["a", "b"], "traceparent": [GIVEN, None]}


def contexts(names: list[str], **options: str) -> list[str | None] | None:
    """Return the contexts of rows with these columns, as a write with these options has them."""
    schema = StructType([StructField(name, StringType()) for name in names])
    sink = parse_options(
        SinkOptions, {"nameServer": "127.0.0.1:9876", "topic": "orders", **options}, environ={}
    )
    batch = pa.RecordBatch.from_pydict({name: ROWS[name] for name in names})
    column = sink_layout(schema, sink).columns(batch, sink).traceparent
    return None if column is None else [text and text.decode() for text in column.to_pylist()]


def test_rows_have_the_column_s_context_or_the_option_s() -> None:
    assert contexts(["body"]) is None
    assert contexts(["body", "traceparent"]) == [GIVEN, None]
    other = GIVEN[:-2] + "00"
    assert contexts(["body", "traceparent"], traceparent=other) == [other, other]


def test_rows_without_a_context_get_that_of_the_task_s_span(spans: Spans) -> None:
    with trace.get_tracer("test").start_as_current_span("task") as task:
        current = context_of(task)  # type: ignore[arg-type]
        assert contexts(["body"]) == [current, current]
        assert contexts(["body", "traceparent"]) == [GIVEN, None]
