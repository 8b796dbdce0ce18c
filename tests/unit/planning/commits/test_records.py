"""The records of a commit topic."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.commits.records import (
    Abort,
    Append,
    Appended,
    Begin,
    Commit,
    decode_record,
    encode_record,
)

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-b", 3)


@pytest.mark.parametrize(
    "record",
    [
        Begin(owner="query", number=7, ends={A: 3, B: 0}),
        Commit(owner="a job / of any name", number=0, since=41, ranges={A: ((1, 3), (5, 6)), B: ((0, 9),)}),
        Abort(owner="query", number=7),
        Append(owner="query", number=7, claim="5f3c", ends={A: 3, B: 0}),
        Appended(owner="query", number=7),
    ],
)
def test_records_come_back(record) -> None:
    assert decode_record(encode_record(record)) == record


def test_the_form_of_a_commit_is_the_documented_one() -> None:
    body = encode_record(Commit(owner="q", number=7, since=41, ranges={A: ((120, 2120), (2300, 2310))}))
    assert json.loads(body) == {
        "version": 1,
        "kind": "commit",
        "owner": "q",
        "number": 7,
        "since": 41,
        "ranges": {"orders": {"broker-a": {"0": [[120, 2120], [2300, 2310]]}}},
    }
    assert decode_record(body).rows == 2010


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b'{"version":1,"kind":"commit","owner":"q"}',
        b'{"version":1,"kind":"commit","owner":"q","number":1,"since":0,"ranges":{"t":{"b":{"0":[[1]]}}}}',
        b'{"version":1,"kind":"begin","owner":"q","number":1,"ends":[]}',
    ],
)
def test_what_is_no_record_is_refused(body) -> None:
    with pytest.raises(RemoteProtocolError, match="is no record"):
        decode_record(body)


@pytest.mark.parametrize("change", [{"version": 2}, {"kind": "merge"}])
def test_a_record_of_a_newer_release_is_refused_not_skipped(change) -> None:
    document = json.loads(encode_record(Abort(owner="q", number=1))) | change
    with pytest.raises(RemoteProtocolError, match="newer release"):
        decode_record(json.dumps(document).encode())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"version": 1, "kind": "begin", "owner": "q", "number": 1e999, "ends": {}}',
        b'{"version": 1, "kind": "commit", "owner": "q", "number": 1, "since": 1e999, "ranges": {}}',
    ],
)
def test_json_that_python_cannot_hold_is_no_record(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no record"):
        decode_record(body)
