"""OpenTelemetry's SDK for one test: spans are collected in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyspark_rocketmq.model.trace_context import TraceContext


class Spans:
    """The finished spans of a test."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


def context_of(span: ReadableSpan) -> str:
    """Return a span as ``traceparent``."""
    context = span.get_span_context()
    assert context is not None
    return str(TraceContext(context.trace_id, context.span_id, int(context.trace_flags)))


def links_of(span: ReadableSpan) -> set[str]:
    """Return the contexts to which a span has links."""
    return {
        str(TraceContext(link.context.trace_id, link.context.span_id, int(link.context.trace_flags)))
        for link in span.links
    }


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The public setter works once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Spans(exporter)
    provider.shutdown()
