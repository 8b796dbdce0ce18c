"""What a plan says about its steps without Spark: shapes, fields that are parsed, steps with state."""

from __future__ import annotations

import json

import pytest
from tests.unit.streams.small_pipelines import MINUTE, Last, Passed, grouped, processed, stream, typed

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams import Time, TumblingWindow
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import analyze, check_ends
from pyspark_rocketmq.streams.plan.nodes import Shape


def analyzed(end):
    """Return the analysis of a pipeline and its last step before the sink."""
    analysis = analyze(end.toPrint().plan())
    return analysis, analysis.nodes[-1].input


@pytest.mark.parametrize(
    ("is_json", "then", "shape"),
    [
        (False, lambda s: s, Shape.TEXT),
        (True, lambda s: s, Shape.JSON),
        (False, lambda s: s.map(lambda m: m), Shape.TEXT),
        (False, lambda s: s.map(json.loads), Shape.JSON),
        (False, lambda s: s.map(lambda m: {"a": json.loads(m)["x"]}), Shape.COLUMNS),
        (True, lambda s: s.map(lambda r: {"a": r["x"]}), Shape.COLUMNS),
        (True, lambda s: s.map(lambda r: {"a": r["x"] + 1}), Shape.JSON),
        (False, lambda s: s.map(len), Shape.JSON),
        (False, lambda s: s.map(len, schema="a int"), Shape.COLUMNS),
        (False, lambda s: s.flatMap(str.split), Shape.JSON),
        (False, lambda s: s.flatMap(str.split, schema="a int"), Shape.COLUMNS),
        (False, lambda s: s.filter(bool).forEach(print), Shape.TEXT),
        (True, lambda s: s.filter("a > 1").distinct("a").selectTimestamp("t"), Shape.JSON),
        (False, lambda s: s.split(len).select(1), Shape.TEXT),
        (True, lambda s: s.union(stream()), Shape.JSON),
        (True, lambda s: s.selectFields("a"), Shape.COLUMNS),
        (True, lambda s: s.window(MINUTE).count().toDataStream(), Shape.COLUMNS),
    ],
)
def test_each_step_has_a_shape(is_json, then, shape):
    analysis, last = analyzed(then(stream(is_json=is_json)))
    assert (analysis.shapes[last], analysis.shapes[analysis.nodes[-1]]) == (shape, shape)


@pytest.mark.parametrize(
    ("function", "is_python"),
    [(json.loads, False), (len, True), (lambda m: {"a": json.loads(m)["x"]}, False)],
)
def test_a_lifted_function_runs_without_python(function, is_python):
    analysis, last = analyzed(stream(is_json=False).map(function))
    assert (analysis.is_python(last), last in analysis.lifted) == (is_python, not is_python)


def test_sides_of_a_union_have_one_shape():
    with pytest.raises(PlanError, match=r"one side has json, the other columns.*union#"):
        analyzed(stream().union(stream().selectFields("a")))


FIELDS = [
    (lambda s: s.filter("a > 1"), {"a"}),
    (lambda s: s.filter("a > 1").distinct("b").selectTimestamp("c").selectFields("d"), {"a", "b", "c", "d"}),
    (lambda s: s.script("x=a+b").filter("c > 1"), {"a", "b", "c"}),
    (lambda s: s.union(stream()).filter("a > 1"), {"a"}),
    (lambda s: s.map({"x": "a + 1"}).filter("b > 1"), {"a"}),
    (lambda s: s.selectFields("a").filter("b > 1"), {"a"}),
    (lambda s: s.map(lambda r: {"x": r["a"] + 1}).filter("b > 1"), set()),
    (lambda s: s.window(MINUTE).groupBy("k").sum("v").count().toDataStream(), {"k", "v", "t"}),
    (lambda s: s.window(TumblingWindow.of(Time.minutes(1))).agg(n="max(v)").toDataStream(), {"v"}),
]


@pytest.mark.parametrize(("then", "fields"), FIELDS)
def test_only_the_fields_that_later_steps_name_are_parsed(then, fields):
    analysis, _ = analyzed(then(stream()))
    assert analysis.wanted(analysis.nodes[0]) == fields


def test_a_label_passes_the_fields_that_are_named_after_its_selection():
    analysis, _ = analyzed(stream().split(len).select(0).filter("a > 1"))
    assert [node.name for node in analysis.nodes[:2]] == ["fromRocketmq#1", "label#2"]
    assert analysis.wanted(analysis.nodes[1]) == {"a"}


def test_two_branches_need_the_fields_of_both():
    left = stream().filter("a > 1")
    right = left.selectFields("b")
    left.window(MINUTE).groupBy("k").count().toDataStream().toPrint()
    analysis, _ = analyzed(right)
    assert analysis.wanted(analysis.nodes[0]) == {"a", "b", "k", "t"}


def test_groups_and_processors_name_their_fields():
    analysis, _ = analyzed(processed())
    assert analysis.wanted(analysis.nodes[0]) == {"k"}
    analysis, group = analyzed(grouped().sum("v").toRStream())
    assert isinstance(group, p.Group)
    assert analysis.wanted(group.input) == {"key", "v"}


def test_a_join_with_a_table_names_its_own_side_and_passes_what_is_not_the_tables(tmp_path):
    (tmp_path / "t.csv").write_text("id,city\n1,Rom\n")
    joined = stream().dimJoin(str(tmp_path / "t.csv"), 1).on("(uid,==,id)").toDataStream()
    analysis, _ = analyzed(joined.selectFields("n", "city"))
    assert analysis.wanted(analysis.nodes[0]) == {"uid", "n"}
    texts = stream(is_json=False).dimJoin(str(tmp_path / "t.csv"), 1).on("(uid,==,id)").toDataStream()
    analysis, join = analyzed(texts)
    assert analysis.shapes[join] is Shape.COLUMNS


def again(windows):
    return windows.toDataStream().window(MINUTE).count().toDataStream()


@pytest.mark.parametrize(
    ("end", "first", "other"),
    [
        (lambda: again(stream().window(MINUTE).count().fireMode(2)), "window#2", "window#3"),
        (
            lambda: again(stream().window(MINUTE).count().emitBeforeFire(Time.seconds(1))),
            "window#2",
            "window#3",
        ),
        (lambda: processed().distinct("k"), "process#2", "distinct#3"),
        (lambda: typed().distinct("k").process("k", Passed(), "k string"), "process#3", "distinct#2"),
        (lambda: grouped().sum("v").toRStream().keyBy(str).count().toRStream(), None, None),
    ],
)
def test_a_step_whose_results_change_is_the_only_one_with_state(end, first, other):
    with pytest.raises(PlanError, match="must be the only stateful step") as failure:
        analyzed(end())
    names = failure.value.facts["step"], failure.value.facts["other"]
    assert names == (first, other) if first else names[0] != names[1]


@pytest.mark.parametrize(
    ("end", "is_python"),
    [
        (lambda: stream().window(MINUTE).count().toDataStream(), False),
        (lambda: stream().window(MINUTE).count().fireMode(1).toDataStream(), True),
        (processed, True),
        (lambda: grouped().sum("v").toRStream(), False),
        (lambda: grouped().aggregate(Last(), incremental=True).toRStream(), True),
    ],
)
def test_state_of_our_own_is_in_python(end, is_python):
    analysis, step = analyzed(end())
    assert (analysis.is_python(step), analysis.stateful) == (is_python, [step])


def test_what_never_ends_says_why():
    with pytest.raises(PlanError, match=r"runs batches forever.*process#2"):
        check_ends(processed("processingTime").toPrint().plan())
    check_ends(processed("eventTime").toPrint().plan())


@pytest.mark.parametrize(
    ("result", "takes_whole"),
    [
        (lambda w: w.count().toDataStream(), False),
        (lambda w: w.count().reduce(max), True),
        (lambda w: w.aggregate(Last()).toDataStream(), True),
    ],
)
def test_functions_of_records_take_them_whole(result, takes_whole):
    analysis, _ = analyzed(result(stream().filter("a > 1").window(MINUTE)))
    assert analysis.takes_whole(analysis.nodes[0]) is takes_whole


def test_records_may_be_as_late_as_the_most_patient_step_after_them_allows():
    def windows(of, seconds):
        return of.window(MINUTE).count("n").waterMark(seconds).toDataStream()

    start = stream()
    union = start.selectFields("t").union(typed())
    for end in (windows(union.filter("t > 1"), 5), windows(union, 7), windows(windows(union, 6), 99)):
        end.toPrint()
    plan = start.plan()
    analysis = analyze(plan)
    assert analysis.lateness_s(union._node) == 7
    assert analysis.lateness_s(union._node, open_windows=True) == 67
    assert analysis.lateness_s(plan.sinks[0].input) is None
    assert [analysis.lateness_s(sink.input.input) for sink in plan.sinks] == [5, 7, 99]
