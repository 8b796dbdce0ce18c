from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.spark.monitor import query_log
from pyspark_rocketmq.spark.monitor.query_log import QueryLog, last_cause


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
    assert (terminated["failed"], terminated["trace"]) == (True, "it broke\n\tat somewhere")


def test_a_query_that_was_stopped_has_not_failed(tmp_path):
    log = QueryLog(tmp_path)
    log.onQueryTerminated(SimpleNamespace(runId="run", id="query", exception=None))
    (terminated,) = lines(tmp_path)
    assert terminated["failed"] is False
    assert not {"reason", "trace"} & terminated.keys()


JAVA = "org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark.A(A.scala:1)\n"
PYTHON = """Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 2, in main
    process()
pyspark_rocketmq.errors.BrokerNotFoundError: no broker [topic=orders]

\tat org.apache.spark.B(B.scala:1)
"""


@pytest.mark.parametrize(
    ("trace", "cause"),
    [
        (
            JAVA + PYTHON,
            "pyspark_rocketmq.errors.BrokerNotFoundError: no broker [topic=orders]",
        ),
        (
            JAVA + "Caused by: a.PythonException: thrown: pyspark_rocketmq.errors.OptionError: no\n\tat x\n",
            "pyspark_rocketmq.errors.OptionError: no",
        ),
        (
            JAVA + "Caused by: java.io.IOException: disk\n\tat x\nCaused by: java.lang.Error: root\n",
            "java.lang.Error: root",
        ),
        ("\n" + JAVA, "org.apache.spark.SparkException: Job aborted"),
        ("Traceback (most recent call last):\n  cut off", "Traceback (most recent call last):"),
        ("", "no cause was given"),
    ],
    ids=[
        "Python's last",
        "ours without a traceback",
        "Java's last",
        "the first line",
        "a traceback that was cut",
        "nothing",
    ],
)
def test_the_last_cause(trace: str, cause: str):
    assert last_cause(trace) == cause


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


def run(number: int) -> str:
    return f"5f0c3b1e-0000-4000-8000-{number:012d}"


def test_the_files_of_runs_that_were_written_long_ago_are_deleted(tmp_path, monkeypatch):
    """A query that runs every minute makes 43,000 files a month, and the dashboard looks at all of them."""
    monkeypatch.setattr(query_log, "_MOST_RUNS", 3, raising=False)
    log = QueryLog(tmp_path)
    for name in ("notes.txt", "orders.jsonl", "run.jsonl"):
        (tmp_path / name).write_text("of somebody", encoding="utf-8")
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / f"{run(0)}.jsonl.old").touch()
    for number in range(6):
        log.onQueryStarted(SimpleNamespace(runId=run(number), id="q", name="orders"))
        os.utime(tmp_path / f"{run(number)}.jsonl", (number, number))
    log.onQueryTerminated(SimpleNamespace(runId=run(3), id="q", exception=None))  # of another session, say
    log.onQueryStarted(SimpleNamespace(runId=run(6), id="q", name="orders"))
    kept = {file.name for file in tmp_path.iterdir()}
    assert kept == {"notes.txt", "orders.jsonl", "run.jsonl", *(f"{run(at)}.jsonl" for at in (3, 5, 6))}


def test_old_files_that_cannot_be_deleted_are_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(query_log, "_MOST_RUNS", 1, raising=False)
    for number in range(2):
        (tmp_path / f"{run(number)}.jsonl" / "file").mkdir(parents=True)
    QueryLog(tmp_path).onQueryStarted(SimpleNamespace(runId="run", id="q", name="orders"))
    assert lines(tmp_path)[0]["event"] == "started"
    assert "old files of the query log" in caplog.text
