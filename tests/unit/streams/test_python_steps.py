"""The function over Arrow batches: what comes of records, heartbeats and errors."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from pyspark_rocketmq.streams.frame.python_steps import (
    ADVICE,
    FIRST_MS,
    LAST_MS,
    PythonSteps,
    Step,
    to_json,
    to_text,
)


def batch(*texts, beats=()):
    names = {
        "__time": pa.array([0] * len(texts), pa.timestamp("us", tz="UTC")),
        "__value": pa.array(texts, pa.string()),
    }
    return pa.RecordBatch.from_pydict({**names, "__beat": pa.array([t in beats for t in range(len(texts))])})


def steps(*given, text=False, keeps=False, strict=False):
    made = tuple(Step(f"s{n}", how, function) for n, (how, function) in enumerate(given))
    return PythonSteps(made, text=text, keeps_value=keeps, strict=strict)


def test_steps_follow_each_other():
    run = steps(("map", lambda v: v + 1), ("filter", lambda v: v > 2), ("flatMap", lambda v: [v, None, "é"]))
    assert run.apply(batch("1", "2")).column("__value").to_pylist() == ["3", '"é"']
    (found,) = steps(("map", lambda v: v or None))(iter([batch("0", "2")]))
    assert found.column("__value").to_pylist() == ["2"], "None is no record"


def test_an_error_keeps_the_record_and_names_the_step():
    found = steps(("map", lambda v: 1 / v)).apply(batch("0", "x", "2", None))
    assert found.column("__value").to_pylist() == ["0", "x", "0.5", None]
    errors = found.column("__error").to_pylist()
    assert errors[0] == "s0: ZeroDivisionError: division by zero"
    assert errors[1].startswith("parse: JSONDecodeError")
    assert errors[2] is None
    assert "no body" in errors[3]
    with pytest.raises(ZeroDivisionError) as failed:
        steps(("map", lambda v: 1 / v), strict=True).apply(batch("0"))
    assert failed.value.__notes__ == [f"at a record, in s0: {ADVICE}"]


def fail_at_a_surrogate(_):
    raise ValueError("no \ud800")


@pytest.mark.parametrize(
    ("how", "function", "cause"),
    [
        ("map", lambda v: {("a", 1): v}, "TypeError: keys must be str"),
        ("map", fail_at_a_surrogate, "ValueError: no \\ud800"),
        ("time", lambda v: 2**63, "ValueError: no time"),
        ("time", lambda v: -(2**60), "ValueError: no time"),
        ("time", lambda v: datetime.datetime.fromisoformat("2030-01-02"), "ValueError: the time 2030-01"),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error_of_its_record(how, function, cause):
    found = steps((how, lambda v: function(v) if v else 1)).apply(batch("1", "0"))
    bad, good = found.column("__error").to_pylist()
    assert bad.startswith(f"s0: {cause}")
    assert good is None
    assert found.column("__value").to_pylist() == ["1", "1" if how == "map" else "0"]


def test_a_record_that_is_nested_too_deeply_is_one_record_with_an_error():
    found = steps(("map", lambda v: v)).apply(batch("[" * 100_000 + "]" * 100_000, "1"))
    bad, good = found.column("__error").to_pylist()
    assert bad.startswith("parse: RecursionError")
    assert good is None


def test_half_of_a_surrogate_pair_stays_an_escape():
    found = steps(("map", lambda v: {**v, "é": 1}), ("key", lambda v: v["a"])).apply(
        batch('{"a": "\\ud83d"}', '{"a": "\\ud83d\\ude00"}')
    )
    assert found.column("__value").to_pylist() == ['{"a": "\\ud83d", "\\u00e9": 1}', '{"a": "😀", "é": 1}']
    assert found.column("__tag").to_pylist() == ['"\\ud83d"', "😀"]


def test_a_long_error_is_cut():
    def fail(_):
        raise ValueError("x" * 1_000)

    (error,) = steps(("map", fail)).apply(batch("1")).column("__error").to_pylist()
    assert error == f"s0: ValueError: {'x' * 1_000}"[:500]


def test_heartbeats_pass_by():
    run = steps(("filter", lambda v: False), keeps=True)
    found = run.apply(batch("1", None, beats=[1]))
    assert found.column("__beat").to_pylist() == [True]
    assert found.column("__error").to_pylist() == [None]


def test_times_labels_and_texts():
    run = steps(("time", lambda v: 1_500), ("label", lambda v: v), text=True, keeps=True)
    found = run.apply(batch("not json"))
    assert found.column("__time").cast(pa.int64()).to_pylist() == [1_500_000]
    assert found.column("__tag").to_pylist() == ["not json"]
    assert found.column("__value").to_pylist() == ["not json"]


def test_each_record_a_function_makes_keeps_its_time_label_and_place():
    run = steps(
        ("time", lambda v: datetime.datetime.fromtimestamp(v, datetime.UTC)),
        ("key", lambda v: {"n": v}),
        ("flatMap", lambda v: [v] * v),
    )
    found = run.apply(batch("2", "0", "1"))
    assert found.column("__value").to_pylist() == ["2", "2", "1"]
    assert found.column("__time").cast(pa.int64()).to_pylist() == [2_000_000, 2_000_000, 1_000_000]
    assert found.column("__tag").to_pylist() == ['{"n": 2}'] * 2 + ['{"n": 1}']
    assert found.column("__beat").to_pylist() == [False] * 3


@pytest.mark.parametrize("milliseconds", [FIRST_MS, LAST_MS])
def test_the_first_and_the_last_time_are_times(milliseconds):
    found = steps(("time", lambda v: milliseconds)).apply(batch("1"))
    assert found.column("__error").to_pylist() == [None]
    assert found.column("__time").cast(pa.int64()).to_pylist() == [milliseconds * 1_000]


def test_a_time_has_microseconds():
    moment = datetime.datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=datetime.UTC)
    found = steps(("time", lambda v: moment)).apply(batch("1"))
    assert found.column("__time").to_pylist() == [moment]


def test_a_batch_without_heartbeats_has_no_column_for_them():
    found = steps(("map", lambda v: v)).apply(batch("1").drop_columns(["__beat"]))
    assert found.to_pydict() == {
        "__time": [datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)],
        "__value": ["1"],
        "__tag": [None],
        "__error": [None],
    }


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_labels_and_times_that_no_step_changes_stay(zone):
    given = batch("1", "2").set_column(0, "__time", pa.array([7, 8], pa.timestamp("us", tz=zone)))
    given = given.append_column("__tag", pa.array(["a", None]))
    found = steps(("map", lambda v: v)).apply(given)
    assert found.column("__tag").to_pylist() == ["a", None]
    for kind in ("label", "key"):
        labeled = steps((kind, lambda v: f"label {v}")).apply(given)
        assert labeled.column("__tag").to_pylist() == ["label 1", "label 2"]
    late = steps(("time", lambda v: v if v > 1 else 1 / 0)).apply(given)
    assert late.column("__time").cast(pa.int64()).to_pylist() == [7, 2_000]
    assert late.schema.field("__time").type == pa.timestamp("us", tz=zone)


@pytest.mark.parametrize("made", ["é", "é".encode(), bytearray("é".encode())])
def test_a_serializer_makes_bodies_and_any_function_may_look_at_records(made):
    seen = []
    run = steps(("forEach", seen.append), ("serialize", {1: made}.get), keeps=True)
    found = run.apply(batch("1", None, beats=[1]))
    assert seen == [1]
    assert found.column("__body").to_pylist() == ["é".encode(), None]
    assert found.schema.field("__body").type == pa.binary()
    (error,) = steps(("serialize", lambda v: 1)).apply(batch("1")).column("__error").to_pylist()
    assert "a serializer returns bytes or a text, not int" in error


def test_columns_without_any_value_have_their_types():
    none = ("filter", lambda v: False)
    assert steps(none, ("serialize", str)).apply(batch("1")).schema.field("__body").type == pa.binary()
    found = steps(none).apply(batch("1"))
    types = {name: found.schema.field(name).type for name in ("__value", "__tag", "__error")}
    assert types == dict.fromkeys(types, pa.string())


def test_values_that_json_does_not_have_are_texts():
    assert to_json({"b": [b"ab", memoryview(b"\xff")]}) == '{"b": ["YWI=", "/w=="]}', "as Spark's to_json"
    assert to_json({"d": datetime.date(2030, 1, 2), "é": decimal.Decimal("1.50")}) == (
        '{"d": "2030-01-02", "é": "1.50"}'
    )
    assert to_json(["\ud83d", datetime.date(2030, 1, 2)]) == '["\\ud83d", "2030-01-02"]'
    assert [to_text(value) for value in ("a", b"b", 1, None)] == ["a", "b", "1", "null"]
