"""Who may ask the HTTP servers of the command line."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.http_access import choose_token, has_bearer, is_loopback, is_token


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_an_address_that_others_reach_has_a_token() -> None:
    assert choose_token(None, "127.0.0.1") is None
    assert choose_token("mine", "127.0.0.1") == choose_token("mine", "0.0.0.0") == "mine"
    first, second = choose_token(None, "0.0.0.0"), choose_token(None, "0.0.0.0")
    assert first is not None
    assert len(first) >= 32
    assert first != second


@pytest.mark.parametrize("token", ["", " ", "two words", "caf\u00e9", "line\n"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(OptionError, match="the token"):
        choose_token(token, "127.0.0.1")


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("Bearer secret", True),
        ("bearer secret", True),
        ("Basic secret", False),
        ("Bearer secret2", False),
        ("Bearer", False),
        ("", False),
        ("Bearer \u00e9", False),
    ],
)
def test_a_bearer_token(header: str, allowed: bool) -> None:
    assert has_bearer(header, "secret") is allowed


def test_a_token_is_compared_whole() -> None:
    assert is_token("secret", "secret")
    assert not is_token("secre", "secret")
    assert not is_token("\u00e9", "secret")
