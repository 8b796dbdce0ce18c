"""Jobs with several sinks: what one refuses is known before another is written."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import StreamBuilder
from pyspark_rocketmq.streams.frame import error_handling
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.run import sinks

ROWS = SimpleNamespace(select=lambda *_: ROWS, observe=lambda *_: ROWS)
FLOW = SimpleNamespace(df=ROWS, shape=Shape.COLUMNS, checked=True, columns=(), updates=False, beats=False)


def source(*, tail):
    return StreamBuilder.dataStream("tests", "sinks").fromFile("/in", tail=tail)


def compiled(plan, flow=FLOW, guard=None):
    return SimpleNamespace(
        plan=plan, guard=guard, find_common_step=lambda: plan.sinks[0].input, flow=lambda _: flow
    )


def test_a_table_beside_another_sink_is_refused_before_a_query_starts(monkeypatch):
    """The first batch would have been written to the sink before the table, again with each start."""
    plan = source(tail=True).to(lambda *_: None).toTable("results").plan()
    monkeypatch.setattr(sinks, "final_flow", lambda flow, *_: flow)
    monkeypatch.setattr(sinks, "_configure", lambda *_: pytest.fail("a query starts"))
    with pytest.raises(PlanError, match=r"must be the only sink of its job.*toTable#3"):
        sinks.start_sinks(compiled(plan), None, "/checkpoint", {})


def test_batches_of_a_job_with_several_sinks_leave_nothing_in_its_guard(monkeypatch):
    """A job that runs for weeks would keep the DataFrames of all its batches."""

    def check(flow, sink, guard):
        guard.count_errors(ROWS, MagicMock(), sink)
        return flow

    job, written = Guard("skip"), []
    plan = source(tail=True).to(lambda *_: written.append(1)).to(lambda *_: written.append(2)).plan()
    writer = SimpleNamespace(foreachBatch=lambda write: SimpleNamespace(start=lambda: write))
    monkeypatch.setattr(sinks, "_configure", lambda *_: writer)
    monkeypatch.setattr(sinks, "final_flow", check)
    monkeypatch.setattr(sinks, "replace", lambda flow, **_: flow)
    monkeypatch.setattr(sinks, "Compiler", lambda _, plan, given: compiled(plan, guard=Guard("skip")))
    monkeypatch.setattr(error_handling, "F", MagicMock())
    write = sinks.start_sinks(compiled(plan), job, "/checkpoint", {})
    before = len(job.names)
    for number in range(3):
        write(MagicMock(), number)
    assert written == [1, 2] * 3
    assert len(job.names) == before


def test_a_run_over_bounded_sources_writes_nothing_if_a_later_sink_refuses():
    written = []
    plan = source(tail=False).to(lambda *_: written.append(1)).toCsv("/out").plan()
    text = SimpleNamespace(alias=lambda _: "value")
    flow = SimpleNamespace(**{**vars(FLOW), "shape": Shape.TEXT, "text": lambda: text})
    with pytest.raises(PlanError, match=r"fields of the records are not known here.*toCsv#3"):
        sinks.run_once(compiled(plan, flow), None)
    assert not written


def test_a_run_over_bounded_sources_writes_each_sink():
    written = []
    plan = source(tail=False).to(lambda *_: written.append(1)).to(lambda *_: written.append(2)).plan()
    sinks.run_once(compiled(plan), None)
    assert written == [1, 2]


def test_a_topic_of_kafka_is_refused_before_a_query_starts_if_the_session_has_no_connector(monkeypatch):
    jvm = MagicMock()
    jvm.org.apache.spark.util.Utils.classIsLoadable.return_value = False
    session = SimpleNamespace(_jvm=jvm, version="4.3.0")
    rows = SimpleNamespace(select=lambda *_: rows, sparkSession=session)
    flow = SimpleNamespace(**{**vars(FLOW), "df": rows})
    plan = source(tail=True).to(lambda *_: None).toKafka("h:1", "topic").plan()
    monkeypatch.setattr(sinks, "final_flow", lambda flow, *_: flow)
    monkeypatch.setattr(sinks, "_configure", lambda *_: pytest.fail("a query starts"))
    with pytest.raises(PlanError, match=r"spark-sql-kafka-0-10_2.13:4.3.0.*toKafka#3"):
        sinks.start_sinks(compiled(plan, flow), None, "/checkpoint", {})
