"""Spans of micro-batches, made of Spark's reports."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from pyspark.sql import Row
from tests.support.query_logs import QUERY, RUN, offset
from tests.support.spans import Spans, links_of, spans

from pyspark_rocketmq.spark import TracingListener

__all__ = ["spans"]

START_NS = 1_769_846_400_000_000_000
ONE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"


def report(rows: int = 7, *, end: Any = None, **more: Any) -> Any:
    """Return the event of a batch that took 500 ms, of which the commit took 40."""
    ends = json.dumps(offset("orders", {0: 10, 1: 7}, "billing") if end is None else end)
    progress = SimpleNamespace(
        id=QUERY,
        runId=RUN,
        name="revenue",
        batchId=3,
        numInputRows=rows,
        timestamp="2026-01-31T08:00:00.000Z",
        durationMs={"triggerExecution": 500, "commitOffsets": 40},
        sources=[SimpleNamespace(endOffset=ends)],
        observedMetrics={},
    )
    vars(progress).update(more)
    return SimpleNamespace(progress=progress)


def test_a_batch_is_a_span_with_links_and_its_commit_is_within_it(spans: Spans) -> None:
    row = Row(context0=None, context1=ONE, context2=OTHER, context3=ONE, context4="no context")
    TracingListener().onQueryProgress(report(observedMetrics={"rocketmq_traces": row, "mine": Row(a=1)}))
    batch, commit = spans.one("process orders"), spans.one("commit orders")
    assert links_of(batch) == {ONE, OTHER}
    assert len(batch.links) == 2
    assert batch.kind is trace.SpanKind.CONSUMER
    assert (batch.start_time, batch.end_time) == (START_NS, START_NS + 500_000_000)
    assert (commit.start_time, commit.end_time) == (START_NS + 460_000_000, START_NS + 500_000_000)
    assert commit.parent is not None
    assert commit.parent.span_id == batch.get_span_context().span_id
    assert dict(batch.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 7,
        "messaging.consumer.group.name": "billing",
        "spark.query.id": QUERY,
        "spark.query.name": "revenue",
        "spark.batch.id": 3,
    }


def test_empty_batches_and_other_sources_are_no_spans(spans: Spans) -> None:
    listener = TracingListener()
    listener.onQueryProgress(report(0))
    listener.onQueryProgress(report(end={"orders": {"0": 5}}))
    later = offset("orders", {0: 1}) | {"version": 99}
    listener.onQueryProgress(report(end=later))
    assert spans.all() == []


def test_without_opentelemetry_it_does_nothing(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    TracingListener().onQueryProgress(report())
    assert spans.all() == []
