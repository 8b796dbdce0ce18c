"""Live tables, the query log, and the example notebook as a notebook runs it."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib as mpl
import nbformat
import pytest
from examples import live as live_example
from nbclient import NotebookClient
from tests.support.clocks import FakeClock
from tests.support.wait import BUSY, eventually

from pyspark_rocketmq.dashboard.history import QueryLogReader
from pyspark_rocketmq.notebook import live

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_stream_is_followed_by_a_table(spark, mq, send, topic):
    name = topic(queues=2)
    send(name, 12, tags="new")
    df = spark.readStream.format("rocketmq").option("nameServer", mq.name_server)
    counts = df.options(topic=name, startingOffsets="earliest").load().groupBy("tags").count()
    clock = FakeClock(0.0)  # time passes as batches do

    def run_a_batch() -> None:
        (query,) = spark.streams.active
        query.processAllAvailable()
        clock.now_s = 1.0

    clock.on_sleep = run_a_batch
    shown = live(counts, seconds=1, every=0.1, mode="complete", clock=clock)
    assert shown.rows == [("new", 12)]
    assert shown.title == "batch 0, the last 20 rows"
    assert spark.streams.active == []


@pytest.mark.since_spark("4.2")
def test_what_a_session_writes_is_what_the_dashboard_reads(spark, mq, send, topic, group, tmp_path):
    name = topic(queues=2)
    send(name, 30)
    log = live_example.write_log(spark, str(tmp_path / "log"))
    reader = QueryLogReader(tmp_path / "log")
    try:
        source = spark.readStream.format("rocketmq").option("nameServer", mq.name_server)
        frame = source.options(topic=name, startingOffsets="earliest", maxOffsetsPerTrigger=10).load()
        writer = frame.writeStream.format("noop").queryName("copy").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        eventually(lambda: any(run.ended for run in reader.look()), what="the end in the log")
    finally:
        spark.streams.removeListener(log)
    (run,) = reader.look()
    assert (run.name, run.reason, sum(batch.rows for batch in run.batches)) == ("copy", None, 30)
    first, last = run.batches[0], run.batches[-1]
    assert (sum(first.lag.values()), sum(last.lag.values())) == (20, 0)
    assert first.lag.keys() == {f"{name} broker-a:0", f"{name} broker-a:1"}
    assert first.duration_ms["addBatch"] > 0

    mpl.use("agg")
    seen = live_example.look(
        mq.name_server, group, name, source.load(topic=name), str(tmp_path / "log"), seconds=0.5
    )
    assert [type(each).__name__ for each in seen] == ["Shown"] * 4 + ["Axes"]
    assert seen[1].title == f"{group} is 30 messages behind"
    mpl.pyplot.close(seen[-1].figure)


@pytest.mark.needs("programs")
@pytest.mark.timeout(200)
def test_the_example_notebook_runs(mq, topic, tmp_path, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", mq.name_server)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]))
    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    book.cells[0].source = f'TOPIC = "{topic(queues=2)}"\n'
    NotebookClient(book, timeout=150 * BUSY, resources={"metadata": {"path": str(EXAMPLES.parent)}}).execute()
    shown = [
        output.get("data", {}).get("text/html", "")
        for cell in book.cells
        for output in cell.get("outputs", [])
    ]
    tables = [html for html in shown if html]
    assert any("messages behind" in html for html in tables)
    assert any("<td>lamp</td>" in html for html in tables)
    images = [o for cell in book.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(images) == 1
