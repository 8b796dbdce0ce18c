from __future__ import annotations

from types import SimpleNamespace

from pyspark.sql import Row

from pyspark_rocketmq.streams.frame import row_counts as counts
from pyspark_rocketmq.streams.frame.row_counts import RunCounts


def batch(number: int, skipped: int) -> SimpleNamespace:
    return SimpleNamespace(
        batchId=number,
        eventTime={"watermark": "2030-01-01T00:00:00.000Z"},
        observedMetrics={"map#2/2": Row(skipped=skipped)},
        stateOperators=[],
    )


def test_a_batch_counts_once_and_a_long_run_needs_no_more_memory(monkeypatch):
    monkeypatch.setattr(counts, "_REMEMBERED", 20)
    found = RunCounts("run", lambda _: 0)
    for number in range(500):
        found.add(batch(number, 1))
        found.add(batch(number, 1))
        found.add(batch(0, 1))
    assert found.skipped() == {"map#2": 500}
    assert len(found._watermarks) == 20
