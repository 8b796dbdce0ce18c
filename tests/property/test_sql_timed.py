"""What waits for the watermark: the same results as a calculation over all rows, by their times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.sql.state.steps import Aggregate, Fold, Over
from pyspark_rocketmq.sql.state.timed import Frames, History

AGGREGATES = (
    Aggregate(Fold.COUNT, argument=False),
    Aggregate(Fold.SUM),
    Aggregate(Fold.MIN),
    Aggregate(Fold.MAX),
    Aggregate(Fold.COUNT, distinct=True),
)
VALUES = st.none() | st.integers(-3, 3)
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 20), VALUES), max_size=6), st.integers(0, 5)), max_size=6
)
"""Of each batch: its rows, and how far the watermark moves."""


def results(values: list[int | None]) -> tuple[object, ...]:
    some = [value for value in values if value is not None]
    total = sum(some) if some else None
    return len(values), total, min(some, default=None), max(some, default=None), len(set(some))


def frame(over: Over, rows: list[tuple[int, int | None]], at: int) -> list[int | None]:
    """Return the values in the frame of a row, in the plainest way."""
    time, _ = rows[at]
    if over.rows:
        first = 0 if over.preceding is None else max(at - over.preceding, 0)
        return [value for _, value in rows[first : at + 1]]
    return [
        value
        for other, value in rows
        if other <= time and (over.preceding is None or other >= time - over.preceding)
    ]


@given(st.booleans(), st.none() | st.integers(0, 4), BATCHES)
def test_a_row_has_the_aggregates_of_the_rows_before_it(
    rows: bool, preceding: int | None, batches: list[tuple[list[tuple[int, int | None]], int]]
) -> None:
    over = Over(1, AGGREGATES, rows, preceding)
    frames, watermark, taken, found = Frames(over), 0, [], []
    for batch, moved in [*batches, ([], 100)]:
        for time, value in batch:
            if time >= watermark:
                assert frames.add(time, (None, *[value] * 4), (len(taken),))
                taken.append((time, value))
        watermark += moved
        found += frames.advance(watermark)
        restored = Frames(over)
        restored.unpack(frames.pack())
        frames = restored
    order = sorted(range(len(taken)), key=lambda at: taken[at][0])
    ordered = [taken[at] for at in order]
    assert found == [((order[at],), results(frame(over, ordered, at))) for at in range(len(ordered))]
    assert frames.first is None


def test_a_row_before_one_that_was_emitted_is_late() -> None:
    frames = Frames(Over(0, AGGREGATES[:1], rows=True, preceding=None))
    assert frames.add(5, (None,), ())
    assert frames.first == 5
    assert list(frames.advance(6)) == [((), (1,))]
    assert not frames.add(5, (None,), ())
    assert frames.add(6, (None,), ())
    assert list(frames.advance(6)) == []


@pytest.mark.parametrize(("rows", "kept"), [(True, 3), (False, 2)])
def test_only_a_frame_is_kept(rows: bool, kept: int) -> None:
    frames = Frames(Over(1, AGGREGATES, rows, 2))
    for time in range(0, 100, 2):
        frames.add(time, (None, 1, 1, 1, 1), ())
        list(frames.advance(time + 1))
    pending, frame_rows, *_ = frames.pack()
    assert (len(pending), len(frame_rows)) == (0, kept)


@given(BATCHES, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10))
def test_a_row_has_the_version_that_was_valid(
    batches: list[tuple[list[tuple[int, int | None]], int]], versions: list[tuple[int, int]]
) -> None:
    history, watermark, taken, found, valid = History(), 0, [], [], []
    waiting = list(versions)
    for batch, moved in [*batches, ([], 100)]:
        for time, _ in batch:
            if time >= watermark:
                history.add(time, (len(taken),))
                taken.append(time)
        last = watermark + moved
        come = [each for each in waiting if each[0] < last or moved == 100]
        waiting = [each for each in waiting if each not in come]
        for time, version in come:  # before the watermark passes them
            history.replace(time, (version,))
            valid.append((time, version))
        watermark = last
        found += history.advance(watermark)
        restored = History()
        restored.unpack(history.pack())
        history = restored
    for (number,), version in found:
        known = [each for each in valid if each[0] <= taken[number]]
        latest = max((time for time, _ in known), default=None)
        wanted = [each for time, each in known if time == latest]
        assert version == ((wanted[-1],) if wanted else None)
    assert sorted(number for (number,), _ in found) == list(range(len(taken)))
    assert history.first is None


def test_versions_that_are_over_are_forgotten() -> None:
    history = History()
    for time in range(10):
        history.replace(time, (time,))
    list(history.advance(7))
    _, versions = history.pack()
    assert versions == [(7, (7,)), (8, (8,)), (9, (9,))]
    history.add(7, ("row",))
    assert list(history.advance(8)) == [(("row",), (7,))]
    history.add(9, ("waits",))
    history.forget(20)
    assert history.pack()[1] == [(9, (9,))]
    history.replace(1, ("late",))
    history.forget(20)
    assert history.pack()[1] == [(9, (9,))]
