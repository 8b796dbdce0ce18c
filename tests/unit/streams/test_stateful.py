"""Latest values of two streams, played by hand: no Spark."""

from __future__ import annotations

import json
from datetime import date
from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StructField

from pyspark_rocketmq.streams import StreamBuilder
from pyspark_rocketmq.streams.compile import stateful, window_state
from pyspark_rocketmq.streams.compile.aggregator_columns import Folded
from pyspark_rocketmq.streams.compile.aggregators import Count, Sum
from pyspark_rocketmq.streams.compile.stateful import GrowingGroups, LatestPairs
from pyspark_rocketmq.streams.compile.window_state import FiredWindows
from pyspark_rocketmq.streams.frame.python_steps import ERROR, VALUE
from pyspark_rocketmq.streams.plan.nodes import LatestJoin


def pairs(function, *, outer=False, strict=False):
    """Return a function of a batch's ``(time, side, value)`` that gives ``(time, value, error)``."""
    processor = processor_of(function, outer=outer, strict=strict)

    def batch(*rows):
        its = [("key", at, side, json.dumps(value)) for at, side, value in rows]
        return [tuple(row) for row in processor.handleInputRows(("key",), iter(its), None)]

    return batch


def processor_of(function, *, outer=False, strict=False):
    left, right = StreamBuilder("l").source("t"), StreamBuilder("r").source("t")
    node = LatestJoin(name="join#1", left=left._node, right=right._node, outer=outer, function=function)
    stored = {}

    def state(name, schema):
        return SimpleNamespace(
            get=lambda: stored.get(name), update=lambda value: stored.__setitem__(name, value)
        )

    processor = LatestPairs(node, strict=strict)
    processor.init(SimpleNamespace(getValueState=state))
    return processor


BATCHES = [[(1, 0, "a")], [(3, 1, "y"), (2, 1, "x")], [(4, 0, "b"), (5, 1, "z")]]


def test_each_value_meets_the_latest_of_the_other_side():
    batch = pairs(lambda left, right: [left, right])
    found = [(at, json.loads(value)) for rows in BATCHES for at, value, _ in batch(*rows)]
    assert found == [(2, ["a", "x"]), (3, ["a", "y"]), (4, ["b", "y"]), (5, ["b", "z"])]


def test_a_left_value_goes_out_alone_and_a_right_one_does_not():
    batch = pairs(lambda left, right: [left, right], outer=True)
    assert batch((1, 1, "x")) == []
    assert batch((2, 0, "a")) == [(2, '["a", "x"]', None)]
    alone = pairs(lambda left, right: [left, right], outer=True)
    assert alone((2, 0, "a")) == [(2, '["a", null]', None)]


def test_a_function_that_raises_marks_its_pair_or_fails():
    def wrong(left, right):
        raise KeyError(left)

    assert pairs(wrong, outer=True)((1, 0, "a")) == [(1, '"a"', "KeyError: 'a'")]
    with pytest.raises(KeyError) as failure:
        pairs(wrong, outer=True, strict=True)((1, 0, "a"))
    assert "at a pair, in join#1" in failure.value.__notes__[0]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(2, 0, "a"), (1, 0, "b"), (3, 1, "x")], [(3, ["a", "x"])]),  # by time, not by text
        ([(2, 1, "x"), (1, 1, "y"), (3, 0, "a")], [(3, ["a", "x"])]),
        (  # of equal times, the left side is first
            [(0, 0, "z"), (0, 1, "w"), (1, 1, "a"), (1, 0, "b")],
            [(0, ["z", "w"]), (1, ["b", "w"]), (1, ["b", "a"])],
        ),
        ([(1, 0, "b"), (1, 0, "a"), (2, 1, "x")], [(2, ["b", "x"])]),  # then by text
        ([(2, 0, "a"), (1, 1, "x"), (3, 1, "y")], [(2, ["a", "x"]), (3, ["a", "y"])]),
    ],
)
def test_a_batch_counts_in_the_order_of_its_times(rows, found):
    for order in (rows, rows[::-1]):
        pairs_of = pairs(lambda left, right: [left, right])
        assert [(at, json.loads(value)) for at, value, _ in pairs_of(*order)] == found


def test_a_value_is_sent_as_its_function_made_it():
    processor = processor_of(lambda left, right: {left: date(2030, 1, 31)}, outer=True)
    (row,) = processor.handleInputRows(("key",), iter([("key", 7, 0, '"é"')]), None)
    assert row.asDict() == {"__at": 7, VALUE: '{"é": "2030-01-31"}', ERROR: None}


STATES = {
    "pairs": [("left", "struct<value:string>"), ("right", "struct<value:string>")],
    "groups": [("groups", "struct<folds:binary,results:string>")],
    "windows": [
        ("windows", "struct<fires:int,final:boolean,changed:boolean,folds:binary,results:string>"),
    ],
}


@pytest.mark.parametrize("kind", STATES)
def test_the_state_has_the_names_that_are_in_checkpoints(kind):
    opened = []
    results = Folded(2)
    processor = {
        "pairs": lambda: processor_of(lambda left, right: [left, right]),
        "groups": lambda: GrowingGroups(results),
        "windows": lambda: FiredWindows(None, results),
    }[kind]()
    processor.init(
        SimpleNamespace(getValueState=lambda name, schema: opened.append((name, schema.simpleString())))
    )
    assert opened == STATES[kind]


def test_a_group_grows_from_batch_to_batch():
    results = Folded(2, folds=[Count(None), Sum(2)], aliases=["c", "s"], user=[False] * 2)
    results.outputs += [StructField(name, LongType()) for name in ("c", "s")]
    processor, stored = GrowingGroups(results), {}
    state = SimpleNamespace(
        get=lambda: stored.get("state"), update=lambda value: stored.__setitem__("state", value)
    )
    processor.init(SimpleNamespace(getValueState=lambda name, schema: state))
    for rows, row in [([(3, "a", 1), (2, "a", 4)], (3, "a", 2, 5)), ([(1, "a", 2)], (1, "a", 3, 7))]:
        (found,) = processor.handleInputRows(("a",), iter(rows), None)
        assert found.asDict() == dict(zip(("__at", "__key", "c", "s"), row, strict=True))
    assert stored["state"][1] == '{"c": 3, "s": 7}'


@pytest.mark.parametrize("kind", ["pairs", "groups", "windows"])
def test_a_worker_with_state_collects_its_garbage_cheaply(kind, monkeypatch):
    calls = []
    for module in (stateful, window_state):
        monkeypatch.setattr(module, "spare_collections", lambda: calls.append(None))
    if kind == "pairs":
        processor_of(lambda left, right: [left, right])
    else:
        results = Folded(2)
        processor = GrowingGroups(results) if kind == "groups" else FiredWindows(None, results)
        processor.init(SimpleNamespace(getValueState=lambda name, schema: None))
    assert calls == [None]
