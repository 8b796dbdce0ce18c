"""Texts and the values that they are: numbers, choices, names, durations and sizes, at their bounds."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.declare import Kind, Option
from pyspark_rocketmq.options.text.kinds import (
    DURATION_MS,
    GROUP,
    SIZE,
    TOPIC,
    choice,
    names,
    require_member,
    whole_number,
)


class Color(enum.Enum):
    RED = "Scarlet"
    BLUE = "blue"


# Made within each test, so that what makes them runs there.
ANY = partial(whole_number, 3, example=7)
BOUNDED = partial(whole_number, 3, example=7, maximum=5)
NEGATIVE = partial(whole_number, -2, example=0)
COLOR = partial(choice, Color)
NAMES = partial(names, "one or more", "a,b")
Made = Kind[Any] | Callable[[], Kind[Any]]


def kind_of(made: Made) -> Kind[Any]:
    return made if isinstance(made, Kind) else made()


def test_a_kind_says_what_is_expected_with_an_example() -> None:
    kinds: list[Made] = [ANY, BOUNDED, COLOR, NAMES]
    assert [(kind_of(made).label, kind_of(made).example) for made in kinds] == [
        ("a whole number from 3 on", "7"),
        ("a whole number from 3 to 5", "7"),
        ("one of scarlet, blue", "scarlet"),
        ("one or more", "a,b"),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ANY, "3", 3),
        (ANY, "9" * 19, 10**19 - 1),
        (BOUNDED, "5", 5),
        (NEGATIVE, "-2", -2),
        (COLOR, "scarlet", Color.RED),
        (COLOR, "SCARLET", Color.RED),
        (COLOR, "Blue", Color.BLUE),
        (NAMES, " a ;b,,a", ("a", "b")),
        (partial(names, "", "", str.upper), "a", ("A",)),
        (TOPIC, "x" * 127, "x" * 127),
        (TOPIC, "%RETRY%" + "x" * 248, "%RETRY%" + "x" * 248),
        (GROUP, "x" * 120, "x" * 120),
        (DURATION_MS, "7", 7),
        (DURATION_MS, " 1H 30m ", 5_400_000),
        (SIZE, "1", 1),
        (SIZE, "3k", 3 << 10),
        (SIZE, "3 MiB", 3 << 20),
        (SIZE, "3gb", 3 << 30),
        (SIZE, "3T", 3 << 40),
    ],
)
def test_texts_that_are_values(kind: Made, text: str, value: object) -> None:
    assert kind_of(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ANY, "2"),
        (ANY, "1" * 20),
        (ANY, "+3"),
        (ANY, "3 "),
        (ANY, ""),
        (BOUNDED, "6"),
        (NEGATIVE, "-3"),
        (COLOR, "red"),
        (NAMES, ";, "),
        (TOPIC, "x" * 128),
        (TOPIC, "%RETRY%" + "x" * 249),
        (GROUP, "x" * 121),
        (DURATION_MS, ""),
        (DURATION_MS, "m"),
        (DURATION_MS, "1h 30"),
        (SIZE, "0k"),
        (SIZE, "k"),
        (SIZE, "1x"),
    ],
)
def test_texts_that_are_none(kind: Made, text: str) -> None:
    option = Option("hue", kind_of(kind), "", (), None, secret=False, only=(), default_text="")
    with pytest.raises(OptionError, match="option hue is malformed"):
        option.parse(text, "hue")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("scarlet", "Color.RED"),
        ("red", "Color.RED"),
        ("Color.BLUE", "Color.BLUE"),
        ("green", "Color.RED or Color.BLUE"),
        (None, "Color.RED or Color.BLUE"),
    ],
)
def test_a_text_where_a_member_belongs_is_answered_with_the_member(given: object, meant: str) -> None:
    with pytest.raises(OptionError, match=f"^hue must be {meant}, not the {type(given).__name__} {given!r}"):
        require_member(Color, given, "hue")
    require_member(Color, Color.RED, "hue")
