from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import LocalProtocolError
from pyspark_rocketmq.record.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties


def test_encoding() -> None:
    assert encode_properties({"KEYS": "k", "größe": "ü"}) == "KEYS\x01k\x02größe\x01ü\x02".encode()


def test_an_empty_value_is_left_out_as_brokers_do() -> None:
    assert encode_properties({"a": "", "b": "c"}) == b"b\x01c\x02"


@pytest.mark.parametrize(
    "properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": "\x01"}, {"\x02": ""}, {"": "b"}]
)
def test_separators_and_empty_names_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_properties(properties)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="UTF-8"):
        encode_properties({"a": "\ud800"})


def test_the_length_is_limited() -> None:
    assert len(encode_properties({"a": "x" * (MAX_PROPERTIES_BYTES - 3)})) == MAX_PROPERTIES_BYTES
    with pytest.raises(LocalProtocolError, match="32768"):
        encode_properties({"a": "x" * (MAX_PROPERTIES_BYTES - 2)})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),  # 4.9 may leave the last separator out
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"\x02\x02a\x02\x01b\x02c\x01\x02d\x01e\x02", {"d": "e"}),
    ],
)
def test_decoding_is_as_lenient_as_java(data: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
        ("TAGS\x01中文\x02".encode("gbk"), {"TAGS": "\ufffd\ufffd\ufffd\ufffd"}),
        (b"\xff\x01a\x02\xfe\x01b\x02", {"\ufffd": "b"}),
        (b"a\x01\xe4\xb8\x02b\x01c", {"a": "\ufffd", "b": "c"}),
    ],
)
def test_what_is_no_utf_8_is_replaced_as_java_does(data: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(data) == expected
