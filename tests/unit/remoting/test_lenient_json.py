"""The JSON of RocketMQ's servers."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.remoting import lenient_json
from pyspark_rocketmq.remoting.lenient_json import MAX_DEPTH, parse_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, "x", true, null]}', {"a": [1, 2.5, "x", True, None]}),
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        ('{-7:{"x":{12:[]}}}', {"-7": {"x": {"12": []}}}),
        (' { "t" : { 0 : "a" } , "u" : [ { 1 : 2 } , 3 ] } ', {"t": {"0": "a"}, "u": [{"1": 2}, 3]}),
        ('{{"q":0,"t":"x}:{"}:5}', {frozenset({("q", 0), ("t", "x}:{")}): 5}),
        ('[{0:"\\u00e9\\""},"\\ud83d\\ude00"]', [{"0": 'é"'}, "😀"]),
        ("{0:{}}", {"0": {}}),
        ("{0:1,0:2}", {"0": 2}),
    ],
)
def test_reads(text: str, value: object) -> None:
    assert parse_json(text.encode()) == value


def test_object_keys_lead_to_their_values() -> None:
    table = parse_json(
        b'{{"queueId":0,"topic":"t"}:{"maxOffset":5},{"topic":"t","queueId":1}:{"maxOffset":6}}'
    )
    assert [dict(key)["queueId"] for key in table] == [0, 1]
    assert [value["maxOffset"] for value in table.values()] == [5, 6]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{0",
        b"{0:",
        b"{0:1",
        b"{0:1,",
        b"{0:1,}",
        b"{0:1}x",
        b"{0:[1,]}",
        b"{0:[1",
        b"{a:1}",
        b"{0.5:1}",
        b"{0 1}",
        b'{"a" 1}',
        b"{{}:1",
        b'{{"a":[]}:1}',
        b'{{"a":{}}:1}',
        b'{0:"\xff"}',
        b'{0:"unended}',
        b"{0:" + b"9" * 5000 + b"}",
        b"{" + b"9" * 21 + b":1}",
        pytest.param(b"[" * 1_000_000, id="deep standard"),
        pytest.param(b"{0:" * 1_000_000, id="deep lenient"),
        pytest.param(b"{" * 1_000_000, id="deep keys"),
    ],
)
def test_refuses(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_json(body)


def test_depth_limit() -> None:
    assert parse_json(b"{0:" * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH)
    with pytest.raises(RemoteProtocolError):
        parse_json(b"{0:" * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("start", "inner", "end"),
    [
        pytest.param(b"[", b"{0:1}", b"]", id="arrays"),
        pytest.param(b"{", b"{}", b":1}", id="keys"),
        pytest.param(b"{0:[", b"{0:1}", b"]}", id="both in turn"),
    ],
)
def test_depth_of_everything_is_counted(start: bytes, inner: bytes, end: bytes) -> None:
    opened = start.count(b"{") + start.count(b"[")
    fits = (MAX_DEPTH - 1) // opened
    assert parse_json(start * fits + inner + end * fits)
    with pytest.raises(RemoteProtocolError):
        parse_json(start * (fits + 1) + inner + end * (fits + 1))


def test_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenient_json, "MAX_SIZE", 10)
    assert parse_json(b'"12345678"') == "12345678"
    with pytest.raises(RemoteProtocolError, match="limit"):
        parse_json(b'"123456789"')
