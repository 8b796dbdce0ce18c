"""Joins, as far as no Spark is needed: the function of a pair's values, and which sides can be joined."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from pyspark_rocketmq.streams.compile.joins import PairOfValues, tell_apart
from pyspark_rocketmq.streams.frame.python_steps import ADVICE

TIMES = pa.array([1, 2, 3], pa.timestamp("us", tz="UTC"))


def pairs(left: list[str], right: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "__time": TIMES.slice(0, len(left)),
            "__value": pa.array(left, pa.string()),
            "__other": pa.array(right, pa.string()),
        }
    )


def test_a_pair_is_one_value_with_the_time_of_its_window():
    joined = PairOfValues("join#1", lambda a, b: [a["é"], b], strict=True)
    given = [pairs(['{"é": "ö"}', '{"é": 1}'], ['{"b": 2}', None]), pairs([], [])]
    first, empty = joined(iter(given))
    assert first.schema.names == ["__time", "__value", "__error"]
    assert first.column("__time").equals(TIMES.slice(0, 2))
    assert first.column("__value").to_pylist() == ['["ö", {"b": 2}]', "[1, null]"]
    assert first.column("__error").to_pylist() == [None, None]
    assert first.schema.field("__error").type == pa.string()
    assert empty.schema == first.schema
    assert empty.num_rows == 0


def test_a_value_that_json_does_not_have_is_a_text():
    (found,) = PairOfValues("join#1", lambda a, b: {a, b}.__class__, strict=True)([pairs(["1"], ["2"])])
    assert json.loads(found.column("__value")[0].as_py()) == "<class 'set'>"


def test_a_pair_with_an_error_keeps_the_left_value_or_fails_the_query():
    given = pairs(["4", "0", "x"], ["2", "1", "1"])
    (found,) = PairOfValues("join#1", lambda a, b: b / a, strict=False)([given])
    assert found.column("__value").to_pylist() == ["0.5", "0", "x"]
    errors = found.column("__error").to_pylist()
    assert errors[:2] == [None, "ZeroDivisionError: division by zero"]
    assert errors[2].startswith("JSONDecodeError: ")
    with pytest.raises(ZeroDivisionError) as failed:
        list(PairOfValues("join#1", lambda a, b: b / a, strict=True)([given]))
    assert failed.value.__notes__ == [f"at a pair, in join#1: {ADVICE}"]


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        (("id", "n"), ("id", "m"), ["right_id", "m"]),
        (("id", "n"), ("ID", "N"), ["right_ID", "right_N"]),
        (("id", "right_id"), ("id",), ["right_right_id"]),  # of a join of three
        (("id", "RIGHT_ID", "right_right_id"), ("id",), ["right_right_right_id"]),
        (("id",), ("id", "right_id"), ["right_right_id", "right_id"]),
        (("id", "right_id"), ("right_id", "id"), ["right_right_id", "right_right_right_id"]),
        ((), ("a", "b"), ["a", "b"]),
    ],
)
def test_no_two_fields_of_a_pair_have_one_name(left, right, shown):
    assert tell_apart(left, right, "right_") == shown
