"""Which rows a write takes, and what it says of the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import SinkOptions, parse_options
from pyspark_rocketmq.spark.write.sink_schema import SINK_COLUMNS, SinkLayout, sink_layout

WITH_TOPIC = parse_options(SinkOptions, {"nameServer": "h:1", "topic": "orders"}, environ={})
WITHOUT = parse_options(SinkOptions, {"nameServer": "h:1"}, environ={})


TYPES = {
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "timestamp": T.TimestampType(),
    "interval": T.DayTimeIntervalType(),
    "array<string>": T.ArrayType(T.StringType()),
    "array<int>": T.ArrayType(T.IntegerType()),
    "map<string,string>": T.MapType(T.StringType(), T.StringType()),
    "map<string,int>": T.MapType(T.StringType(), T.IntegerType()),
}


def layout(columns: str, options: SinkOptions = WITH_TOPIC) -> SinkLayout:
    """Lay out ``"name type, name type"`` (Spark's own parser of such texts needs a session)."""
    fields = [column.split() for column in columns.split(", ")]
    return sink_layout(T.StructType([T.StructField(name, TYPES[kind]) for name, kind in fields]), options)


def test_every_column_is_taken() -> None:
    ddl = (
        "body binary, topic string, tags string, keys array<string>, properties map<string,string>, "
        "shardingKey bigint, brokerName string, queueId int, flag int, delayLevel int, "
        "delay interval, deliverAt timestamp, priority int, traceparent string, writeId string"
    )
    assert layout(ddl).names == set(SINK_COLUMNS)


@pytest.mark.parametrize("name", ["key", "KEYS", "Keys"])
def test_names_have_aliases_and_no_case(name: str) -> None:
    assert layout(f"body string, {name} string").positions == (("body", 0), ("keys", 1))


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("value string", "'value', which is no part of a message"),
        ("tags string", "needs a column 'body'"),
        ("body string, tag string", "did you mean 'tags'"),
        ("body int", "'body' is int, but a write needs string or binary"),
        ("body string, keys array<int>", r"'keys' is array<int>, but a write needs string or array<string>"),
        ("body string, properties map<string,int>", "map<string,string>"),
        ("body string, deliverAt string", "needs timestamp"),
        ("body string, key string, keys string", "two columns mean 'keys'"),
        ("body string, shardingKey string, messageGroup string", "two columns mean 'shardingKey'"),
        ("body string, brokerName string", "needs the column 'queueId'"),
        ("body string, timestamp timestamp", "'timestamp', which a write cannot set: only rows"),
        ("body binary, storeTimestamp timestamp, msgId string", "'storeTimestamp', which a write cannot set"),
        ("body string, xyzzy string", "no part of a message: there are 'body', 'topic', 'tags', "),
    ],
)
def test_rows_that_do_not_fit(ddl: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        layout(ddl)


def test_a_topic_comes_from_the_option_or_a_column() -> None:
    with pytest.raises(OptionError, match="option topic, or a column 'topic'"):
        layout("body string", WITHOUT)
    assert layout("body string, topic string", WITHOUT).names == {"body", "topic"}


def test_rows_as_they_were_read_lose_where_they_were() -> None:
    read = (
        "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, "
        "tags string, body binary, bornTimestamp timestamp, storeTimestamp timestamp"
    )
    found = layout(read)
    assert found.as_read
    assert found.names == {"topic", "keys", "tags", "body"}
    assert not layout("body string, queueId int, brokerName string").as_read


def test_rows_that_drop_repeats_returns_may_be_written_as_they_are() -> None:
    """The time up to which all queues are read was an unknown column, as were no others of a read."""
    read = "topic string, queueOffset bigint, body binary, properties map<string,string>"
    found = layout(f"{read}, storeTimestamp timestamp, alignedTimestamp timestamp")
    assert found.names == {"topic", "body", "properties"}
    with pytest.raises(OptionError, match="'alignedTimestamp', which a write cannot set"):
        layout("body string, alignedTimestamp timestamp")


def test_rows_of_the_long_format_name_go_into_its_sink_as_they_were_read() -> None:
    found = layout("keys string, body binary, queueOffset bigint, key string, offset bigint, tags string")
    assert (found.positions, found.copies) == ((("keys", 0), ("body", 1), ("tags", 5)), ((0, 3),))
    rows = {
        "keys": pa.array(["a", None]),
        "body": pa.array([b"1", b"2"]),
        "queueOffset": pa.array([1, 2]),
        "key": pa.array(["a", None]),
        "offset": pa.array([1, 2]),
        "tags": pa.array(["t", None]),
    }
    columns = found.columns(pa.record_batch(rows), WITH_TOPIC)
    assert columns.keys.to_pylist() == [b"a", None]
    changed = pa.record_batch({**rows, "key": pa.array(["b", None])})
    with pytest.raises(OptionError, match="'keys' and 'key' mean the same and differ"):
        found.columns(changed, WITH_TOPIC)


def test_values_become_what_messages_hold() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "body": ["größe"],
            "keys": pa.array([["a", None, "b", ""]], pa.list_(pa.string())),
            "shardingKey": pa.array([42], pa.int64()),
            "delay": pa.array([timedelta(seconds=1.5)], pa.duration("us")),
            "deliverAt": pa.array([moment], pa.timestamp("us", tz="UTC")),
        }
    )
    ddl = "body string, keys array<string>, shardingKey bigint, delay interval, deliverAt timestamp"
    columns = layout(ddl).columns(batch, WITH_TOPIC)
    assert columns.body.to_pylist() == ["größe".encode()]
    assert columns.keys.to_pylist() == [b"a b"]
    assert columns.sharding_key.to_pylist() == [b"42"]
    assert columns.delay_ms.to_pylist() == [1_500]
    assert columns.deliver_at_ms.to_pylist() == [int(moment.timestamp() * 1000)]
    assert columns.topic is None


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.large_string())])
@pytest.mark.parametrize("hole", [[], [[None]]])
def test_keys_of_a_row_are_one_text(kind: pa.DataType, hole: list[list[None]]) -> None:
    """With a null among the keys of some row, or without."""
    keys = [["a", "b"], None, ["c"], [], ["d", "", "e"], *hole]
    batch = pa.RecordBatch.from_pydict({"body": ["x"] * len(keys), "keys": pa.array(keys, kind)})
    found = layout("body string, keys array<string>").columns(batch, WITH_TOPIC)
    assert found.keys.to_pylist() == [b"a b", None, b"c", b"", b"d e", *[b""] * len(hole)]
    assert found.keys.type == pa.binary()


def test_keys_without_a_hole_or_an_empty_one_are_joined_by_arrow() -> None:
    keys = pa.array([["a", "b"], None, ["c"], []], pa.large_list(pa.string()))
    batch = pa.RecordBatch.from_pydict({"body": ["x"] * 4, "keys": keys})
    found = layout("body string, keys array<string>").columns(batch, WITH_TOPIC)
    assert found.keys.to_pylist() == [b"a b", None, b"c", b""]


@pytest.mark.parametrize("hole", [[], [None], [""]])
def test_keys_that_are_not_utf_8_are_left_to_the_check_of_their_row(hole: list[str | None]) -> None:
    damaged = pa.array([b"\xff"]).view(pa.string())
    texts = pa.concat_arrays([damaged, pa.array([*hole, "a"], pa.string())])
    keys = pa.ListArray.from_arrays([0, len(texts) - 1, len(texts)], texts)
    batch = pa.RecordBatch.from_pydict({"body": ["x", "y"], "keys": keys})
    found = layout("body string, keys array<string>").columns(batch, WITH_TOPIC)
    assert found.keys.to_pylist() == [b"\xff", b"a"]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_delays_may_be_milliseconds(kind: pa.DataType) -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["x", "y"], "delay": pa.array([5, None], kind)})
    delays = layout("body string, delay bigint").columns(batch, WITH_TOPIC).delay_ms
    assert (delays.to_pylist(), delays.type) == ([5, None], pa.int64())


def test_a_delay_level_for_every_row_overrides_the_column() -> None:
    given = {"nameServer": "h:1", "topic": "orders", "delayLevel": 3, "tags": "t"}
    options = parse_options(SinkOptions, given, environ={})
    batch = pa.RecordBatch.from_pydict({"body": ["x", "y"], "delayLevel": pa.array([1, None], pa.int32())})
    found = layout("body string, delayLevel int", options).columns(batch, options)
    assert (found.delay_level.to_pylist(), found.delay_level.type) == ([3, 3], pa.int32())
    assert found.tags.to_pylist() == [b"t", b"t"]


@pytest.mark.parametrize(
    ("column", "option", "named"),
    [
        ("delay bigint", {}, "'delay'"),
        ("deliverAt timestamp", {}, "'deliverAt'"),
        ("delayLevel int", {}, "'delayLevel'"),
        ("tags string", {"delayLevel": 3}, "'delayLevel'"),
        ("delay bigint, deliverAt timestamp", {}, "'delay', 'deliverAt'"),
    ],
)
def test_messages_of_a_transaction_have_no_delay(column: str, option: dict[str, int], named: str) -> None:
    given = {"nameServer": "h:1", "topic": "t", "deliveryGuarantee": "transactional", "transactionLog": "/l"}
    options = parse_options(SinkOptions, given | option, environ={})
    with pytest.raises(OptionError, match=f"leave out {named}$"):
        layout(f"body string, {column}", options)
    assert layout("body string, tags string", parse_options(SinkOptions, given, environ={}))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_come_in_every_size_of_arrow(kind: pa.DataType) -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"x", b"yz"]).cast(pa.string()).cast(kind)})
    assert layout("body string").columns(batch, WITH_TOPIC).body.to_pylist() == [b"x", b"yz"]
