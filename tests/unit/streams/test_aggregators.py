"""Results that grow record by record are those of all records at once, however the records are cut."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
from collections import Counter
from decimal import Decimal
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DecimalType, StructField
from tests.support.examples import examples

from pyspark_rocketmq.streams.compile import aggregators as folds
from pyspark_rocketmq.streams.compile.aggregator_columns import Folded
from pyspark_rocketmq.streams.compile.hyperloglog import Sketch

TEXTS = st.one_of(st.none(), st.sampled_from(["5", "12", "7.5", "100", "b", "a", "ab", "-3", ""]))


def number(text):
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def rows_of(texts):
    """A record: its number as the time, the text, the number that the text spells, its JSON."""
    return [(at, text, number(text), json.dumps({"v": text})) for at, text in enumerate(texts)]


def extreme(texts, choose):
    there = [text for text in texts if text is not None]
    if not there:
        return None
    if all(number(text) is not None for text in there):
        return choose(there, key=lambda text: (number(text), text))
    return choose(there)


def joined(left, right):
    return {"v": f"{left['v']}+{right['v']}"}


class Longest:
    """An accumulator of the newer API."""

    __slots__ = ("found",)

    def __init__(self):
        self.found = ""

    def addValue(self, value):
        self.found = max(self.found, value["v"] or "", key=len)

    def result(self, context):  # noqa: ARG002
        return self.found

    def clone(self):
        return Longest()


class Listed:
    """An accumulator of the older API."""

    def createAccumulator(self):
        return []

    def accumulate(self, accumulator, value):
        return [*accumulator, value["v"]]

    def getValue(self, accumulator):
        return accumulator


def reduced(texts):
    return "+".join(str(text) for text in texts)


FOLDS = {
    "rows": (folds.Count(None), len),
    "values": (folds.Count(1), lambda texts: sum(text is not None for text in texts)),
    "sum": (folds.Sum(2), lambda texts: sum(numbers(texts)) if numbers(texts) else None),
    "avg": (
        folds.Average(2),
        lambda texts: sum(numbers(texts)) / len(numbers(texts)) if numbers(texts) else None,
    ),
    "min": (folds.NumberOrText(1, 2, least=True), lambda texts: extreme(texts, min)),
    "max": (folds.NumberOrText(1, 2, least=False), lambda texts: extreme(texts, max)),
    "least": (folds.Extreme(2, least=True), lambda texts: min(numbers(texts), default=None)),
    "first": (
        folds.ByTime(1, 0, earliest=True),
        lambda texts: next((t for t in texts if t is not None), None),
    ),
    "last": (
        folds.ByTime(1, 0, earliest=False),
        lambda texts: next((t for t in reversed(texts) if t is not None), None),
    ),
    "concat": (folds.Concat(1, 0, "|"), lambda texts: "|".join(t for t in texts if t is not None)),
    "distinct": (
        folds.Different(1, counted=False),
        lambda texts: sorted({t for t in texts if t is not None}),
    ),
    "exact": (folds.Different(1, counted=True), lambda texts: len({t for t in texts if t is not None})),
    "large": (folds.NearlyDifferent(1), lambda texts: len({t for t in texts if t is not None})),
    "reduce": (
        folds.Reduce(joined, 3),
        lambda texts: json.dumps({"v": texts[0] if len(texts) == 1 else reduced(texts)}),
    ),
    "newer": (
        folds.User(Longest(), 3),
        lambda texts: json.dumps(max(["", *(t or "" for t in texts)], key=len)),
    ),
    "older": (folds.ClassicUser(Listed(), 3), json.dumps),
}


def numbers(texts):
    return [number(text) for text in texts if number(text) is not None]


@pytest.mark.parametrize("name", FOLDS)
@examples(60)
@given(batches=st.lists(st.lists(TEXTS, max_size=4), min_size=1, max_size=4).filter(any))
def test_any_cut_into_batches_gives_what_plain_python_gives(name, batches):
    fold, oracle = FOLDS[name]
    texts = [text for batch in batches for text in batch]
    rows, state = rows_of(texts), fold.empty()
    for batch in batches:
        for _ in batch:
            state = fold.add(state, rows.pop(0))
        state = fold.unpack(pickle.loads(pickle.dumps(fold.pack(state))))
    expected = oracle(texts)
    found = fold.result(state)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)


TIMED = st.lists(st.tuples(st.integers(0, 3), TEXTS), min_size=1, max_size=8)


@examples(200)
@given(records=TIMED, data=st.data())
def test_results_by_time_do_not_depend_on_the_order_of_arrival(records, data):
    """Of equal times, the smallest value is the first and the greatest the last, as in Spark."""
    arrived = data.draw(st.permutations(records))
    valued = sorted((time, text) for time, text in records if text is not None)
    expected = {
        "first": valued[0][1] if valued else None,
        "last": valued[-1][1] if valued else None,
        "concat": "|".join(text for _, text in valued),
    }
    for name, result in expected.items():
        fold, state = FOLDS[name][0], FOLDS[name][0].empty()
        for time, text in arrived:
            state = fold.add(state, (time, text))
        assert fold.result(state) == result, name


def test_a_late_record_is_put_where_its_time_says():
    for name, results in {
        "first": ["b", "b", "a"],
        "last": ["b", "c", "c"],
        "concat": ["b", "b|c", "a|b|c"],
    }.items():
        fold, state = FOLDS[name][0], FOLDS[name][0].empty()
        for row, result in zip([(2, "b"), (3, "c"), (1, "a")], results, strict=True):
            state = fold.add(state, row)
            assert fold.result(state) == result, name


def added(fold, *values):
    state = fold.empty()
    for value in values:
        state = fold.add(state, (value,))
    return fold.result(state)


def test_sums_of_decimals_are_exact_and_averages_are_rounded_as_spark_rounds_them():
    rows = [Decimal("99999999999999999999.05"), Decimal("0.01"), None]
    assert added(folds.Sum(0, 2), *rows) == Decimal("99999999999999999999.06")
    assert added(folds.Average(0, 6), *rows) == Decimal("49999999999999999999.530000")


def test_decimals_keep_all_38_digits():
    """Python's own context has 28."""
    largest, cent = Decimal("9" * 35 + ".98"), Decimal("0.01")
    assert str(added(folds.Sum(0, 2), largest, cent)) == "9" * 35 + ".99"
    assert str(added(folds.Average(0, 2), largest, largest, largest)) == str(largest)
    assert added(folds.Sum(0, 2)) is None
    assert added(folds.Average(0, 2), None) is None


def test_what_is_longer_than_a_decimal_is_null_until_it_is_shorter_again():
    largest = Decimal("9" * 28 + ".9999999999")
    tiny = Decimal("0.0000000001")
    assert added(folds.Sum(0, 10), largest) == largest
    assert added(folds.Sum(0, 10), largest, tiny) is None
    assert added(folds.Sum(0, 10), largest, tiny, -tiny) == largest
    assert added(folds.Average(0, 14), Decimal(10) ** 24) is None


@pytest.mark.parametrize(
    ("fold", "values", "result"),
    [
        (folds.Sum(0, 2), ["1.005", "1"], "2.01"),  # half up, where Python's own context rounds to even
        (folds.Sum(0, 3), ["1.5", "1"], "2.500"),
        (folds.Average(0, 6), ["1", "0", "0"], "0.333333"),
        (folds.Average(0, 0), ["1", "0"], "1"),
        (folds.Sum(0), [0.1, 0.2], "0.30000000000000004"),
    ],
)
def test_results_have_the_places_of_their_type(fold, values, result):
    values = [Decimal(value) if isinstance(value, str) else value for value in values]
    assert str(added(fold, *values)) == result


@pytest.mark.parametrize(
    ("texts", "least", "greatest"),
    [
        (["5", "12"], "5", "12"),
        (["5", "12", "b"], "12", "b"),
        (["b", "5", "12"], "12", "b"),
        (["1", "1.0"], "1", "1.0"),
        (["-9007199254740992", "-9007199254740993"], "-9007199254740993", "-9007199254740992"),
        (["1e400", "2e400"], "1e400", "2e400"),
        ([None], None, None),
    ],
)
def test_texts_are_compared_as_numbers_if_all_are_numeric(texts, least, greatest):
    for name, result in {"min": least, "max": greatest}.items():
        fold, state = FOLDS[name][0], FOLDS[name][0].empty()
        for row in rows_of(texts):
            state = fold.add(state, row)
        assert fold.result(state) == result, name


def test_values_that_are_not_numbers_come_last_and_are_compared_as_texts():
    one, other = float("nan"), float("nan")
    for values in ([one, 2.0, 1.0], [2.0, one, 1.0], [2.0, 1.0, one]):  # a set has any order
        assert str(folds.Different(0, counted=False).result(values)) == "[1.0, 2.0, nan]"
    fold = folds.Different(0, counted=False)
    state = fold.add(fold.add(fold.empty(), (float("nan"),)), (-0.0,))
    state = fold.unpack(pickle.loads(pickle.dumps(fold.pack(state))))
    for value in (float("nan"), 0.0):
        state = fold.add(state, (value,))
    assert str(fold.result(state)) == "[0.0, nan]"
    for rows in ([("nan", one), ("NaN", other)], [("NaN", other), ("nan", one)]):
        for least, result in ((True, "NaN"), (False, "nan")):
            fold, state = folds.NumberOrText(0, 1, least=least), (True, None, None)
            for row in rows:
                state = fold.add(state, row)
            assert fold.result(state) == result


def test_records_reach_a_users_function_by_time_and_text_and_other_results_as_they_are():
    made = Folded(2, folds=[folds.Reduce(joined, 4), folds.Sum(2)], aliases=["r", "s"], user=[True, False])
    for kind in ("number", "time", "text", "time"):  # results share an input
        made.input(kind, None, SimpleNamespace(alias=str))
    assert made.inputs == ["__in_0", "__in_1", "__in_2"]
    states = made.empty()
    rows = [(0, 0, 1.0, 2, '{"v": "b"}'), (0, 0, 2.0, 1, '{"v": "c"}'), (0, 0, 4.0, 1, '{"v": "a"}')]
    made.add(states, iter(rows))
    assert made.results(states) == ['{"v": "a+c+b"}', 7.0]


def test_the_state_shows_the_error_of_a_function_that_has_no_result_yet():
    made = Folded(2, folds=[folds.ClassicUser(Listed(), 2)], aliases=["r"], user=[True])
    assert made.describe([None]) == {"r": "null"}
    made = Folded(2, folds=[folds.Count(None), folds.Average(2)], aliases=["n", "m"], user=[False] * 2)
    assert made.describe([3, ("text", 1)])["n"] == 3
    assert made.describe([3, ("text", 1)])["m"].startswith("TypeError: unsupported operand")


def test_a_result_that_is_too_long_is_told_from_one_without_values():
    columns = [StructField(name, DecimalType(38, 10)) for name in ("r0", "r1", "r2")]
    sums = [folds.Sum(0, 10), folds.Count(None), folds.Average(0, 14)]
    made = Folded(0, outputs=columns, folds=sums, aliases=["s", "n", "m"], overflowing=[0, 2])
    assert [field.name for field in made.fields] == ["r0", "r1", "r2", "__beyond_s", "__beyond_m"]
    largest = Decimal("9" * 28)
    for values, (*results, of_sum, of_average) in {
        (None,): [None, 1, None, False, False],
        (Decimal(1),): [1, 1, 1, False, False],
        (largest,): [largest, 1, None, False, True],
        (largest, largest): [None, 2, None, True, True],
    }.items():
        states = made.empty()
        made.add(states, iter((value,) for value in values))
        assert made.results(states) == [*results, of_sum, of_average]


class Plain:
    """Its state is a dictionary."""

    def __init__(self):
        self.total, self.rows = 0, 0

    def addValue(self, value):
        self.total, self.rows = self.total + value, self.rows + 1

    def result(self, context):  # noqa: ARG002
        return [self.total, self.rows]

    def clone(self):
        return type(self)()


class Inherited(Plain):
    """Its state is a pair: of a dictionary, and of slots."""

    __slots__ = ("last",)

    def addValue(self, value):
        super().addValue(value)
        self.last = value

    def result(self, context):
        return [*super().result(context), self.last]


class Own(Plain):
    """It packs its state itself."""

    def __getstate__(self):
        return f"{self.total}/{self.rows}"

    def __setstate__(self, state):
        self.total, self.rows = map(int, state.split("/"))


@pytest.mark.parametrize(("kind", "result"), [(Plain, "[5,2]"), (Inherited, "[5,2,3]"), (Own, "[5,2]")])
def test_an_accumulator_continues_from_its_attributes(kind, result):
    fold = folds.User(kind(), 0)
    state = fold.add(fold.empty(), ("2",))
    state = fold.unpack(pickle.loads(pickle.dumps(fold.pack(state))))
    assert fold.result(fold.add(state, ("3",))).replace(" ", "") == result


def test_an_accumulator_may_change_its_state_in_place():
    class Changed(Listed):
        def accumulate(self, accumulator, value):
            accumulator.append(value)

    assert json.loads(added(folds.ClassicUser(Changed(), 0), "1", "2")) == [1, 2]


def test_a_reduction_of_nothing_is_null():
    assert added(folds.Reduce(joined, 0)) is None


def test_what_is_not_a_number_is_the_greatest():
    nan = float("nan")
    for values in ([nan, 1.0], [1.0, nan]):
        least, greatest = folds.Extreme(0, least=True), folds.Extreme(0, least=False)
        low, high = least.empty(), greatest.empty()
        for value in values:
            low, high = least.add(low, (value,)), greatest.add(high, (value,))
        assert (low, high) == (1.0, pytest.approx(nan, nan_ok=True))


@pytest.mark.parametrize("count", [0, 1, 512, 513, 5_000, 40_000, 100_000])
def test_many_different_values_are_counted_within_two_percent(count):
    sketch = Sketch()
    for value in range(count):
        sketch.add(str(value))
        if not value % 7:
            sketch.add(str(value))
        if value % 1_000 == 999:
            sketch = Sketch.of(pickle.loads(pickle.dumps(sketch.pack())))
    assert abs(sketch.count() - count) <= (0 if count <= 512 else count * 0.02)
    assert len(pickle.dumps(sketch.pack())) < 20_000


def estimate(registers):
    """The estimate as Ertl's paper writes it, with sums of 200 terms."""
    size = len(registers)
    share = Counter(registers)
    full = 1 - share[51] / size
    tau = (1 - full - sum((1 - full**2**-k) ** 2 * 2**-k for k in range(1, 200))) / 3
    none = share[0] / size
    sigma = none + sum(none ** (2**k) * 2 ** (k - 1) for k in range(1, 200))
    z = size * (tau / 2**50 + sigma) + sum(share[rank] / 2**rank for rank in range(1, 51))
    return size**2 / (2 * math.log(2) * z)


@pytest.mark.parametrize(
    "registers",
    [
        [0] * 8_192 + [1] * 8_192,
        [0] * 16_383 + [1],
        [*range(52)] * 315 + [3, 0, 7, 1],
        [50] * 4_096 + [51] * 12_288,
        [51] * 16_383 + [49],
    ],
    ids=["few", "one", "all", "nearly full", "full but one"],
)
def test_the_estimate_is_that_of_the_paper(registers):
    assert Sketch.of(bytes(registers)).count() == pytest.approx(estimate(registers), rel=1e-9, abs=1)


def test_a_text_that_is_no_unicode_is_counted():
    sketch = Sketch()
    for text in ("\ud800", "\udc00", "\ud800"):
        sketch.add(text)
    assert sketch.count() == 2


def test_a_value_has_the_same_place_in_every_release():
    """Values that are in a checkpoint must not count twice."""
    sketch = Sketch()
    for value in ("a", "b"):
        sketch.add(value)
    assert sketch.pack() == {4681665781835383343, 9543904841865449333}
    for value in range(600):
        sketch.add(str(value))
    registers = sketch.pack()
    assert (len(registers), hashlib.sha256(registers).hexdigest()[:16]) == (16_384, "387b16597353a0bb")
