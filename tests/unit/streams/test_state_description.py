"""What tells the state of one pipeline from that of another."""

from __future__ import annotations

import pytest
from tests.unit.streams.small_pipelines import MINUTE, Last, grouped, processed, stream, typed

from pyspark_rocketmq.streams import HoppingWindow, SessionWindow, Time, TumblingWindow
from pyspark_rocketmq.streams.plan.state import describe_state


def windowed(window=MINUTE, key="k"):
    return stream().window(window).groupBy(key)


def results(window):
    return window.toDataStream()


def top(field="s", *, rising=True, count=3):
    sums = results(windowed().sum("v", "s"))
    return sums.topN("rank", count).addOrderByFieldName(field, rising).toDataStream()


def joined(kind="join", condition="(k,==,k)", window=None, after=2):
    join = getattr(typed(), kind)(typed()).on(condition)
    join = join.interval(Time.seconds(1), Time.seconds(after)) if window is None else join.window(window)
    return join.toDataStream()


def described(pipeline):
    return describe_state(pipeline.toPrint().plan())


@pytest.mark.parametrize(
    ("pipeline", "others"),
    [
        (
            results(windowed().max("v")),
            [
                results(windowed().min("v")),
                results(windowed().max("w")),
                results(windowed(key="other").max("v")),
                results(windowed(TumblingWindow.of(Time.minutes(2), "t")).max("v")),
                results(windowed(TumblingWindow.of(Time.minutes(1), "at")).max("v")),
                results(windowed(HoppingWindow.of(Time.minutes(1), Time.seconds(30), "t")).max("v")),
                results(windowed(SessionWindow.of(Time.minutes(1), "t")).max("v")),
                results(windowed().max("v").fireMode(2)),
                results(windowed().max("v").numeric("decimal")),
                results(windowed().max("v").count()),
            ],
        ),
        (results(windowed().agg(n="sum(v)")), [results(windowed().agg(n="count(v)"))]),
        (results(windowed().max("v").fireMode(1)), [results(windowed().max("v").fireMode(2))]),
        (
            results(windowed().max("v").emitBeforeFire(Time.seconds(5), strict=True)),
            [results(windowed().max("v").emitAfterFire(Time.seconds(5)))],
        ),
        (top(), [top("k"), top(rising=False)]),
        (stream().distinct("k"), [stream().distinct("v"), stream().distinct("k", "v")]),
        (
            joined(),
            [
                joined("leftJoin"),
                joined(condition="(k,==,k)&(v,==,v)"),
                joined(after=3),
                joined(window=MINUTE),
            ],
        ),
        (grouped().count(), [grouped().sum("v"), grouped().aggregate(Last(), incremental=True)]),
    ],
)
def test_what_state_depends_on_is_in_its_description(pipeline, others):
    found = described(pipeline)
    assert all(described(other) != found for other in others)


@pytest.mark.parametrize(
    ("pipeline", "others"),
    [
        (
            results(windowed().max("v")),
            [
                results(windowed().max("v", "highest").waterMark(5)),
                results(windowed().max("v").having("max > 3")).filter("max < 9"),
                results(windowed().max("v").emitBeforeFire(Time.seconds(5))),
            ],
        ),
        (top(), [top(count=5)]),
        (stream().distinct("k"), [stream().distinct("k", windowSizeSecond=9)]),
        (windowed().reduce(max), [windowed().reduce(min)]),
        (processed(), [processed("processingTime")]),
        (joined(), [joined(condition="( k, =, k )")]),
    ],
)
def test_what_does_not_matter_for_state_may_change(pipeline, others):
    found = described(pipeline)
    assert all(described(other) == found for other in others)


def test_a_description_is_for_readers():
    assert described(top()) == [
        "tumbling windows of 60 s of the field t by k: sum(v)",
        "first rows by nothing in the order of s",
    ]
    assert described(joined()) == ["join on k = k, 1 s before to 2 s after"]
    assert described(stream()) == []
