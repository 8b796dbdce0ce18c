"""A trace from a producer through a Spark query to a consumer, as OpenTelemetry's SDK collects it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.support.page_code import python_blocks
from tests.support.patient import patient_producer
from tests.support.spans import Spans, context_of, links_of, spans
from tests.support.wait import eventually

from pyspark_rocketmq.client import (
    Client,
    ConsumeFromWhere,
    Message,
    OutgoingMessage,
    PushConsumer,
    PushOptions,
)

__all__ = ["spans"]


@pytest.fixture
def added(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The listeners that the program adds; removed at the end."""
    added: list[Any] = []
    add = type(spark.streams).addListener

    def note(manager: Any, listener: Any) -> None:
        added.append(listener)
        add(manager, listener)

    monkeypatch.setattr(type(spark.streams), "addListener", note)
    yield added
    for listener in added:
        spark.streams.removeListener(listener)


def test_a_trace_goes_from_a_producer_through_a_query_to_a_consumer(
    spark: SparkSession,
    mq: Any,
    client: Client,
    topic: Any,
    group: str,
    tmp_path: Path,
    added: list[Any],
    spans: Spans,
) -> None:
    source, target = topic(queues=1), topic(queues=1)
    patient_producer(client).send(OutgoingMessage(source, b"order"))
    sent = context_of(spans.one(f"send {source}"))
    namespace: dict[str, Any] = {"SparkSession": SparkSession, "StreamingQuery": StreamingQuery}
    (program,) = python_blocks("tracing.md")
    exec(program, namespace)
    query = namespace["traced_copy"](spark, mq.name_server, source, target, str(tmp_path / "checkpoint"))
    got: list[Message] = []
    done = threading.Event()

    def listen(messages: Any) -> None:
        got.extend(messages)
        done.set()

    with PushConsumer(group, mq.name_server, PushOptions(start=ConsumeFromWhere.FIRST_OFFSET)) as consumer:
        consumer.subscribe(target)
        consumer.start(listen)
        assert done.wait(180)
    assert [message.body for message in got] == [b"order"]
    assert got[0].properties["traceparent"] == sent, "the copy keeps the context"
    batch = eventually(lambda: next(iter(spans.named(f"process {source}")), None), what="the batch's span")
    commit = eventually(lambda: next(iter(spans.named(f"commit {source}")), None), what="the commit's span")
    call = eventually(lambda: next(iter(spans.named(f"process {target}")), None), what="the call's span")
    query.stop()
    assert links_of(batch) == links_of(call) == {sent}
    assert (batch.attributes or {})["messaging.batch.message_count"] == 1
    assert (batch.attributes or {})["messaging.consumer.group.name"] == "copies"
    assert commit.parent is not None
    assert commit.parent.span_id == batch.get_span_context().span_id
    assert (batch.start_time or 0) <= (commit.start_time or 0) <= (commit.end_time or 0) == batch.end_time
