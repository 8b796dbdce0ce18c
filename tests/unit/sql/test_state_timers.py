"""What waits for the watermark, and when its state is forgotten, with a state store that is a dictionary."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from pyspark_rocketmq.sql.state.steps import Aggregate, Fold, Over
from pyspark_rocketmq.sql.state.timers import OP, POSITION, JoinVersions, OverRows

SECOND = 1_000_000
SUMS = StructType([StructField("at", LongType()), StructField("sum", LongType())])


class Store:
    """The state and the timers of all keys, and the batches of a query, as Spark runs them."""

    def __init__(self, processor: Any) -> None:
        self.states: dict[str, tuple[Any, ...]] = {}
        self.timers: set[tuple[int, str]] = set()
        self.watermark_ms = 0
        self._key = ""
        self._processor = processor
        processor.init(self)

    # what the processor asks of Spark

    def getValueState(self, name: str, schema: StructType) -> Any:
        del name, schema
        return SimpleNamespace(
            exists=lambda: self._key in self.states,
            get=lambda: self.states.get(self._key),
            update=lambda value: self.states.__setitem__(self._key, value),
            clear=lambda: self.states.pop(self._key),
        )

    def registerTimer(self, expiryTimestampMs: int) -> None:  # noqa: N803
        self.timers.add((expiryTimestampMs, self._key))

    # what Spark does

    def batch(self, rows: Sequence[tuple[str, Row]], watermark_ms: int) -> list[Row]:
        late_us = self.watermark_ms * 1_000
        self.watermark_ms = watermark_ms
        given = SimpleNamespace(getCurrentWatermarkInMs=lambda: watermark_ms)
        found: list[Row] = []
        for key in dict.fromkeys(key for key, _ in rows):
            self._key = key
            its = [row for of, row in rows if of == key and (OP in row or row["__o0"] > late_us)]
            if its:
                found += self._processor.handleInputRows((key,), iter(its), given)
        for due, key in sorted(timer for timer in self.timers if timer[0] <= watermark_ms):
            self._key = key
            info = SimpleNamespace(getExpiryTimeInMs=lambda due=due: due)
            found += self._processor.handleExpiredTimer((key,), given, info)
            self.timers.discard((due, key))
        return found


def sums(*, rows: bool, preceding: int | None) -> OverRows:
    return OverRows(Over(1, (Aggregate(Fold.SUM),), rows, preceding), ["at"], SUMS)


def row(at: float, value: int = 1) -> Row:
    time = round(at * SECOND)
    return Row("__o0", "__a0", "at")(time, value, time)


def test_the_state_of_a_key_is_forgotten_when_its_range_of_times_is_over():
    """Keys such as sessions come once, and there is always another one."""
    store = Store(sums(rows=False, preceding=10 * SECOND))
    kept = []
    for number in range(1, 100):
        at = number * 5
        found = store.batch([(f"s{number}", row(at)), (f"s{number}", row(at + 0.5))], at * 1_000)
        kept.append((len(store.states), len(store.timers)))
        assert len(found) == 2 or number == 1
    assert max(kept[5:]) == max(kept[50:]) <= (6, 6)
    store.batch([], 10_000_000)
    assert (store.states, store.timers) == ({}, set())


@pytest.mark.parametrize(("rows", "preceding"), [(True, 2), (True, None), (False, None)])
def test_other_frames_keep_their_state(rows, preceding):
    store = Store(sums(rows=rows, preceding=preceding))
    store.batch([("k", row(1, 5))], 0)
    assert [found["sum"] for found in store.batch([], 2_000)] == [5]
    store.batch([], 10_000_000)
    store.batch([("k", row(20_000, 7))], 10_000_000)
    assert [found["sum"] for found in store.batch([], 30_000_000)] == [12]
    assert (len(store.states), store.timers) == (1, set())


def test_a_busy_key_has_its_results_and_one_timer_for_its_end():
    rng = random.Random(7)
    store, times, found, watermark = Store(sums(rows=False, preceding=20 * SECOND)), [], [], 0
    for number in range(300):
        at = watermark / 1_000 + rng.choice((0.001, 1, 3, 30, 60))
        times.append(round(at * SECOND))
        found += store.batch([("k", row(at))], watermark)
        watermark += rng.choice((0, 500, 2_000, 70_000)) if number % 10 else 90_000
        of_rows = {-(-time // 1_000) for time in times}
        assert sum(due not in of_rows for due, _ in store.timers) <= 1
    found += store.batch([], watermark + 1_000_000)
    expected = [(at, sum(at - 20 * SECOND <= other <= at for other in times)) for at in sorted(times)]
    assert sorted((each["at"], each["sum"]) for each in found) == expected
    assert (store.states, store.timers) == ({}, set())


def test_the_state_of_an_earlier_release_is_read():
    store = Store(sums(rows=False, preceding=10 * SECOND))
    store.batch([("k", row(1, 5))], 0)
    packed, waits, *_ = pickle.loads(store.states["k"][0])
    store.states["k"] = (pickle.dumps((packed, waits)),)
    assert [found["sum"] for found in store.batch([], 2_000)] == [5]
    store.batch([], 10_000_000)
    assert (store.states, store.timers) == ({}, set())


def test_a_key_whose_rows_have_no_version_leaves_no_state():
    output = StructType(
        [StructField("at", LongType()), StructField("rate", StringType()), StructField("has", BooleanType())]
    )
    store = Store(JoinVersions(["at"], ["rate"], output, outer=True))
    order = Row("__o0", OP, POSITION, "at", "rate")
    store.batch([(key, order(SECOND, None, None, at, None)) for key, at in (("a", 1), ("b", 2))], 0)
    store.batch([("b", order(0, "+I", None, None, "1.5"))], 0)
    assert sorted(map(tuple, store.batch([], 5_000))) == [(1, None, False), (2, "1.5", True)]
    assert (set(store.states), store.timers) == ({"b"}, set())


def test_a_deleted_row_without_a_time_ends_the_last_version():
    """As PostgreSQL writes it without REPLICA IDENTITY FULL: with its key only."""
    output = StructType(
        [StructField("at", LongType()), StructField("rate", StringType()), StructField("has", BooleanType())]
    )
    change = Row("__o0", OP, POSITION, "at", "rate")

    def joined(*last: Row) -> list[tuple[Any, ...]]:
        store = Store(JoinVersions(["at"], ["rate"], output, outer=True))
        versions = [change(at * SECOND, "+I", [at, 0], None, str(at)) for at in (1, 3)]
        store.batch([("k", each) for each in versions], 0)
        orders = [change(at * SECOND, None, None, at, None) for at in (2, 4, 6)]
        store.batch([("k", each) for each in (*last, *orders)], 0)
        return sorted(map(tuple, store.batch([], 9_000)))

    gone = [(2, "1", True), (4, None, False), (6, None, False)]
    assert joined(change(3 * SECOND, "-D", [5, 0], None, "3")) == gone
    assert joined(change(None, "-D", [5, 0], None, None)) == gone
    assert joined(change(None, "-U", [5, 0], None, None), change(5 * SECOND, "+U", [5, 1], None, "5")) == [
        (2, "1", True),
        (4, "3", True),
        (6, "5", True),
    ]
    for op in (None, "+I", "+U"):
        with pytest.raises(ValueError, match="has no time"):
            joined(change(None, op, op and [5, 0], None, None))
    alone = Store(JoinVersions(["at"], ["rate"], output, outer=True))
    alone.batch([("k", change(None, "-D", [5, 0], None, None))], 0)
    assert alone.states == {}


def versions_of(*changes: tuple[int | None, str, str | None, tuple[int, int]]) -> list[str | None]:
    """Return the rates at the seconds 2, 4, 6 and 8."""
    output = StructType(
        [StructField("at", LongType()), StructField("rate", StringType()), StructField("has", BooleanType())]
    )
    change = Row("__o0", OP, POSITION, "at", "rate")
    store = Store(JoinVersions(["at"], ["rate"], output, outer=True))
    given = [change(at and at * SECOND, op, list(place), None, rate) for at, op, rate, place in changes]
    orders = [change(at * SECOND, None, None, at, None) for at in (2, 4, 6, 8)]
    store.batch([("k", each) for each in (*given, *orders)], 0)
    return [rate for _, rate, _ in sorted(map(tuple, store.batch([], 9_000)))]


def test_a_version_whose_key_changes_is_over():
    """The new row is one of another key: an update without it takes the old row away."""
    first, old, new = (1, "+I", "1", (7, 0)), (1, "-U", "1", (8, 0)), (5, "+U", "5", (8, 1))
    assert versions_of(first, old, new) == versions_of(new, old, first) == ["1", "1", "5", "5"]
    assert versions_of(first, old) == [None] * 4
    assert versions_of(first, (5, "-U", "1", (8, 0))) == ["1", "1", None, None]
    assert versions_of(first, (None, "-U", None, (8, 0))) == [None] * 4
    back = (7, "+U", "7", (9, 1))  # the key comes back
    assert versions_of(first, old, back) == [None, None, None, "7"]


def test_of_versions_with_equal_times_the_last_change_is_valid():
    """The rows of a key may come to a worker in another order than they were written in."""
    changes = [(1, "+I", "1", (6, 0)), (3, "-D", "1", (7, 0)), (3, "+I", "2", (8, 0)), (3, "+I", "3", (8, 1))]
    assert versions_of(*changes) == versions_of(*reversed(changes)) == ["1", "3", "3", "3"]
