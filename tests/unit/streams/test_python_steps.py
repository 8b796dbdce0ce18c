"""The function over Arrow batches: what comes of records, heartbeats and errors."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_rocketmq.streams.frame.python_steps import PythonSteps, Step


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
    run = steps(("map", lambda v: v + 1), ("filter", lambda v: v > 2), ("flatMap", lambda v: [v, "é"]))
    assert run.apply(batch("1", "2")).column("__value").to_pylist() == ["3", '"é"']


def test_an_error_keeps_the_record_and_names_the_step():
    found = steps(("map", lambda v: 1 / v)).apply(batch("0", "x", "2", None))
    assert found.column("__value").to_pylist() == ["0", "x", "0.5", None]
    errors = found.column("__error").to_pylist()
    assert errors[0] == "s0: ZeroDivisionError: division by zero"
    assert errors[1].startswith("parse: JSONDecodeError")
    assert errors[2] is None
    assert "no body" in errors[3]
    with pytest.raises(ZeroDivisionError):
        steps(("map", lambda v: 1 / v), strict=True).apply(batch("0"))


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
