"""Signatures, against values computed by OpenSSL."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from pyspark_rocketmq.errors import LocalProtocolError
from pyspark_rocketmq.remoting.acl import Credentials, sign

ACCOUNT = Credentials("rocketmq", "12345678")


def test_fields_by_name_then_body() -> None:
    # printf 'rocketmqgröße42t-ftopic-bodyé' | openssl dgst -sha1 -hmac 12345678 -binary | base64
    fields = {"topic": "t-f", "queueId": "42", "consumerGroup": "größe"}
    assert sign(fields, "topic-bodyé".encode(), ACCOUNT) == {
        "topic": "t-f",
        "queueId": "42",
        "consumerGroup": "größe",
        "AccessKey": "rocketmq",
        "Signature": "0zehChPTCqafuagcSvy8ziNyTmQ=",
    }


def test_security_token_is_signed_and_sent() -> None:
    # printf 'rocketmqtok-1g3' | openssl dgst -sha1 -hmac 'sécret' -binary | base64
    account = Credentials("rocketmq", "sécret", "tok-1")
    signed = sign({"group": "g3"}, b"", account)
    assert signed["SecurityToken"] == "tok-1"
    assert signed["Signature"] == "QLUB/8wHSj1HwWafSBAribEmnTA="


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_any_buffer(body: bytes | bytearray | memoryview) -> None:
    assert sign({}, body, ACCOUNT) == sign({}, b"x", ACCOUNT)


def test_signing_again_gives_the_same() -> None:
    once = sign({"topic": "t"}, b"x", ACCOUNT)
    assert sign(once, b"x", ACCOUNT) == once


def test_input_stays() -> None:
    fields = {"topic": "t"}
    sign(fields, b"", ACCOUNT)
    assert fields == {"topic": "t"}


def test_credentials_hide_their_secrets() -> None:
    account = Credentials("me", "hush-1", "hush-2")
    for text in (repr(account), str(account), f"{account}", f"{[account]!r}"):
        assert "me" in text
        assert "hush" not in text


def test_credentials_are_plain_values() -> None:
    account = Credentials("me", "hush-1", "hush-2")
    for twin in (pickle.loads(pickle.dumps(account)), copy.deepcopy(account), dataclasses.replace(account)):
        assert twin == account
        assert hash(twin) == hash(account)
    assert account != Credentials("me", "hush-3", "hush-2")


def test_an_error_holds_no_secret() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        sign({"a": "b"}, b"", Credentials("me", "hush\ud800"))
    assert "hush" not in repr(caught.value)
    assert caught.value.__cause__ is None
