"""Steps of pipelines: functions lifted or not, conditions, joins, splits, errors, the newer API."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from tests.spark.streams_support import at, table

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import (
    CheckpointStrategy,
    RocketMQStream,
    StreamBuilder,
    Time,
    TumblingWindow,
    WindowBuilder,
    skipped_rows,
)
from pyspark_rocketmq.streams.plan.analysis import analyze
from pyspark_rocketmq.streams.plan.nodes import Apply

pytestmark = pytest.mark.usefixtures("lean")


def stream(spark, *, json=True, topic="topic"):
    return StreamBuilder.dataStream("tests", "steps", spark).fromRocketmq(topic, "group", json, "127.0.0.1:1")


PROJECTIONS = [
    lambda m: {"a": json.loads(m)["x"]},
    lambda m: {"a": json.loads(m).get("x")},
    lambda m: {"a": json.loads(m)["x"], "b": json.loads(m).get("y")},
    lambda m: {"n": json.loads(m)["x"]["z"]},
    lambda m: {"a b": json.loads(m).get("a b"), "ü": json.loads(m).get("ü")},
    lambda m: {"all": json.loads(m)["list"], "o": json.loads(m)["x"]},
    lambda m: {"a": json.loads(m)["x"], "again": json.loads(m)["x"]},
    lambda m: {"deep": json.loads(m)["x"]["z"], "list": json.loads(m).get("list")},
    lambda m: {"y": json.loads(m)["x"]["y"]},
    lambda m: {"x": json.loads(m)["x"], "y": json.loads(m)["y"], "l": json.loads(m)["list"]},
    lambda m: {"ü": json.loads(m)["ü"]},
]
WHOLE = [json.loads, lambda m: json.loads(m), lambda m: m]  # noqa: PLW0108 - as the article writes it
NOT_LIFTED = [
    lambda m: {"a": json.loads(m)["x"] + 1},
    lambda m: {"a": json.loads(m)["x"] == 1},
    lambda m: {"a": json.loads(m)["x"] or 2},
    lambda m: {"a": f"{json.loads(m)['x']}"},
    lambda m: {"a": str(json.loads(m)["x"])},
    lambda m: {"a": json.loads(m).get("x", 1)},
    lambda m: {"a": json.loads(m)["x"].get("z")},
    lambda m: {"a": json.loads(m).get("x")["z"]},
    lambda m: {"a": json.loads(m)["x"] is None},
    lambda m: {**json.loads(m), "b": 1},
    lambda m: {"a": 1},
    lambda m: [json.loads(m)["x"]],
    lambda m: json.loads(m)["x"],
    lambda m: {"a": json.loads(m)["list"][0]},
    lambda m: {"a": m.upper()},
    lambda m: {"a": len(m)},
    lambda m: {"a": not json.loads(m)["x"]},
    lambda m: {"a": "x" in json.loads(m)},
    lambda m: {"a": [v for v in json.loads(m) if v]},
    lambda m: {"a": -json.loads(m)["x"]},
    lambda m: {"a": json.loads(m)["x"], "b": 2},
    lambda m: {json.loads(m)["x"]: json.loads(m)["y"]},
    lambda m: (json.loads(m)["x"],),
    lambda m: {"a": json.loads(m).get("x").get("z")},
    lambda m: {"a": json.loads(m)["a'b"]},
    lambda m: {"a": json.loads(m)["x"], "A": json.loads(m)["y"]},
    lambda m: {"a": json.loads(m)["x"], "b": json.loads(m)["X"]},
]


def records(count: int) -> list[str]:
    chance = random.Random(7)
    values = [
        1,
        -3,
        2.5,
        "5",
        "",
        "text",
        "ünï ☃",
        None,
        True,
        {"z": 1},
        {"z": None},
        {"y": 2},
        [1, "a"],
        10**20,
    ]
    names = ["x", "y", "list", "a b", "ü"]
    made = [
        json.dumps(
            {name: chance.choice(values) for name in names if chance.random() < 0.8},
            ensure_ascii=chance.random() < 0.5,
        )
        for _ in range(count)
    ]
    odd = ['\n{"x": 1}\n', '\t{"x": 1}', '{"x": 1, "x": 2}', '{"x": 1, "n": NaN}', "\n", "[]", "[{}]"]
    return [*made, *odd, "[1]", '"x"', "3", "null", "not json", "", "{}", ' {"x": 1}', '{"x": 1']


def in_python(function, texts):
    found = []
    for text in texts:
        try:
            value = function(text)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError):
            continue
        if value is not None:
            found.append(json.dumps(value, sort_keys=True) if not isinstance(value, str) else value)
    return sorted(found)


def as_sorted(values):
    return sorted(json.dumps(v, sort_keys=True) if not isinstance(v, str) else v for v in values)


def test_a_lifted_function_does_what_python_does(spark):
    texts = records(1_000)
    for number, function in enumerate([*PROJECTIONS, *WHOLE]):
        pipeline = stream(spark, json=False).map(function)
        analysis = analyze(pipeline._dry_run_plan())
        assert [node for node in analysis.nodes if isinstance(node, Apply)] == list(analysis.lifted), number
        found = as_sorted(pipeline.test(texts))
        if function in PROJECTIONS:
            assert found == in_python(function, texts), number
        elif function is WHOLE[-1]:
            assert len(found) == len(texts)
        else:  # a record is an object: other JSON values are malformed
            assert found == sorted(t for t in in_python(function, texts) if t.startswith("{"))


def test_other_functions_are_left_to_python(spark):
    for number, function in enumerate(NOT_LIFTED):
        analysis = analyze(stream(spark, json=False).map(function)._dry_run_plan())
        assert not analysis.lifted, number
    texts = records(50)
    for function in NOT_LIFTED[:4]:
        found = as_sorted(stream(spark, json=False).map(function).test(texts))
        assert found == in_python(function, texts)


def test_python_steps_in_a_row(spark):
    seen = stream(spark).map(lambda r: {**r, "n2": r["n"] * 2}).filter(lambda r: r["n2"] > 2)
    rows = seen.flatMap(lambda r: [r, {"n2": -1}]).selectFields("n2").test([{"n": 1}, {"n": 2}])
    assert table(rows, "n2") == [("-1",), ("4",)]


def test_a_function_with_a_schema_gives_typed_columns(spark):
    rows = (
        stream(spark)
        .map(lambda r: {"n": r["n"] + 1}, schema="n int")
        .map({"m": sf.col("n") * 2})
        .test([{"n": 1}])
    )
    assert rows == [{"m": 4}]


def test_conditions_of_each_kind_agree(spark):
    rows = [
        {"city": "Paris", "age": 20},
        {"city": "Paris", "age": 9},
        {"city": "Rom", "age": "x"},
        {"age": 30},
    ]
    for pipeline in (
        stream(spark).filter(lambda r: r.get("city") == "Paris" and r["age"] > 17),
        stream(spark).filter("city = 'Paris' and try_cast(age as int) > 17"),
        stream(spark).filter((sf.col("city") == "Paris") & (sf.col("age").try_cast("int") > 17)),
        stream(spark).filterByExpression("(city,==,'Paris')&(age,>,17)"),
        stream(spark).filterByExpression("((city,like,Par%))&((age,>=,18)|(age,=,17))"),
    ):
        assert pipeline.test(rows) == [{"city": "Paris", "age": 20}]


def test_scripts_and_registered_functions(spark):
    spark.udf.register("doubled", lambda text: text * 2, "string")
    pipeline = stream(spark).script("a=upper(name);b=concat(a, '!');c=doubled(b)").selectFields("a", "b", "c")
    assert pipeline.test([{"name": "x"}]) == [{"a": "X", "b": "X!", "c": "X!X!"}]


def test_distinct_union_and_time(spark):
    rows = [at(1, k="a", n=1), at(2, k="b", n=2), at(3, k="a", n=3)]
    assert len(stream(spark).distinct("k").test(rows)) == 2
    assert len(stream(spark).distinct("k").test([[row] for row in rows], batches=True)) == 2
    source = StreamBuilder.dataStream("tests", "union", spark)
    first, second = (source.fromRocketmq(topic, "g", True, "h:1") for topic in "xy")
    both = first.union(second).window(TumblingWindow.of(Time.seconds(10))).count("n").toDataStream()
    assert [row["n"] for row in both.test({"x": rows, "y": rows[:1]})] == [4]
    windows = (
        stream(spark).selectTimestamp(lambda r: r["n"] * 10_000).window(TumblingWindow.of(Time.seconds(10)))
    )
    assert table(windows.count("c").toDataStream().test(rows), "start_time") == [
        ("1970-01-01 00:00:10",),
        ("1970-01-01 00:00:20",),
        ("1970-01-01 00:00:30",),
    ]


def test_distinct_has_its_time_and_windows_have_theirs(spark):
    """By default an hour, which windows after it do not wait for, and which is no less after windows."""
    batches = [[at(1, k="a"), at(2, k="a"), at(3, k="b")], [at(12, k="a")], [at(40, k="c")], [at(41, k="c")]]
    before = counts(stream(spark).distinct("k")).test(batches, batches=True)
    assert table(before, "start_time", "k", "n") == [
        ("2030-01-01 00:00:00", "a", 1),
        ("2030-01-01 00:00:00", "b", 1),
    ]
    after = counts(stream(spark)).distinct("k").topN("rank", 2).addOrderByFieldName("k").toDataStream()
    assert table(after.test(batches, batches=True), "start_time", "k", "n", "rank") == [
        ("2030-01-01 00:00:00", "a", 2, 1),
        ("2030-01-01 00:00:00", "b", 1, 2),
    ]


def people(spark):
    return stream(spark).split(lambda r: "adult" if r["age"] >= 18 else "child")


AGES = [{"name": "a", "age": 30}, {"name": "b", "age": 3}, {"name": "c", "age": 18}]


def test_a_split_gives_each_record_to_its_sink(spark):
    split = people(spark)
    split.select("adult").toPrint()
    end = split.select("child").toPrint()
    assert [row["name"] for row in end.test(AGES, sink=0)] == ["a", "c"]
    assert [row["name"] for row in end.test(AGES, sink=1)] == ["b"]
    joined = people(spark)
    union = joined.select("adult").union(joined.select("child"))
    assert [row["name"] for row in union.test(AGES)] == ["a", "b", "c"]
    assert [row["name"] for row in joined.select("child").union(joined.select("child")).test(AGES)] == [
        "b",
        "b",
    ]


def x_and_y(spark):
    source = StreamBuilder.dataStream("tests", "xy", spark)
    return [source.fromRocketmq(topic, "g", True, "h:1") for topic in "xy"]


def counts(stream, seconds=10):
    return stream.window(TumblingWindow.of(Time.seconds(seconds))).groupBy("k").count("n").toDataStream()


def test_a_condition_leaves_the_types_of_fields(spark):
    moved = stream(spark, json=False).map(lambda m: {"n": json.loads(m)["n"], "o": json.loads(m).get("o")})
    texts = ['{"n": 12, "o": {"a": [1]}}', '{"n": "13", "o": "x"}', '{"n": 9}']
    kept = [{"n": 12, "o": {"a": [1]}}, {"n": "13", "o": "x"}]
    assert moved.filter("n > 10").test(texts) == kept
    assert moved.filter(sf.col("o").isNotNull()).filterByExpression("(n,>,10)").test(texts) == kept


RECORD = {"k": "a", "n": 12, "x": 1.5, "yes": True, "none": None, "text": "0012", "o": {"a": [1, "2", None]}}
RECORD |= {"list": [{"b": False}], "id": 1234567890123456789, "u": "\u00fc\U0001f600", "t": 1893456000000}

TYPE_KEEPING = {
    "filter": lambda s: s.filter("n > 1").filterByExpression("(id,>,1)"),
    "distinct": lambda s: s.distinct("o", "n"),
    "script": lambda s: s.script("k=lower(upper(k))"),
    "selectTimestamp": lambda s: s.selectTimestamp("t"),
    "selectFields": lambda s: s.selectFields(*RECORD),
    "split": lambda s: s.split(lambda record: record["k"]).select("a"),
}


@pytest.mark.parametrize("step", TYPE_KEEPING)
def test_fields_of_a_lifted_function_keep_their_types(spark, step):
    whole = stream(spark).map(
        lambda m: {
            "k": m["k"],
            "n": m["n"],
            "x": m["x"],
            "yes": m["yes"],
            "none": m.get("none"),
            "text": m["text"],
            "o": m["o"],
            "list": m["list"],
            "id": m["id"],
            "u": m["u"],
            "t": m["t"],
        }
    )
    assert TYPE_KEEPING[step](whole).test([RECORD]) == [RECORD]


def test_distinct_keeps_types_in_a_stream(spark):
    moved = stream(spark).map(lambda m: {"k": m["k"], "n": m["n"]})
    batches = [[at(1, k={"a": 1}, n=1)], [at(2, k={"a": 1}, n=2), at(3, k="a", n="3")]]
    assert moved.distinct("k").test(batches, batches=True) == [{"k": {"a": 1}, "n": 1}, {"k": "a", "n": "3"}]


def test_a_union_has_the_type_of_each_side(spark):
    source = StreamBuilder.dataStream("tests", "types", spark)
    typed = source.fromRocketmq(
        "a", "group", True, "h:1", schema="k string, n int, t timestamp, o array<int>"
    )
    texts = source.fromRocketmq("b", "group", True, "h:1").selectFields("k", "N", "t", "o")
    rows = {
        "a": [{"k": "x", "n": 1, "t": "2030-01-01T00:00:00Z", "o": [1]}, {"k": "y"}],
        "b": [{"k": "z", "N": "12", "t": "t", "o": 2}, {"k": "zz", "N": "no"}],
    }
    for union in (typed.union(texts), texts.union(typed)):
        found = sorted(([*row.values()] for row in union.test(rows)), key=lambda row: row[0])
        assert found[0] == ["x", 1, "2030-01-01T00:00:00.000Z", [1]]
        assert found[1:] == [["y", None, None, None], ["z", "12", "t", "2"], ["zz", "no", None, None]]
    lifted = source.fromRocketmq("b", "group", True, "h:1").map(lambda m: {"k": m["k"], "n": m["N"]})
    for union in (typed.union(lifted), lifted.union(typed)):
        found = union.test({"a": rows["a"], "b": [{"k": "z", "N": {"m": 3.5}}]})
        assert table(found, "k", "n") == [("x", 1), ("y", None), ("z", {"m": 3.5})]
        totals = union.window(TumblingWindow.of(Time.seconds(10))).sum("n", "all").toDataStream()
        assert table(totals.test({"a": rows["a"], "b": [{"k": "z", "N": 3}]}), "all") == [(4,)]
    assert lifted.filter("n > 1").union(lifted).test([{"k": "z", "N": 3}]) == [{"k": "z", "n": 3}] * 2
    longs = source.fromRocketmq("c", "group", True, "h:1", schema="k string, n long")
    found = typed.union(longs).test({"a": rows["a"][:1], "c": [{"k": "y", "n": 2**40}]})
    assert table(found, "k", "n") == [("x", 1), ("y", 2**40)]


def test_a_field_that_one_side_of_a_union_names_is_the_others_too(spark):
    rows = {"x": [{"k": "a", "n": 5}], "y": [{"k": "b", "n": 6}, {"k": "a", "n": 7}, "not json"]}
    x, y = x_and_y(spark)
    x = x.filter("n > 1")
    for union in (x.union(y), y.union(x)):
        assert table(counts(union).test(rows), "k", "n") == [("a", 2), ("b", 1)]
    (row,) = x.selectFields("k", "n").union(y.filter("n > 8").selectFields("K")).test(rows)
    assert row == {"k": "a", "n": "5"}


@pytest.mark.parametrize("order", [1, -1])
def test_a_union_of_results_and_records_waits_for_both(spark, order):
    x, y = x_and_y(spark)
    left, right = [counts(x), y.selectFields("k")][::order]
    twice = counts(left.union(right), 20)
    times = {"x": [1, 40, 80, 81, 90], "y": [1, 2, 3, 4, 95]}
    rows = {topic: [[at(time, k="a")] for time in times[topic]] for topic in times}
    assert table(twice.test(rows, batches=True), "start_time", "n") == [
        ("2030-01-01 00:00:00", 5),
        ("2030-01-01 00:00:40", 1),
    ]


def test_a_union_has_the_changed_results_of_either_side(spark):
    x, y = x_and_y(spark)
    window = x.window(TumblingWindow.of(Time.seconds(10))).count("n").emitBeforeFire(Time.seconds(1))
    rows = {"x": [[at(1)], [at(2)]], "y": [[at(1, k="own")]]}
    found = y.selectFields("k").union(window.toDataStream()).test(rows, batches=True)
    assert table(found, "k", "n") == [(None, 1), (None, 2), ("own", None)]


def file_source(spark, folder: Path, name: str):
    folder.mkdir(exist_ok=True)
    builder = StreamBuilder.dataStream("tests", name, spark)
    return builder.fromJson(str(folder), tail=True, maxFilesPerTrigger=1)


def add(folder: Path, *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{len(list(folder.iterdir())):04d}.json").write_text("\n".join(lines) + "\n")


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PYSPARK_ROCKETMQ_STREAMS_HOME", str(tmp_path / "home"))
    return tmp_path


def run(pipeline):
    query = pipeline.asyncStart(availableNow=True)
    try:
        assert query.awaitTermination(240)
        return query, skipped_rows(query)
    finally:
        query.stop()


def test_numbers_and_sums_that_are_no_decimals_are_counted(spark, here):
    add(here / "in", *(json.dumps({"v": value, "t": 0}) for value in ("9e27", "9e27", "1e28", "x")))
    add(here / "in", '{"t": 60000}')
    sums = file_source(spark, here / "in", "sums").window(TumblingWindow.of(Time.seconds(10), "t")).sum("v")
    _, skipped = run(sums.numeric("decimal").toDataStream().toJson(str(here / "out")))
    assert skipped == {"window#2": 2}
    (result,) = (json.loads(row[0]) for row in spark.read.text(str(here / "out")).select("value").collect())
    assert result["v"] is None


def test_two_sinks_share_one_query_that_reads_once(spark, here):
    source = here / "in"
    split = file_source(spark, source, "two").split(lambda r: "adult" if r["age"] >= 18 else "child")
    split.select("adult").toJson(str(here / "adult"))
    end = split.select("child").toJson(str(here / "child"))
    add(source, *map(json.dumps, AGES))
    query, _ = run(end)
    assert sum(progress.numInputRows for progress in query.recentProgress) == 3
    names = {
        kind: {json.loads(r[0])["name"] for r in spark.read.text(str(here / kind)).select("value").collect()}
        for kind in ("adult", "child")
    }
    assert names == {"adult": {"a", "c"}, "child": {"b"}}
    add(source, "not json")
    whole = file_source(spark, source, "whole")
    whole.toJson(str(here / "one"))
    _, skipped = run(whole.filter("age > 3").toJson(str(here / "other")))
    assert skipped == {"fromFile#1": 1}
    assert spark.read.text(str(here / "one")).count() == 3
    assert spark.read.text(str(here / "other")).count() == 2


def test_malformed_records_are_skipped_and_counted_or_fail(spark, here):
    source = here / "in"
    add(source, '{"n": 1}', "not json", '{"n": 2')
    add(source, '{"n": 0}', "[1]")
    native = file_source(spark, source, "native").selectFields("n").toJson(str(here / "native"))
    _, skipped = run(native)
    assert skipped == {"selectFields#2": 3}
    python = (
        file_source(spark, source, "python").map(lambda r: {"m": 1 / r["n"]}).toJson(str(here / "python"))
    )
    _, skipped = run(python)
    assert skipped == {"map#2": 4}
    assert spark.read.text(str(here / "python")).count() == 1
    strict = (
        file_source(spark, source, "strict").selectFields("n").onError("fail").toJson(str(here / "strict"))
    )
    with pytest.raises(StreamingQueryException, match=r"selectFields#2: malformed JSON: onError\('skip'\)"):
        run(strict)
    (source / "0000.json").unlink()  # JSON that the function does not take is in the other one
    strict = file_source(spark, source, "python-strict").map(lambda r: {"m": 1 / r["n"]}).onError("fail")
    with pytest.raises(StreamingQueryException, match=r"ZeroDivision(.|\n)*in map#2: onError\('skip'\)"):
        run(strict.toJson(str(here / "python-strict")))


@pytest.mark.timeout(120)  # Spark's parser would write the zeros of the decimal for hours
def test_numbers_far_out_of_the_range_of_their_type_are_malformed(spark, here):
    source = here / "in"
    add(source, '{"t": 1764355200, "d": 1.5}', '{"t": 1764355200000000}', '{"d": 1e2000000000}')
    add(source, '{"s": {"t": 1764355200000000}}')
    kinds = "t timestamp, d decimal(9, 2), s struct<t: timestamp>"
    typed = StreamBuilder.dataStream("tests", "wild", spark).fromFile(str(source), tail=True, schema=kinds)
    _, skipped = run(typed.selectFields("t", "d").toJson(str(here / "out")))
    assert list(skipped.values()) == [3]
    (line,) = spark.read.text(str(here / "out")).collect()
    assert line.value.endswith(',"d":1.50}')
    assert line.value.startswith('{"t":"2025-11-28T')


def test_dimension_tables_are_seen_anew(spark, here):
    source, cities = here / "in", here / "cities.csv"
    cities.write_text("id,city\n1,Rom\n")
    database = sqlite3.connect(here / "d.db")
    database.execute("CREATE TABLE mayor (code INTEGER, mayor TEXT)")
    database.execute("INSERT INTO mayor VALUES (1, 'Anna')")
    database.commit()
    joined = (
        file_source(spark, source, "dim")
        .selectFields("n", "id")
        .dimLeftJoin(str(cities), 0)
        .on("(id,==,id)")
        .toDataStream()
        .dimLeftJoin(f"jdbc:sqlite:{here}/d.db", None, None, "select code, mayor from mayor", 0)
        .on("(id,==,code)")
        .toDataStream()
        .selectFields("n", "city", "dim_id", "mayor")
        .toJson(str(here / "out"))
        .with_(CheckpointStrategy.local(str(here / "checkpoint")))
    )
    add(source, '{"n": 1, "id": 1}', '{"n": 2, "id": 2}')
    run(joined)
    cities.write_text("id,city\n1,Roma\n2,Paris\n3,Wien\n")
    database.execute("UPDATE mayor SET mayor = 'Bea'")
    database.execute("INSERT INTO mayor VALUES (2, 'Cleo')")
    database.commit()
    database.close()
    add(source, '{"n": 3, "id": 1}', '{"n": 4, "id": 2}')
    run(joined)
    rows = [json.loads(row[0]) for row in spark.read.text(str(here / "out")).collect()]
    assert table(rows, "n", "city", "dim_id", "mayor") == [
        ("1", "Rom", "1", "Anna"),
        ("2", None, None, None),
        ("3", "Roma", "1", "Bea"),
        ("4", "Paris", "2", "Cleo"),
    ]


def test_a_dimension_table_that_does_not_fit(spark, here):
    with closing(sqlite3.connect(here / "d.db")) as connection, connection:
        connection.execute("CREATE TABLE city (id INTEGER, name TEXT)")
        connection.execute("INSERT INTO city VALUES (1, 'Rom')")
    joined = stream(spark).selectFields("id").dimJoin(f"jdbc:sqlite:{here}/d.db", None, None, "city", 5)
    pipeline = joined.on("(id,==,id)").toDataStream()
    assert pipeline.test([{"id": 1}, {"id": 2}]) == [{"id": "1", "dim_id": "1", "name": "Rom"}]
    with pytest.raises(PlanError, match="no column 'nope'"):
        stream(spark).selectFields("id").dimJoin(f"jdbc:sqlite:{here}/d.db", None, None, "city", 5).on(
            "(id,==,nope)"
        ).toDataStream().test([])


def two(spark):
    source = StreamBuilder.dataStream("tests", "join", spark)
    left = source.fromRocketmq("left", "g", True, "h:1").selectFields("id", "n")
    return left, source.fromRocketmq("right", "g", True, "h:1").selectFields("id", "m", "n")


LEFT = [
    [at(1, id="a", n=1), at(2, id="b", n=2), at(3, id="a", n=3)],
    [at(40, id="z", n=0)],
    [at(41, id="z", n=0)],
]
RIGHT = [
    [at(4, id="a", m=10, n=9), at(11, id="b", m=20, n=9)],
    [at(40, id="y", m=0, n=0)],
    [at(41, id="y", m=0, n=0)],
]


def test_streams_are_joined_in_a_window(spark):
    left, right = two(spark)
    pairs = left.join(right).window(Time.seconds(10)).on("(id,==,id)").toDataStream()
    counts = pairs.window(TumblingWindow.of(Time.seconds(10))).groupBy("id", "m").count("n").toDataStream()
    rows = counts.test({"left": LEFT, "right": RIGHT}, batches=True)
    assert table(rows, "start_time", "id", "m", "n") == [("2030-01-01 00:00:00", "a", "10", 2)]
    left, right = two(spark)
    outer = left.leftJoin(right).window(Time.seconds(10)).on("(id,==,id)").toDataStream()
    rows = outer.test({"left": LEFT, "right": RIGHT}, batches=True)
    assert table(rows, "id", "n", "m", "right_n") == [
        ("a", "1", "10", "9"),
        ("a", "3", "10", "9"),
        ("b", "2", None, None),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "texts"),
    [
        ("int", 1, ["1", "", "abc", "99999999999999999999"]),
        ("double", 1.5, ["1.50", "", "abc"]),
        ("date", "2030-01-01", ["2030-01-01", "", "abc"]),
        ("boolean", True, ["true", "", "abc"]),
    ],
)
def test_a_text_that_is_no_value_of_the_other_type_has_no_partner(spark, here, kind, value, texts):
    source = StreamBuilder.dataStream("tests", "typed", spark)
    left = source.fromRocketmq("left", "g", True, "h:1", schema=f"id {kind}, n int")
    right = source.fromRocketmq("right", "g", True, "h:1").selectFields("id", "m")
    for pairs in (left.join(right), right.join(left)):
        joined = pairs.window(Time.seconds(10)).on("(id,==,id)").toDataStream()
        rows = joined.test(
            {"left": [{"id": value, "n": 1}], "right": [{"id": text, "m": text} for text in texts]}
        )
        assert table(rows, "n", "m") == [(1, texts[0])]
    (here / "t.json").write_text("".join(json.dumps({"key": text}) + "\n" for text in texts))
    found = left.dimJoin(str(here / "t.json"), 1).on("(id,==,key)").toDataStream()
    assert table(found.test({"left": [{"id": value, "n": 1}]}), "n", "key") == [(1, texts[0])]


def test_fields_are_ordered_as_numbers_if_they_are(spark):
    left, right = two(spark)
    pairs = left.join(right).window(Time.seconds(10)).on("(id,==,id)&(n,<,m)").toDataStream()
    rows = pairs.test(
        {
            "left": [{"id": 1, "n": 9}, {"id": 1, "n": "9007199254740993"}, {"id": 1, "n": "b"}],
            "right": [{"id": 1, "m": m} for m in (10, "9007199254740992", "c", None)],
        }
    )
    assert table(rows, "n", "m") == [
        *[("9", "10"), ("9", "9007199254740992"), ("9", "c")],
        *[("9007199254740993", "c"), ("b", "c")],
    ]
    kept = stream(spark).filterByExpression("(n,<,`m`)").test([{"n": 9, "m": 10}, {"n": 10, "m": 9}])
    assert kept == [{"n": 9, "m": 10}]


def test_streams_of_a_field_are_joined_and_joined_again(spark, here):
    source = StreamBuilder.dataStream("tests", "thrice", spark)
    one, two, three = (
        source.fromCollection({"id": 1, "n": n}, schema="id int, n int, right_m int") for n in (1, 2, 3)
    )
    twice = one.join(two).on("(id,==,id)").toDataStream()
    thrice = twice.join(three).on("(id,==,id)").toDataStream()
    (here / "t.json").write_text('{"id": 1, "n": 4, "dim_n": 5}')
    whole = thrice.script("dim_id=7").dimJoin(str(here / "t.json"), 1).on("(id,==,id)").toDataStream()
    named = whole.selectFields("n", "right_n", "right_right_n", "dim_id", "dim_dim_id", "dim_n", "dim_dim_n")
    assert [tuple(row) for row in named.toDF().collect()] == [(1, 2, 3, 7, "1", "5", "4")]


@pytest.mark.parametrize("batches", [False, True])
def test_fields_keep_their_types_in_a_join(spark, batches):
    left, right = (side.map(lambda m: {"k": m["k"], "o": m["o"]}) for side in x_and_y(spark))
    joined = left.join(right).window(TumblingWindow.of(Time.seconds(10))).on("(k,==,k)").toDataStream()
    rows = {
        "x": [at(1, k=1, o={"a": [1]}), at(2, k="b", o=2)],
        "y": [at(1, k=1, o=None), at(2, k="b", o="3")],
    }
    given = {topic: [found] for topic, found in rows.items()} if batches else rows
    found = [{"k": 1, "o": {"a": [1]}, "right_o": None}, {"k": "b", "o": 2, "right_o": "3"}]
    assert table(joined.test(given, batches=batches), "k", "o", "right_o") == table(
        found, "k", "o", "right_o"
    )


def test_fields_keep_their_types_in_a_join_with_a_table(spark, here):
    (here / "dim.csv").write_text("id,name\n12,x\n")
    moved = stream(spark).map(lambda m: {"k": m["k"], "o": m["o"]})
    record = {"k": 12, "o": {"a": [1]}}
    joined = moved.dimJoin(str(here / "dim.csv"), 1).on("(k,==,id)").toDataStream()
    assert joined.test([record, {"k": 3, "o": 1}]) == [{**record, "id": "12", "name": "x"}]
    source = StreamBuilder.dataStream("tests", "table", spark)
    names = source.fromJson("names").map(lambda m: {"id": m["id"], "v": m["v"]})
    records = source.fromRocketmq("t", "g", True, "h:1").map(lambda m: {"k": m["k"], "o": m["o"]})
    pairs = records.join(names).on("(k,==,id)").toDataStream()
    assert pairs.test({"t": [record], "names": [{"id": 12, "v": 1.5}]}) == [{**record, "id": 12, "v": 1.5}]


def test_streams_are_joined_within_an_interval(spark):
    left, right = two(spark)
    pairs = (
        left.join(right)
        .interval(Time.milliseconds(1), Time.seconds(9))
        .on("(id,==,id)&(n,<,n)")
        .toDataStream()
    )
    rows = pairs.test({"left": LEFT, "right": RIGHT}, batches=True)
    assert table(rows, "id", "n", "m") == [("a", "1", "10"), ("a", "3", "10"), ("b", "2", "20")]
    both = (
        left.join(right).on("(id,==,id)").window(Time.seconds(1)).interval(Time.seconds(1), Time.seconds(1))
    )
    with pytest.raises(PlanError, match=r"window\(...\) or interval"):
        both.toDataStream()


# --- the newer API ----------------------------------------------------------------------------


def test_words_are_counted(spark):
    builder = StreamBuilder("wordCount", spark)
    words = builder.source("sourceTopic", lambda body: (None, body.decode()))
    counts = (
        words.flatMap(lambda line: re.split(r"\W+", line.lower()))
        .keyBy(lambda word: word)
        .count()
        .toRStream()
    )
    assert table(counts.test(["To be or", "not to be"]), "key", "value") == [
        ("be", 2),
        ("not", 1),
        ("or", 1),
        ("to", 2),
    ]


def test_values_by_key_and_window(spark):
    rows = [at(1, k="a", n=1), at(2, k="a", n=4), at(3, k="b", n=2)]
    values = StreamBuilder("w", spark).source("t").filter(lambda v: v["n"] < 9).keyBy(lambda v: v["k"])
    window = WindowBuilder.tumblingWindow(Time.seconds(10))
    assert table(values.window(window).avg(lambda v: v["n"]).test(rows), "key", "value") == [
        ("a", 2.5),
        ("b", 2),
    ]
    assert table(values.window(window).count().test(rows), "key", "value") == [("a", 2), ("b", 1)]
    assert table(values.max("n").test(rows), "key", "value") == [("a", "4"), ("b", "2")]
    assert table(values.sum(lambda v: v["n"]).test(rows), "key", "value") == [("a", 5), ("b", 2)]


def test_keyed_streams_are_joined(spark):
    builder = StreamBuilder("j", spark)
    left, right = builder.source("left"), builder.source("right")
    pairs = (
        left.leftJoin(right)
        .where(lambda v: v["id"])
        .equalTo(lambda v: v["id"])
        .window(WindowBuilder.tumblingWindow(Time.seconds(10)))
        .waterMark(0)
        .apply(lambda one, other: {"n": one["n"], "m": other and other["m"]})
    )
    rows = pairs.test({"left": LEFT, "right": RIGHT}, batches=True)
    assert table(rows, "n", "m") == [(1, 10), (2, None), (3, 10)]


def test_properties_reach_every_step(spark):
    builder = StreamBuilder("props", spark)
    builder.source("t").keyBy(lambda v: v).window(
        WindowBuilder.sessionWindow(Time.seconds(1))
    ).count().print()
    properties = {"rocketmq.namesrv.addr": "h:1", "allowLatenessMillisecond": 500}
    plan = RocketMQStream(builder.build(), properties).plan()
    nodes = {type(node).__name__: node for node in plan.nodes()}
    assert nodes["RocketMQSource"].options["nameServer"] == "h:1"
    assert nodes["Windowed"].watermark_s == 0.5
    assert plan.idle_s == 2
    with pytest.raises(PlanError, match="no property 'nope'"):
        RocketMQStream(builder.build(), {"nope": 1})
    assert replace(plan).job == "props"


def test_conditions_find_fields_that_texts_types_and_functions_spell_in_another_case(spark):
    rows = [{"name": "NAME", "date": "2030-01-02", "été à": 1, "user-id": "2", "Kind": "k"}]
    conditions = [
        sf.col("name") == "NAME",
        'name = "NAME"',
        "CAST(date AS DATE) > DATE '2030-01-01'",
        sf.expr("date::DATE > DATE '2030-01-01'"),
        (sf.col("été à") == 1) & (sf.col("user-id") == "2"),
        sf.udf(lambda text: text == "NAME", "boolean")("name"),
    ]
    for condition in conditions:
        assert stream(spark).filter(condition).toPrint().test(rows) == rows, condition
    columns = stream(spark).map({"text": sf.concat("name", sf.lit("Name")), "kind": sf.col("kind")})
    assert columns.toPrint().test(['{"name": "a", "kind": "b"}']) == [{"text": "aName", "kind": "b"}]


def test_a_script_replaces_a_column_whatever_its_case(spark):
    script = stream(spark).script("X = x + 1; y = x * 2")
    assert script.toPrint().test(['{"x": 1}']) == [{"X": 2, "y": 4}]


def test_what_spark_cannot_parse_is_an_error_that_says_why(spark):
    with pytest.raises(PlanError, match=r"Spark rejects this step: \[PARSE_SYNTAX_ERROR\].*filter#2"):
        stream(spark).filter("a = 1 b = 2").toPrint().test([])


def test_a_field_called_key_is_no_label_of_a_split(spark):
    rows = [at(1, t="a", key="k"), at(2, t="b", key="k"), at(3, t="a", key="l"), at(4, t="c", key="k")]

    def parts():
        return stream(spark).split(lambda row: row["t"]).select("a", "b")

    counted = parts().window(TumblingWindow.of(Time.minutes(1))).groupBy("key").count("n").toDataStream()
    assert table(counted.toPrint().test(rows), "key", "n") == [("k", 2), ("l", 1)]
    assert parts().filter("key = 'k'").toPrint().test(rows) == [row for _, row in rows[:2]]


def visits(spark):
    source = StreamBuilder("key", spark).source("t", schema="key string, n int")
    return source.keyBy(lambda visit: visit["n"])


VISITS = [at(1, key="a", n=1), at(2, key="b", n=1), at(3, key="b", n=2)]


class Records:
    """An accumulator of what it gets."""

    def __init__(self):
        self.found = []

    def addValue(self, value):
        self.found.append(value)

    def result(self, context):  # noqa: ARG002 - the name is RocketMQ Streams'
        return self.found

    def clone(self):
        return Records()


def test_values_are_grouped_by_their_key_and_not_by_a_field_of_this_name(spark):
    by_n = visits(spark)
    window = WindowBuilder.tumblingWindow(Time.seconds(10))
    for counts in (by_n.count(), by_n.window(window).count()):
        assert table(counts.test(VISITS), "key", "value") == [("1", 2), ("2", 1)]
    sizes = by_n.window(window).count().keyBy(lambda result: result["value"]).window(window).count()
    assert table(sizes.test(VISITS), "key", "value") == [("1", 1), ("2", 1)]


def test_an_accumulator_gets_values_as_they_are(spark):
    by_n = visits(spark)
    window = WindowBuilder.tumblingWindow(Time.seconds(10))
    one, two, three = (visit for _, visit in VISITS)
    for stream in (by_n, by_n.window(window)):
        found = stream.aggregate(Records()).test(VISITS)
        assert table(found, "key", "value") == [("1", [one, two]), ("2", [three])]
