"""What a key of a query with state keeps: the same results as a calculation over all rows that remain."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_rocketmq.sql.state.groups import Group
from pyspark_rocketmq.sql.state.joins import Joined, Pair
from pyspark_rocketmq.sql.state.rankings import Line, Ranked, differences
from pyspark_rocketmq.sql.state.steps import Aggregate, Fold, Grouping, Ranking

VALUES = st.none() | st.integers(-3, 3)
AGGREGATES = tuple(
    Aggregate(fold, argument=argument, distinct=distinct)
    for fold, argument, distinct in (
        (Fold.COUNT, False, False),
        (Fold.COUNT, True, False),
        (Fold.COUNT, True, True),
        (Fold.SUM, True, False),
        (Fold.SUM, True, True),
        (Fold.AVG, True, False),
        (Fold.MIN, True, False),
        (Fold.MAX, True, False),
        (Fold.ANY_VALUE, True, False),
    )
)
GROUPING = Grouping(1, AGGREGATES)


def over_all(rows: list[int | None]) -> tuple[object, ...]:
    values = [value for value in rows if value is not None]
    return (
        len(rows),
        len(values),
        len(set(values)),
        sum(values) if values else None,
        sum(set(values)) if values else None,
        sum(values) / len(values) if values else None,
        min(values, default=None),
        max(values, default=None),
        None,
    )


@given(st.lists(st.tuples(st.booleans(), VALUES)))
def test_a_group_has_the_results_of_the_rows_that_remain(changes: list[tuple[bool, int | None]]) -> None:
    rows: list[int | None] = []
    group = Group(GROUPING, changes=True)
    for added, value in changes:
        if not added and value not in rows:
            continue
        (rows.append if added else rows.remove)(value)
        restored = Group(GROUPING, changes=True)
        restored.unpack(group.pack())
        group = restored
        group.add(1 if added else -1, [None, *[value] * (len(AGGREGATES) - 1)])
        assert group.results() == over_all(rows)
        assert group.is_empty == (not rows)


ENDLESS = st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, 1.0, 2.5])


@given(st.lists(st.tuples(st.booleans(), ENDLESS)))
@example([(True, 1.0), (True, math.nan), (False, math.nan)])
@example([(True, math.inf), (True, -math.inf), (False, math.inf)])
def test_a_number_without_end_leaves_the_sum_when_its_row_is_taken_back(
    changes: list[tuple[bool, float]],
) -> None:
    folds = (Fold.SUM, Fold.AVG)
    aggregates = tuple(Aggregate(fold, distinct=each) for fold in folds for each in (False, True))
    group = Group(Grouping(1, aggregates), changes=True)
    rows: list[float] = []
    for added, value in changes:
        there = [at for at, row in enumerate(rows) if repr(row) == repr(value)]
        if not added and not there:
            continue
        if added:
            rows.append(value)
        else:
            del rows[there[0]]
        restored = Group(Grouping(1, aggregates), changes=True)
        restored.unpack(pickle.loads(pickle.dumps(group.pack())))
        group = restored
        group.add(1 if added else -1, [value] * len(aggregates))
        both = rows, list({repr(row): row for row in rows}.values())
        wanted = [sum(each) if each else None for each in both]
        wanted += [sum(each) / len(each) if each else None for each in both]
        assert repr(group.results()) == repr(tuple(wanted))


@given(st.lists(VALUES))
def test_a_group_of_which_no_row_is_taken_back_keeps_no_values(rows: list[int | None]) -> None:
    plain = tuple(each for each in AGGREGATES if not each.distinct)
    group = Group(Grouping(1, plain), changes=False)
    for value in rows:
        group.add(1, [None, *[value] * (len(plain) - 1)])
    wanted = over_all(rows)
    assert group.results() == tuple(
        result for result, each in zip(wanted, AGGREGATES, strict=True) if not each.distinct
    )
    assert not any(kept.values for kept in group.kept)


def test_a_query_without_keys_keeps_its_row() -> None:
    group = Group(Grouping(0, (Aggregate(Fold.COUNT, argument=False),)), changes=True)
    group.add(1, [None])
    group.add(-1, [None])
    assert (group.is_empty, group.results()) == (False, (0,))


def test_decimals_are_added_exactly() -> None:
    group = Group(Grouping(1, (Aggregate(Fold.SUM),)), changes=True)
    for value in ("0.1", "0.2", "-0.3"):
        group.add(1, [Decimal(value)])
    assert group.results() == (Decimal("0.0"),)


ORDERS = st.sampled_from([(down, nulls) for down in (False, True) for nulls in (False, True)])


@given(
    st.tuples(ORDERS, ORDERS),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.lists(st.tuples(st.booleans(), VALUES, VALUES), max_size=6), max_size=6),
)
def test_the_changes_of_first_rows_lead_to_those_of_the_rows_that_remain(
    order: tuple[tuple[bool, bool], tuple[bool, bool]],
    limit: int,
    shows_rank: bool,
    batches: list[list[tuple[bool, int | None, int | None]]],
) -> None:
    ranking = Ranking(1, order, limit, "n", shows_rank)
    ranked = Ranked(ranking, changes=True)
    remain: list[tuple[int | None, int | None]] = []
    result: list[tuple[tuple[object, ...], int]] = []
    for batch in batches:
        added: list[Line] = []
        removed: list[Line] = []
        for is_added, *pair in batch:
            row = (pair[0], pair[1])
            if not is_added and row not in remain:
                continue
            (remain.append if is_added else remain.remove)(row)
            (added if is_added else removed).append((row, row))
        before = ranked.first()
        ranked.change(added, removed)
        for kind, row, rank in differences(ranking, before, ranked.first()):
            if kind in {"-D", "-U"}:
                kept = (row, rank) if shows_rank else next(each for each in result if each[0] == row)
                result.remove(kept)
            else:
                result.append((row, rank))
        wanted = in_order(remain, order)[:limit]
        assert sorted(map(repr, (row for row, _ in result))) == sorted(map(repr, wanted))
        if shows_rank:
            assert [row for row, _ in sorted(result, key=lambda each: each[1])] == wanted


def in_order(
    rows: list[tuple[int | None, int | None]], order: tuple[tuple[bool, bool], ...]
) -> list[tuple[int | None, int | None]]:
    """Sort by keys that put NULL at a number beyond all others."""

    def key(row: tuple[int | None, int | None]) -> tuple[float, ...]:
        places = []
        for value, (down, nulls_first) in zip(row, order, strict=True):
            number = float("-inf") if value is None and nulls_first else float("inf")
            places.append(number if value is None else float(-value if down else value))
        return tuple(places)

    return sorted(rows, key=key)


@given(st.integers(1, 3), st.lists(VALUES))
def test_only_the_first_rows_are_kept_if_none_is_taken_back(limit: int, values: list[int | None]) -> None:
    ranked = Ranked(Ranking(1, ((False, True),), limit, "n", False), changes=False)
    for value in values:
        ranked.change([((value,), (value,))], [])
    assert len(ranked.lines) == min(limit, len(values))
    assert ranked.first() == in_order_of_one(values)[:limit]


def in_order_of_one(values: list[int | None]) -> list[tuple[int | None]]:
    return [(value,) for value in sorted(values, key=lambda each: (each is not None, each or 0))]


@given(
    st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
    st.lists(st.lists(st.tuples(st.integers(0, 1), st.booleans(), VALUES), max_size=6), max_size=6),
)
def test_the_changes_of_a_join_lead_to_the_pairs_of_the_rows_that_remain(
    outer: tuple[bool, bool], matches: bool, batches: list[list[tuple[int, bool, int | None]]]
) -> None:
    """Of a key with a NULL, which matches nothing, no row has a partner."""
    sides: tuple[list[int | None], list[int | None]] = ([], [])
    joined, found = Joined(outer, matches=matches), Counter[Pair]()
    for batch in batches:
        changes = []
        for side, added, value in batch:
            if not added and value not in sides[side]:
                continue
            (sides[side].append if added else sides[side].remove)(value)
            changes.append((side, 1 if added else -1, (value,)))
        for kind, pair in joined.change(reversed(changes)):  # in any order
            found[pair] += 1 if kind == "+I" else -1
        restored = Joined(outer, matches=matches)
        restored.unpack(joined.pack())
        joined = restored
        left, right = sides
        pairs = (((one,), (other,)) for one in left for other in right)
        wanted = Counter[Pair](pairs if matches else ())
        if outer[0] and not (right and matches):
            wanted.update(((one,), None) for one in left)
        if outer[1] and not (left and matches):
            wanted.update((None, (other,)) for other in right)
        assert +found == wanted
        assert not -found
        assert joined.is_empty == (not matches or not (left or right))


NUMBERS = st.sampled_from([float("nan"), float("inf"), 1.0, -2.0])
OF_NUMBERS = (
    Aggregate(Fold.COUNT, distinct=True),
    Aggregate(Fold.MIN),
    Aggregate(Fold.MAX),
)


@given(st.lists(st.tuples(st.booleans(), NUMBERS)), st.booleans())
@example([(True, float("nan")), (True, 1.0)], True)
@example([(True, 1.0), (True, float("nan")), (True, float("inf"))], True)
def test_nan_is_one_value_above_all_others(changes: list[tuple[bool, float]], kept: bool) -> None:
    """Each NaN of a row is another object, which is not equal to itself."""
    rows: list[str] = []
    group = Group(Grouping(1, OF_NUMBERS), changes=kept)
    for added, value in changes:
        if not added and not (kept and str(value) in rows):
            continue
        (rows.append if added else rows.remove)(str(value))
        group.add(1 if added else -1, [float(str(value))] * len(OF_NUMBERS))
        packed = pickle.loads(pickle.dumps(group.pack()))
        group.unpack(packed)
        there = sorted(set(map(float, rows)), key=lambda each: (math.isnan(each), each))
        least, most = (str(there[0]), str(there[-1])) if there else ("None", "None")
        assert list(map(str, group.results())) == [str(len(set(rows))), least, most]


def test_nan_is_ranked_above_all_others() -> None:
    for down in (False, True):
        ranked = Ranked(Ranking(1, ((down, False),), 9, "n", False), changes=False)
        for value in (1.0, float("nan"), 0.5, float("inf")):
            ranked.change([((value,), (value,))], [])
        found = [str(value) for (value,) in ranked.first()]
        assert found == (["nan", "inf", "1.0", "0.5"] if down else ["0.5", "1.0", "inf", "nan"])


EQUAL_VALUES = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (0.0, -0.0),
    ([{1: 0.0, 2: None}], [{2: None, 1: -0.0}]),
]


@pytest.mark.parametrize(("one", "same"), EQUAL_VALUES)
def test_a_row_of_a_join_is_taken_back_by_an_equal_one(one, same) -> None:
    joined = Joined((False, False))
    assert list(joined.change([(0, 1, (7, one)), (1, 1, (8,))])) == [("+I", ((7, one), (8,)))]
    assert [kind for kind, _ in joined.change([(0, -1, (7, same))])] == ["-D"]
    assert list(joined.change([(1, -1, (8,))])) == []
    assert joined.is_empty


@pytest.mark.parametrize(("one", "same"), EQUAL_VALUES)
def test_a_ranked_row_is_taken_back_by_an_equal_one(one, same) -> None:
    ranked = Ranked(Ranking(1, ((False, True),), 1, "n", False), changes=True)
    ranked.change([((1,), (7, one)), ((2,), (8, one))], [])
    ranked.change([], [((1,), (7, same))])
    assert ranked.first() == [(8, one)]
