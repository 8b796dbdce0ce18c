"""Spans and trace contexts of a program that uses OpenTelemetry; otherwise nothing happens.

Nothing of OpenTelemetry is imported here: a program that has spans has imported its API. For all others, a
look-up in a dictionary per call is the whole cost.
"""

# Facts (OpenTelemetry's semantic conventions for messaging): spans are named by operation and destination;
# a span that processes messages has links to the contexts of the messages, since a batch has many.

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, Literal

from pyspark_rocketmq.model.trace_context import TraceContext
from pyspark_rocketmq.record.properties import PROPERTY_TRACEPARENT, PROPERTY_TRACESTATE

__all__ = ["MOST_LINKS", "current_properties", "current_traceparent", "is_active", "links_to"]
__all__ += ["message_attributes", "record_error", "span"]

MOST_LINKS: Final = 128
"""Links of a span: as many as OpenTelemetry's SDK keeps by default."""

_API: Final = "opentelemetry.trace"
_SCOPE: Final = "pyspark_rocketmq"


def is_active() -> bool:
    """Whether the program has imported OpenTelemetry's API."""
    return _API in sys.modules


def current_properties() -> dict[str, str]:
    """Return the context of the current span as properties of a message; nothing without a span."""
    trace = sys.modules.get(_API)
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return {}
    properties = {
        PROPERTY_TRACEPARENT: str(TraceContext(context.trace_id, context.span_id, int(context.trace_flags)))
    }
    if context.trace_state:
        properties[PROPERTY_TRACESTATE] = context.trace_state.to_header()
    return properties


def current_traceparent() -> str | None:
    """Return the current span as a W3C ``traceparent``, for the option and the column of this name.

    None if no span is current, or the program does not use OpenTelemetry.
    """
    return current_properties().get(PROPERTY_TRACEPARENT)


def links_to(traceparents: Iterable[str | None]) -> list[Any]:
    """Return links to the contexts of messages, each once, at most `MOST_LINKS`. Invalid ones are omitted."""
    trace = sys.modules.get(_API)
    if trace is None:
        return []
    found = dict.fromkeys(TraceContext.parse(text) for text in traceparents)
    contexts = [context for context in found if context is not None]
    return [_link(trace, context) for context in contexts[:MOST_LINKS]]


@contextlib.contextmanager
def span(
    operation: Literal["send", "process", "commit"],
    destination: str,
    *,
    traceparents: Iterable[str | None] = (),
    attributes: Mapping[str, str | int] | None = None,
) -> Iterator[Any]:
    """Run a block in a span, which becomes the current one; an error of the block is recorded in it.

    Parameters
    ----------
    operation : {"send", "process", "commit"}
    destination : str
        The topic.
    traceparents : iterable of str
        The contexts of messages to which the span has links.
    attributes : mapping
        Further attributes.

    Yields
    ------
    Span or None
        The span of OpenTelemetry; None if the program does not use it.
    """
    trace = sys.modules.get(_API)
    if trace is None:
        yield None
        return
    kinds = {"send": trace.SpanKind.PRODUCER, "process": trace.SpanKind.CONSUMER}
    with trace.get_tracer(_SCOPE).start_as_current_span(
        f"{operation} {destination}",
        kind=kinds.get(operation, trace.SpanKind.CLIENT),
        links=links_to(traceparents),
        attributes=message_attributes(operation, destination) | dict(attributes or {}),
    ) as started:
        yield started


def record_error(current: Any, error: BaseException) -> None:
    """Record an error in a span that was caught within it."""
    trace = sys.modules[_API]
    current.record_exception(error)
    current.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
    current.set_attribute("error.type", type(error).__qualname__)


def message_attributes(operation: str, destination: str) -> dict[str, str | int]:
    """Return the attributes of every span of messages."""
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.type": "settle" if operation == "commit" else operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }


def _link(trace: ModuleType, context: TraceContext) -> Any:
    flags = trace.TraceFlags(context.flags)
    return trace.Link(trace.SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=flags))
