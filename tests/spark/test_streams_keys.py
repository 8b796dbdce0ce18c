"""Keys and bodies of a pipeline's messages: a result has its group's key, whatever steps follow."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.streams import SessionWindow, StreamBuilder, Time, TumblingWindow
from pyspark_rocketmq.streams.api.rstream import RStream
from pyspark_rocketmq.streams.compile.compiler import Compiler
from pyspark_rocketmq.streams.connectors.base import sink_of
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSink
from pyspark_rocketmq.streams.connectors.values import RowsSource
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.run.sinks import final_flow

pytestmark = pytest.mark.usefixtures("lean")

VISITS = [{"user": user, "page": page} for user, page in ("ap", "aq", "bp")]
OUT = {"namesrvAddr": "127.0.0.1:1"}
ONCE = {**OUT, "guarantee": "effectively-once"}


def visits(spark):
    """A stream of the fluent API."""
    return StreamBuilder.dataStream("tests", "keys", spark).fromArray(
        VISITS, schema="user string, page string"
    )


def values(spark):
    """The same as a stream of the newer API."""
    stream = visits(spark)
    return RStream(stream._job, stream._node)


def counted(spark):
    """Visits by user."""
    window = visits(spark).window(TumblingWindow.of(Time.days(9_000_000))).groupBy("user")
    return window.count("total").toDataStream()


def messages(spark, stream):
    """The rows that a pipeline's only sink gives to Spark's writer."""
    plan = stream.plan()
    (sink,) = plan.sinks
    compiler = Compiler(spark, plan)
    flow = final_flow(compiler.flow(sink), sink, compiler.guard)
    return [row.asDict() for row in sink_of(sink).rows(flow, plan).collect()]


def keys(rows):
    return sorted(row["keys"] for row in rows)


def as_bytes(value):
    return b"\xff" + value["key"].encode()


def test_a_serializer_makes_the_body_and_the_group_is_the_key(spark):
    by_user = values(spark).keyBy(lambda visit: visit["user"])
    by_page = values(spark).keyBy(lambda visit: visit["page"])
    rows = messages(spark, by_user.count().sink("out", as_bytes, **OUT))
    assert {(row["keys"], bytes(row["body"])) for row in rows} == {("a", b"\xffa"), ("b", b"\xffb")}
    rows = messages(spark, by_page.toRStream().sink("out", lambda visit: f"{visit['page']}!", **OUT))
    assert sorted(bytes(row["body"]) for row in rows) == [b"p!", b"p!", b"q!"]


class Pages:
    def __init__(self):
        self.pages = []

    def addValue(self, value):
        self.pages.append(value["page"])

    def result(self, context):  # noqa: ARG002 - the name is RocketMQ Streams'
        return {"pages": sorted(self.pages)}

    def clone(self):
        return Pages()


def test_an_accumulators_object_is_serialized_with_its_key(spark):
    by_user = values(spark).keyBy(lambda visit: visit["user"]).aggregate(Pages())
    rows = messages(spark, by_user.sink("out", lambda found: ",".join(found["value"]["pages"]), **OUT))
    assert {(row["keys"], bytes(row["body"])) for row in rows} == {("a", b"p,q"), ("b", b"p")}


@pytest.mark.parametrize(
    "then",
    [
        lambda stream: stream.map(lambda row: {"n": row["total"] * 2}),
        lambda stream: stream.map(lambda row: {"n": row["total"]}),
        lambda stream: stream.map({"n": "total + 1"}),
        lambda stream: stream.script("user='c'; start_time=''"),
        lambda stream: stream.selectFields("total"),
        lambda stream: stream.filter(lambda row: row["total"] > 0).selectFields("total"),
        lambda stream: stream.map(lambda row: {"n": row["total"] * 2}).selectFields("n").filter("n > 0"),
        lambda stream: (
            stream.selectFields("total").topN("rank", 5).addOrderByFieldName("total").toDataStream()
        ),
        lambda stream: (
            stream.selectFields("total")
            .topN("rank", 5)
            .addOrderByFieldName("total")
            .toDataStream()
            .map(lambda row: {"n": row["rank"]})
        ),
    ],
    ids=["function", "lifted", "columns", "script", "fields", "filter", "several", "top", "top-function"],
)
def test_a_result_keeps_its_key_when_its_fields_change(spark, then):
    rows = messages(spark, then(counted(spark)).toRocketmq("out", **ONCE))
    assert [key.split("|")[0] for key in keys(rows)] == ["a", "b"]
    assert len({row["writeId"] for row in rows}) == 2


def test_several_rows_of_one_result_have_its_key_and_no_write_id_in_common(spark, tmp_path):
    """A reader that drops repeats by the write id would drop rows that are no repeats."""
    table = tmp_path / "users.csv"
    table.write_text("user,color\na,red\na,blue\nb,red\n")
    split = counted(spark).flatMap(lambda row: [{"part": 1, **row}, {"part": 2, **row}])
    first = counted(spark)
    twice = first.union(first.filter("total > 0"))
    joined = counted(spark).dimJoin(str(table), 10).on("(user,==,user)").toDataStream()
    for stream, found in ((split, "aabb"), (twice, "aabb"), (joined, "aab")):
        rows = messages(spark, stream.toRocketmq("out", **ONCE))
        assert "".join(key.split("|")[0] for key in keys(rows)) == found
        assert not any("writeId" in row for row in rows)


def test_what_a_serializer_cannot_return_is_an_error_of_the_record(spark):
    stream = values(spark).sink("out", lambda visit: visit, **OUT)
    assert messages(spark, stream) == []
    stream = values(spark)
    stream._job.set_errors("fail", {})
    with pytest.raises(Exception, match="a serializer returns bytes or a text, not dict"):
        messages(spark, stream.sink("out", lambda visit: visit, **OUT))


def sent(spark, stream):
    """The keys and write ids of results, which a reader uses to drop repeats."""
    rows = messages(spark, stream.toRocketmq("out", **ONCE))
    return [row["keys"] for row in rows], {row["writeId"] for row in rows}


def test_each_group_has_its_own_key(spark):
    texts = ["a|b", "a", "b", "a b", "a_b", "a%7Cb", "a\tb", "<null>", "%3Cnull>", "", None]
    rows = [{"k": k, "other": other} for k in texts for other in ("b", "b|b", None)]
    stream = StreamBuilder.dataStream("tests", "keys", spark).fromArray(rows, schema="k string, other string")
    window = stream.window(TumblingWindow.of(Time.days(9_000_000))).groupBy("k", "other")
    keys, write_ids = sent(spark, window.count("n").toDataStream())
    assert len(set(keys)) == len(write_ids) == len(rows)
    assert not any(character in key for key in keys for character in " \t\n")


def test_the_group_of_the_empty_text_has_a_key(spark):
    """Without one, each of its changed results would go to another queue, and the latest were not known."""
    groups = spark.sql("SELECT explode(array('', '<empty>', '%3Cempty>', NULL, '<null>')) AS k, 1 AS n")
    flow = Flow(groups, Shape.COLUMNS, ("k", "n"), updates=True, identity=("k",))
    sink = RocketMQSink(name="out", input=RowsSource(name="rows", rows=()), options={})
    rows = sink.rows(flow, p.Plan(job="j", sinks=(sink,))).collect()
    assert [row["keys"] for row in rows] == ["<empty>", "%3Cempty>", "%253Cempty>", "<null>", "%3Cnull>"]


@pytest.mark.parametrize(
    ("zone", "window", "times", "expected"),
    [
        (
            "UTC",
            TumblingWindow.of(Time.milliseconds(500), "t"),
            ["2030-01-01T00:00:00.1Z", "2030-01-01T00:00:00.6Z"],
            ["a|2030-01-01_00:00:00", "a|2030-01-01_00:00:00.500000Z"],
        ),
        (
            "UTC",
            SessionWindow.of(Time.milliseconds(200), "t"),
            ["2030-01-01T00:00:00.1Z", "2030-01-01T00:00:00.6Z"],
            ["a|2030-01-01_00:00:00.100000Z", "a|2030-01-01_00:00:00.600000Z"],
        ),
        (
            "Europe/Berlin",  # the clock is set back from 3:00 to 2:00 at 1:00 UTC
            TumblingWindow.of(Time.minutes(1), "t"),
            ["2030-10-27T00:30:00Z", "2030-10-27T01:30:00Z"],
            ["a|2030-10-27_02:30:00", "a|2030-10-27_02:30:00.000000+01:00"],
        ),
    ],
    ids=["short", "session", "set-back"],
)
def test_each_window_has_its_own_key(spark, zone, window, times, expected):
    def counts():
        rows = [{"k": "a", "t": time} for time in times]
        stream = StreamBuilder.dataStream("tests", "keys", spark)
        records = stream.fromArray(rows, schema="k string, t timestamp")
        return records.window(window).groupBy("k").count("n").toDataStream()

    ranked = counts().topN("rank", 5).addOrderByFieldName("n").toDataStream()
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        keys, write_ids = sent(spark, counts())
        assert sorted(keys) == expected
        assert len(write_ids) == len(expected)
        keys, write_ids = sent(spark, ranked)
        assert sorted(keys) == sorted(f"{key}|1" for key in expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
