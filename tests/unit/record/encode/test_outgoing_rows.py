"""Which rows of several are refused, and that everything of the others is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_rocketmq.record.encode.outgoing_rows import (
    MAX_DELAY_LEVEL,
    UNIQUE_KEY_BYTES,
    MessageColumns,
    OutgoingRows,
    Refused,
    binary_of,
    prepare,
)
from pyspark_rocketmq.record.properties import MAX_PROPERTIES_BYTES

MAP = pa.map_(pa.string(), pa.string())
MOST = MAX_PROPERTIES_BYTES - UNIQUE_KEY_BYTES


def texts(*values: str | None) -> pa.Array:
    return binary_of(pa.array(values, pa.string()))


def prepared(count: int, **columns: object) -> tuple[OutgoingRows, Refused]:
    return prepare(of(count, **columns))


def of(count: int, **columns: object) -> MessageColumns:
    return MessageColumns(body=pa.array([b"x"] * count, pa.binary()), **columns)  # type: ignore[arg-type]


def test_a_write_id_that_is_needed_and_missing_refuses_its_row_only() -> None:
    ids = texts("a", None, "", "bb")
    rows, refused = prepare(of(4, write_id=ids), needs_write_id=True)
    assert refused == dict.fromkeys((1, 2), "it has no write id")
    assert rows.place.tolist() == [0, 3]
    assert prepared(4, write_id=ids)[1] == {}
    assert prepare(of(4), needs_write_id=True)[1] == {}


def test_rows_keep_where_they_are_sent_to() -> None:
    columns = {
        "topic": texts("orders", "payments"),
        "sharding_key": texts("a", None),
        "broker_name": texts("broker-a", None),
        "queue_id": pa.array([3, None], pa.int32()),
    }
    rows, refused = prepared(2, **columns)
    assert not refused
    assert {name: getattr(rows, name) for name in columns} == columns


def test_flags_are_numbers_of_four_bytes() -> None:
    for flags, expected in ((None, [0, 0]), (pa.array([7, None], pa.int32()), [7, 0])):
        rows, _ = prepared(2, flag=flags)
        assert (rows.flag.dtype, rows.flag.tolist()) == (np.dtype(np.int32), expected)


def test_a_topic_that_is_missing_or_illegal_refuses_its_row_only() -> None:
    cause = "its topic is missing, or no legal name"
    for topics in (
        texts("orders", "payments", None, "a b"),
        pa.array(["orders", "payments", None, "a b"], pa.string()),
        pa.array([b"orders", b"payments", None, b"\xff"], pa.binary()),
    ):
        assert prepared(4, topic=topics)[1] == dict.fromkeys((2, 3), cause)


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("name", ["tags", "keys", "sharding_key"])
def test_a_text_that_is_no_property_refuses_its_row_wherever_it_is(name: str, bad: int) -> None:
    values = [b"\xff" if row == bad else b"fine" for row in range(3)]
    _, refused = prepared(3, **{name: pa.array(values, pa.binary())})
    assert list(refused) == [bad]
    values[bad] = b"a\x02"
    assert list(prepared(3, **{name: pa.array(values, pa.binary())})[1]) == [bad]


def test_a_character_that_is_divided_between_two_rows_refuses_both() -> None:
    """Their bytes are UTF-8 one after the other only."""
    halves = pa.array([b"fine", b"\xc3", b"", b"\xa9", b"\xc3\xa9"], pa.binary())
    assert list(prepared(5, keys=halves)[1]) == [1, 3]
    maps = pa.array([[("a", half)] for half in halves.to_pylist()], pa.map_(pa.string(), pa.binary()))
    assert list(prepared(5, properties=maps)[1]) == [1, 3]
    assert list(prepared(3, keys=halves[1:4])[1]) == [0, 2]


def test_times_and_levels_at_their_edges() -> None:
    rows, refused = prepared(2, deliver_at_ms=pa.array([0, None], pa.int64()))
    assert (refused, rows.single.tolist()) == ({}, [True, False])
    levels = pa.array([MAX_DELAY_LEVEL, MAX_DELAY_LEVEL + 1], pa.int32())
    assert list(prepared(2, delay_level=levels)[1]) == [1]


def test_what_must_go_alone_does_whatever_its_properties() -> None:
    maps = pa.array([[("__LITE_TOPIC", "x")], [("a", "b")], [("a", "b")]], MAP)
    rows, _ = prepared(3, delay_level=pa.array([0, 1, 0], pa.int32()), properties=maps)
    assert rows.single.tolist() == [True, True, False]


def test_a_property_without_a_value_is_neither_sent_nor_refused() -> None:
    maps = pa.array([[("KEYS", None), ("", None), ("a\x01", None)], [("a", ""), ("b", "1")], None], MAP)
    rows, refused = prepared(3, properties=maps)
    assert refused == {}
    assert rows.properties.to_pylist() == [b"", b"b\x011\x02", b""]


@pytest.mark.parametrize("entry", [("KEYS", "v"), ("a\x02", "v"), ("", "v"), ("a", "\x01")])
def test_a_bad_property_refuses_its_row_only(entry: tuple[str, str]) -> None:
    good = [("a", "1"), ("b", "")]
    maps = pa.array([good, [entry], good, [("c", "3"), entry], None], MAP)
    assert list(prepared(5, properties=maps)[1]) == [1, 3]
    for start, end in ((0, 1), (2, 3)):
        rows, refused = prepared(end - start, properties=maps[start:end])
        assert (refused, rows.properties.to_pylist()) == ({}, [b"a\x011\x02"])


def test_a_property_s_name_that_is_not_utf_8_is_refused() -> None:
    maps = pa.array([[(b"\xff", b"v")], [(b"a", b"1")]], pa.map_(pa.binary(), pa.binary()))
    _, refused = prepared(2, properties=maps)
    assert refused == {0: "a property's name holds 0x01 or 0x02, or is not UTF-8"}


def test_trace_contexts_follow_the_properties_and_count_as_they_do() -> None:
    context = texts("00-1-2-01")
    rows, _ = prepared(1, tags=texts("t"), traceparent=context)
    traced = rows.traced()
    assert traced.properties.to_pylist() == [b"TAGS\x01t\x02traceparent\x0100-1-2-01\x02"]
    assert traced.traceparent is None
    added = len(b"traceparent\x0100-1-2-01\x02")
    for size, causes in ((MOST - added, []), (MOST - added + 1, [0])):
        maps = pa.array([[("p", "v" * (size - 3))]], MAP)
        assert list(prepared(1, properties=maps, traceparent=context)[1]) == causes


def test_properties_may_take_all_that_brokers_accept() -> None:
    for size, causes in ((MOST, []), (MOST + 1, [0])):
        assert list(prepared(1, properties=pa.array([[("p", "v" * (size - 3))]], MAP))[1]) == causes


def test_large_columns_are_taken() -> None:
    assert binary_of(pa.array([b"\xff", None], pa.large_binary())).to_pylist() == [b"\xff", None]
    assert binary_of(pa.array(["ü", None], pa.large_string())).to_pylist() == ["ü".encode(), None]
