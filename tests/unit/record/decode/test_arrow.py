"""The batch decoder's promises beyond being equal to the reference codec."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, StringType, StructField, StructType, TimestampType

from pyspark_rocketmq.errors import CorruptMessageError, OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.decode.arrow import COLUMNS, DEFAULT_COLUMNS, BatchDecoder, Chunk, Column
from pyspark_rocketmq.record.decode.commit_marks import Decided
from pyspark_rocketmq.record.layout import MAX_INNER_MESSAGES, MessageFlag
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.spark.features import utc_arrow_schema
from pyspark_rocketmq.spark.read.schema import COLUMN_TYPES

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int = 0, body: bytes = b"body", properties: object = None, **fields: object) -> bytes:
    properties = {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "U"} if properties is None else properties
    return encode_message(body, properties, topic="orders", queue_offset=offset, **fields)  # type: ignore[arg-type]


def whole(data: bytes, from_offset: int = 0, until_offset: int = 2**63 - 1) -> list[Chunk]:
    return [Chunk(memoryview(data), 0, len(data), from_offset, until_offset)]


def decode(data: bytes, *columns: str, **options: object) -> list[dict]:
    decoder = BatchDecoder(columns or DEFAULT_COLUMNS, queue=QUEUE, **options)  # type: ignore[arg-type]
    return [row for batch in decoder.decode(whole(data)) for row in batch.to_pylist()]


# --- schema ---------------------------------------------------------------------------------


def spark_schema(columns: Mapping[str, DataType]) -> pa.Schema:
    fields = [StructField(name, kind, name != "timestamp") for name, kind in columns.items()]
    return utc_arrow_schema(StructType(fields))


def test_every_column_has_sparks_arrow_type() -> None:
    decoder = BatchDecoder(list(COLUMNS), queue=QUEUE)
    assert decoder.schema.equals(spark_schema(COLUMN_TYPES), check_metadata=True)
    (batch,) = decoder.decode(whole(record()))
    assert batch.schema.equals(spark_schema(COLUMN_TYPES), check_metadata=True)


def test_the_ten_default_columns() -> None:
    assert tuple(COLUMN_TYPES)[:10] == DEFAULT_COLUMNS


def test_columns_may_be_renamed_and_not_nullable_and_the_body_text() -> None:
    columns = [
        Column("key", "keys"),
        Column("timestamp", "storeTimestamp", nullable=False),
        Column("body", "body"),
    ]
    decoder = BatchDecoder(columns, queue=QUEUE, body_as="string")
    expected = spark_schema({"key": StringType(), "timestamp": TimestampType(), "body": StringType()})
    (batch,) = decoder.decode(whole(record(body="schön".encode())))
    assert decoder.schema.equals(expected, check_metadata=True)
    assert batch.schema.equals(expected, check_metadata=True)
    assert batch.to_pylist()[0]["key"] == "k"
    assert batch.to_pylist()[0]["body"] == "schön"


@pytest.mark.parametrize(
    "properties", [b"", {"WAIT": "true"}, {"KEYS": "k"}, b"KEYS\x01k", b"\x02", b"\x01\x02\x01"]
)
def test_the_schema_is_the_same_whatever_the_messages_hold(properties: object) -> None:
    decoder = BatchDecoder(list(COLUMNS), queue=QUEUE)
    batches = decoder.decode(whole(record(0, b"", properties) + record(1, b"x" * 500, properties)))
    assert sum(batch.num_rows for batch in batches) == 2
    for batch in batches:
        assert batch.schema.equals(decoder.schema, check_metadata=True)
        batch.validate(full=True)


@pytest.mark.parametrize("columns", [["offset"], []])
def test_a_column_that_does_not_exist_is_refused(columns: list[str]) -> None:
    with pytest.raises(OptionError):
        BatchDecoder(columns, queue=QUEUE)


@pytest.mark.parametrize(
    "limits", [{"max_batch_rows": 0}, {"max_batch_bytes": 0}, {"max_batch_bytes": 2**30 + 1}]
)
def test_limits_that_cannot_be_kept_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(OptionError):
        BatchDecoder(["body"], queue=QUEUE, **limits)


def test_the_smallest_and_the_largest_limits_are_kept() -> None:
    data = record(0) + record(1)
    for limits in ({"max_batch_rows": 1, "max_batch_bytes": 2**30}, {"max_batch_bytes": 1}):
        decoder = BatchDecoder(["queueOffset"], queue=QUEUE, **limits)
        assert [batch.num_rows for batch in decoder.decode(whole(data))] == [1, 1]


# --- which messages -------------------------------------------------------------------------


def test_nothing_makes_no_batch() -> None:
    decoder = BatchDecoder(list(COLUMNS), queue=QUEUE)
    assert decoder.decode([]) == []
    assert decoder.decode(whole(b"")) == []
    assert decoder.decode(whole(record(5), 6, 9)) == []


def test_chunks_of_several_buffers_are_cut_by_offset() -> None:
    first = bytearray(b"??" + record(0) + record(1) + record(2))
    second = bytearray(record(2) + record(3))
    view = memoryview(first)
    edge = 2 + len(record(0)) * 2
    chunks = [
        Chunk(view, 2, edge, 1, 2),
        Chunk(view, edge, len(first), 2, 3),
        Chunk(memoryview(second), 0, len(second), 3, 4),
    ]
    (batch,) = BatchDecoder(["queueOffset"], queue=QUEUE).decode(chunks)
    assert batch.to_pydict() == {"queueOffset": [1, 2, 3]}


def test_messages_of_an_inner_batch_below_the_range_are_dropped() -> None:
    batch = encode_batch([BatchItem(bytes([65 + i])) for i in range(5)])
    data = record(10, batch, sys_flag=0xC0)
    (rows,) = BatchDecoder(["queueOffset", "body"], queue=QUEUE).decode(whole(data, 12, 14))
    assert rows.to_pydict() == {"queueOffset": [12, 13], "body": [b"C", b"D"]}


def test_a_static_topics_offsets_are_logical() -> None:
    data = record(7)
    (rows,) = BatchDecoder(["queueOffset"], queue=QUEUE).decode(
        [Chunk(memoryview(data), 0, len(data), 10_007, 10_008, offset_delta=10_000)]
    )
    assert rows.to_pydict() == {"queueOffset": [10_007]}


MARK = {"COMMIT_TOPIC": "orders-commits"}


@pytest.mark.parametrize("on_corrupt", ["fail", "skip"])
def test_of_marked_messages_those_that_are_committed_are_rows(on_corrupt: str) -> None:
    decided = Decided("orders", "orders-commits", ((1, 2), (4, 6)))
    options = {"queue": QUEUE, "decided": decided, "on_corrupt": on_corrupt}
    decoder = BatchDecoder(["queueOffset", "body"], **options)  # type: ignore[arg-type]
    marked = [record(offset, b"%d" % offset, MARK) for offset in range(1, 7)]
    batches = decoder.decode(whole(record(0, b"plain") + b"".join(marked) + record(7, b"plain")))
    rows = {row["queueOffset"]: row["body"] for batch in batches for row in batch.to_pylist()}
    assert rows == {0: b"plain", 1: b"1", 4: b"4", 5: b"5", 7: b"plain"}
    assert decoder.undecided == 3
    assert decoder.decode(whole(marked[1])) == []
    assert decoder.undecided == 4
    (batch,) = decoder.decode(whole(marked[3] + record(5)))
    assert batch.num_rows == 2, "a message without a mark is a row wherever it is"
    (batch,) = decoder.decode(whole(record(8) + record(9)))
    assert (batch.num_rows, decoder.undecided) == (2, 4)
    with pytest.raises(OptionError, match="payments-commits decides which of these messages are rows"):
        decoder.decode(whole(record(0) + record(1, properties={"COMMIT_TOPIC": "payments-commits"})))


# --- batches --------------------------------------------------------------------------------


def sizes(*bodies: int, **limits: int) -> list[int]:
    data = b"".join(record(offset, b"x" * size) for offset, size in enumerate(bodies))
    return [batch.num_rows for batch in BatchDecoder(["body"], queue=QUEUE, **limits).decode(whole(data))]


def test_batches_are_cut_by_rows_and_by_bytes() -> None:
    assert sizes(*[1] * 7, max_batch_rows=3) == [3, 3, 1]
    assert sizes(1, 1, 50_000, 1, 50_000, 49_000, max_batch_bytes=100_000) == [4, 2]
    assert sizes(5, 200_000, 5, max_batch_bytes=10_000) == [1, 1, 1]


@pytest.mark.parametrize(("most", "rows"), [(999, [1, 1, 1, 1]), (1_000, [2, 2]), (2_000, [4])])
def test_the_names_of_a_queue_count_in_each_row(most: int, rows: list[int]) -> None:
    """256 bytes, 120 of the topic, 44 of the broker, and 80 of the body."""
    queue = MessageQueue("ü" * 60, "b" * 44, 0)
    data = b"".join(record(offset, b"x" * 80, properties={}) for offset in range(4))
    decoder = BatchDecoder(["topic", "brokerName"], queue=queue, max_batch_bytes=most)
    assert [batch.num_rows for batch in decoder.decode(whole(data))] == rows


def test_decompressed_bodies_count_in_full() -> None:
    data = b"".join(record(i, b"\0" * 60_000, compression=Compression.ZSTD) for i in range(4))
    assert len(data) < 2000
    batches = BatchDecoder(["body"], queue=QUEUE, max_batch_bytes=130_000).decode(whole(data))
    assert [batch.num_rows for batch in batches] == [2, 2]


def test_a_hostile_answer_is_unpacked_a_part_at_a_time() -> None:
    """60 KiB of records that unpack to 400 MiB: no more than some batches of it are there at once."""
    body = b"\0" * (8 << 20)
    data = b"".join(record(i, body, compression=Compression.ZSTD) for i in range(50))
    assert len(data) < 60 << 10
    decoder = BatchDecoder(["queueOffset", "body"], queue=QUEUE, max_batch_bytes=1 << 20)
    offsets: list[int] = []
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        for batch in decoder.batches(whole(data)):
            assert pa.total_allocated_bytes() - before < 64 << 20
            offsets += batch.column("queueOffset").to_pylist()
            del batch
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offsets == list(range(50))
    assert peak < 64 << 20


def test_an_inner_batch_of_too_many_messages_is_refused() -> None:
    item = encode_batch([BatchItem(b"", {})])
    flags = MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH
    many = record(7, item * (MAX_INNER_MESSAGES + 1), compression=Compression.ZSTD, sys_flag=flags)
    with pytest.raises(CorruptMessageError, match="more than 262144 messages") as caught:
        decode(many, "body")
    assert caught.value.facts["queue_offset"] == 7


def test_packed_messages_are_the_same_in_however_many_parts() -> None:
    flags = MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH
    inner = encode_batch([BatchItem(b"%d" % n * 400, {"n": str(n)}) for n in range(3)])
    data = b"".join(
        [
            record(0, b"plain"),
            record(1, b"z" * 5_000, compression=Compression.ZLIB),
            record(2, inner, compression=Compression.ZSTD, sys_flag=flags),
            record(5, b"plain too"),
            record(6, b"y" * 5_000, compression=Compression.LZ4),
            record(7, b"end"),
        ]
    )
    columns = ["queueOffset", "body", "properties"]
    together = decode(data, *columns)
    assert [row["queueOffset"] for row in together] == list(range(8))
    apart = BatchDecoder(columns, queue=QUEUE, max_batch_bytes=10).decode(whole(data))
    assert [row for batch in apart for row in batch.to_pylist()] == together


def test_batches_are_copies() -> None:
    data = bytearray(record(0, b"a" * 100) + record(1, b"short"))
    (batch,) = BatchDecoder(list(COLUMNS), queue=QUEUE).decode(whole(data))
    before = batch.to_pylist()
    data[:] = b"\xff" * len(data)
    assert batch.to_pylist() == before
    gc.collect()
    data.clear()  # BufferError if anything still held the receive buffer
    assert pickle.loads(pickle.dumps(batch)).to_pylist() == before


def test_bodies_at_a_buffers_very_end_are_read() -> None:
    data = encode_message(b"", b"", topic="", queue_offset=0) + encode_message(
        b"xyz", b"", topic="", queue_offset=1
    )
    assert [row["body"] for row in decode(data, "body")] == [b"", b"xyz"]


def test_bodies_that_nobody_asks_for_stay_compressed() -> None:
    data = record(0, b"\0" * 1000, compression=Compression.ZLIB)
    (batch,) = BatchDecoder(["queueOffset"], queue=QUEUE, body_limit=999).decode(whole(data))
    assert batch.num_rows == 1


# --- corrupt data ---------------------------------------------------------------------------

GOOD = record(0) + record(1) + record(2)
SIZE = len(record(0))
BODY_LENGTH, TOPIC, PROPERTIES = SIZE + 84, SIZE + 92, SIZE + 99


def patched(at: int, new: bytes) -> bytes:
    return GOOD[:at] + new + GOOD[at + len(new) :]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(GOOD[:-1], id="cut short"),
        pytest.param(GOOD + b"\0" * 50, id="rest too short"),
        pytest.param(GOOD + b"\0" * 200, id="size zero"),
        pytest.param(patched(SIZE, b"\x80\0\0\0"), id="size negative"),
        pytest.param(patched(SIZE, b"\x7f\0\0\0"), id="size over the end"),
        pytest.param(patched(SIZE + 4, b"\xcb\xd4\x31\x94"), id="end-of-file magic"),
        pytest.param(patched(SIZE + 20, b"\xff"), id="offset negative"),
        pytest.param(patched(SIZE + 39, b"\x30"), id="IPv6 flags on IPv4 hosts"),
        pytest.param(patched(SIZE + 39, b"\x01"), id="not compressed"),
        pytest.param(patched(SIZE + 38, b"\x04\x01"), id="unknown compression"),
        pytest.param(patched(SIZE + 39, b"\xc0"), id="no inner batch"),
        pytest.param(patched(BODY_LENGTH, b"\xff\xff\xff\xff"), id="body length negative"),
        pytest.param(patched(BODY_LENGTH, b"\0\0\1\0"), id="body over the end"),
        pytest.param(patched(BODY_LENGTH, b"\x7f\xff\xff\xff"), id="body far over the end"),
        pytest.param(patched(TOPIC, b"\xff"), id="topic over the end"),
        pytest.param(patched(PROPERTIES, b"\xff\xff"), id="properties length negative"),
        pytest.param(patched(PROPERTIES, b"\x7f\xff"), id="properties over the end"),
    ],
)
def test_both_codecs_refuse_damage_and_name_the_queue(data: bytes) -> None:
    with pytest.raises(CorruptMessageError) as caught:
        decode(data, *COLUMNS)
    assert caught.value.facts.items() >= {"topic": "orders", "broker_name": "broker-a", "queue_id": 3}.items()
    with pytest.raises(CorruptMessageError):
        decode_messages(data, broker_name="broker-a")


@pytest.mark.parametrize(
    ("at", "new", "columns"),
    [
        (SIZE + 4, b"\0", ["flag"]),
        (BODY_LENGTH, b"\xff", ["flag"]),
        (SIZE + 88, b"\xff", ["body"]),
        (SIZE + 40, b"\x70", ["bornTimestamp"]),
    ],
)
def test_errors_name_the_offset(at: int, new: bytes, columns: list[str]) -> None:
    with pytest.raises(CorruptMessageError) as caught:
        decode(patched(at, new), *columns, body_as="string")
    assert caught.value.facts["queue_offset"] == 1


def test_a_version_2_topic_over_the_end_raises() -> None:
    long = encode_message(b"", topic="t" * 200, queue_offset=0)
    for length in (b"\xff\xff", b"\x7f\xff", b"\0\xc9"):
        with pytest.raises(CorruptMessageError, match=r"topic|properties"):
            decode(long[:88] + length + long[90:], "flag")


def test_the_checksum_is_compared_when_asked() -> None:
    data = patched(SIZE + 88, b"B")
    assert [row["body"] for row in decode(data, "body")] == [b"body", b"Body", b"body"]
    assert len(decode(GOOD, "body", check_crc=True)) == 3
    with pytest.raises(CorruptMessageError, match="checksum") as caught:
        decode(data, "body", check_crc=True)
    assert caught.value.facts["queue_offset"] == 1


@pytest.mark.parametrize("offsets", [(1, 1), (2, 1)])
def test_offsets_must_ascend(offsets: tuple[int, int]) -> None:
    with pytest.raises(CorruptMessageError, match="ascend"):
        decode(record(offsets[0]) + record(offsets[1]), "body")


def test_offsets_must_ascend_also_where_they_are_cut_away() -> None:
    chunks = whole(b"".join(map(record, (5, 6, 3, 8))), from_offset=5)
    with pytest.raises(CorruptMessageError, match="within an answer do not ascend") as caught:
        list(BatchDecoder(["body"], queue=QUEUE).decode(chunks))
    assert caught.value.facts["queue_offset"] == 3


@pytest.mark.parametrize("again", [0, 3])
def test_offsets_must_ascend_over_parts_that_are_unpacked_one_after_the_other(again: int) -> None:
    """Two answers with the same messages: without the check a message would be returned twice."""
    packed = [record(at, b"x" * 10_000, compression=Compression.ZLIB) for at in (0, 1, 2, 3)]
    first, second = b"".join(packed), packed[again]
    view = memoryview(first + second)
    chunks = [Chunk(view, 0, len(first), 0, 4), Chunk(view, len(first), len(view), again, again + 1)]
    decoder = BatchDecoder(["body"], queue=QUEUE, max_batch_bytes=500)
    with pytest.raises(CorruptMessageError, match="do not ascend") as caught:
        list(decoder.decode(chunks))
    assert caught.value.facts["queue_offset"] == again


def test_a_body_above_the_limit_raises() -> None:
    data = record(9, b"\0" * 1000, compression=Compression.ZLIB)
    with pytest.raises(CorruptMessageError, match="larger than 999") as caught:
        decode(data, "body", body_limit=999)
    assert caught.value.facts["queue_offset"] == 9


# --- walking --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lengths",
    [
        [5, 5, 5, 5],  # equal sizes: found without walking
        [0, SIZE - 4, 0, 0],  # the second is twice as long as the first, the whole a multiple of it
        [9, 5, 700, 0],
    ],
)
def test_records_of_equal_and_other_sizes_are_found(lengths: list[int]) -> None:
    bodies = [bytes([65 + index]) * length for index, length in enumerate(lengths)]
    first = b"".join(record(offset, body) for offset, body in enumerate(bodies))
    data = first + b"".join(record(offset + 4, body) for offset, body in enumerate(bodies[::-1]))
    view = memoryview(data)
    chunks = [Chunk(view, 0, len(first), 0, 4), Chunk(view, len(first), len(data), 4, 8)]
    (batch,) = BatchDecoder(["body"], queue=QUEUE).decode(chunks)
    assert batch.column("body").to_pylist() == bodies + bodies[::-1]
