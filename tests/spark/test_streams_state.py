"""Steps that keep a state of their own: fire modes, incremental functions, processors, the state itself.

Processors are made in functions: Spark's processes get their code then, they cannot import tests.
"""

# ruff: noqa: ARG002, N803 - the parameters' names are Spark's

from __future__ import annotations

import json
import os

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as sf
from tests.spark.streams_support import at, table
from tests.support.cli import CommandLine
from tests.support.wait import eventually

from pyspark_rocketmq import streams
from pyspark_rocketmq.errors import OptionError, PlanError, RocketMQError
from pyspark_rocketmq.streams import (
    CheckpointStrategy,
    StatefulProcessor,
    StreamBuilder,
    Time,
    TumblingWindow,
    late_rows,
)
from pyspark_rocketmq.streams.connectors.rocketmq import RocketMQSink
from pyspark_rocketmq.streams.connectors.values import RowsSource
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.run.runner import finish

pytestmark = pytest.mark.usefixtures("lean")

WINDOW = TumblingWindow.of(Time.seconds(10), "t")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where batches come from."""
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def write(folder, *batches):
    """Write a file a batch."""
    for rows in batches:
        number = len(list(folder.glob("*.json")))
        lines = "".join(json.dumps({"t": int(time * 1000), **record}) + "\n" for time, record in rows)
        file = folder / f".{number:03d}"
        file.write_text(lines)
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))  # Spark takes the oldest first
        file.rename(folder / f"{number:03d}.json")


@pytest.fixture
def feed(spark, tmp_path, folder):
    """``feed(pipeline, *batches)``: run it over files, a batch each; returns its rows and its query."""

    def run(pipeline, *batches, schema=None):
        write(folder, *batches)
        source = StreamBuilder.dataStream("tests", "state", spark)
        stream = pipeline(source.fromFile(str(folder), tail=True, schema=schema, maxFilesPerTrigger=1))
        found = []

        def take(batch, _):
            found.extend(json.loads(row[0]) for row in batch.select(sf.to_json(sf.struct("*"))).collect())

        end = stream.to(take)
        query = end.with_(CheckpointStrategy.local(str(tmp_path / "checkpoint"))).asyncStart(
            availableNow=True
        )
        try:
            assert query.awaitTermination(200)
        finally:
            query.stop()
        return found, query

    return run


LATE = [
    [at(1, k="a", v="5"), at(4, k="a", v="12")],
    [at(11, k="b", v="x")],  # the first window's end; 5 s are left for late rows
    [at(11, k="b", v=None)],
    [at(5, k="a", v="7.5")],
    [at(6, k="a", v="12"), at(16, k="b", v="y")],  # behind this batch the first window is over
    [at(17, k="b", v="z")],
    [at(7, k="a", v="1"), at(21, k=None, v="z")],
]


def every_result(windows):
    windows = (
        windows.groupBy("k").count("rows").sum("v", "sum").avg("v", "avg").min("v", "min").max("v", "max")
    )
    windows = windows.first("v", "first").last("v", "last").concat("v", "concat").distinct("v", "distinct")
    return windows.count_distinct("v", "exact").count_distinct_large("v", "large").waterMark(5)


@pytest.mark.since_spark("4.1")
def test_late_rows_make_the_result_anew_with_every_aggregate(spark, feed):
    """By hand; Spark calls a row late by the watermark of the batch before."""
    rows, query = feed(lambda stream: every_result(stream.window(WINDOW)).fireMode(2).toDataStream(), *LATE)
    first = [row for row in rows if row.get("k") == "a"]
    assert table(first, "rows", "fire_time") == [
        (2, "2030-01-01 00:00:10"),
        (3, "2030-01-01 00:00:11"),
        (4, "2030-01-01 00:00:11"),
    ]
    assert table(first, "rows", "first", "last", "concat") == [
        (2, "5", "12", "5,12"),
        (3, "5", "7.5", "5,12,7.5"),
        (4, "5", "12", "5,12,7.5,12"),
    ]
    assert late_rows(query) == 1
    counted = [(time, {"t": int(time * 1000), **record}) for batch in LATE[:5] for time, record in batch]
    source = StreamBuilder.dataStream("tests", "native", spark).fromRocketmq("t", "g", True, "h:1")
    native = every_result(source.window(WINDOW)).toDataStream().test(counted)
    expected = next(row for row in native if row["k"] == "a")
    last = max(first, key=lambda row: row["rows"])
    assert {**last, "fire_time": ""} == {**expected, "fire_time": ""}
    kept = streams.state("tests.state").table().collect()
    assert {row.key: json.loads(row.results)["rows"] for row in kept} == {'{"k":"b"}': 4, '{"k":null}': 1}


TYPED = "t long, k struct<x: int, y: date>, d decimal(12,2), f double, at timestamp, ok boolean"


@pytest.mark.since_spark("4.1")
def test_late_rows_make_results_of_their_own_of_the_fields_types(feed):
    def pipeline(stream):
        windows = stream.window(WINDOW).groupBy("k", "ok").sum("d").avg("f").max("at").min("d", "least")
        return windows.count("rows").waterMark(5).fireMode(1).having("d < 10").toDataStream()

    def row(second, d, f):
        key = {"x": 1, "y": "2030-01-02"}
        return at(second, k=key, d=d, f=f, at="2030-01-01T00:00:00.123456Z", ok=True)

    batches = [
        [row(1, "1.10", 1.0), row(4, "2.20", 2.0)],
        [row(11, "0.01", 0.5)],
        [row(11, "0.01", 0.5)],
        [row(5, "8.00", None)],
        [row(6, "16.00", 4.0)],
    ]
    rows, _ = feed(pipeline, *batches, schema=TYPED)
    key = {"k": {"x": 1, "y": "2030-01-02"}, "ok": True, "at": "2030-01-01T00:00:00.123Z"}
    expected = [(2, 3.3, 1.5, 1.1), (1, 8.0, None, 8.0)]
    assert [(r["rows"], r["d"], r.get("f"), r["least"]) for r in rows] == expected
    assert all({name: row[name] for name in key} == key for row in rows)


@pytest.mark.since_spark("4.1")
def test_groups_are_those_of_sparks_own_windows(spark):
    """Two times within a millisecond are two groups, both zeros are one, and so is NaN."""
    keys = [
        *[
            ("2030-01-01T00:00:00.123456", 0.0),
            ("2030-01-01T00:00:00.123457", 0.0),
            (None, -0.0),
            (None, 0.0),
        ],
        *[(None, "NaN"), (None, "NaN"), (None, 1.1)],
    ]
    first = [at(number + 1, k=k, f=f) for number, (k, f) in enumerate(keys)]
    batches = [first, [at(30, f=9)], [at(31, f=9)]]

    def counts(mode):
        source = StreamBuilder.dataStream("tests", "groups", spark)
        stream = source.fromRocketmq("t", "g", True, "h:1", schema="k timestamp_ntz, f double")
        windows = stream.window(TumblingWindow.of(Time.seconds(10))).groupBy("k", "f")
        windows = windows.count("rows").count_distinct("f", "exact").fireMode(mode)
        rows = windows.toDataStream().test(batches, batches=True)
        return table([row for row in rows if row["f"] != 9], "f", "rows", "exact")

    assert counts(2) == counts(0)
    assert counts(2) == [(0, 1, 1), (0, 1, 1), (0, 2, 1), (1.1, 1, 1), ("NaN", 2, 1)]


@pytest.mark.parametrize(
    ("shares_identity", "guarantee", "columns"),
    [
        (False, {"deliveryGuarantee": "effectively-once"}, ["body", "keys", "writeId"]),
        (False, {"deliveryguarantee": "Effectively-Once"}, ["body", "keys", "writeId"]),
        (True, {"deliveryGuarantee": "effectively-once"}, ["body", "keys"]),
    ],
)
def test_only_what_comes_once_has_a_write_id(spark, shares_identity, guarantee, columns):
    source = RowsSource(name="rows", rows=())
    sink = RocketMQSink(name="end", input=source, options=guarantee)
    df = spark.sql("SELECT 'a' AS k, '2030-01-01_00:00:00' AS start_time, 2 AS __number")
    identity = ("k", "start_time") if shares_identity else ("k", "start_time", "__number")
    flow = Flow(df, Shape.COLUMNS, ("k", "start_time"), identity=identity, shares_identity=shares_identity)
    messages = sink.rows(flow, p.Plan(job="j", sinks=(sink,)))
    assert messages.columns == columns
    assert messages.first().keys == "a|2030-01-01_00:00:00" + ("" if shares_identity else "|2")


class Mean:
    """An accumulator of the newer API."""

    def __init__(self):
        self.values = []

    def addValue(self, value):
        self.values.append(value["n"])

    def result(self, context):
        return {"mean": sum(self.values) / len(self.values)}

    def clone(self):
        return Mean()


class Listed:
    """An accumulator of the older API."""

    def createAccumulator(self):
        return []

    def accumulate(self, accumulator, value):
        accumulator.append(value["n"])

    def getValue(self, accumulator):
        return accumulator


CHANGES = [
    [at(1, k="a", n=1), at(2, k="b", n=5)],
    [at(5, k="a", n=2)],
    [at(4, k="a", n=6)],
    [at(12, k="z", n=0)],
    [at(12, k="z", n=0)],
    [at(9, k="a", n=3)],
    [at(14, k="z", n=0)],
    [at(14, k="z", n=0)],
]


@pytest.mark.since_spark("4.1")
def test_results_before_and_after_the_end_by_functions_that_see_each_record_once(feed):
    def pipeline(stream):
        windows = stream.window(WINDOW).groupBy("k").aggregate(Mean(), "newer", incremental=True)
        windows = windows.aggregate(Listed(), "older").emitBeforeFire(Time.seconds(4))
        return windows.emitAfterFire(Time.seconds(2)).toDataStream()

    rows, _ = feed(pipeline, *CHANGES)
    found = [(row["fire_time"][-2:], row["newer"], row["older"]) for row in rows if row["k"] == "a"]
    assert [(fire, newer["mean"], older) for fire, newer, older in found] == [
        ("04", 3, [1, 2, 6]),
        ("10", 3, [1, 2, 6]),
        ("14", 3, [1, 2, 6, 3]),
    ]


@pytest.mark.since_spark("4.1")
def test_what_cannot_be_computed_record_by_record_says_so(feed):
    def pipeline(stream):
        windows = stream.window(WINDOW).agg(longest="max(length(k))").fireMode(2)
        return windows.toDataStream()

    with pytest.raises(PlanError, match=r"agg\(longest=...\) is a Spark aggregate.*window#"):
        feed(pipeline, [at(1, k="a")])


# --- processors -------------------------------------------------------------------------------


def counts(ttl_ms):
    class Counts(StatefulProcessor):
        def init(self, handle):
            self.all = handle.getValueState("all", "n bigint")
            self.recent = handle.getValueState("recent", "n bigint", ttl_ms)
            self.last = handle.getMapState("last", "v string", "t bigint")

        def handleInputRows(self, key, rows, timerValues):
            rows = list(rows)
            for state in (self.all, self.recent):
                state.update(((state.get() or (0,))[0] + len(rows),))
            for row in rows:
                self.last.updateValue((row.v,), (row.t,))
            yield Row(k=key[0], n=self.all.get()[0])

    return Counts()


def there(query, seen, row):
    """Whether a query that lives has given a row."""
    assert query.exception() is None
    return row in seen


def committed(state, name):
    """A table, once a batch has been finished."""
    try:
        return state.table(name)
    except OptionError:
        return None


def rows_of(df, *names):
    return sorted(tuple(row[name] for name in names) for row in df.collect())


@pytest.mark.since_spark("4.1")
def test_a_job_whose_fields_have_other_types_does_not_continue(spark, folder):
    """In the results of open windows, a group that was a text and is a number now would be null."""

    def run(key, value):
        source = StreamBuilder.dataStream("tests", "types", spark)
        stream = source.fromFile(str(folder), tail=True, schema=f"t long, k {key}, v {value}")
        window = stream.window(WINDOW).groupBy("k").max("v").waterMark(5).fireMode(2)
        window.toDataStream().to(lambda df, _: df.collect()).start(availableNow=True)

    write(folder, [at(1, k=1, v=9)])
    run("string", "long")
    for key, value in (("long", "long"), ("string", "string")):
        with pytest.raises(RocketMQError, match="other types now than in the state"):
            run(key, value)
    run("string", "long")


@pytest.mark.since_spark("4.1")
def test_the_state_of_a_running_job_can_be_read_and_expires(spark, tmp_path, folder, capsys, monkeypatch):
    source = StreamBuilder.dataStream("tests", "live", spark)
    stream = source.fromFile(
        str(folder), tail=True, schema="t long, k string, v string", maxFilesPerTrigger=1
    )
    seen = []
    end = stream.process("k", counts(3_000), "k string, n bigint", "processingTime")
    end = end.to(lambda df, _: seen.extend(map(tuple, df.collect())))
    assert "Counts by k, time processingTime, state in Python workers" in end.explain()
    write(folder, [at(1, k="a", v="x"), at(2, k="b", v="x")])
    query = end.with_(CheckpointStrategy.local(str(tmp_path / "checkpoint"))).asyncStart()
    try:
        state = streams.state("tests.live")
        eventually(lambda: there(query, seen, ("a", 1)), 150, what="the first batch")
        first = eventually(lambda: committed(state, "all"), 60, what="its end")
        assert rows_of(first, "k", "n") == [("a", 1), ("b", 1)]
        assert state.tables() == ["all", "last", "recent"]
        write(folder, [at(3, k="a", v="x"), at(4, k="a", v="y")])
        eventually(lambda: there(query, seen, ("a", 3)), 150, what="the second batch")
        eventually(
            lambda: rows_of(state.table("all"), "k", "n") == [("a", 3), ("b", 1)], 60, what="its state"
        )
        assert [row[:2] for row in rows_of(state.table("last"), "k", "v", "t")] == [
            *[("a", "x"), ("a", "y"), ("b", "x")]
        ]
        eventually(lambda: not state.table("recent").collect(), 150, what="the end of what was to expire")
    finally:
        query.stop()
    finish(query)
    changes = rows_of(state.changes("all"), "change_type", "k", "n")
    assert changes == [("update", "a", 1), ("update", "a", 3), ("update", "b", 1)]
    told = CommandLine(capsys, monkeypatch, None)("streams", "state", "tests.live", "all", "--json")
    assert sorted((row["k"], row["n"]) for row in told.json()) == [("a", 3), ("b", 1)]
    with pytest.raises(OptionError, match="tables all, last, recent: name one"):
        state.table("nope")


@pytest.mark.since_spark("4.1")
def test_a_processor_has_timers_in_event_time(spark, feed):
    class Silence(StatefulProcessor):
        def init(self, handle):
            self.handle = handle
            self.last = handle.getValueState("last", "ms bigint")

        def handleInputRows(self, key, rows, timerValues):
            newest = max(int(row.event_time.timestamp() * 1000) for row in rows)
            self.last.update((newest,))
            self.handle.registerTimer(newest + 5_000)
            return iter([])

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
            if expiredTimerInfo.getExpiryTimeInMs() == self.last.get()[0] + 5_000:
                yield Row(k=key[0], since=self.last.get()[0])
                self.last.clear()

    def pipeline(stream):
        timed = stream.selectTimestamp("t").selectFields("k")
        return timed.process("k", Silence(), "k string, since bigint", "eventTime", waterMark=1)

    batches = [
        [at(1, k="a"), at(3, k="b")],
        [at(5, k="a")],
        [at(11, k="b")],
        [at(2, k="late"), at(11, k="b")],
    ]
    rows, query = feed(pipeline, *batches)
    start = int(at(0)[0] * 1000)
    assert [(row["k"], row["since"] - start) for row in rows] == [("a", 5_000)]
    assert late_rows(query) == 1


@pytest.mark.since_spark("4.1")
def test_values_meet_the_latest_of_the_other_side(spark):
    builder = StreamBuilder("latest", spark)
    left, right = builder.source("left"), builder.source("right")
    pairs = (
        left.leftJoin(right)
        .where(lambda v: v["id"])
        .equalTo(lambda v: v["id"])
        .apply(lambda one, other: {"n": one["n"], "m": other and other["m"]})
    )
    assert "the latest of the other side, state in Python workers" in pairs.explain()
    rows = {
        "left": [[at(1, id="a", n=1), at(4, id="b", n=2)], [at(6, id="a", n=3)], []],
        "right": [[at(2, id="a", m=10), at(3, id="a", m=11)], [at(7, id="a", m=12), at(5, id="c", m=1)], []],
    }
    expected = [(1, None), (1, 10), (1, 11), (2, None), (3, 11), (3, 12)]
    found = table(pairs.test(rows, batches=True), "n", "m")
    assert found == sorted(expected, key=lambda row: [str(value) for value in row])


@pytest.mark.since_spark("4.1")
def test_groups_that_grow_give_what_collected_ones_give(spark):
    batches = [
        [at(1, k="a", n=1), at(2, k="b", n=5)],
        [at(3, k="a", n=2), at(4, k="a", n=6)],
        [at(5, k="b", n=7)],
    ]
    values = StreamBuilder("grow", spark).source("t").keyBy(lambda value: value["k"])
    grown = values.aggregate(Mean(), incremental=True).test(batches, batches=True)
    assert [(row["key"], row["value"]["mean"]) for row in grown] == [("a", 1), ("b", 5), ("a", 3), ("b", 6)]
    assert sorted(map(str, grown)) == sorted(map(str, values.aggregate(Mean()).test(batches, batches=True)))


@pytest.mark.since_spark("4.1")
def test_a_processor_over_rows_that_end(spark):
    source = StreamBuilder.dataStream("tests", "ends", spark)
    rows = source.fromCollection({"k": "a", "v": "x", "t": 1}, schema="t long, k string, v string")
    assert rows.process("k", counts(None), "k string, n bigint").toDF().collect() == [Row(k="a", n=1)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.process("k", len, "n int"), "a StatefulProcessor object, not builtin_function"),
        (lambda s: s.process((), counts(1), "n int"), "at least one key field"),
        (lambda s: s.process("k", counts(1), "n int", "wall"), "timeMode is one of none, processingTime"),
        (lambda s: s.process("k", counts(1), "n int", waterMark=1), "requires timeMode='eventTime'"),
        (lambda s: s.process("k", counts(1), "n int").toDF(), "set their fields by.*process#"),
        (lambda s: s.selectFields("k").process("k", counts(1), "oh no?").toDF(), "the schema is malformed"),
        (
            lambda s: (
                s.selectFields("k")
                .process("k", counts(1), "n int", "processingTime")
                .test([[]], batches=True)
            ),
            "Spark runs batches forever",
        ),
        (lambda s: s.selectFields("k").process("x", counts(1), "n int").toDF(), "no field 'x' here"),
    ],
)
@pytest.mark.since_spark("4.1")
def test_what_a_processor_needs(spark, wrong, message):
    source = StreamBuilder.dataStream("tests", "wrong", spark)
    with pytest.raises(PlanError, match=message):
        wrong(source.fromRocketmq("topic", "group", True, "127.0.0.1:1"))
