"""Java's hash of a text, whatever it consists of."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.remoting.java_hash import java_hash


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("\u0100", 0x100),
        ("ab", 31 * 97 + 98),
        ("\ud83d\ude00", 31 * 0xD83D + 0xDE00),
        ("\U0001f600", 31 * 0xD83D + 0xDE00),
        ("\ud800", 0xD800),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_half_a_character_counts_as_in_java(text: str, code: int) -> None:
    assert java_hash(text) == code
