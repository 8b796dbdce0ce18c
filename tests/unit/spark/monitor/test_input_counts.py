"""Counting what queries read, however the events of Spark arrive."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark_rocketmq.spark.monitor.input_counts import InputCounts


def progress(batch: int, rows: int) -> Any:
    return SimpleNamespace(runId="run-1", batchId=batch, numInputRows=rows)


def query(*recent: Any, active: bool = True) -> Any:
    return SimpleNamespace(runId="run-1", name="copies", recentProgress=list(recent), isActive=active)


def session() -> Any:
    listeners: list[Any] = []
    return SimpleNamespace(streams=SimpleNamespace(addListener=listeners.append, listeners=listeners))


def test_batches_before_and_after_are_counted_once() -> None:
    counts, spark = InputCounts(), session()
    counts.follow(spark, query(progress(0, 5), progress(1, 0)))
    for batch in (progress(0, 5), progress(1, 0), progress(2, 7), progress(2, 7)):
        counts.onQueryProgress(SimpleNamespace(progress=batch))  # type: ignore[arg-type]
    counts.onQueryTerminated(SimpleNamespace(runId="run-1"))  # type: ignore[arg-type]
    (found,) = counts.ended()
    assert (found.name, found.rows, found.batches) == ("copies", 12, 2)


def test_a_query_that_has_ended_already_is_not_waited_for() -> None:
    counts = InputCounts()
    counts.follow(session(), query(progress(0, 3), active=False))
    (found,) = counts.ended()
    assert (found.rows, found.batches, found.running) == (3, 1, False)


def test_one_listener_for_all_queries_of_a_session_and_no_count_of_others() -> None:
    counts, spark = InputCounts(), session()
    counts.follow(spark, query(active=False))
    counts.follow(spark, query(active=False))
    assert spark.streams.listeners == [counts]
    counts.onQueryProgress(
        SimpleNamespace(progress=SimpleNamespace(runId="other", batchId=1, numInputRows=9))
    )  # type: ignore[arg-type]
    assert [count.rows for count in counts.ended()] == [0]
