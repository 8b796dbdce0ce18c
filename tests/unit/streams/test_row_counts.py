from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql import Row

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.streams.frame import row_counts as counts
from pyspark_rocketmq.streams.frame.row_counts import RunCounts


def batch(number: int, skipped: int) -> SimpleNamespace:
    return SimpleNamespace(
        batchId=number,
        eventTime={"watermark": "2030-01-01T00:00:00.000Z"},
        observedMetrics={"map#2/2": Row(skipped=skipped)},
        stateOperators=[],
    )


def windows(number: int, ends: dict[float, int] | None, watermark: str | None = None) -> SimpleNamespace:
    """Return a batch with rows by the end of their window (s), and its watermark when it began."""
    rows = None if ends is None else [Row(x=end * 1e6, y=float(count)) for end, count in ends.items()]
    found = batch(number, 0)
    found.runId = "run"
    found.eventTime = {} if watermark is None else {"watermark": watermark}
    found.observedMetrics = {"window#1 late": Row(ends=rows)}
    return found


def test_rows_of_windows_that_the_batch_before_closed_are_late():
    found = RunCounts("run", lambda _: 1 // 0)
    at_10_s = "1970-01-01T00:00:10.000Z"
    batches = [{5: 3, 20: 1}, {0.001: 2, 10: 2, 11: 7}, {9: 4, 10: 1, 10.001: 3, 30: 5}, None]
    for number, ends in enumerate(batches):
        found.onQueryProgress(SimpleNamespace(progress=windows(number, ends, at_10_s if number else None)))
    assert found.late() == 4 + 1, "the first batch closes no window, the second one's watermark came with it"
    other = windows(9, {1: 100}, at_10_s)
    other.runId = "another"
    found.onQueryProgress(SimpleNamespace(progress=other))
    assert found.late() == 5
    found.onQueryProgress(SimpleNamespace(progress=windows(5, {1: 2})))
    assert found._waiting.keys() == {5}, "the report of batch 4 is missing"


def test_reports_that_a_listener_has_not_received_settle_each_other():
    found = RunCounts("run", lambda _: 1 // 0)
    found.add(windows(0, None, "1970-01-01T00:00:10.000Z"))
    found.add(windows(1, {10: 2, 11: 1}))
    assert found.late() == 2


def test_a_watermark_that_was_not_reported_is_looked_up():
    asked: list[int] = []
    found = RunCounts("run", lambda number: asked.append(number) or 20_000)
    found.add(windows(7, {20: 2, 20.001: 3}))
    found.add(windows(7, {20: 2, 20.001: 3}))
    assert (found.late(), asked) == (2, [6])
    assert (found.late(), asked) == (2, [6])
    found = RunCounts("run", lambda number: 1 // 0)
    found.add(windows(0, {-5: 2, 0.001: 1}))
    assert found.late() == 2


def test_joins_and_distinct_count_what_spark_drops():
    found = RunCounts("run", lambda _: 0)
    dropped = batch(0, 0)
    dropped.stateOperators = [
        SimpleNamespace(operatorName=name, numRowsDroppedByWatermark=number)
        for number, name in enumerate(["stateStoreSave", *sorted(counts._EACH_ROW)], 1)
    ]
    found.add(dropped)
    assert found.late() == sum(range(2, 2 + len(counts._EACH_ROW)))


def test_reports_that_no_listener_has_received_yet_count(monkeypatch):
    monkeypatch.setattr(counts, "_runs", {})
    found = RunCounts("run-7", lambda _: 0)
    query = SimpleNamespace(runId="run-7", name="q", recentProgress=[batch(0, 2), batch(1, 3)])
    with pytest.raises(OptionError, match="not started by a pipeline"):
        counts.skipped_rows(query)
    found.register()
    assert counts.skipped_rows(query) == {"map#2": 5}
    assert counts.late_rows(query) == 0


def test_the_counts_of_runs_that_ended_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(counts, "_runs", {})
    monkeypatch.setattr(counts, "_KEPT", 3, raising=False)
    RunCounts("goes on", lambda _: 0).register()
    for number in range(10):
        found = RunCounts(f"run {number}", lambda _: 0)
        found.register()
        found.record_end()
    assert list(counts._runs) == ["goes on", "run 6", "run 7", "run 8", "run 9"]


def test_a_batch_counts_once_and_a_long_run_needs_no_more_memory(monkeypatch):
    monkeypatch.setattr(counts, "_REMEMBERED", 20)
    found = RunCounts("run", lambda _: 0)
    for number in range(500):
        found.add(batch(number, 1))
        found.add(batch(number, 1))
        found.add(batch(0, 1))
    assert found.skipped() == {"map#2": 500}
    assert len(found._watermarks) == 20
