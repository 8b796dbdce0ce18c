"""Programs of RocketMQ Streams' own examples and tests, ported: what they show there they show here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as sf
from tests.spark.streams_support import at, table

from pyspark_rocketmq.streams import SchemaConfig, SchemaType, StreamBuilder, Time, TumblingWindow
from pyspark_rocketmq.streams.compile.compiler import Compiler
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import BEAT, TIME, VALUE
from pyspark_rocketmq.streams.plan import nodes as p

pytestmark = pytest.mark.usefixtures("lean")


def source(spark, name="upstream"):
    return StreamBuilder.dataStream("tests", name, spark)


def records(spark, topic="topic", name="upstream", **options):
    return source(spark, name).fromRocketmq(topic, "group", True, "127.0.0.1:1", **options)


PEOPLE = [
    at(1, city="x", name="bea", age=30),
    at(2, city="x", name="ann", age=9),
    at(3, city="x", name="bea", age=100),
    at(4, city="x", age=1),
    at(5, city="x", name="beate", age=2),
]


@pytest.mark.parametrize(
    ("ascending", "names"),
    [(True, ["ann", "bea", "bea", "beate", None]), (False, ["beate", "bea", "bea", "ann", None])],
)
def test_rows_are_ranked_by_a_text_and_then_by_a_number(spark, ascending, names):
    window = records(spark).window(TumblingWindow.of(Time.seconds(10))).groupBy("city", "name", "age")
    top = window.count("n").toDataStream().topN("rank", 10, "city")
    top = top.addOrderByFieldName("name", ascending).addOrderByFieldName("age", False)
    rows = sorted(top.toDataStream().test(PEOPLE), key=lambda row: row["rank"])
    assert [row["name"] for row in rows] == names
    assert [row["age"] for row in rows if row["name"] == "bea"] == ["100", "30"]


def test_rows_are_ranked_by_whole_numbers_of_any_size_and_by_dates(spark):
    big = 2**60
    rows = [at(1, id=big + n, day=f"2030-01-0{9 - n}") for n in range(4)]
    for field, first in (("id", big + 3), ("day", big)):
        stream = records(spark, schema="id long, day date")
        window = stream.window(TumblingWindow.of(Time.seconds(10))).groupBy("id", "day").count("n")
        top = window.toDataStream().topN("rank", 1).addOrderByFieldName(field, False).toDataStream()
        assert [row["id"] for row in top.test(rows)] == [first]


def test_values_that_a_selector_gives_are_counted_whatever_they_are(spark):
    values = StreamBuilder("counts", spark).source("topic").keyBy(lambda user: user["city"])
    counted = values.count(lambda user: user.get("name")).toRStream()
    assert table(counted.test([row for _, row in PEOPLE]), "key", "value") == [("x", 4)]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("(name,==,chris)&(age,>=,18)", [1]),
        ("(name,==,chris)&(age,>,int,18)", [1]),
        ("(ip,==,1.2.2.3)&((uid,=,1224)|(vmip,=,1.1.11.1))", [2, 3]),
        ("(ip,==,1.2.2.3)&&((uid,=,1224)||(vmip,=,1.1.11.1))", [2, 3]),
        ("(uid,==,string,1224)", [2]),
        ("(name,==,O'Neil \\ son)", [4]),
        ("(name,==,`nick`)", [5]),
        ("(name,!=,'')&(name,!=,chris)", [4, 5]),
    ],
)
def test_expressions_compare_with_texts_and_numbers_as_they_stand(spark, expression, found):
    rows = [
        {"n": 1, "name": "chris", "age": "19"},
        {"n": 2, "ip": "1.2.2.3", "uid": "1224"},
        {"n": 3, "ip": "1.2.2.3", "uid": "01224.0", "vmip": "1.1.11.1"},
        {"n": 4, "name": "O'Neil \\ son", "age": "no number"},
        {"n": 5, "name": "li", "nick": "li"},
    ]
    assert [row["n"] for row in records(spark).filterByExpression(expression).test(rows)] == found


def test_texts_become_the_numbers_of_the_schema(spark):
    rows = [
        {"inFlow": "6", "ratio": " 1.5", "ok": "true"},
        {"inFlow": 7, "ratio": 2, "ok": False},
        {"inFlow": "", "ratio": None},
        {"inFlow": "six"},
        {"inFlow": 6.5},
        {"ratio": {"a": 1}},
    ]
    stream = records(spark, schema="inFlow int, ratio double, ok boolean")
    assert table(stream.test(rows), "inFlow", "ratio", "ok") == [
        (6, 1.5, True),
        (7, 2.0, False),
        (None, None, None),
    ]


def test_whole_sums_of_texts_are_whole_numbers(spark):
    window = records(spark).window(TumblingWindow.of(Time.seconds(10))).groupBy("k")
    results = window.sum("n").avg("n", "mean").max("m").toDataStream()
    rows = [at(1, k="a", n="1", m=1), at(2, k="a", n=1, m=2.5), at(3, k="b", n=1.5), at(3, k="b", n=1)]
    found = table(results.test(rows), "k", "n", "mean", "m")
    assert found == [("a", 2, 1, "2.5"), ("b", 2.5, 1.25, None)]
    assert [type(value) for value in found[0][1:3]] == [int, int]


# --- silent sides and changed rows ------------------------------------------------------------

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def beating(spark, folder: Path, batches):
    """Return a stream of JSON records and heartbeats, a file a batch."""
    folder.mkdir()
    for number, rows in enumerate(batches):
        lines = [
            {
                "time": NOON.replace(minute=second // 60, second=second % 60).isoformat(),
                "value": None if record is None else json.dumps(record),
            }
            for second, record in rows
        ]
        file = folder / f"{number:03d}.json"
        file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))  # Spark takes them in this order
    df = spark.readStream.schema("time timestamp, value string").option("maxFilesPerTrigger", 1)
    df = df.json(str(folder))
    columns = [sf.col("time").alias(TIME), sf.col("value").alias(VALUE), sf.col("value").isNull().alias(BEAT)]
    return Flow(df.select(*columns), p.Shape.JSON, beats=True)


def streamed(spark, stream, flows, folder: Path):
    """Return what a pipeline gives out for streams that take the place of its sources."""
    plan = stream._trial_plan()
    sources = [node for node in plan.nodes() if isinstance(node, p.Source)]
    compiler = Compiler(spark, plan)
    for node, flow in zip(sources, flows, strict=True):
        typed = flow if node.schema is None else flow.with_schema(node.schema, compiler.guard, node)
        compiler.given = {**compiler.given, node: typed}
    made = compiler.flow(plan.sinks[0])
    found: list[object] = []

    def take(batch, _):
        found.extend(json.loads(row[0]) for row in batch.collect())

    query = made.df.select(made.text().alias("value")).writeStream.foreachBatch(take)
    query = query.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    return found


def test_a_left_join_in_a_window_does_not_wait_for_a_silent_right_side(spark, tmp_path):
    schema = "k string, v int"
    left, right = (records(spark, topic, schema=schema) for topic in ("left", "right"))
    joined = left.leftJoin(right).on("(k,==,k)").window(Time.seconds(10)).toDataStream()
    flows = [
        beating(spark, tmp_path / "l", [[(1, {"k": "a", "v": 1})], [(100, None)], [(200, None)]]),
        beating(spark, tmp_path / "r", [[(1, None)], [(100, None)], [(200, None)]]),
    ]
    found = streamed(spark, joined, flows, tmp_path / "c")
    assert table(found, "k", "v", "right_v") == [("a", 1, None)]


def test_a_left_join_by_key_does_not_wait_for_a_silent_right_side(spark, tmp_path):
    builder = StreamBuilder("joins", spark)
    left, right = builder.source("left"), builder.source("right")
    joined = left.leftJoin(right).where(lambda v: v["k"]).equalTo(lambda v: v["k"])
    joined = joined.window(TumblingWindow.of(Time.seconds(10))).apply(lambda a, b: {"v": a["v"], "right": b})
    flows = [
        beating(spark, tmp_path / "l", [[(1, {"k": "a", "v": 1})], [(100, None)], [(200, None)]]),
        beating(spark, tmp_path / "r", [[(1, None)], [(100, None)], [(200, None)]]),
    ]
    assert streamed(spark, joined, flows, tmp_path / "c") == [{"v": 1, "right": None}]


def test_a_condition_on_the_group_does_not_keep_windows_open(spark, tmp_path):
    window = records(spark).window(TumblingWindow.of(Time.seconds(10))).groupBy("k").count("n")
    stream = window.having("k = 'a'").toDataStream()
    flow = beating(spark, tmp_path / "r", [[(1, {"k": "a"}), (2, {"k": "b"})], [(100, None)], [(200, None)]])
    assert table(streamed(spark, stream, [flow], tmp_path / "c"), "k", "n") == [("a", 1)]


# --- what upstream's programs name ------------------------------------------------------------


def test_a_join_without_a_window_pairs_records_within_an_hour(spark):
    left, right = (records(spark, topic, schema="k string, v int") for topic in ("left", "right"))
    joined = left.leftJoin(right).setCondition("(k,==,k)").toDataStream()
    rows = {
        "left": [at(1, k="a", v=1), at(2, k="b", v=2)],
        "right": [at(3_500, k="a", v=3), at(3_700, k="b", v=4)],
    }
    assert table(joined.test(rows), "k", "v", "right_v") == [("a", 1, 3), ("b", 2, None)]


def test_windows_of_the_newer_api_have_extremes(spark):
    grades = StreamBuilder("grades", spark).source("grade").keyBy(lambda grade: grade["name"])
    window = grades.window(TumblingWindow.of(Time.seconds(5)))
    rows = [at(1, name="a", score=3), at(2, name="a", score=8), at(7, name="a", score=5)]
    least = window.min(lambda grade: grade["score"]).toRStream().test(rows)
    greatest = window.max("score").toRStream().test(rows)
    assert table(least, "key", "value") == [("a", 3), ("a", 5)]
    assert table(greatest, "key", "value") == [("a", "5"), ("a", "8")]


@dataclass
class Data:
    InFlow: int
    ProjectName: str | None = None


def test_bodies_are_what_a_schema_config_says(spark):
    window = TumblingWindow.of(Time.seconds(5))
    begin = source(spark).fromRocketmq
    words = begin("words", "g", "127.0.0.1:1", SchemaConfig(SchemaType.STRING))
    counted = words.window(window).group().count("total").waterMark(2).setLocalStorageOnly(True)
    assert table(counted.toDataStream().test([(1.0, "one"), (2.0, "two")]), "total") == [(2,)]
    rows = [{"InFlow": "6", "ProjectName": "p", "other": 1}, {"InFlow": 3}]
    typed = begin("data", "g", "127.0.0.1:1", SchemaConfig(SchemaType.JSON, Data))
    assert typed.filter(lambda data: data["InFlow"] > 5).test(rows) == [{"InFlow": 6, "ProjectName": "p"}]
    own = begin("data", "g", True, "127.0.0.1:1", SchemaConfig(lambda body: {"size": len(body)}))
    assert own.test(["\u00fc", "abc"]) == [{"size": 2}, {"size": 3}]


def test_an_array_of_json_texts_has_fields(spark):
    stream = source(spark).fromArray(['{"n": 1}', '{"n": 7}'], True).filterByExpression("(n,>,5)")
    assert [row.n for row in stream.toDF().collect()] == ["7"]
