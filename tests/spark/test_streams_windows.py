"""Windows of pipelines, against tables worked out by hand and RocketMQ Streams' published results."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import functions as sf
from tests.spark.streams_support import CLICKS, FLOWS, at, table

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import HoppingWindow, SessionWindow, StreamBuilder, Time, TumblingWindow


def source(spark, name="t"):
    return StreamBuilder.dataStream("tests", name, spark)


def stream(spark, **options):
    return source(spark).fromRocketmq("topic", "group", True, "127.0.0.1:1", **options)


def test_the_articles_program_gives_the_published_sums(spark):
    pipeline = (
        source(spark)
        .fromRocketmq("topicName", "groupName", False, "namesrvAddr")
        .map(lambda message: json.loads(message))  # noqa: PLW0108 - as the article writes it
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("ProjectName", "LogStore")
        .sum("InFlow", "InFlow")
        .sum("OutFlow", "OutFlow")
        .count("total")
        .waterMark(5)
        .setLocalStorageOnly(True)
        .toDataStream()
        .toPrint(1)
    )
    rows = pipeline.test(FLOWS)
    assert table(rows, "InFlow", "OutFlow", "total", "start_time", "end_time", "fire_time") == [
        (15, 12, 3, "2030-01-01 00:00:00", "2030-01-01 00:00:10", "2030-01-01 00:00:15"),
        (18, 15, 3, "2030-01-01 00:00:00", "2030-01-01 00:00:10", "2030-01-01 00:00:15"),
        (22, 18, 4, "2030-01-01 00:00:00", "2030-01-01 00:00:10", "2030-01-01 00:00:15"),
    ]
    assert "python" not in pipeline.explain()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (
            "userId",
            [
                *[("18:00:00", "1", 2), ("18:00:00", "2", 1), ("18:00:00", "3", 1)],
                *[("18:01:00", "1", 2), ("18:01:00", "2", 2), ("18:01:00", "3", 1), ("18:02:00", "4", 1)],
            ],
        ),
        (
            "url",
            [
                *[("18:00:00", "page-1", 1), ("18:00:00", "page-2", 2), ("18:00:00", "page-3", 1)],
                *[("18:01:00", "page-2", 2), ("18:01:00", "page-3", 3), ("18:02:00", "page-1", 1)],
            ],
        ),
    ],
)
def test_page_clicks_by_the_time_in_the_record(spark, field, expected):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        rows = (
            stream(spark)
            .window(TumblingWindow.of(Time.minutes(1), "eventTime"))
            .groupBy(field)
            .count("total")
            .waterMark(5)
            .toDataStream()
            .test(CLICKS)
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = [
        (start.removeprefix("2021-09-15 "), *rest)
        for start, *rest in table(rows, "start_time", field, "total")
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("schema", "bad"),
    [
        (None, [2**63 - 1, -(2**63), "294247-01-10 04:00:54", "NaN", "", None]),
        ("k string, t bigint", [2**63 - 1, -(2**63), 9223372036854775]),
        ("k string, t double", [1e300, "Infinity", "NaN"]),
        ("k string, t timestamp", ["+294247-01-10T04:00:54Z"]),
    ],
)
def test_a_record_with_an_impossible_time_does_not_stop_the_others(spark, schema, bad):
    good = "2021-09-15 10:00:01" if schema and "timestamp" in schema else 1631700001000
    source = StreamBuilder.dataStream("tests", "t", spark)
    records = source.fromRocketmq("topic", "group", True, "127.0.0.1:1", schema=schema)
    counts = records.window(TumblingWindow.of(Time.minutes(1), "t")).groupBy("k").count("n").toDataStream()
    rows = counts.test([{"k": "a", "t": value} for value in [*bad, good]])
    assert table(rows, "k", "n", "start_time") == [("a", 1, "2021-09-15 10:00:00")]
    with pytest.raises(Exception, match=r"window#2: no time in t|t is not"):
        counts.onError("fail").test([{"k": "a", "t": bad[0]}])


def test_a_result_of_a_function_may_have_numbers_that_are_not_finite(spark):
    class Unbounded:
        def createAccumulator(self):
            return []

        def accumulate(self, accumulator, value):
            accumulator.append(value["v"])

        def getValue(self, accumulator):
            return {"n": len(accumulator), "mean": float("nan"), "most": float("inf")}

    windows = stream(spark).window(TumblingWindow.of(Time.minutes(1)))
    (row,) = windows.aggregate(Unbounded(), "found").toDataStream().test([{"v": 1}])
    assert row["found"] == {"n": 1, "mean": "NaN", "most": "Infinity"}


LONG = 1_700_000_000_000_000_001
"""This number and the next ones are one double."""


@pytest.mark.parametrize("sign", [1, -1])
def test_long_numbers_are_compared_to_the_last_digit(spark, sign):
    numbers = [sign * (LONG + more) for more in (1, 0, 2)]
    windows = stream(spark).window(TumblingWindow.of(Time.minutes(1)))
    (row,) = windows.min("v", "least").max("v", "most").toDataStream().test([{"v": n} for n in numbers])
    assert (int(row["least"]), int(row["most"])) == (min(numbers), max(numbers))


@pytest.mark.parametrize("rising", [True, False])
def test_long_numbers_are_ranked_to_the_last_digit(spark, rising):
    numbers = [sign * (LONG + more) for sign in (1, -1) for more in (1, 0, 2)]
    counts = stream(spark).window(TumblingWindow.of(Time.minutes(1))).groupBy("v").count().toDataStream()
    ranked = counts.topN("rank", len(numbers)).addOrderByFieldName("v", rising).toDataStream()
    rows = sorted(ranked.test([{"v": number} for number in numbers]), key=lambda row: row["rank"])
    assert [int(row["v"]) for row in rows] == sorted(numbers, reverse=not rising)


def test_objects_stay_objects_when_they_are_ranked(spark):
    totals = stream(spark).window(TumblingWindow.of(Time.minutes(1))).groupBy("k")
    added = totals.reduce(lambda one, other: {"v": one["v"] + other["v"]}, "o")
    ranked = added.topN("r", 2).addOrderByFieldName("k").toDataStream()
    rows = [at(1, k="a", v=1), at(2, k="a", v=2), at(3, k="b", v=2.5)]
    assert table(ranked.test(rows), "k", "o", "r") == [("a", {"v": 3}, 1), ("b", {"k": "b", "v": 2.5}, 2)]
    each = added.topN("r", 1, "o").addOrderByFieldName("k").toDataStream()
    assert table(each.test(rows), "k", "o", "r") == [("a", {"v": 3}, 1), ("b", {"k": "b", "v": 2.5}, 1)]


def test_a_function_of_records_gets_the_fields_of_a_lifted_one_with_their_types(spark):
    moved = stream(spark).map(lambda m: {"k": m["k"], "v": m.get("v")})
    rows = [at(1, k="a", v=1), at(2, k="a", v=2)]
    windows = moved.window(TumblingWindow.of(Time.minutes(1))).groupBy("k")
    total = windows.reduce(lambda one, other: {"v": one["v"] + other["v"]}, "o")
    assert table(total.test(rows), "k", "o") == [("a", {"v": 3})]


@pytest.mark.parametrize("schema", [None, "v double"])
@pytest.mark.parametrize(
    ("values", "total"),
    [
        (["1e30", "1"], 1e30),
        (["-9.3e18"], -9.3e18),
        (["1e400"], "Infinity"),
        (["NaN", "1"], "NaN"),
        (["9007199254740991"], 9007199254740991),
        (["1.5", "1.5"], 3),
    ],
)
def test_a_sum_of_any_size_is_written(spark, schema, values, total):
    source = StreamBuilder.dataStream("tests", "t", spark)
    records = source.fromRocketmq("topic", "group", True, "127.0.0.1:1", schema=schema)
    sums = records.window(TumblingWindow.of(Time.minutes(1))).sum("v").toDataStream()
    (row,) = sums.test([{"v": value} for value in values])
    assert (row["v"], type(row["v"])) == (total, type(total))


def test_names_of_fields_may_have_any_character(spark):
    names = ["a b", "x.y", "`q`"]
    windows = stream(spark).window(TumblingWindow.of(Time.minutes(1))).groupBy(*names).sum("v w")
    ranked = windows.toDataStream().topN("r", 1, "x.y").addOrderByFieldName("v w").toDataStream()
    rows = ranked.test([{**dict.fromkeys(names, number), "v w": number} for number in (1, 2)])
    assert table(rows, *names, "v w", "r") == [(str(n), str(n), str(n), n, 1) for n in (1, 2)]


def test_milliseconds_may_have_a_fraction(spark):
    counts = stream(spark).window(TumblingWindow.of(Time.minutes(1), "t")).count("n").toDataStream()
    rows = counts.test([{"t": 1631700001000.25}, {"t": "1.631700001E12"}, {"t": 1631700001000}])
    assert table(rows, "n", "start_time") == [(3, "2021-09-15 10:00:00")]


def test_a_tumbling_window_goes_out_once_and_late_rows_are_left_out(spark):
    """By hand: the watermark of a batch is 2 s behind the newest time of the batches before."""
    batches = [
        [at(1, k="a", n=1), at(4, k="a", n=2)],
        [at(12.5, k="a", n=4)],  # watermark 10.5 behind this batch: [0, 10) closes
        [at(12.6, k="a", n=0)],  # Spark calls a row late from the batch after that one on
        [at(3, k="a", n=8), at(11, k="b", n=16)],  # 3 s is late, 11 s is old, but its window is open
        [at(30, k="c", n=32)],
        [at(41, k="c", n=64)],
    ]
    rows = (
        stream(spark)
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("k")
        .sum("n", "n")
        .count("total")
        .waterMark(2)
        .toDataStream()
        .test(batches, batches=True)
    )
    assert table(rows, "start_time", "k", "n", "total") == [
        ("2030-01-01 00:00:00", "a", 3, 2),
        ("2030-01-01 00:00:10", "a", 4, 2),
        ("2030-01-01 00:00:10", "b", 16, 1),
    ]


def test_a_late_row_is_left_out_of_the_closed_hopping_windows_only(spark):
    batches = [
        [at(6, n=1)],  # [0, 10) and [5, 15)
        [at(13, n=2)],  # [5, 15) and [10, 20); watermark 13: [0, 10) is out
        [at(13, n=0)],
        [at(7, n=4)],  # late for [0, 10), in time for [5, 15)
        [at(40, n=8)],
        [at(41, n=16)],
    ]
    rows = (
        stream(spark)
        .window(HoppingWindow.of(Time.seconds(10), Time.seconds(5)))
        .sum("n", "n")
        .waterMark(0)
        .toDataStream()
        .test(batches, batches=True)
    )
    assert table(rows, "start_time", "n") == [
        ("2030-01-01 00:00:00", 1),
        ("2030-01-01 00:00:05", 7),
        ("2030-01-01 00:00:10", 2),
    ]


@pytest.mark.parametrize("batches", [True, False], ids=["streamed", "whole"])
def test_times_before_1970_are_late_in_a_stream(spark, batches):
    rows = [{"t": -5_000}, {"t": 5_000}]
    windows = stream(spark).window(TumblingWindow.of(Time.seconds(10), "t")).count("n").toDataStream()
    found = windows.test([rows, [{"t": 50_000}]] if batches else rows, batches=batches)
    starts = [] if batches else ["1969-12-31 23:59:50"]
    assert [row["start_time"] for row in found] == [*starts, "1970-01-01 00:00:00"]


def test_sessions_end_by_silence(spark):
    batches = [
        [at(1, k="a", n=1), at(3, k="a", n=2), at(2, k="b", n=4)],
        [at(5.5, k="a", n=8)],
        [at(20, k="c", n=16)],
        [at(21, k="c", n=0)],
        [at(6, k="a", n=32)],  # its session is over and out
        [at(30, k="d", n=64)],
        [at(31, k="d", n=64)],
    ]
    rows = (
        stream(spark)
        .window(SessionWindow.of(Time.seconds(3)))
        .groupBy("k")
        .sum("n", "n")
        .waterMark(1)
        .toDataStream()
        .test(batches, batches=True)
    )
    assert table(rows, "k", "start_time", "end_time", "n") == [
        ("a", "2030-01-01 00:00:01", "2030-01-01 00:00:08", 11),
        ("b", "2030-01-01 00:00:02", "2030-01-01 00:00:05", 4),
        ("c", "2030-01-01 00:00:20", "2030-01-01 00:00:24", 16),
    ]


SESSIONS = [
    [at(1, u="x", k="a"), at(2, u="x", k="a"), at(3, u="x", k="b"), at(9, u="x", k="c")],
    *([at(second, u="y", k="z")] for second in (200, 300, 400)),
]
"""The sessions of a and b overlap. All but the last of z are over."""


def sessions_by_page(spark):
    return stream(spark).window(SessionWindow.of(Time.seconds(5))).groupBy("u", "k").count("n").toDataStream()


@pytest.mark.parametrize("batches", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("keys", [["u"], []], ids=["by a field", "of all"])
def test_sessions_that_overlap_are_ranked_one_by_one(spark, keys, batches):
    top = sessions_by_page(spark).topN("rank", 1, *keys).addOrderByFieldName("n", False).toDataStream()
    rows = top.test(SESSIONS if batches else SESSIONS[0], batches=batches)
    found = [row for row in table(rows, "k", "n", "rank", "start_time", "end_time") if row[0] != "z"]
    assert found == [
        ("a", 2, 1, "2030-01-01 00:00:01", "2030-01-01 00:00:07"),
        ("b", 1, 1, "2030-01-01 00:00:03", "2030-01-01 00:00:08"),
        ("c", 1, 1, "2030-01-01 00:00:09", "2030-01-01 00:00:14"),
    ]


@pytest.mark.parametrize("batches", [True, False], ids=["streamed", "whole"])
def test_a_window_over_sessions(spark, batches):
    totals = sessions_by_page(spark).window(TumblingWindow.of(Time.seconds(8))).groupBy("u").sum("n", "s")
    rows = totals.toDataStream().test(SESSIONS if batches else SESSIONS[0], batches=batches)
    found = [row for row in table(rows, "u", "start_time", "s") if row[0] == "x"]
    assert found == [("x", "2030-01-01 00:00:00", 3), ("x", "2030-01-01 00:00:08", 1)]


VALUES = [*("7", 12, "7.5", 100, None, "5"), *("b", "a", "ab")]


def test_every_aggregate_is_that_of_plain_python(spark):
    numbers = [at(n, g="n", v=value) for n, value in enumerate(VALUES[:6])]
    texts = [at(n, g="t", v=value) for n, value in enumerate(VALUES[6:])]
    rows = (
        stream(spark)
        .window(TumblingWindow.of(Time.minutes(1)))
        .groupBy("g")
        .count("rows")
        .sum("v", "sum")
        .avg("v", "avg")
        .min("v", "min")
        .max("v", "max")
        .first("v", "first")
        .last("v", "last")
        .concat("v", "concat")
        .distinct("v", "distinct")
        .count_distinct("v", "exact")
        .count_distinct_large("v", "large")
        .agg(longest=sf.max(sf.length("v")))
        .toDataStream()
        .test([*texts, *reversed(numbers)])
    )
    by_group = {row["g"]: row for row in rows}
    plain = ["7", "12", "7.5", "100", "5"]
    assert {name: value for name, value in by_group["n"].items() if "_time" not in name} == {
        "g": "n",
        "rows": 6,
        "sum": sum(map(float, plain)),
        "avg": sum(map(float, plain)) / 5,
        "min": "5",
        "max": "100",
        "first": "7",
        "last": "5",
        "concat": ",".join(plain),
        "distinct": sorted(set(plain)),
        "exact": 5,
        "large": 5,
        "longest": 3,
    }
    words = by_group["t"]
    assert (words["min"], words["max"], words["concat"], words["rows"]) == ("a", "b", "b,a,ab", 3)
    assert words["sum"] is None, "no text of the group is a number"


def test_many_different_values_are_counted_within_two_percent(spark):
    rows = (
        stream(spark)
        .window(TumblingWindow.of(Time.minutes(1)))
        .count_distinct("v", "exact")
        .count_distinct_large("v", "large")
        .toDataStream()
        .test([{"v": n} for n in range(5_000)])
    )
    assert rows[0]["exact"] == 5_000
    assert abs(rows[0]["large"] - 5_000) <= 100


def test_decimal_sums_do_not_depend_on_the_order(spark):
    values = [0.1, 0.2, 0.3, 1e9, -1e9] * 20

    def total(rows, kind):
        windows = stream(spark).window(TumblingWindow.of(Time.minutes(1))).sum("v", "s").numeric(kind)
        return windows.toDataStream().test(rows)[0]["s"]

    assert (
        total([{"v": v} for v in values], "decimal")
        == total([{"v": v} for v in sorted(values)], "decimal")
        == 12
    )


@pytest.mark.parametrize(
    "source",
    [
        stream,
        lambda spark: stream(spark).filter("v <> '0'"),
        lambda spark: stream(spark).filter(lambda record: record["v"] != 0),
        lambda spark: stream(spark, schema="v string"),
        lambda spark: stream(spark, schema="v decimal(30,5)"),
        lambda spark: stream(spark).map(lambda record: {"v": record["v"]}),
        lambda spark: stream(spark).map({"w": "v"}).script("x=w;v=x"),
    ],
    ids=["text", "filtered", "by a function", "schema", "decimal", "moved", "renamed"],
)
def test_decimal_sums_have_every_digit_of_the_numbers(spark, source):
    bodies = ['{"v": 1234567890123456.789}', '{"v": "-1234567890123456"}', '{"v": 0.011}', '{"v": 0}']
    windows = source(spark).window(TumblingWindow.of(Time.minutes(1))).sum("v", "s").numeric("decimal")
    assert [row["s"] for row in windows.toDataStream().test(bodies)] == [0.8]


ONE_WINDOW = TumblingWindow.of(Time.minutes(1))
WIDE = [at(1, k="a", v="9e27"), at(2, k="a", v="9e27"), at(3, k="b", v="-2e27")]
"""The sum of two has more digits than a decimal."""


@pytest.mark.parametrize(
    "grouped",
    [
        lambda stream: stream.window(ONE_WINDOW).groupBy("k"),
        pytest.param(
            lambda stream: stream.window(ONE_WINDOW).groupBy("k").fireMode(2),
            marks=pytest.mark.since_spark("4.1"),
        ),
    ],
    ids=["spark", "own state"],
)
def test_a_sum_that_is_no_decimal_is_null_or_ends_the_query(spark, grouped):
    def totals(mode, rows):
        sums = grouped(stream(spark).onError(mode)).sum("v", "s").avg("v", "m").count("n").numeric("decimal")
        found = sums.toDataStream().test([rows, [at(100, k="c")], []], batches=True)
        return [row for row in table(found, "k", "s", "m", "n") if row[0] != "c"]

    too_long = [at(4, k="b", v="1e28"), at(5, k="b", v="x")]
    assert totals("skip", [*WIDE, *too_long]) == [("a", None, None, 2), ("b", -2 * 10**27, None, 2)]
    with pytest.raises(Exception, match=r"window.*: [ms] has more digits than a decimal: .* null"):
        totals("fail", WIDE)
    with pytest.raises(Exception, match=r"window.*: v does not fit decimal\(38,10\)"):
        totals("fail", too_long)


@pytest.mark.parametrize("schema", ["k string, v double", "k string, v decimal(38,10)"])
def test_a_typed_sum_that_is_no_decimal_is_null(spark, schema):
    typed = source(spark).fromRocketmq("topic", "group", True, "127.0.0.1:1", schema=schema)
    sums = typed.window(ONE_WINDOW).groupBy("k").sum("v").numeric("decimal").toDataStream()
    assert table(sums.test(WIDE), "k", "v") == [("a", None), ("b", -2 * 10**27)]


class Mean:
    """An accumulator of the newer API."""

    def __init__(self):
        self.values = []

    def addValue(self, value):
        self.values.append(value["n"])

    def result(self, context):  # noqa: ARG002
        return {"mean": sum(self.values) / len(self.values)}

    def clone(self):
        return Mean()


class Classic:
    """An accumulator of the older API."""

    def createAccumulator(self):
        return []

    def accumulate(self, accumulator, value):
        accumulator.append(value["n"])

    def getValue(self, accumulator):
        return accumulator


def test_functions_over_all_rows_of_a_window(spark):
    batches = [
        [at(1, k="a", n=1), at(2, k="b", n=5)],
        [at(3, k="a", n=2)],
        [at(4, k="a", n=6)],
        [at(30, k="z", n=0)],
        [at(31, k="z", n=0)],
    ]
    rows = (
        stream(spark)
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("k")
        .aggregate(Mean(), "newer")
        .aggregate(Classic(), "older")
        .toDataStream()
        .test(batches, batches=True)
    )
    assert sorted((row["k"], row["newer"]["mean"], row["older"]) for row in rows) == [
        ("a", 3, [1, 2, 6]),
        ("b", 5, [5]),
    ]
    reduced = (
        stream(spark)
        .window(TumblingWindow.of(Time.seconds(10)))
        .groupBy("k")
        .reduce(lambda left, right: {"n": left["n"] + right["n"]}, "r")
        .test(batches, batches=True)
    )
    assert sorted((row["k"], row["r"]["n"]) for row in reduced) == [("a", 9), ("b", 5)]


def clicks_by_page(spark):
    windows = stream(spark).window(TumblingWindow.of(Time.minutes(1), "eventTime"))
    return windows.groupBy("url").count("total").toDataStream()


def test_a_window_over_windows(spark):
    pipeline = (
        clicks_by_page(spark)
        .window(TumblingWindow.of(Time.minutes(1)))
        .groupBy("start_time", "end_time")
        .max("total", "most")
        .toDataStream()
    )
    assert [most for _, most in table(pipeline.test(CLICKS), "start_time", "most")] == [2, 3, 1]
    later = '{"userId":"9","eventTime":"1631700400000","url":"page-1"}'
    streamed = pipeline.test([CLICKS[:4], CLICKS[4:], [later], [later], [later]], batches=True)
    assert [most for _, most in table(streamed, "start_time", "most")] == [2, 3, 1]


TOP = {
    1: [("page-2", 2, 1), ("page-3", 3, 1), ("page-1", 1, 1)],
    2: [("page-1", 1, 2), ("page-2", 2, 1), ("page-2", 2, 2), ("page-3", 3, 1), ("page-1", 1, 1)],
    9: [
        *[("page-1", 1, 2), ("page-2", 2, 1), ("page-3", 1, 3)],
        *[("page-2", 2, 2), ("page-3", 3, 1), ("page-1", 1, 1)],
    ],
}
"""Window by window: page, clicks, rank. Equal clicks are ranked by the page."""


@pytest.mark.parametrize("count", TOP)
def test_the_first_rows_of_each_window(spark, count):
    pipeline = clicks_by_page(spark).topN("rank", count).addOrderByFieldName("total", False).toDataStream()
    expected = TOP[count]
    rows = table(pipeline.test(CLICKS), "start_time", "url", "total", "rank")
    assert [row[1:] for row in rows] == expected
    later = '{"userId":"9","eventTime":"1631700400000","url":"page-1"}'
    rows = pipeline.test([CLICKS[:4], CLICKS[4:], [later], [later], [later]], batches=True)
    assert [row[1:] for row in table(rows, "start_time", "url", "total", "rank")] == expected


def test_having_keeps_some_results(spark):
    rows = (
        stream(spark)
        .window(TumblingWindow.of(Time.minutes(1), "eventTime"))
        .groupBy("url")
        .count("total")
        .having("total > 1")
        .toDataStream()
        .test(CLICKS)
    )
    assert table(rows, "url", "total") == [("page-2", 2), ("page-2", 2), ("page-3", 3)]


def test_results_before_the_end_of_the_window(spark):
    batches = [[at(1, n=1)], [at(2, n=2)], [at(15, n=4)]]
    rows = (
        stream(spark)
        .window(TumblingWindow.of(Time.seconds(10)))
        .sum("n", "n")
        .emitBeforeFire(Time.seconds(1))
        .toDataStream()
        .test(batches, batches=True)
    )
    assert [row["n"] for row in rows] == [1, 3, 4]


def test_typed_fields_keep_their_types(spark):
    rows = (
        source(spark)
        .fromRocketmq("t", "g", namesrvAddr="h:1", schema="k string, n int, d decimal(10,2)")
        .window(TumblingWindow.of(Time.minutes(1)))
        .groupBy("k")
        .sum("n")
        .max("n", "most")
        .sum("d")
        .toDataStream()
        .test([{"k": "a", "n": 9, "d": 1.25}, {"k": "a", "n": 10, "d": 1.25}])
    )
    assert [(row["n"], row["most"], row["d"]) for row in rows] == [(19, 10, 2.5)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda s: s.window(TumblingWindow.of(Time.seconds(1))).toDataStream(), "needs a result"),
        (
            lambda s: s.window(TumblingWindow.of(Time.seconds(1))).count("End_Time").toDataStream(),
            "'End_Time' is a field of the results already",
        ),
        (
            lambda s: s.window(TumblingWindow.of(Time.seconds(1))).sum("n", "k").groupBy("k").toDataStream(),
            "'k' is a field of the results already",
        ),
        (lambda s: s.window(TumblingWindow.of(Time.seconds(1))).fireMode(3), "fireMode is 0, 1 or 2, not 3"),
        (lambda s: s.topN("r", 2).toDataStream(), "addOrderByFieldName"),
        (
            lambda s: (
                s.distinct("k").window(TumblingWindow.of(Time.days(1), "t")).count().toDataStream().test([])
            ),
            r"selectTimestamp\('t'\) before that step.*window#3",
        ),
        (
            lambda s: (
                s.distinct("k")
                .selectTimestamp("t")
                .window(TumblingWindow.of(Time.days(1)))
                .count()
                .toDataStream()
                .test([])
            ),
            r"selectTimestamp\('t'\) before that step.*time#3",
        ),
        (
            lambda s: (
                s.window(TumblingWindow.of(Time.seconds(1)))
                .count("n")
                .toDataStream()
                .topN("N", 2)
                .addOrderByFieldName("n")
                .toDataStream()
                .test([])
            ),
            "'N' is a field of the records already.*topN#3",
        ),
        (lambda s: s.filterByExpression("(a,=~,1)").test([]), "no operator '=~'"),
        (
            lambda s: s.script("x=nope(a)").selectFields("x").test([]),
            "Spark rejects this step.*script#2",
        ),
        (lambda s: s.selectFields("a").selectFields("b").test([]), "no field 'b' here.*selectFields#3"),
        (lambda s: s.toParquet("/tmp/x").test([]), "fields of the records are not known.*toParquet#2"),
    ],
)
def test_what_cannot_be_names_the_step(spark, wrong, message):
    with pytest.raises(PlanError, match=message):
        wrong(stream(spark))
