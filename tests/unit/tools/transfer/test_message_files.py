"""Files of messages: what is written is read again, and what is none says where."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import Message
from pyspark_rocketmq.tools.transfer import message_files
from pyspark_rocketmq.tools.transfer.message_files import (
    FileMessage,
    read_jsonl,
    read_parquet,
    write_jsonl,
    write_parquet,
)

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=9
)

MESSAGES = st.builds(
    lambda body, tags, keys, flag, properties, offset: Message(
        *("orders", "broker-a", 3, offset, body, "ID", "OFFSET-ID", tags, keys, properties),
        *(1_900_000_000_123, 1_900_000_000_456, "127.0.0.1:1", "127.0.0.1:2", flag, 0, 0, 0, 0, 0, 0),
    ),
    st.binary(min_size=1, max_size=40) | TEXT.map(str.encode),
    st.none() | TEXT,
    st.none() | TEXT,
    st.integers(-(2**31), 2**31 - 1),
    st.dictionaries(TEXT, TEXT, max_size=3),
    st.integers(0, 2**63 - 1),
)


def expected(message: Message) -> FileMessage:
    return FileMessage(
        ("broker-a", 3),
        message.queue_offset,
        message.body,
        message.tags,
        message.keys,
        message.flag,
        dict(message.properties),
    )


@given(st.lists(MESSAGES, max_size=4))
def test_json_lines_are_read_as_they_were_written(messages: list[Message]) -> None:
    file = io.StringIO()
    assert write_jsonl(messages, file) == len(messages)
    assert list(read_jsonl(io.StringIO(file.getvalue()), "f")) == [expected(each) for each in messages]


@given(st.lists(MESSAGES, max_size=4))
def test_parquet_is_read_as_it_was_written(tmp_path_factory, messages: list[Message]) -> None:
    path = tmp_path_factory.mktemp("files") / "m.parquet"
    assert write_parquet(messages, path) == len(messages)
    assert list(read_parquet(path)) == [expected(each) for each in messages]


def test_the_fields_are_named_as_the_data_source_s_columns() -> None:
    file = io.StringIO()
    write_jsonl([example()], file)
    record = json.loads(file.getvalue())
    assert record["storeTimestamp"] == 1_900_000_000_456
    assert record["body"] == "größer"
    assert record.keys() == {
        *("topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp", "storeTimestamp"),
        *("keys", "tags", "flag", "properties", "body"),
    }


def example(**changed: Any) -> Message:
    message = Message(
        *("orders", "broker-a", 3, 7, "größer".encode(), "ID", "OFFSET-ID", "t", "k1 k2"),
        {"own": "1", "UNIQ_KEY": "ID", "KEYS": "k1 k2", "TAGS": "t", "__SHARDINGKEY": "s", "DELAY": "3"},
        *(1_900_000_000_123, 1_900_000_000_456, "127.0.0.1:1", "127.0.0.1:2", 5, 0, 0, 0, 0, 0, 0),
    )
    return message._replace(**changed)


def test_what_is_sent_has_the_own_properties_only() -> None:
    sent = expected(example()).outgoing("copy")
    assert (sent.topic, sent.body, sent.tags, sent.keys) == ("copy", "größer".encode(), "t", "k1 k2")
    assert (sent.properties, sent.flag, sent.sharding_key, sent.delayed) == ({"own": "1"}, 5, "s", False)


def line_of(**changed: Any) -> str:
    return json.dumps({"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": "x", **changed})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"the line is not JSON: .*line=2"),
        ("[" * 100_000, r"the line is not JSON: .*line=2"),
        (line_of().replace("0", "1e999"), r"not a message that `export` wrote: .*line=2"),
        ("3", r"not a message that `export` wrote: .*line=2"),
        ("{}", r"not a message that `export` wrote: it has no 'brokerName' .*line=2"),
        ('{"brokerName": "b", "queueId": "x"}', "not a message that `export` wrote"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0}', "it has no 'body'"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0, "bodyBase64": "?"}', "not a message"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": {"a": 1}}', "its body is not a text"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": null}', "its body is not a text"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": ""}', r"a body of at least .*line=2"),
        (line_of(tags="\ud800"), r"a property cannot be written as UTF-8: .*line=2"),
        (line_of(properties={"": "x"}), r"a property needs a name .*line=2"),
        (line_of(properties={"a": "x" * 40_000}), r"more than 32767 .*line=2"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": "x", "tags": 3}', "tags, keys and"),
        ('{"brokerName": "b", "queueId": 0, "queueOffset": 0, "body": "x", "properties": [1]}', "not a mess"),
    ],
)
def test_a_line_that_is_no_message_is_told_with_its_number(line: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        list(read_jsonl(["\n", line], "f"))


def test_a_file_that_is_not_parquet_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    path.write_text("no")
    with pytest.raises(OptionError, match="the file cannot be read"):
        list(read_parquet(path))
    with pytest.raises(OptionError, match="the file cannot be read"):
        list(read_parquet(tmp_path / "absent"))
    pq.write_table(pa.table({"brokerName": ["b"], "queueId": [1], "queueOffset": [1]}), path)
    with pytest.raises(OptionError, match=r"it has no 'body' .*row=1"):
        list(read_parquet(path))


def test_only_what_is_sent_is_read_from_parquet(tmp_path: Path) -> None:
    message = example(born_timestamp=2**62)  # a producer's clock may say anything
    write_parquet([message], tmp_path / "m")
    assert list(read_parquet(tmp_path / "m")) == [expected(message)]


def test_large_bodies_are_read_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [at.to_bytes(2, "big") * 1_000 for at in range(1_000)]
    write_parquet((example(queue_offset=at, body=body) for at, body in enumerate(bodies)), tmp_path / "m")
    monkeypatch.setattr(message_files, "_BYTES_AT_ONCE", 20_000)
    tracemalloc.start()
    try:
        assert sum(len(each.body) for each in read_parquet(tmp_path / "m")) == 2_000_000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1_000_000
