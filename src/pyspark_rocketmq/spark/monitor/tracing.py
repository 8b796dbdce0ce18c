"""Spans of micro-batches, with links to the contexts of their messages."""

# Facts (StreamingQueryProgress of Spark 4.3): `timestamp` is when the trigger began; of `durationMs`,
# `commitOffsets` is the last part of `triggerExecution`. Metrics of `observe` arrive with the progress.

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_rocketmq.client.trace.spans import is_active, links_to, message_attributes
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, offset_of_rocketmq

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

__all__ = ["TracingListener", "observe_traces"]

_OBSERVED: Final = "rocketmq_traces"
_SAMPLES: Final = 32
"""Contexts that are kept of a batch: one for each residue of their hashes."""

_SCOPE: Final = "pyspark_rocketmq"


def observe_traces(df: DataFrame, column: str = "traceparent") -> DataFrame:
    """Return the same rows, and let a `TracingListener` see the trace contexts of up to 32 of each batch.

    Parameters
    ----------
    df : DataFrame
        Of a stream, once per query.
    column : str
        The column with the W3C ``traceparent``.

    Examples
    --------
    >>> orders = observe_traces(orders)  # doctest: +SKIP
    """
    context = F.col(column)
    residue = F.pmod(F.xxhash64(context), F.lit(_SAMPLES))
    samples = [F.min(F.when(residue == F.lit(at), context)).alias(f"context{at}") for at in range(_SAMPLES)]
    return df.observe(_OBSERVED, *samples)


class TracingListener(StreamingQueryListener):
    """Makes a span of OpenTelemetry of each micro-batch that has rows, and one of its commit.

    The SDK of the driver's program exports them: ``process`` and the topics, with links to the contexts that
    `observe_traces` has sampled, and within it ``commit``. Without OpenTelemetry it does nothing.

    Examples
    --------
    >>> spark.streams.addListener(TracingListener())  # doctest: +SKIP
    """

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: spans are made of finished batches."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Make the spans of a batch."""
        progress = event.progress
        sources = list(_offsets(progress))
        if is_active() and sources and progress.numInputRows:
            _make_spans(progress, sources)


def _make_spans(progress: StreamingQueryProgress, sources: list[SourceOffset]) -> None:
    from opentelemetry import trace  # noqa: PLC0415 - the program has imported it

    topics = ",".join(sorted({queue.topic for source in sources for queue in source.offsets}))
    group = next((source.source.group for source in sources if source.source.group), None)
    attributes: dict[str, str | int] = {
        "messaging.batch.message_count": progress.numInputRows,
        "spark.query.id": str(progress.id),
        "spark.query.name": progress.name or "",
        "spark.batch.id": progress.batchId,
    }
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    durations = progress.durationMs
    start = int(datetime.fromisoformat(progress.timestamp).timestamp() * 1000) * 1_000_000
    end = start + durations.get("triggerExecution", 0) * 1_000_000
    tracer = trace.get_tracer(_SCOPE)
    batch = tracer.start_span(
        f"process {topics}",
        kind=trace.SpanKind.CONSUMER,
        links=links_to(_observed(progress)),
        attributes=message_attributes("process", topics) | attributes,
        start_time=start,
    )
    commit = tracer.start_span(
        f"commit {topics}",
        context=trace.set_span_in_context(batch),
        kind=trace.SpanKind.CLIENT,
        attributes=message_attributes("commit", topics) | attributes,
        start_time=end - durations.get("commitOffsets", 0) * 1_000_000,
    )
    commit.end(end)
    batch.end(end)


def _offsets(progress: StreamingQueryProgress) -> Iterator[SourceOffset]:
    for source in progress.sources:
        try:
            offset = offset_of_rocketmq(source.endOffset)
        except OptionError:  # of a release that this one does not know
            continue
        if offset is not None:
            yield offset


def _observed(progress: StreamingQueryProgress) -> list[str | None]:
    row: Any = progress.observedMetrics.get(_OBSERVED)
    return [] if row is None else list(row)
