"""Several sinks of a job that write to one table or folder."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.planning.batch_replay import BatchId
from pyspark_rocketmq.spark.stores import sql_rows
from pyspark_rocketmq.streams import StreamBuilder
from pyspark_rocketmq.streams.connectors import database, rocketmq
from pyspark_rocketmq.streams.connectors.base import sink_of
from pyspark_rocketmq.streams.plan.nodes import Shape


def streaming(name):
    """A stream whose source never ends and is not RocketMQ's."""
    return StreamBuilder.dataStream("tests", name).fromFile("/in", tail=True)


class Batch:
    """A batch of one row."""

    sparkSession = None  # noqa: N815 - Spark's name

    def __init__(self, text):
        self.text = text
        nothing = SimpleNamespace(save=lambda: None)
        self.write = SimpleNamespace(format=lambda _: SimpleNamespace(mode=lambda _: nothing))


def test_two_sinks_of_one_table_write_all_their_rows_once(monkeypatch, tmp_path):
    def append_to(table):
        return lambda handle, batch: handle.execute(
            sa.text(f"INSERT INTO {table} VALUES (:text)"), {"text": batch.text}
        )

    log = SimpleNamespace(batch_id=lambda number: BatchId("query", number))
    monkeypatch.setattr(database, "CheckpointLog", lambda *_: log)
    monkeypatch.setattr(sql_rows, "append_to", append_to)
    url = f"sqlite:///{tmp_path}/r.db"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE results (text VARCHAR)"))
    stream = streaming("twice")
    plan = stream.toDB(url, None, None, "results").toDB(url, None, None, "results").plan()
    for _ in range(2):  # the second time, the batch is repeated
        for sink, text in zip(plan.sinks, ("left", "right"), strict=True):
            sink_of(sink).batch_writer(plan, "/checkpoint", numbered=True)(Batch(text), 0)
    with engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT text FROM results ORDER BY text")).scalars().all()
    engine.dispose()
    assert rows == ["left", "right"]


@pytest.mark.parametrize("other", ["/out", "/out/"])
def test_two_sinks_of_one_folder_are_refused_in_a_stream(other):
    stream = streaming("folder")
    plan = stream.toFile("/out").toJson(other).plan()
    with pytest.raises(PlanError, match="two sinks write to the folder /out"):
        sink_of(plan.sinks[1]).rows(None, plan)


def test_one_sink_a_folder_is_not_refused():
    stream = streaming("folders")
    plan = stream.toCsv("/out/a").toCsv("/out/b").plan()
    flow = SimpleNamespace(shape=Shape.COLUMNS, columns=(), df=SimpleNamespace(select=lambda *_: "rows"))
    assert [sink_of(sink).rows(flow, plan) for sink in plan.sinks] == ["rows", "rows"]


def test_each_sink_of_topics_has_its_own_job(monkeypatch):
    """Else the transactions of the second would seem to be committed, and its equal rows to be repeats."""
    jobs = []
    monkeypatch.setattr(rocketmq, "message_writer", lambda job, _: jobs.append(job))
    plan = streaming("topics").toRocketmq("one").toPrint().toRocketmq("two").plan()
    for sink in plan.sinks:
        sink_of(sink).batch_writer(plan, "/checkpoint", numbered=True)
    assert jobs == ["tests.topics", "tests.topics/2"]
