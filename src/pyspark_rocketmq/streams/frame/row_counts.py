"""Counts of the rows that a run of a job has dropped: malformed records by step, and late rows.

Spark counts late rows after the partial aggregation: hundreds of rows of a key count once. Here every batch
reports its number of rows per window end. Rows whose window end is at or before Spark's watermark are late.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

__all__ = ["RunCounts", "late_rows", "skipped_rows", "with_ends"]

_LATE: Final = " late"
_MOST_ENDS: Final = 4_096
"""If a batch has more distinct window ends, its count of late rows is approximate."""

_REMEMBERED: Final = 10_000
"""Number of batches remembered as counted: far more than Spark reports again (the last 100)."""

_KEPT: Final = 32
"""Number of ended runs whose counts can still be asked for."""

_EACH_ROW: Final = frozenset({"symmetricHashJoin", "dedupe", "dedupeWithinWatermark"})
"""The operators for which Spark's count of late rows is exact."""

_runs: dict[str, RunCounts] = {}


def with_ends(df: DataFrame, end: Column, step: str) -> DataFrame:
    """Return rows that report their number per window end."""
    ends = F.histogram_numeric(F.unix_micros(end), F.lit(_MOST_ENDS))
    return df.observe(f"{step}{_LATE}", ends.alias("ends"))


class RunCounts(StreamingQueryListener):
    """The counts of one run of a query since its start.

    Parameters
    ----------
    run_id : str
    watermark_of : Callable
        Returns the watermark (ms) of a batch of an earlier run.
    """

    def __init__(self, run_id: str, watermark_of: Callable[[int], int]) -> None:
        self._run_id = run_id
        self._watermark_of = watermark_of
        self._lock = threading.Lock()
        self._skipped: Counter[str] = Counter()
        self._late = 0
        self._ended = False
        self._watermarks: dict[int, int] = {}
        self._waiting: dict[int, Counter[int]] = {}

    def register(self) -> None:
        """Register the counts for `late_rows` and `skipped_rows`."""
        ended = [run_id for run_id, counts in list(_runs.items()) if counts._ended]  # noqa: SLF001 - its own
        for run_id in ended[:-_KEPT]:
            _runs.pop(run_id, None)
        _runs[self._run_id] = self

    def record_end(self) -> None:
        """Record that the run has ended: its counts are kept until others have ended after it."""
        self._ended = True

    def add(self, progress: StreamingQueryProgress) -> None:
        """Count a batch, once."""
        number = progress.batchId
        with self._lock:
            newest = next(reversed(self._watermarks), number)
            if number in self._watermarks or number <= newest - _REMEMBERED:
                return
            self._watermarks[number] = _milliseconds(progress.eventTime)
            self._watermarks.pop(number - _REMEMBERED, None)
            for name, row in progress.observedMetrics.items():
                values = row.asDict()
                if "skipped" in values:
                    self._skipped[name.split("/")[0]] += int(values["skipped"])
                elif name.endswith(_LATE):
                    ends = Counter({int(at["x"]): round(at["y"]) for at in values["ends"] or ()})
                    self._waiting.setdefault(number, Counter()).update(ends)
            for operator in progress.stateOperators:
                if operator.operatorName in _EACH_ROW:
                    self._late += operator.numRowsDroppedByWatermark

    def skipped(self) -> dict[str, int]:
        """Return the number of skipped records per step."""
        with self._lock:
            return dict(self._skipped)

    def late(self) -> int:
        """Return the number of late rows."""
        with self._lock:
            for number in list(self._waiting):
                self._settle(number, self._watermark_before(number))
            return self._late

    def _watermark_before(self, number: int) -> int:
        if number == 0:
            return 0
        known = self._watermarks.get(number - 1)
        return self._watermark_of(number - 1) if known is None else known

    def _settle(self, number: int, watermark_ms: int) -> None:
        ends = self._waiting.pop(number)
        self._late += sum(count for end, count in ends.items() if end <= watermark_ms * 1_000)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a batch."""
        if str(event.progress.runId) == self._run_id:
            self.add(event.progress)
            with self._lock:
                for number in [n for n in self._waiting if n - 1 in self._watermarks]:
                    self._settle(number, self._watermarks[number - 1])

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""


def skipped_rows(query: StreamingQuery) -> dict[str, int]:
    """Return the number of records that each step has skipped since this run of the job started.

    Results that are null because they have more digits than a decimal count too, in each batch. Steps are
    named as in ``explain()``.

    Raises
    ------
    OptionError
        The query was not started by a pipeline in this process, or ended before the last 32.
    """
    return _counts(query).skipped()


def late_rows(query: StreamingQuery) -> int:
    """Return the number of late rows that were dropped since this run of the job started.

    A row of overlapping windows counts once for each of its closed windows. For joins and ``distinct`` it is
    Spark's count, which is exact there. The count is exact while a batch has rows of at most 4,096 distinct
    window ends.

    Raises
    ------
    OptionError
        The query was not started by a pipeline in this process, or ended before the last 32.
    """
    return _counts(query).late()


def _counts(query: StreamingQuery) -> RunCounts:
    counts = _runs.get(str(query.runId))
    if counts is None:
        raise OptionError(
            "the query was not started by a pipeline in this process, or 32 others have ended since",
            query=query.name,
        )
    for progress in query.recentProgress:  # listeners may not have received the last reports yet
        counts.add(progress)
    return counts


def _milliseconds(times: Mapping[str, Any]) -> int:
    text = times.get("watermark")
    return 0 if text is None else round(datetime.fromisoformat(text).timestamp() * 1_000)
