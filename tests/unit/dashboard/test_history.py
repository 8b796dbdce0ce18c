from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.query_logs import QUERY, RUN, LogFile, progress

from pyspark_rocketmq.dashboard.history import BatchPoint, QueryLogReader
from pyspark_rocketmq.errors import OptionError


@pytest.fixture
def log(tmp_path) -> LogFile:
    return LogFile(tmp_path)


def test_a_run_is_followed_from_its_start_to_its_end(log, tmp_path):
    reader = QueryLogReader(tmp_path)
    assert reader.look() == ()
    log.write("started", 1_000, queryId=QUERY, name="revenue")
    (run,) = reader.look()
    assert (run.name, run.query_id, run.started_ms, run.ended, list(run.batches)) == (
        "revenue", QUERY, 1_000, False, [],
    )  # fmt: skip
    for batch in range(3):
        log.write("progress", 2_000 + batch, progress=progress(batch, read=10, newest=20))
    assert [batch.batch_id for batch in reader.look()[0].batches] == [0, 1, 2]
    log.write("terminated", 9_000, queryId=QUERY, reason="it broke")
    (run,) = reader.look()
    assert (run.ended, run.reason, run.seen_ms, len(run.batches)) == (True, "it broke", 9_000, 3)


def test_a_file_that_was_gone_is_read_from_its_first_line_if_it_comes_back(tmp_path):
    reader = QueryLogReader(tmp_path / "log")
    (tmp_path / "log").mkdir()
    old = LogFile(tmp_path / "log", "query")
    old.write("started", 1_000, queryId=QUERY)
    (file,) = (tmp_path / "log").glob("*.jsonl")
    assert len(reader.look()) == 1
    file.rename(tmp_path / "away")  # a file that is deleted frees its inode for the next one
    reader.look()
    lines = [{"event": "started", "runId": f"new-{n}", "at": 2_000 + n, "queryId": "q"} for n in range(3)]
    (tmp_path / "away").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "away").rename(file)
    assert {run.run_id for run in reader.look()} >= {"new-0", "new-1", "new-2"}


@pytest.mark.parametrize("step", ["stat", "open"])
def test_a_file_that_is_deleted_while_it_is_looked_at_is_gone(log, tmp_path, monkeypatch, step):
    log.write("started", 1_000, queryId=QUERY)
    other = LogFile(tmp_path, "other")
    other.write("started", 1_000, queryId="other")
    real = getattr(Path, step)

    def delete_first(path: Path, *arguments: object, **named: object) -> object:
        if path == other.path:
            path.unlink(missing_ok=True)
        return real(path, *arguments, **named)

    monkeypatch.setattr(Path, step, delete_first)
    assert [run.query_id for run in QueryLogReader(tmp_path).look()] == [QUERY]


def test_failures_come_first_until_their_query_is_started_again(tmp_path):
    def run(name: str, query: str, at_ms: int, **ended: object) -> None:
        log = LogFile(tmp_path, name)
        log.write("started", at_ms, queryId=query)
        if ended:
            log.write("terminated", at_ms + 1, queryId=query, **ended)

    run("stopped", "a", 1_000, failed=False)
    run("running", "b", 2_000)
    run("broken", "c", 3_000, failed=True, reason="it broke", trace="it broke\n\tat x")
    run("mended", "d", 4_000, failed=True)
    run("again", "d", 5_000)
    run("old", "e", 6_000, reason="a log of an earlier release")
    runs = QueryLogReader(tmp_path).look()
    assert [run.run_id for run in runs] == ["old", "broken", "again", "running", "mended", "stopped"]
    assert [run.failed for run in runs] == [True, True, False, False, True, False]
    assert [run.run_id for run in runs if run.restarted] == ["mended"]
    assert runs[1].trace == "it broke\n\tat x"


def test_a_run_whose_start_is_in_a_replaced_part_of_its_log_is_later_than_the_failed_one(tmp_path):
    failed, again = LogFile(tmp_path, "failed"), LogFile(tmp_path, "again")
    failed.write("started", 1_000, queryId=QUERY)
    failed.write("terminated", 2_000, queryId=QUERY, failed=True, reason="it broke")
    again.write("progress", 9_000, progress=progress(7, read=10, newest=20))
    again.write("progress", 9_500, progress=progress(8, read=20, newest=20))
    running, mended = QueryLogReader(tmp_path).look()
    assert (running.run_id, running.restarted, running.started_ms) == ("again", False, 9_000)
    assert (mended.run_id, mended.restarted) == ("failed", True)


def test_the_groups_for_which_a_query_commits(log, tmp_path):
    log.write("progress", 2_000, progress=progress(0, read=10, newest=20, group="billing"))
    assert QueryLogReader(tmp_path).look()[0].groups == ("billing",)


def test_a_batch_is_what_spark_said_of_it():
    batch = BatchPoint.of(progress(7, read=10, newest=15, queues=2), 5)
    assert (batch.batch_id, batch.rows, batch.input_rate) == (7, 1_000, 980.0)
    assert batch.lag == {"orders broker-a:0": 5, "orders broker-a:1": 30}
    assert batch.duration_ms["other"] == 50
    assert "triggerExecution" not in batch.duration_ms
    assert batch.state_rows == 1_207
    assert batch.watermark_ms == 1_769_846_400_000


def test_of_a_thousand_queues_those_that_are_furthest_behind_are_kept():
    """All batches go to the page with each look: with all queues, 9 MB for each run."""
    batch = BatchPoint.of(progress(7, read=10, newest=15, queues=1_000), 5)
    assert batch.lag == {f"orders broker-a:{number}": 5 + 25 * number for number in range(984, 1_000)}
    assert sum(batch.lag.values()) + batch.other_lag == sum(5 + 25 * number for number in range(1_000))
    assert batch.queues == 1_000


def test_offsets_as_text_no_watermark_and_rates_that_are_not_numbers():
    told = progress(0, read=1, newest=1, eventTime={"watermark": "1970-01-01T00:00:00.000Z"})
    told["inputRowsPerSecond"], told["processedRowsPerSecond"] = "Infinity", float("nan")
    (source,) = told["sources"]
    told["sources"] = [{name: json.dumps(offset) for name, offset in source.items()}, {"endOffset": "12"}]
    batch = BatchPoint.of(told, 5)
    assert batch.lag == {"orders broker-a:0": 0, **{f"orders broker-a:{n}": 25 * n for n in (1, 2, 3)}}
    assert (batch.watermark_ms, batch.input_rate, batch.processed_rate) == (None, 0.0, 0.0)


def test_a_line_that_is_not_whole_yet_is_read_when_it_is_and_a_broken_one_is_passed_over(log, tmp_path):
    reader = QueryLogReader(tmp_path)
    log.write("started", 1_000, queryId=QUERY)
    with log.path.open("a") as file:
        file.write("no json\n{}\n[]\n" + "[" * 100_000 + "\n")
        file.write(
            json.dumps(
                {"event": "progress", "at": 1, "runId": RUN, "progress": {"batchId": 1, "sources": [1]}}
            )
        )
        file.write('\n{"event": "started", "runId": "x", "at": 1e999}\n')
        file.write('{"event": "terminated", "at": 2000')
    assert reader.look()[0].ended is False
    with log.path.open("a") as file:
        file.write(f', "runId": "{RUN}"}}\n')
    assert reader.look()[0].ended is True


def test_a_log_that_cannot_be_read_is_named(log, tmp_path):
    log.path.mkdir()
    with pytest.raises(OptionError, match=f"the query log cannot be read: Is a directory .*{log.path}"):
        QueryLogReader(tmp_path).look()


def test_a_file_that_was_put_aside_is_read_anew(log, tmp_path):
    reader = QueryLogReader(tmp_path)
    for batch in range(3):
        log.write("progress", batch, progress=progress(batch, read=1, newest=1))
    reader.look()
    log.path.replace(log.path.with_suffix(".jsonl.old"))
    log.write("progress", 9, progress=progress(9, read=1, newest=1))
    assert [batch.batch_id for batch in reader.look()[0].batches] == [0, 1, 2, 9]


def test_runs_of_a_query_that_is_started_again_and_again_are_forgotten(tmp_path):
    reader = QueryLogReader(tmp_path)
    for number in range(60):
        LogFile(tmp_path, f"run-{number}").write("started", 1_000 + number, queryId="q")
        reader.look()
    assert [run.run_id for run in reader.look()] == [f"run-{number}" for number in range(59, 9, -1)]


def test_running_queries_come_first(tmp_path):
    for number in range(3):
        log = LogFile(tmp_path, f"run-{number}")
        log.write("started", 1_000 + number, queryId="q")
        if number == 2:
            log.write("terminated", 5_000, queryId="q")
    assert [run.run_id for run in QueryLogReader(tmp_path).look()] == ["run-1", "run-0", "run-2"]
