from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.sql.infer import infer_columns


def infer(*values):
    return infer_columns(json.dumps(value).encode() for value in values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "BIGINT"),
        ([1, 2.5], "DOUBLE"),
        ([1 << 70], "DOUBLE"),
        ([True], "BOOLEAN"),
        ([True, 1], "STRING"),
        ([1, "a"], "STRING"),
        ([None], "STRING"),
        ([None, 3], "BIGINT"),
        ([[1], [2.5]], "ARRAY<DOUBLE>"),
        ([[]], "ARRAY<STRING>"),
        ([{"x": 1}, {"y": [True]}], "STRUCT<`x`: BIGINT, `y`: ARRAY<BOOLEAN>>"),
        ([{}], "MAP<STRING, STRING>"),
        ([{"x": 1}, 2], "STRING"),
    ],
)
def test_the_narrowest_type_that_holds_all(values, kind):
    assert infer(*({"a": value} for value in values)).columns == {"a": kind}


def test_columns_come_in_the_order_of_their_first_appearance():
    found = infer({"b": 1, "a": None}, {"c": 2, "b": 3})
    assert list(found.columns) == ["b", "a", "c"]
    assert found.always == {"b"}


def test_what_is_no_object_is_counted():
    found = infer_columns([b"{", b"[1]", b'{"a": 1}', b"\xff"])
    assert (found.seen, found.unfit, dict(found.columns)) == (4, 3, {"a": "BIGINT"})
    assert infer_columns([]).columns == {}


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_deep_nesting_is_the_text_that_it_has(opening, closing):
    body = b'{"a":' + 500 * opening + b"1" + 500 * closing + b"}"
    found = infer_columns([b'{"a": null, "b": 1}', body])
    assert (found.seen, found.unfit) == (2, 0)
    assert found.columns["b"] == "BIGINT"
    kind = found.columns["a"]
    assert kind.rstrip(">").endswith("STRING")
    assert kind.count("<") == 100
