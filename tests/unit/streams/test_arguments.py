"""Arguments of the wrong kind are refused where they are given, by one line that says what they may be."""

from __future__ import annotations

import pytest
from tests.unit.streams.small_pipelines import MINUTE, Last, grouped, stream, typed

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import SessionWindow, Time, TumblingWindow


class Classic:
    """An accumulator of the older API."""

    def createAccumulator(self):
        return []

    def accumulate(self, accumulator, value):
        accumulator.append(value)

    def getValue(self, accumulator):
        return accumulator


def joined():
    keyed = grouped("join").toRStream().join(grouped("other").toRStream())
    return keyed.where(lambda value: value["k"]).equalTo(lambda value: value["k"])


@pytest.mark.parametrize("seconds", [-1, "5", None, float("nan"), float("inf"), True])
@pytest.mark.parametrize(
    "method",
    [
        lambda seconds: stream().window(MINUTE).waterMark(seconds),
        lambda seconds: stream().window(MINUTE).setMaxMsgGap(seconds),
        lambda seconds: typed().join(typed()).waterMark(seconds),
        lambda seconds: grouped().window(MINUTE).waterMark(seconds),
        lambda seconds: joined().waterMark(seconds),
    ],
)
def test_seconds_are_a_number_from_0(method, seconds):
    with pytest.raises(PlanError, match=r"(waterMark|setMaxMsgGap) must be at least 0 seconds"):
        method(seconds)
    method(0)
    method(1.5)


@pytest.mark.parametrize("window", [10, None, "10 seconds", TumblingWindow, TumblingWindow.of(10)])
@pytest.mark.parametrize(
    "method",
    [
        lambda window: stream().window(window),
        lambda window: typed().join(typed()).window(window),
        lambda window: grouped().window(window),
        lambda window: joined().window(window),
    ],
)
def test_a_window_has_a_duration(method, window):
    with pytest.raises(PlanError, match=r"a window is TumblingWindow.of\(Time.seconds\(10\)\)"):
        method(window)
    method(MINUTE)
    method(SessionWindow.of(Time.seconds(1)))


@pytest.mark.parametrize(
    "method",
    [
        lambda names: stream().window(MINUTE).groupBy(names),
        lambda names: stream().window(MINUTE).sum(names, "total"),
        lambda names: stream().window(MINUTE).count(names),
        lambda names: stream().selectFields("a", names),
        lambda names: stream().distinct(names),
        lambda names: stream().topN("rank", 1).groupBy(names),
        lambda names: stream().topN("rank", 1).addOrderByFieldName(names),
    ],
)
def test_names_are_texts(method):
    with pytest.raises(PlanError, match=r"takes names of fields, such as \w+\('a', 'b'\), not \['a', 'b'\]"):
        method(["a", "b"])
    method("a")


@pytest.mark.parametrize("wrong", [None, Last, Classic, lambda values: values])
def test_an_accumulator_is_an_object_of_either_api(wrong):
    windows = grouped().window(MINUTE)
    for aggregate in (stream().window(MINUTE).aggregate, grouped().aggregate, windows.aggregate):
        with pytest.raises(PlanError, match="aggregate takes an object with addValue, result, clone or"):
            aggregate(wrong)
        aggregate(Last())
    stream().window(MINUTE).aggregate(Classic())


def test_a_function_a_label_and_a_number_are_needed():
    with pytest.raises(PlanError, match="reduce takes a function, not str"):
        stream().window(MINUTE).reduce("a + b")
    with pytest.raises(PlanError, match="select needs at least one label"):
        stream().split(lambda row: row["t"]).select()
    with pytest.raises(PlanError, match="topN needs a count of at least 1"):
        stream().topN("rank", "3").addOrderByFieldName("a").toDataStream()


@pytest.mark.parametrize("name", ["key", "Key"])
def test_the_field_called_key_is_selected_by_a_function(name):
    """The results have the group under this name, and it was aggregated."""
    with pytest.raises(PlanError, match=rf"select the field '{name}' by a function"):
        grouped().sum(name)
    with pytest.raises(PlanError, match=r"lambda value: value\["):
        grouped().window(MINUTE).count(name)
    grouped().sum(lambda value: value["key"])
