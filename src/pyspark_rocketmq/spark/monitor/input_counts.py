"""How many rows the queries of a program have read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Condition
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["InputCount", "InputCounts"]

_LAST_EVENTS_S: Final = 5.0
"""How long the events of ended queries are waited for: Spark delivers them a moment later."""


@dataclass(slots=True)
class InputCount:
    """What one run of a query has read."""

    name: str | None
    rows: int = 0
    batches: int = 0
    last_batch: int = -1
    running: bool = True


class InputCounts(StreamingQueryListener):
    """Counts the rows and micro-batches of the queries that it follows."""

    def __init__(self) -> None:
        self._counts: dict[str, InputCount] = {}
        self._changed = Condition()
        self._sessions: list[SparkSession] = []

    def follow(self, spark: SparkSession, query: StreamingQuery) -> None:
        """Count a query that has just been started, including the batches before this call."""
        with self._changed:
            self._counts[str(query.runId)] = InputCount(query.name)
        if not any(session is spark for session in self._sessions):
            self._sessions.append(spark)
            spark.streams.addListener(self)
        for progress in query.recentProgress:
            self._add(progress)
        if not query.isActive:
            self._end(str(query.runId))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: queries are named to `follow`."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Add a micro-batch."""
        self._add(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Note that the count is final."""
        self._end(str(event.runId))

    def ended(self) -> Sequence[InputCount]:
        """Return the counts. Waits some seconds for the last events of the queries."""
        with self._changed:
            self._changed.wait_for(
                lambda: not any(count.running for count in self._counts.values()), _LAST_EVENTS_S
            )
            return [replace(count) for count in self._counts.values()]

    def _add(self, progress: StreamingQueryProgress) -> None:
        with self._changed:
            count = self._counts.get(str(progress.runId))
            if count is not None and progress.batchId > count.last_batch and progress.numInputRows:
                count.last_batch = progress.batchId
                count.rows += progress.numInputRows
                count.batches += 1

    def _end(self, run_id: str) -> None:
        with self._changed:
            if (count := self._counts.get(run_id)) is not None:
                count.running = False
            self._changed.notify_all()
