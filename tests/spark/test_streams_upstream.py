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

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import (
    CheckpointStrategy,
    SchemaConfig,
    SchemaType,
    StreamBuilder,
    Time,
    TumblingWindow,
)
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
    plan = stream._dry_run_plan()
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


def test_extremes_of_a_function_have_all_digits(spark):
    long = 1_700_000_000_000_000_001  # this number and the next one are one double
    grades = StreamBuilder("digits", spark).source("grade").keyBy(lambda grade: grade["name"])
    rows = [at(1, name="a", score=long + 1), at(2, name="a", score=f" {long}"), at(3, name="a", score="")]
    rows += [at(1, name="b", score=2.0), at(2, name="b", score="2.5"), at(3, name="b", score=10)]
    rows += [at(1, name="c", score=None), at(2, name="c", score=True), at(3, name="c", score="x")]
    rows += [at(1, name="d", score=float("nan")), at(2, name="d", score=1e300)]
    window = grades.window(TumblingWindow.of(Time.minutes(1)))
    streams = (grades.min(lambda grade: grade["score"]), window.max(lambda grade: grade["score"]))
    found = [
        sorted((row["key"], row["value"], type(row["value"])) for row in stream.toRStream().test(rows))
        for stream in streams
    ]
    assert found == [
        [("a", long, int), ("b", 2, int), ("c", None, type(None)), ("d", 1e300, float)],
        [("a", long + 1, int), ("b", 10, int), ("c", None, type(None)), ("d", "NaN", str)],
    ]


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


# --- tables beside streams --------------------------------------------------------------------

PROJECTS = [
    {"address": "apache", "name": "dipper", "project": "p-0", "projectId": 1},
    {"address": "moon", "name": '\u00fc "x" }', "project": "p-1"},
]
FLOW = {"project": 7, "ProjectName": "p-0", "name": "own", "n": 2**60, "deep": {"z": [1.5, None, "1"]}}
OTHER = {"ProjectName": "p-1", "a }": '} "', "flag": True, "none": None}
STRANGER = {"name": "own", "ProjectName": "p-9"}


@pytest.fixture
def projects(tmp_path) -> str:
    file = tmp_path / "dim.txt"
    file.write_text("".join(json.dumps(row) + "\n" for row in PROJECTS), encoding="utf-8")
    return str(file)


def test_a_table_is_put_into_records_whose_fields_are_not_known(spark, projects):
    inner = records(spark).dimJoin(projects, 10_000).on("ProjectName, =, project").toDataStream()
    left = records(spark).dimLeftJoin(projects, 10_000).on("(ProjectName,=,project)").toDataStream()
    rows = [FLOW, OTHER, STRANGER, {}, "no JSON", "[1]"]
    found = [
        {**FLOW, "address": "apache", "name": "dipper", "project": "p-0", "projectId": "1"},
        {**OTHER, **PROJECTS[1], "projectId": None},
    ]
    assert inner.test(rows) == found
    assert left.test(rows) == [*found, STRANGER, {}]
    assert inner.filterByExpression("(name,==,dipper)").test(rows) == found[:1]
    twice = left.dimJoin(projects, 10_000).on("(name,==,name)&(project,==,project)").toDataStream()
    assert twice.test(rows) == found
    assert inner.map(lambda r: {"of": r["address"], "z": r.get("deep")}).filter("of = 'moon'").test(rows) == [
        {"of": "moon", "z": None}
    ]


def test_a_table_is_beside_the_fields_that_later_steps_name(spark, projects):
    joined = records(spark).dimJoin(projects, 10_000).on("(ProjectName,==,project)").toDataStream()
    assert joined.selectFields("address").test([FLOW, STRANGER]) == [{"address": "apache"}]
    told_apart = joined.selectFields("n", "name", "dim_name").test([FLOW])
    assert told_apart == [{"n": str(2**60), "name": "own", "dim_name": "dipper"}]
    window = joined.window(TumblingWindow.of(Time.seconds(10))).groupBy("address").count("n")
    assert table(window.toDataStream().test([FLOW, FLOW, OTHER]), "address", "n") == [
        ("apache", 2),
        ("moon", 1),
    ]


def test_heartbeats_go_past_a_table_that_is_put_into_records(spark, projects, tmp_path):
    joined = records(spark).dimJoin(projects, 10_000).on("(ProjectName,==,project)").toDataStream()
    mapped = joined.map(lambda r: {"of": r["address"]}).window(TumblingWindow.of(Time.seconds(10)))
    counted = mapped.groupBy("of").count("n").toDataStream()
    flow = beating(
        spark, tmp_path / "r", [[(1, FLOW), (2, FLOW), (3, STRANGER)], [(100, None)], [(200, None)]]
    )
    assert table(streamed(spark, counted, [flow], tmp_path / "c"), "of", "n") == [("apache", 2)]


def cities(spark, folder: Path, name: str):
    """Return a stream that follows a folder, and a file that ends."""
    file = folder / "cities.json"
    lines = ['{"id": "1", "city": "Rom", "n": 0}', '{"id": "2", "city": "Paris", "n": 9}', '{"id": ']
    file.write_text("\n".join(lines))
    builder = source(spark, name)
    followed = builder.fromJson(str(folder / "in"), tail=True, maxFilesPerTrigger=1)
    return followed.selectFields("id", "n"), builder.fromFile(str(file)).selectFields("id", "city", "n")


def test_a_file_that_ends_is_a_table_beside_a_stream(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    (tmp_path / "in").mkdir()
    for number, key in enumerate(("1", "3", "2", "1")):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": key, "n": number}))
    found = {}
    for name in ("inner", "left", "right"):
        stream, file = cities(spark, tmp_path, name)
        joins = {"inner": stream.join(file), "left": stream.leftJoin(file), "right": file.join(stream)}
        joined = (
            joins[name]
            .on("(id,==,id)")
            .toDataStream()
            .with_(CheckpointStrategy.local(str(tmp_path / f"{name}-checkpoint")))
        )
        query = joined.toJson(str(tmp_path / name)).asyncStart(availableNow=True)
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        rows = [json.loads(row[0]) for row in spark.read.text(str(tmp_path / name)).collect()]
        found[name] = table(rows, "id", "n", "city", "right_n")
    pairs = [("1", "0", "Rom", "0"), ("1", "3", "Rom", "0"), ("2", "2", "Paris", "9")]
    assert found["inner"] == pairs
    assert found["left"] == [*pairs, ("3", "1", None, None)]
    assert found["right"] == [(key, right, city, n) for key, n, city, right in pairs]


def test_heartbeats_go_past_a_file_that_ends(spark, tmp_path):
    _, file = cities(spark, tmp_path, "beats")
    left = records(spark, schema="id string, n int")
    small = Flow(
        spark.createDataFrame([('{"id": "1", "city": "Rom"}',)], f"{VALUE} string").select(
            sf.current_timestamp().alias(TIME), VALUE
        ),
        p.Shape.JSON,
    )
    for number, joined in enumerate((left.join(file), file.join(left))):
        window = joined.on("(id,==,id)").toDataStream().window(TumblingWindow.of(Time.seconds(10)))
        counted = window.groupBy("city").count("n").toDataStream()
        rows = [[(1, {"id": "1"}), (2, {"id": "3"})], [(100, None)], [(200, None)]]
        flows = [beating(spark, tmp_path / f"r{number}", rows), small]
        flows = flows if number == 0 else flows[::-1]
        found = streamed(spark, counted, flows, tmp_path / f"c{number}")
        assert table(found, "city", "n") == [("Rom", 1)]


def test_a_pipeline_with_a_table_is_tried_with_rows_of_both(spark, tmp_path):
    stream, file = cities(spark, tmp_path, "tried")
    joined = stream.leftJoin(file).on("(id,==,id)").toDataStream()
    for rows in ([{"id": 1}, {"id": 2}], [[{"id": 1}], [{"id": 2}]]):
        given = {str(tmp_path / "in"): rows, str(tmp_path / "cities.json"): [{"id": "1", "city": "Wien"}]}
        tried = joined.test(given, batches=isinstance(rows[0], list))
        assert table(tried, "id", "city") == [("1", "Wien"), ("2", None)]


def test_what_a_table_cannot_be_says_so(spark, tmp_path):
    stream, file = cities(spark, tmp_path, "refused")
    with pytest.raises(PlanError, match="put the stream on the left"):
        file.leftJoin(stream).on("(id,==,id)").toDataStream()
    with pytest.raises(PlanError, match="without a window"):
        stream.join(file).on("(id,==,id)").window(Time.seconds(1)).toDataStream()
    with pytest.raises(PlanError, match=r"one side is bounded and the other is not.*union"):
        stream.union(file.selectFields("id", "n")).toPrint().start()


# --- numbers ----------------------------------------------------------------------------------


def test_sums_of_decimals_have_no_zeros_at_their_end(spark, tmp_path, capsys):
    rows = [{"k": k, "a": a, "d": "1.10"} for k, a in [("w", "1"), ("w", "1"), ("f", "1.25"), ("f", "1.25")]]
    rows += [{"k": "z", "a": "0", "d": "1.10"}, {"k": "b", "a": str(10**20), "d": "1.40"}]
    array = source(spark, "decimals").fromArray(rows, schema="k string, a string, d decimal(10,2)")
    window = array.window(TumblingWindow.of(Time.seconds(3_600))).groupBy("k").numeric("decimal")
    results = window.sum("a", "s").avg("a", "m").max("d").toDataStream()
    results.toJson(str(tmp_path / "out"))
    results.toPrint().start()
    found = [row[0] for row in spark.read.text(str(tmp_path / "out")).collect()]
    fields = sorted(text[: text.index(',"start_time"')] for text in found)
    assert fields == [
        '{"k":"b","s":100000000000000000000,"m":100000000000000000000,"d":1.40',
        '{"k":"f","s":2.5,"m":1.25,"d":1.10',
        '{"k":"w","s":2,"m":1,"d":1.10',
        '{"k":"z","s":0,"m":0,"d":1.10',
    ]
    printed = sorted(line[: line.index(', "start_time"')] for line in capsys.readouterr().out.splitlines())
    assert printed[:2] == [
        '{"k": "b", "s": 100000000000000000000, "m": 100000000000000000000, "d": 1.4',
        '{"k": "f", "s": 2.5, "m": 1.25, "d": 1.1',
    ]
    assert printed[2] == '{"k": "w", "s": 2, "m": 1, "d": 1.1'
