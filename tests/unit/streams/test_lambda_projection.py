"""Functions that only move fields are data; all others are left to Python."""

from __future__ import annotations

import json
from json import loads

import pytest

from pyspark_rocketmq.streams.plan.lambda_projection import Field, Identity, ParseJson, Projection, lift

X, GIVEN = Field(("x",), required=True), Field(("x",), required=False)


def default(m, other=1):
    return m


def only_named(*, m):
    return m


def any_number(*m):
    return m


def generated(m):
    yield m


async def awaited(m):
    return m


def enclosed():
    name = "x"
    return lambda m: {"a": json.loads(m)[name]}


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (json.loads, ParseJson()),
        (lambda m: loads(m), ParseJson()),  # noqa: PLW0108
        (lambda m: m, Identity()),
        (lambda m: {"a": json.loads(m)["x"]}, Projection((("a", X),), parses=True)),
        (lambda m: {"a": loads(m).get("x")}, Projection((("a", GIVEN),), parses=True)),
        (
            lambda m: {"a": json.loads(m)["x"]["y z"], "ü": json.loads(m)["x"]},
            Projection((("a", Field(("x", "y z"), required=True)), ("ü", X)), parses=True),
        ),
    ],
)
def test_functions_of_a_text_that_are_lifted(function, found):
    assert lift(function, text=True) == found


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda r: r, Identity()),
        (lambda r: {"a": r["x"]}, Projection((("a", X),), parses=False)),
        (lambda r: {"a": r.get("x")}, Projection((("a", GIVEN),), parses=False)),
    ],
)
def test_functions_of_a_record_that_are_lifted(function, found):
    assert lift(function, text=False) == found


NOT_LIFTED = [
    *(lambda m: {"a": json.loads(m)["x"] + 1}, lambda m: {"a": 1 + json.loads(m)["x"]}),
    *(lambda m: {"a": json.loads(m)["x"] == 1}, lambda m: {"a": json.loads(m)["x"] or 2}),
    *(lambda m: {"a": f"{json.loads(m)['x']}"}, lambda m: {"a": str(json.loads(m)["x"])}),
    *(lambda m: {"a": json.loads(m).get("x", 1)}, lambda m: {"a": json.loads(m)["x"].get("z")}),
    *(lambda m: {"a": json.loads(m).get("x")["z"]}, lambda m: {"a": json.loads(m).get("x").get("z")}),
    *(lambda m: {**json.loads(m), "b": 1}, lambda m: {"a": json.loads(m)["x"], "b": 2}),
    *(lambda m: {"a": 1}, lambda m: {}, lambda m: {"a": m}, lambda m: {"a": json.loads(m)}),
    *(lambda m: [json.loads(m)["x"]], lambda m: json.loads(m)["x"], lambda m: (json.loads(m)["x"],)),
    *(lambda m: {"a": json.loads(m)[0]}, lambda m: {"a": json.loads(m)[""]}, lambda m: {"a": m["x"]}),
    *(lambda m: {"a": json.loads(m)["a'b"]}, lambda m: {1: json.loads(m)["x"]}),
    *(lambda m: {"a": json.loads(m)["x"], "A": json.loads(m)["y"]}, lambda m: {"a": json.loads("{}")["x"]}),
    *(lambda m: {json.loads(m)["x"]: json.loads(m)["y"]}, lambda m: {"a": json.dumps(m)}),
    *(str.upper, len, default, only_named, any_number, generated, awaited, enclosed(), lambda: 1),
]


@pytest.mark.parametrize("function", NOT_LIFTED)
def test_what_does_more_is_left_to_python(function):
    assert lift(function, text=True) is None


def test_a_record_is_not_parsed_again():
    assert lift(json.loads, text=False) is None
    assert lift(lambda r: {"a": json.loads(r)["x"]}, text=False) is None
