"""Columns of messages to batches and single sends, and which rows are refused."""

from __future__ import annotations

import hashlib
import itertools
import struct
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from pyspark_rocketmq.record.batch_items import iter_batch
from pyspark_rocketmq.record.compress import Compression, compress, decompress
from pyspark_rocketmq.record.encode.batches import (
    WRITE_ID_BYTES,
    BatchLimits,
    Parcel,
    ParcelKind,
    arrange,
    as_half_messages,
    content_ids,
    encode_parcels,
    half_message_marks,
    kinds_of,
    unique_keys,
    with_write_ids,
)
from pyspark_rocketmq.record.encode.occurrences import Occurrences
from pyspark_rocketmq.record.encode.outgoing_rows import (
    UNIQUE_KEY_BYTES,
    MessageColumns,
    OutgoingRows,
    binary_of,
    prepare,
)
from pyspark_rocketmq.record.properties import MAX_PROPERTIES_BYTES, decode_properties

PREFIX = "0A" * 14
MAP = pa.map_(pa.string(), pa.string())
LIMITS = BatchLimits(max_rows=1000, max_bytes=256 * 1024)


def texts(*values: str | None) -> pa.Array:
    return binary_of(pa.array(values, pa.string()))


def bodies(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def parcels(
    rows: OutgoingRows, limits: BatchLimits = LIMITS, queues: list[int] | None = None
) -> list[Parcel]:
    numbers = np.array(queues or [0] * len(rows), np.int32)
    return list(
        encode_parcels(
            rows, numbers, kinds_of(rows, limits), limits, unique=unique_keys(PREFIX, 0xFFFF, len(rows))
        )
    )


def items(parcel: Parcel) -> list[tuple[bytes, dict[str, str], int]]:
    view = memoryview(parcel.body)
    return [
        (
            decompress(view[i.body_start : i.body_end], parcel.sys_flag),
            decode_properties(view[i.properties_start : i.properties_end]),
            i.flag,
        )
        for i in iter_batch(view)
    ]


def test_a_batch_holds_every_part_of_its_messages() -> None:
    rows, refused = prepare(
        MessageColumns(
            body=bodies(b"one", b"two"),
            tags=texts("new", None),
            keys=texts("k1 k2", ""),
            sharding_key=texts(None, "s"),
            properties=pa.array([[("a", "1"), ("b", None)], None], MAP),
            flag=pa.array([7, None], pa.int32()),
        )
    )
    assert not refused
    (parcel,) = parcels(rows)
    assert (len(parcel), parcel.batch, parcel.sys_flag) == (2, True, 0)
    assert items(parcel) == [
        (b"one", {"UNIQ_KEY": f"{PREFIX}FFFF", "a": "1", "KEYS": "k1 k2", "TAGS": "new"}, 7),
        (b"two", {"UNIQ_KEY": f"{PREFIX}0000", "__SHARDINGKEY": "s"}, 0),
    ]


def test_messages_that_travel_alone_keep_the_order_of_the_rows_whatever_their_queues() -> None:
    count = 600
    rows, _ = prepare(MessageColumns(body=bodies(*[b"%d" % number for number in range(count)])))
    queues = [number % 3 for number in range(count)]
    sent = parcels(rows, BatchLimits(max_rows=1, max_bytes=1000), queues)
    assert [(parcel.start, parcel.end, parcel.body) for parcel in sent] == [
        (number, number + 1, b"%d" % number) for number in range(count)
    ]
    assert not any(parcel.batch for parcel in sent)
    assert len({parcel.msg_id for parcel in sent}) == count


def test_batches_end_where_the_queue_changes_and_single_messages_do_not() -> None:
    rows, _ = prepare(
        MessageColumns(
            body=bodies(*[b"%d" % number for number in range(8)]),
            delay_level=pa.array([None, None, 1, 1, 1, None, None, None], pa.int32()),
        )
    )
    sent = parcels(rows, queues=[0, 1, 1, 0, 2, 2, 2, 0])
    assert [(parcel.start, parcel.end, parcel.batch) for parcel in sent] == [
        (0, 1, True),
        (1, 2, True),
        (2, 3, False),
        (3, 4, False),
        (4, 5, False),
        (5, 7, True),
        (7, 8, True),
    ]


def test_what_does_not_work_in_a_batch_goes_alone() -> None:
    moment = int(datetime(2030, 1, 1, tzinfo=UTC).timestamp() * 1000)
    rows, refused = prepare(
        MessageColumns(
            body=bodies(b"plain", b"level", b"ms", b"at", b"priority", b"plain again"),
            delay_level=pa.array([0, 3, None, None, None, 0], pa.int32()),
            delay_ms=pa.array([None, None, 1500, 0, None, 0], pa.int64()),
            deliver_at_ms=pa.array([None, None, None, moment, None, None], pa.int64()),
            priority=pa.array([None, None, None, None, 2, None], pa.int32()),
        )
    )
    assert not refused
    sent = parcels(rows)
    assert [(parcel.batch, len(parcel)) for parcel in sent] == [(True, 1), *[(False, 1)] * 4, (True, 1)]
    alone = [decode_properties(parcel.properties.encode()) for parcel in sent[1:5]]
    for properties in alone:
        assert len(properties.pop("UNIQ_KEY")) == 32
    assert alone == [
        {"DELAY": "3"},
        {"TIMER_DELAY_MS": "1500"},
        {"TIMER_DELIVER_MS": str(moment)},
        {"_SYS_MSG_PRIORITY_": "2"},
    ]
    assert [parcel.body for parcel in sent[1:5]] == [b"level", b"ms", b"at", b"priority"]


def test_messages_of_lite_topics_go_alone() -> None:
    maps = pa.array(
        [[("a", "b")], None, [("a", "b"), ("__LITE_TOPIC", "x")], [], [("__LITE_TOPIC", "y")], [("c", "d")]],
        MAP,
    )
    for skipped in range(3):
        body = bodies(*[b"%d" % number for number in range(6)])
        rows, refused = prepare(MessageColumns(body=body[skipped:], properties=maps[skipped:]))
        assert not refused
        sent = [parcel.body for parcel in parcels(rows) if not parcel.batch]
        assert sent == [b"2", b"4"]


@pytest.mark.parametrize(
    ("columns", "cause"),
    [
        ({"body": bodies(b"")}, "no body"),
        ({"body": bodies(None)}, "no body"),
        ({"topic": texts("a b")}, "no legal name"),
        ({"topic": texts(None)}, "missing"),
        ({"topic": texts("x" * 128)}, "no legal name"),
        ({"tags": texts("a\x01b")}, "tags holds 0x01"),
        ({"keys": texts("\x02")}, "keys holds 0x01 or 0x02"),
        (
            {"sharding_key": pa.array([b"\xff"], pa.binary())},
            "its shardingKey holds 0x01 or 0x02, or is not UTF-8",
        ),
        ({"write_id": texts("\x01")}, "its writeId holds 0x01"),
        ({"properties": [[("KEYS", "v")]]}, "reserves the property KEYS"),
        ({"properties": [[("", "v")]]}, "no name"),
        ({"properties": [[("a", "x\x02")]]}, "holds 0x01 or 0x02"),
        ({"properties": [[("a", "x" * 33_000)]]}, "properties take over"),
        ({"delay_level": pa.array([19], pa.int32())}, "above 18"),
        ({"delay_level": pa.array([-1], pa.int32())}, "its delayLevel is negative"),
        ({"delay_ms": pa.array([-1], pa.int64())}, "its delay is negative"),
        ({"delay_ms": pa.array([2**63 - 1], pa.int64())}, "its delay is too large for brokers"),
        ({"deliver_at_ms": pa.array([-1], pa.int64())}, "its deliverAt is negative"),
        ({"delay_level": pa.array([1], pa.int32()), "delay_ms": pa.array([5], pa.int64())}, "more than one"),
        ({"priority": pa.array([-1], pa.int32())}, "negative"),
    ],
)
def test_rows_that_no_broker_takes(columns: dict[str, object], cause: str) -> None:
    if isinstance(columns.get("properties"), list):
        columns = {
            **columns,
            "properties": pa.array(columns["properties"], MAP),
        }
    given = {"body": bodies(b"x")} | columns
    good = {
        name: value if isinstance(value, int) else pa.concat_arrays([value, pa.nulls(1, value.type)])
        for name, value in given.items()
    }
    good["body"] = pa.concat_arrays([given["body"], bodies(b"fine")])
    if "topic" in given:
        good["topic"] = pa.concat_arrays([given["topic"], texts("fine")])
    rows, refused = prepare(MessageColumns(**good))
    assert list(refused) == [0]
    assert cause in refused[0]
    assert rows.body.to_pylist() == [b"fine"]
    assert rows.place.tolist() == [1]


def test_reserved_properties_are_left_out_of_rows_as_they_were_read() -> None:
    maps = pa.array([[("KEYS", "k"), ("mine", "1"), ("UNIQ_KEY", "u")]], MAP)
    rows, refused = prepare(MessageColumns(body=bodies(b"x"), properties=maps), drop_reserved=True)
    assert not refused
    assert decode_properties(rows.properties[0].as_py()) == {"mine": "1"}


def test_a_slice_of_a_column_of_maps_keeps_to_its_rows() -> None:
    maps = pa.array([[("a", "1")], [("b", "2"), ("c", "3")], None, []], MAP)
    rows, refused = prepare(MessageColumns(body=bodies(*[b"x"] * 3), properties=maps.slice(1)))
    assert not refused
    assert [decode_properties(value) for value in rows.properties.to_pylist()] == [
        {"b": "2", "c": "3"},
        {},
        {},
    ]


def test_batches_keep_to_both_limits_and_hold_one_row_at_least() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(*[b"x" * 100] * 7)))
    assert [len(p) for p in parcels(rows, BatchLimits(max_rows=3, max_bytes=10_000))] == [3, 3, 1]
    item = 100 + 22 + 42
    assert [len(p) for p in parcels(rows, BatchLimits(max_rows=99, max_bytes=2 * item))] == [2, 2, 2, 1]
    assert all(not p.batch for p in parcels(rows, BatchLimits(max_rows=99, max_bytes=item - 1)))
    assert all(not p.batch for p in parcels(rows, BatchLimits(max_rows=1, max_bytes=10_000)))


@pytest.mark.parametrize("kind", [Compression.ZLIB, Compression.LZ4, Compression.ZSTD])
def test_large_bodies_are_compressed_apart_from_small_ones(kind: Compression) -> None:
    limits = BatchLimits(max_rows=10, max_bytes=10_000, compression=kind, compress_above=100)
    rows, _ = prepare(MessageColumns(body=bodies(b"a", b"b" * 500, b"c", b"d" * 500)))
    kinds = kinds_of(rows, limits)
    order = arrange(np.zeros(4, np.int32), kinds, ordered=False)
    assert order is not None
    small, large = parcels(rows.take(order), limits)
    assert (small.sys_flag, large.sys_flag) == (0, int(kind.value))
    assert [body for body, _, _ in items(small)] == [b"a", b"c"]
    assert [body for body, _, _ in items(large)] == [b"b" * 500, b"d" * 500]
    assert len(large.body) < 500


def test_in_order_a_queue_keeps_its_rows_in_row_order_whatever_their_kind() -> None:
    limits = BatchLimits(max_rows=10, max_bytes=10_000, compression=Compression.ZLIB, compress_above=100)
    rows, _ = prepare(MessageColumns(body=bodies(b"a", b"b" * 500, b"c", b"d")))
    queues = np.array([1, 1, 0, 1], np.int32)
    order = arrange(queues, kinds_of(rows, limits), ordered=True)
    assert order is not None
    assert order.tolist() == [2, 0, 1, 3]
    sent = parcels(rows.take(order), limits, queues[order].tolist())
    assert [[body[:1] for body, _, _ in items(p)] for p in sent] == [[b"c"], [b"a"], [b"b"], [b"d"]]


def test_a_large_single_body_that_does_not_shrink_travels_as_it_is() -> None:
    noise = np.random.default_rng(1).bytes(5_000)
    limits = BatchLimits(max_rows=1, max_bytes=10_000, compression=Compression.ZLIB, compress_above=100)
    rows, _ = prepare(MessageColumns(body=bodies(noise, b"y" * 5_000)))
    plain, packed = parcels(rows, limits)
    assert (plain.body, plain.sys_flag) == (noise, 0)
    assert decompress(packed.body, packed.sys_flag) == b"y" * 5_000
    assert packed.sys_flag == int(Compression.ZLIB.value)


def test_a_row_that_is_sent_from_another_span_has_the_same_content_id() -> None:
    def prepared(*contexts: str | None) -> OutgoingRows:
        traces = (
            None if not contexts else pa.array([text and text.encode() for text in contexts], pa.binary())
        )
        rows, refused = prepare(MessageColumns(body=bodies(b"x", b"y"), traceparent=traces))
        assert not refused
        return rows

    plain, traced = prepared(), prepared("00-1-2-01", None)
    ids = content_ids(plain, b"q", Occurrences(), topic="t")
    assert content_ids(traced, b"q", Occurrences(), topic="t") == ids
    assert content_ids(traced.traced(), b"q", Occurrences(), topic="t") != ids
    assert traced.traced().properties.to_pylist() == [b"traceparent\x0100-1-2-01\x02", b""]
    assert plain.traced() is plain


def test_content_ids_are_stable_apart_from_order_and_differ_by_content_scope_and_occurrence() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(b"a", b"b", b"a"), tags=texts("t", "t", "t")))
    ids = content_ids(rows, b"query/0", Occurrences(), topic="orders")
    assert len(set(ids)) == 3
    backwards = content_ids(rows.take(np.array([2, 1, 0])), b"query/0", Occurrences(), topic="orders")
    assert set(backwards) == set(ids)
    for scope, topic in ((b"query/1", "orders"), (b"query/0", "other")):
        assert not set(content_ids(rows, scope, Occurrences(), topic=topic)) & set(ids)
    other, _ = prepare(MessageColumns(body=bodies(b"a"), tags=texts("u")))
    assert not set(content_ids(other, b"query/0", Occurrences(), topic="orders")) & set(ids)


@pytest.mark.parametrize("scope", [b"query/0", b"j" * 64, b"j" * 65])
def test_content_ids_are_those_of_other_releases(scope: bytes) -> None:
    """Of a row's head, body and properties, in this order: what another release wrote is recognized."""
    rows, _ = prepare(
        MessageColumns(
            body=bodies(b"one", b"two", b"one"),
            tags=texts("t", None, "t"),
            flag=pa.array([7, 0, 7], pa.int32()),
        )
    )
    key = scope if len(scope) <= 64 else hashlib.blake2b(scope).digest()
    expected = []
    for body, properties, flag, number in (
        (b"one", b"TAGS\x01t\x02", 7, 0),
        (b"two", b"", 0, 0),
        (b"one", b"TAGS\x01t\x02", 7, 1),
    ):
        head = struct.pack(">iqii", 22 + len(body) + len(properties), 0, flag, len(body))
        digest = hashlib.blake2b(b"orders" + head + body + properties, digest_size=16, key=key)
        expected.append(b"%b-%d" % (digest.hexdigest().encode(), number))
    assert content_ids(rows, scope, Occurrences(), topic="orders") == expected


def test_occurrences_go_on_over_the_batches_of_a_task() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(b"a")))
    seen = Occurrences()
    first, second = (content_ids(rows, b"q", seen, topic="t")[0] for _ in range(2))
    assert first.endswith(b"-0")
    assert second == first[:-1] + b"1"


def test_a_write_id_comes_last_so_that_it_counts() -> None:
    maps = pa.array([[("writeId", "of another writer")]], MAP)
    rows, _ = prepare(MessageColumns(body=bodies(b"x"), properties=maps))
    assert decode_properties(with_write_ids(rows.properties, texts("mine"))[0].as_py()) == {"writeId": "mine"}
    rows, _ = prepare(MessageColumns(body=bodies(b"x"), tags=texts("t")))
    assert with_write_ids(rows.properties, texts("mine")).to_pylist() == [b"TAGS\x01t\x02writeId\x01mine\x02"]
    rows, _ = prepare(MessageColumns(body=bodies(b"x"), properties=maps, write_id=texts("mine")))
    assert decode_properties(rows.properties[0].as_py()) == {"writeId": "mine"}


def test_a_scope_may_have_any_length() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(b"a")))
    ids = [content_ids(rows, b"j" * size, Occurrences(), topic="t")[0] for size in (0, 64, 65, 66, 10_000)]
    assert len(set(ids)) == 5


def test_a_write_id_takes_no_more_than_is_reserved_for_it() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(b"a")))
    (made,) = content_ids(rows, b"q", Occurrences(), topic="t")
    most = made[:-1] + b"4294967295"
    assert len(with_write_ids(rows.properties, bodies(most))[0].as_py()) == WRITE_ID_BYTES


def test_properties_leave_room_for_what_is_added_later() -> None:
    def properties(size: int) -> pa.Array:
        return pa.array([[("p", "v" * (size - 3))]], MAP)

    most = MAX_PROPERTIES_BYTES - UNIQUE_KEY_BYTES - 100
    for size, fits in ((most, 1), (most + 1, 0)):
        columns = MessageColumns(body=bodies(b"x"), properties=properties(size))
        rows, refused = prepare(columns, added_bytes=100)
        assert (len(rows), len(refused)) == (fits, 1 - fits)


def test_kinds_at_the_edges_of_the_limits() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(b"x" * 99, b"x" * 100, b"x" * 101)))

    def kinds(**limits: object) -> list[int]:
        return kinds_of(rows, BatchLimits(max_rows=9, **limits)).tolist()  # type: ignore[arg-type]

    plain, packed, single = ParcelKind
    item = 100 + UNIQUE_KEY_BYTES + 22
    assert kinds(max_bytes=item) == [plain, plain, single]
    assert kinds(max_bytes=1000, compression=Compression.ZLIB) == [plain] * 3
    assert kinds(max_bytes=1000, compress_above=0) == [plain] * 3
    assert kinds(max_bytes=1000, compression=Compression.ZLIB, compress_above=100) == [plain, packed, packed]


def test_a_single_message_is_compressed_from_the_limit_on_if_that_saves_a_byte() -> None:
    saving = next(n for n in range(1, 99) if len(compress(b"a" * n, Compression.ZLIB)) < n)
    equal = next(n for n in range(1, 99) if len(compress(b"a" * n, Compression.ZLIB)) == n)
    for size, above, is_packed in ((saving, saving, True), (saving, saving + 1, False), (equal, 1, False)):
        limits = BatchLimits(max_rows=1, max_bytes=999, compression=Compression.ZLIB, compress_above=above)
        rows, _ = prepare(MessageColumns(body=bodies(b"a" * size)))
        (parcel,) = parcels(rows, limits)
        assert (parcel.sys_flag != 0, len(parcel.body) < size) == (is_packed, is_packed)


def test_a_single_message_s_id_is_its_unique_key() -> None:
    rows, _ = prepare(MessageColumns(body=bodies(b"x"), delay_level=pa.array([1], pa.int32())))
    (parcel,) = parcels(rows)
    assert parcel.msg_id == f"{PREFIX}FFFF"


def test_a_body_that_grows_when_it_is_compressed_beyond_a_batch_goes_alone() -> None:
    noise = np.random.default_rng(1).bytes(500)
    item = 500 + UNIQUE_KEY_BYTES + 22
    limits = BatchLimits(max_rows=9, max_bytes=item, compression=Compression.ZLIB, compress_above=100)
    rows, _ = prepare(MessageColumns(body=bodies(noise, noise)))
    unique = unique_keys(PREFIX, 0, 2)
    queues = np.zeros(2, np.int32)
    sent = encode_parcels(rows, queues, kinds_of(rows, limits), limits, unique=unique)
    sent = list(itertools.islice(sent, 3))
    assert [(parcel.start, parcel.end) for parcel in sent] == [(0, 1), (1, 2)]
    assert [(parcel.batch, parcel.sys_flag, parcel.body) for parcel in sent] == [(False, 0, noise)] * 2


def test_no_rows_are_no_parcels() -> None:
    rows, refused = prepare(MessageColumns(body=bodies(), tags=texts(), properties=pa.array([], MAP)))
    assert (refused, parcels(rows)) == ({}, [])


def test_half_messages_have_their_marks_after_their_properties() -> None:
    halves = as_half_messages(bodies(b"TAGS\x01t\x02", b""), half_message_marks("ns%g", "tx-1"))
    marks = {"TRAN_MSG": "true", "PGROUP": "ns%g", "transaction": "tx-1"}
    assert [decode_properties(half) for half in halves.to_pylist()] == [{"TAGS": "t"} | marks, marks]
