from __future__ import annotations

import json
from types import SimpleNamespace

from tests.support.clocks import FakeClock

from pyspark_rocketmq.spark.monitor import query_log
from pyspark_rocketmq.spark.monitor.query_log import QueryLog


def events(batch: int = 0):
    progress = SimpleNamespace(runId="run", json=json.dumps({"batchId": batch}))
    return SimpleNamespace(progress=progress)


def lines(folder) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]


def test_a_run_is_a_file_and_an_event_a_line(tmp_path):
    log = QueryLog(tmp_path / "new" / "folder", clock=FakeClock())
    log.onQueryStarted(SimpleNamespace(runId="run", id="query", name="revenue"))
    log.onQueryProgress(events(3))
    log.onQueryIdle(SimpleNamespace())
    log.onQueryTerminated(SimpleNamespace(runId="run", id="query", exception="it broke\n\tat somewhere"))
    started, progress, terminated = lines(tmp_path / "new" / "folder")
    assert (started["event"], started["name"]) == ("started", "revenue")
    assert progress["progress"] == {"batchId": 3}
    assert (terminated["event"], terminated["reason"]) == ("terminated", "it broke")


def test_a_large_file_is_put_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(query_log, "_MAX_BYTES", 100)
    log = QueryLog(tmp_path)
    for batch in range(5):
        log.onQueryProgress(events(batch))
    assert [line["progress"]["batchId"] for line in lines(tmp_path)][-1] == 4
    assert (tmp_path / "run.jsonl.old").exists()


def test_a_folder_that_went_away_is_a_warning(tmp_path, caplog):
    log = QueryLog(tmp_path / "log")
    (tmp_path / "log").rmdir()
    log.onQueryProgress(events())
    assert "is not written" in caplog.text
