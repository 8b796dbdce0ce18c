"""The options that every API which reads declares: alike, but for the names that it has from others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageSelector
from pyspark_rocketmq.options.choices import CorruptPolicy, ObjectPolicy, policy_of_objects
from pyspark_rocketmq.options.declare import Options, list_declared
from pyspark_rocketmq.options.parse import parse_options
from pyspark_rocketmq.options.pulling import (
    check_crc_option,
    on_corrupt_option,
    pull_batch_size_option,
    pulls_in_flight_option,
    selector_of,
    sql_filter_option,
    tags_option,
)


def declared(made: Any) -> tuple[Any, dict[str, object]]:
    """Return a class with the option, and what is declared besides its parser."""

    @dataclass(frozen=True)
    class Made(Options):
        value: Any = made

    (each,) = list_declared(Made)
    kind = each.kind
    return Made, {
        "name": each.name,
        "aliases": each.aliases,
        "expected": kind.label,
        "example": kind.example,
        "default": each.default_text,
        "doc": each.doc,
    }


def parsed(cls: Any, name: str, text: str) -> Any:
    return parse_options(cls, {name: text}, environ={}).value


def test_tags() -> None:
    made, found = declared(tags_option())
    assert found == {
        "name": "tags",
        "aliases": ("tag", "consumer.tag", "subExpression"),
        "expected": "tags between ||, or *",
        "example": "TagA || TagB",
        "default": "*",
        "doc": "Read only messages with one of these tags; the broker filters.",
    }
    assert made().value == parsed(made, "tags", "") == parsed(made, "tags", "*") == ()
    assert parsed(made, "tag", "a || b") == ("a", "b")
    assert parsed(made, "tag", "a|b||c") == ("a|b", "c")


@pytest.mark.parametrize("text", ["a | b", "a || b | c", "| a | b"])
def test_a_single_bar_between_tags_selects_nothing_and_is_refused(text: str) -> None:
    made, _ = declared(tags_option())
    with pytest.raises(OptionError, match=r"tags are joined with '\|\|', not with '\|'"):
        parsed(made, "tags", text)
    with pytest.raises(OptionError, match=r"tags are joined with '\|\|', not with '\|'"):
        MessageSelector.by_tag(text)


def test_an_sql_condition() -> None:
    made, found = declared(sql_filter_option())
    assert found == {
        "name": "sqlFilter",
        "aliases": (),
        "expected": "an SQL92 condition",
        "example": "amount > 100 AND region = 'EU'",
        "default": "none",
        "doc": "Read only messages whose properties match the condition. Requires enablePropertyFilter=true "
        "at the broker.",
    }
    assert made().value is None
    assert parsed(made, "sqlFilter", "a > 1") == "a > 1"


def test_the_size_of_a_pull() -> None:
    made, found = declared(pull_batch_size_option("most", 32, "greatest", "largest"))
    assert found == {
        "name": "most",
        "aliases": ("greatest", "largest"),
        "expected": "a whole number from 1 to 10000",
        "example": "32",
        "default": "32",
        "doc": "Maximum messages per pull. The broker's limit (32 by default) also applies.",
    }
    assert made().value == 32
    assert (parsed(made, "most", "1"), parsed(made, "largest", "10000")) == (1, 10_000)


def test_pulls_in_flight() -> None:
    made, found = declared(pulls_in_flight_option())
    assert found == {
        "name": "pullsInFlight",
        "aliases": (),
        "expected": "a whole number from 1 to 1024",
        "example": "32",
        "default": "32, up to 1024 at high latency",
        "doc": "Maximum concurrent pulls per task, within 32 MiB of responses.",
    }
    assert made().value is None
    assert (parsed(made, "pullsInFlight", "1"), parsed(made, "pullsInFlight", "1024")) == (1, 1024)


@pytest.mark.parametrize(("objects", "more"), [(False, ""), (True, " null is for recordBatches only.")])
def test_what_becomes_of_corrupt_messages(objects: bool, more: str) -> None:
    made, found = declared(on_corrupt_option(objects=objects))
    assert found == {
        "name": "onCorrupt",
        "aliases": (),
        "expected": "one of fail, null, skip",
        "example": "null",
        "default": "fail",
        "doc": "For a message that cannot be decoded: fail, null (the affected columns), or skip (the "
        f"message).{more}",
    }
    assert made().value is CorruptPolicy.FAIL
    assert parsed(made, "onCorrupt", "Skip") is CorruptPolicy.SKIP
    assert declared(on_corrupt_option())[1] == declared(on_corrupt_option(objects=False))[1]


def test_checksums() -> None:
    made, found = declared(check_crc_option())
    assert found == {
        "name": "checkCrc",
        "aliases": (),
        "expected": "true or false",
        "example": "true",
        "default": "false",
        "doc": "Verify the stored checksum of each body. On a mismatch, onCorrupt applies.",
    }
    assert made().value is False
    assert parsed(made, "checkCrc", "TRUE") is True


@pytest.mark.parametrize(
    ("tags", "sql", "selector"),
    [
        ((), None, MessageSelector("*")),
        (("a", "b"), None, MessageSelector("a || b")),
        ((), "a > 1", MessageSelector.by_sql("a > 1")),
    ],
)
def test_a_broker_filters_by_tags_or_by_a_condition(
    tags: tuple[str, ...], sql: str | None, selector: MessageSelector
) -> None:
    assert selector_of(tags, sql) == selector


@pytest.mark.parametrize(("policy", "objects"), [(CorruptPolicy.FAIL, "fail"), (CorruptPolicy.SKIP, "skip")])
def test_a_policy_of_messages_as_objects(policy: CorruptPolicy, objects: ObjectPolicy) -> None:
    assert policy_of_objects(policy) == objects


def test_a_message_as_an_object_has_no_nulls() -> None:
    with pytest.raises(OptionError, match="use onCorrupt=skip") as caught:
        policy_of_objects(CorruptPolicy.NULL)
    assert caught.value.facts["option"] == "onCorrupt"
