"""What the declaration of an option says of it, and what its errors show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.declare import (
    Kind,
    Option,
    OptionRow,
    Options,
    group,
    list_declared,
    option,
    option_reference,
    option_values,
)


def _even(text: str) -> int:
    if not text.isdigit():
        raise ValueError("")
    if int(text) % 2:
        raise ValueError("it is odd")
    return int(text)


EVEN = Kind("an even number", "2", _even)
TEXT = Kind("a text", "some", str)


@pytest.fixture
def outer() -> Any:
    """Declare a class with a group: here, so that what declares it runs within a test."""

    @dataclass(frozen=True, kw_only=True)
    class Inner(Options):
        size: int = option(
            "size", EVEN, doc="How large.", default=4, default_text="as large as a page",
            aliases=("extent", "room"), env="SIZE", only=("read", "write"), since="4.2",
        )  # fmt: skip

    @dataclass(frozen=True, kw_only=True)
    class Outer(Options):
        name: str = option("name", TEXT, doc="Which.", example="mine")
        key: str | None = option("key", TEXT, doc="What opens it.", default=None, secret=True)
        key_file: str = option("keyFile", TEXT, doc="Where it is.", default="/key", holds=("key",), ends=True)
        inner: Inner = group(Inner, has_defaults=True)

    return Outer


SIZE = Option(
    "size", EVEN, "How large.", ("extent", "room"), "SIZE", False, ("read", "write"), "as large as a page",
    (), "4.2",
)  # fmt: skip
NAME = Option("name", Kind("a text", "mine", str), "Which.", (), None, False, (), "required")
KEY = Option("key", TEXT, "What opens it.", (), None, True, (), "none")
KEY_FILE = Option("keyFile", TEXT, "Where it is.", (), None, False, (), "/key", ("key",), None, True)


def test_an_option_is_all_that_is_declared(outer: Any) -> None:
    assert list_declared(outer) == (NAME, KEY, KEY_FILE, SIZE)
    assert SIZE.spellings == ("size", "extent", "room")


def test_the_reference_has_a_row_for_each_option(outer: Any) -> None:
    assert option_reference(outer) == (
        OptionRow("name", (), "a text", "mine", "required", None, False, (), None, "Which."),
        OptionRow("key", (), "a text", "some", "none", None, True, (), None, "What opens it."),
        OptionRow("keyFile", (), "a text", "some", "/key", None, False, (), None, "Where it is."),
        OptionRow(
            *("size", ("extent", "room"), "an even number", "2", "as large as a page"),
            *("SIZE", False, ("read", "write"), "4.2", "How large."),
        ),
    )


def test_values_are_the_defaults_but_what_is_required_and_secrets_are_not_shown(outer: Any) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Outermost(Options):
        held: Options = group(outer)

    made = outer(name="x", key="hush")
    assert (made.key_file, made.inner.size) == ("/key", 4)
    assert [(each.name, value) for each, value in option_values(Outermost(held=made))] == [
        ("name", "x"),
        ("key", "hush"),
        ("keyFile", "/key"),
        ("size", 4),
    ]
    assert list_declared(Outermost) == list_declared(outer)
    assert "name='x', key_file='/key'" in repr(made)
    assert "hush" not in repr(made)
    for made_without, missing in ((outer, "name"), (Outermost, "held")):
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{missing}'"):
            made_without()


@pytest.mark.parametrize(
    ("default", "shown"),
    [(None, "none"), ((), "none"), (True, "true"), (False, "false"), (0, "0"), ("as it is", "as it is")],
)
def test_a_default_is_shown_as_it_would_be_written(default: Any, shown: str) -> None:
    @dataclass(frozen=True)
    class One(Options):
        value: object = option("value", TEXT, doc="Anything.", default=default)

    (declared,) = list_declared(One)
    assert declared.default_text == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "option extent is malformed: expected an even number, for example size=2"),
        ("3", "option extent is malformed: it is odd; expected an even number, for example size=2"),
    ],
)
def test_an_error_says_what_is_wrong_and_what_is_expected(text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        SIZE.parse(text, "extent")
    assert str(caught.value).startswith(said)
    assert caught.value.facts == {"option": "extent", "value": repr(text)}


def test_an_error_shows_the_first_300_characters() -> None:
    for text, shown in [("x" * 300, "x" * 300), ("x" * 301, "x" * 300 + "…")]:
        with pytest.raises(OptionError) as caught:
            SIZE.parse(text, "size")
        assert caught.value.facts["value"] == repr(shown)
