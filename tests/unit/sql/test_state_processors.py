"""What a step with state emits for the rows of a batch, with a state store that is a dictionary."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from pyspark_rocketmq.sql.state.processors import OP, SIDE, GroupChanges, JoinChanges, RankChanges
from pyspark_rocketmq.sql.state.steps import Aggregate, Fold, Grouping, Ranking


class OneValue:
    """The state of one key."""

    def __init__(self) -> None:
        self.value: tuple[Any, ...] | None = None
        self.ttl_ms: int | None = None

    def getValueState(self, name: str, schema: StructType, ttl_ms: int | None = None) -> OneValue:
        del name, schema
        self.ttl_ms = ttl_ms
        return self

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


def emitted(processor: Any, key: tuple[Any, ...], rows: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in processor.handleInputRows(key, iter(rows), None)]


def test_an_average_is_rounded_as_spark_and_flink_round():
    output = StructType([StructField("__k0", StringType()), StructField("__r0", DecimalType(14, 6))])
    processor = GroupChanges(Grouping(1, (Aggregate(Fold.AVG),)), output, changes=False, ttl_ms=None)
    processor.init(OneValue())  # type: ignore[arg-type]
    values = [Row("__a0", OP)(value, "+I") for value in [Decimal("0.01"), *[Decimal(0)] * 31]]
    assert emitted(processor, ("k",), values) == [("k", Decimal("0.000313"), "+I", 1)]  # of 0.0003125


@pytest.mark.parametrize("changes", [False, True])
def test_arrays_and_rows_are_values_of_aggregates(changes):
    """As Spark compares them: NULL first, NaN last."""
    folds = Aggregate(Fold.COUNT, distinct=True), Aggregate(Fold.MIN), Aggregate(Fold.MAX)
    output = StructType([StructField(f"__r{at}", LongType()) for at in range(3)])  # the types are not used
    processor = GroupChanges(Grouping(0, folds), output, changes=changes, ttl_ms=None)
    processor.init(OneValue())  # type: ignore[arg-type]
    part = Row("n", "tags")
    nan = math.nan
    values = [[part(nan, ["x"])], [part(1.0, ["a", None])], [part(1.0, None)], [part(1.0, ["a", None])], []]
    rows = [Row("__a0", "__a1", "__a2", OP)(value, value, value, "+I") for value in values]
    assert emitted(processor, (), rows) == [(4, [], [part(nan, ["x"])], "+I", 1)]
    if changes:
        gone = [Row("__a0", "__a1", "__a2", OP)(values[at], values[at], values[at], "-D") for at in (0, 3, 4)]
        emitted_last = emitted(processor, (), gone)
        assert emitted_last[-1] == (2, [part(1.0, None)], [part(1.0, ["a", None])], "+U", 1)
        assert [type(value) for value in emitted_last[-1][1:3]] == [list, list]
        assert type(emitted_last[-1][2][0][1]) is list


@pytest.mark.parametrize("changes", [False, True])
def test_rows_in_arrays_and_maps_are_values_of_aggregates(changes):
    """Workers get them as dicts. A map has no order."""
    output = StructType([StructField("__r0", LongType()), StructField("__r1", LongType())])
    folds = Aggregate(Fold.COUNT, distinct=True), Aggregate(Fold.MAX)
    processor = GroupChanges(Grouping(0, folds), output, changes=changes, ttl_ms=None)
    processor.init(OneValue())  # type: ignore[arg-type]
    maps = {"x": [1], "y": None}, {"y": None, "x": [1]}, {"x": [1], "y": [None]}
    rows = [{"n": 2, "a": [1, 2]}, {"n": 2, "a": [3]}, {"n": 1, "a": [4]}]
    values = [
        Row("__a0", "__a1", OP)(*pair, "+I") for pair in zip(maps, ([row] for row in rows), strict=True)
    ]
    assert emitted(processor, (), values) == [(2, [{"n": 2, "a": [3]}], "+I", 1)]


def test_a_group_emits_its_change_and_is_forgotten_with_its_last_row():
    grouping = Grouping(1, (Aggregate(Fold.COUNT, argument=False), Aggregate(Fold.AVG)))
    output = StructType(
        [
            StructField("__k0", StringType()),
            StructField("__r0", LongType()),
            StructField("__r1", DecimalType(10, 4)),
        ]
    )
    state = OneValue()
    processor = GroupChanges(grouping, output, changes=True, ttl_ms=None)
    processor.init(state)  # type: ignore[arg-type]
    row = Row("__a1", OP)
    one, two = Decimal("1.00"), Decimal("2.00")
    assert emitted(processor, ("k",), [row(one, "+I"), row(two, "+U")]) == [
        ("k", 2, Decimal("1.5000"), "+I", 1)
    ]
    assert emitted(processor, ("k",), [row(one, "-U"), row(one, "+U")]) == []
    assert emitted(processor, ("k",), [row(one, "-D")]) == [
        ("k", 2, Decimal("1.5000"), "-U", 0),
        ("k", 1, Decimal("2.0000"), "+U", 1),
    ]
    assert emitted(processor, ("k",), [row(two, "-D")]) == [("k", 1, Decimal("2.0000"), "-D", 0)]
    assert (state.value, state.ttl_ms) == (None, None)
    # A row may be taken back before it comes, in another batch.
    assert emitted(processor, ("k",), [row(one, "-U")]) == []
    assert state.value is not None
    assert emitted(processor, ("k",), [row(one, "+I")]) == []
    assert state.value is None


def group_of(
    keys: int, fold: Fold, *, changes: bool, ttl_ms: int | None = 5
) -> tuple[GroupChanges, OneValue]:
    fields = [*(StructField(f"__k{at}", StringType()) for at in range(keys)), StructField("__r0", LongType())]
    grouping = Grouping(keys, (Aggregate(fold),))
    processor, state = GroupChanges(grouping, StructType(fields), changes=changes, ttl_ms=ttl_ms), OneValue()
    processor.init(state)  # type: ignore[arg-type]
    return processor, state


def test_a_group_with_a_time_to_live_emits_its_result_again_for_those_that_keep_it():
    row = Row("__a0")
    processor, state = group_of(1, Fold.MAX, changes=False)
    assert state.ttl_ms == 5
    assert emitted(processor, ("k",), [row(7)]) == [("k", 7, "+I", 1)]
    assert emitted(processor, ("k",), [row(3)]) == [("k", 7, "-U", 0), ("k", 7, "+U", 1)]
    processor, _ = group_of(1, Fold.MAX, changes=False, ttl_ms=None)
    assert emitted(processor, ("k",), [row(7)]) == [("k", 7, "+I", 1)]
    assert emitted(processor, ("k",), [row(3)]) == []


def test_rows_that_were_forgotten_are_not_taken_back():
    row = Row("__a0", OP)
    processor, state = group_of(1, Fold.SUM, changes=True)
    assert emitted(processor, ("k",), [row(7, "+I")]) == [("k", 7, "+I", 1)]
    state.clear()  # the time to live is over
    assert emitted(processor, ("k",), [row(7, "-U"), row(9, "+U")]) == [("k", 9, "+I", 1)]
    state.clear()
    assert emitted(processor, ("k",), [row(9, "-D")]) == []
    assert emitted(processor, ("k",), [row(2, "+I")]) == [("k", 2, "+I", 1)]


def test_a_join_takes_back_no_pairs_of_rows_that_were_forgotten():
    names = ("__0f0", "__1f0", "__has_left", "__has_right")
    output = StructType([StructField(name, LongType()) for name in names])
    processor = JoinChanges((["__0f0"], ["__1f0"]), (True, False), output, ttl_ms=5)
    state = OneValue()
    processor.init(state)  # type: ignore[arg-type]
    row = Row("__0f0", "__1f0", SIDE, OP)
    assert emitted(processor, ("k",), [row(1, None, 0, "+I")]) == [(1, None, True, False, "+I", 0)]
    state.clear()
    changed = [row(1, None, 0, "-U"), row(2, None, 0, "+U")]
    assert emitted(processor, ("k",), changed) == [(2, None, True, False, "+I", 0)]
    assert emitted(processor, ("k",), [row(None, 5, 1, "+I")]) == [
        (2, None, True, False, "-D", 0),
        (2, 5, True, True, "+I", 1),
    ]


@pytest.mark.parametrize("ttl_ms", [5, None])
def test_an_outer_join_takes_back_rows_whose_key_is_null(ttl_ms: int | None):
    """They have no state that could be forgotten."""
    names = ("__0f0", "__1f0", "__has_left", "__has_right")
    output = StructType([StructField(name, LongType()) for name in names])
    processor = JoinChanges((["__0f0"], ["__1f0"]), (True, False), output, ttl_ms=ttl_ms)
    state = OneValue()
    processor.init(state)  # type: ignore[arg-type]
    row = Row("__0f0", "__1f0", SIDE, OP)
    assert emitted(processor, (None,), [row(1, None, 0, "+I")]) == [(1, None, True, False, "+I", 0)]
    changed = [row(1, None, 0, "-U"), row(2, None, 0, "+U")]
    assert emitted(processor, (None,), changed) == [
        (1, None, True, False, "-D", 0),
        (2, None, True, False, "+I", 1),
    ]
    assert emitted(processor, (None,), [row(2, None, 0, "-D")]) == [(2, None, True, False, "-D", 0)]
    assert emitted(processor, (None,), [row(None, 5, 1, "+I"), row(None, 5, 1, "-D")]) == []
    assert state.value is None


@pytest.mark.parametrize(("ttl_ms", "again"), [(5, True), (None, False)])
def test_pairs_whose_row_comes_again_are_renewed_for_those_that_keep_them(ttl_ms: int | None, again: bool):
    names = ("__0f0", "__1f0", "__has_left", "__has_right")
    output = StructType([StructField(name, LongType()) for name in names])
    processor = JoinChanges((["__0f0"], ["__1f0"]), (True, False), output, ttl_ms=ttl_ms)
    processor.init(OneValue())  # type: ignore[arg-type]
    row = Row("__0f0", "__1f0", SIDE, OP)
    same = [row(1, None, 0, "-U"), row(1, None, 0, "+U")]

    def renewed(*pair: object) -> list[tuple[object, ...]]:
        return [(*pair, "-U", 0), (*pair, "+U", 1)] if again else []

    assert emitted(processor, ("k",), [row(1, None, 0, "+I")]) == [(1, None, True, False, "+I", 0)]
    assert emitted(processor, ("k",), same) == renewed(1, None, True, False)
    assert len(emitted(processor, ("k",), [row(None, 5, 1, "+I")])) == 2
    assert emitted(processor, ("k",), same) == renewed(1, 5, True, True)
    absent = [row(3, None, 0, "+I"), row(3, None, 0, "-D")]  # it came and went
    assert emitted(processor, ("k",), absent) == []
    assert len(emitted(processor, ("k",), [*same, row(None, 5, 1, "-D")])) == 2, "the pair has changed"


@pytest.mark.parametrize(("ttl_ms", "again"), [(5, True), (None, False)])
@pytest.mark.parametrize("shows_rank", [True, False])
def test_first_rows_that_come_again_are_renewed_for_those_that_keep_them(
    ttl_ms: int | None, again: bool, shows_rank: bool
):
    output = StructType([StructField("__c0", StringType()), StructField("n", LongType())])
    ranking = Ranking(1, ((False, False),), 1, "n", shows_rank=shows_rank)
    processor = RankChanges(ranking, ["__c0"], output, changes=True, ttl_ms=ttl_ms)
    processor.init(OneValue())  # type: ignore[arg-type]
    row = Row("__o0", "__c0", OP)
    emitted(processor, ("k",), [row(1, "a", "+I"), row(2, "b", "+I")])
    renewed = [("a", 1, "-U", 0), ("a", 1, "+U", 1)] if again else []
    assert emitted(processor, ("k",), [row(1, "a", "-U"), row(1, "a", "+U")]) == renewed
    assert emitted(processor, ("k",), [row(2, "b", "-U"), row(2, "b", "+U")]) == [], "it is not the first"


def test_a_query_without_keys_keeps_its_row():
    output = StructType([StructField("__r0", LongType())])
    processor = GroupChanges(
        Grouping(0, (Aggregate(Fold.COUNT, argument=False),)), output, changes=True, ttl_ms=None
    )
    processor.init(OneValue())  # type: ignore[arg-type]
    row = Row(OP)
    assert emitted(processor, (0,), [row("+I")]) == [(1, "+I", 1)]
    assert emitted(processor, (0,), [row("-D")]) == [(1, "-U", 0), (0, "+U", 1)]


def test_bytes_are_values():
    output = StructType([StructField("__r0", LongType())])
    distinct = Grouping(0, (Aggregate(Fold.COUNT, distinct=True),))
    processor = GroupChanges(distinct, output, changes=False, ttl_ms=None)
    processor.init(OneValue())  # type: ignore[arg-type]
    row = Row("__a0")
    assert emitted(processor, (0,), [row(bytearray(b"a")), row(bytearray(b"a"))]) == [(1, "+I", 1)]


def test_a_row_that_leaves_the_first_ones_is_deleted():
    output = StructType([StructField("__c0", StringType()), StructField("n", LongType())])
    ranking = Ranking(1, ((True, False),), 2, "n", shows_rank=False)
    processor = RankChanges(ranking, ["__c0"], output, changes=False, ttl_ms=None)
    state = OneValue()
    processor.init(state)  # type: ignore[arg-type]
    row = Row("__o0", "__c0")
    assert emitted(processor, ("k",), [row(1, "a"), row(3, "c")]) == [("c", 1, "+I", 0), ("a", 2, "+I", 1)]
    assert emitted(processor, ("k",), [row(2, "b"), row(0, "z")]) == [("a", 2, "-D", 0), ("b", 2, "+I", 1)]
    shown = RankChanges(
        Ranking(1, ((True, False),), 2, "n", shows_rank=True), ["__c0"], output, changes=False, ttl_ms=None
    )
    shown.init(state)  # type: ignore[arg-type]
    assert emitted(shown, ("k",), [row(9, "x")]) == [
        ("c", 1, "-U", 0),
        ("x", 1, "+U", 1),
        ("b", 2, "-U", 2),
        ("c", 2, "+U", 3),
    ]


def test_the_last_row_of_a_key_is_the_one_that_came_last():
    output = StructType([StructField("__c0", StringType()), StructField("n", LongType())])
    for newest, wanted in ((True, ["b", "d", "e"]), (False, ["a", None, "e"])):
        ranking = Ranking(1, ((True, False),), 1, "n", shows_rank=False, newest=newest)
        processor = RankChanges(ranking, ["__c0"], output, changes=True, ttl_ms=None)
        processor.init(OneValue())  # type: ignore[arg-type]
        row = Row("__o0", "__c0", OP)
        batches = [[(5, "a"), (5, "b")], [(5, "c"), (5, "d")], [(4, "z"), (6, "e")]]
        for batch, kind in zip(batches, wanted, strict=True):
            changes = emitted(processor, ("k",), [row(*each, "+I") for each in batch])
            assert [values[0] for values in changes if values[2] == "+I"] == ([kind] if kind else [])
