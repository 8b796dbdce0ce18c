"""Messages that do not decode: an error, nulls exactly where they do not, or no row."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.decode.arrow import COLUMNS, BatchDecoder, Chunk
from pyspark_rocketmq.record.decode.holes import find_holes
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.message import decode_messages, encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)
PLACE = {"topic", "brokerName", "queueId", "queueOffset"}


def record(offset: int, body: bytes = b"body", properties: object = None, **fields: object) -> bytes:
    given = {"KEYS": "k", "TAGS": "t", "UNIQ_KEY": "U", "traceparent": "00-1-2-01"}
    properties = given if properties is None else properties
    return encode_message(body, properties, topic="orders", queue_offset=offset, **fields)  # type: ignore[arg-type]


def flipped(data: bytes) -> bytes:
    """Change a byte of the body."""
    return data[:88] + bytes([data[88] ^ 1]) + data[89:]


def wrong_checksum(data: bytes) -> bytes:
    """Change the checksum of the body, which stays as it is."""
    return data[:8] + bytes([data[8] ^ 1]) + data[9:]


def whole(data: bytes) -> list[Chunk]:
    return [Chunk(memoryview(data), 0, len(data), 0, 2**40)]


def decoded(data: bytes, policy: str, **options: object) -> tuple[list[dict], BatchDecoder]:
    decoder = BatchDecoder(list(COLUMNS), queue=QUEUE, on_corrupt=policy, **options)  # type: ignore[arg-type]
    batches = decoder.decode(whole(data))
    assert all(batch.num_rows for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()], decoder


inner = encode_batch([BatchItem(b"x", {"TAGS": "t"}, flag=7)] * 3)
INNER = {"INNER_NUM": "3", "INNER_BASE": "1"}

ODD = {
    "born in nanoseconds": (record(1, born_timestamp=1_700_000_000_000_000_000), 1, {"bornTimestamp"}, {}),
    "unknown compression": (record(1, sys_flag=0x401), 1, {"body"}, {}),
    "does not decompress": (record(1, sys_flag=0x101), 1, {"body"}, {}),
    "unpacks to too much": (
        record(1, b"0" * 999, compression=Compression.ZLIB),
        1,
        {"body"},
        {"body_limit": 99},
    ),
    "flipped": (flipped(record(1)), 1, {"body"}, {"check_crc": True}),
    "no UTF-8 text": (record(1, b"\xff"), 1, {"body"}, {"body_as": "string"}),
    "a broken inner batch": (
        record(1, inner[:-1], INNER, sys_flag=0xC0),
        3,
        {"body", "keys", "tags", "msgId", "properties", "flag"},
        {},
    ),
    "a flipped inner batch": (
        flipped(record(1, inner, INNER, sys_flag=0xC0, compression=Compression.ZSTD)),
        3,
        {"body", "keys", "tags", "msgId", "properties", "flag"},
        {"check_crc": True},
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_message_is_an_error_by_default(kind: str) -> None:
    odd, _, _, options = ODD[kind]
    with pytest.raises(CorruptMessageError) as caught:
        decoded(record(0) + odd + record(9), "fail", **options)
    assert caught.value.facts["queue_offset"] == 1


@pytest.mark.parametrize("kind", ODD)
def test_null_keeps_the_row_without_what_does_not_decode(kind: str) -> None:
    odd, count, gone, options = ODD[kind]
    rows, decoder = decoded(record(0) + odd + record(9), "null", **options)
    assert [row["queueOffset"] for row in rows] == [0, *range(1, 1 + count), 9]
    assert rows[0].items() >= {"keys": "k", "tags": "t"}.items()
    for row in rows[1:-1]:
        unset = {"keys", "tags", "traceparent"} if count > 1 else set()
        assert {name for name, value in row.items() if value is None} == gone | unset
    assert not [row for row in (rows[0], rows[-1]) if None in row.values()]
    assert [each.queue_offset for each in decoder.corrupt.first] == list(range(1, 1 + count))
    assert decoder.corrupt.count == count


@pytest.mark.parametrize("kind", ODD)
def test_skip_leaves_the_message_out_and_counts_it(kind: str) -> None:
    odd, count, _, options = ODD[kind]
    rows, decoder = decoded(record(0) + odd + record(9), "skip", **options)
    assert [row["queueOffset"] for row in rows] == [0, 9]
    assert decoder.corrupt.count == count
    assert decoder.corrupt.first[0].queue == QUEUE


@pytest.mark.parametrize(
    "kind", [kind for kind in ODD if kind not in ("born in nanoseconds", "no UTF-8 text")]
)
def test_objects_are_skipped_or_fail(kind: str) -> None:
    odd, count, _, options = ODD[kind]
    data = whole(record(0) + odd + record(9))
    with pytest.raises(CorruptMessageError):
        list(MessageDecoder(QUEUE, **options).messages(data))
    decoder = MessageDecoder(QUEUE, on_corrupt="skip", **options)
    assert [message.queue_offset for message in decoder.messages(data)] == [0, 9]
    assert decoder.corrupt.count == count


@pytest.mark.parametrize("policy", ["null", "skip"])
def test_the_rows_do_not_depend_on_how_answers_are_cut(policy: str) -> None:
    records = [
        record(0),
        *(ODD[kind][0] for kind in ("unknown compression",)),
        record(2),
        record(3, sys_flag=1),
    ]
    one, _ = decoded(b"".join(records), policy)
    decoder = BatchDecoder(list(COLUMNS), queue=QUEUE, on_corrupt=policy, max_batch_rows=1)  # type: ignore[arg-type]
    many = []
    for data in records:
        many += [row for batch in decoder.decode(whole(data)) for row in batch.to_pylist()]
    assert many == one
    assert decoder.corrupt.count == 2


@pytest.mark.parametrize("policy", ["null", "skip"])
@pytest.mark.parametrize("part_bytes", [1, 3 * 400, 2**20])
@pytest.mark.parametrize("bad", [(0,), (4,), (9,), (2, 3, 7)])
def test_one_compressed_body_that_is_damaged_leaves_the_others(
    bad: tuple[int, ...], part_bytes: int, policy: str
) -> None:
    """They are unpacked together as long as all is well; some in between are not compressed."""
    bodies = [b"%d" % number * 400 for number in range(10)]
    kinds = [Compression.NONE if number == 5 else Compression.LZ4 for number in range(10)]
    records = [
        record(n, body, compression=kind) for n, (body, kind) in enumerate(zip(bodies, kinds, strict=True))
    ]
    for number in bad:
        records[number] = record(number, sys_flag=0x101)
    rows, decoder = decoded(b"".join(records), policy, max_batch_bytes=max(1, part_bytes // 16))
    expected = [(n, None if n in bad else body) for n, body in enumerate(bodies)]
    if policy == "skip":
        expected = [each for each in expected if each[1] is not None]
    assert [(row["queueOffset"], row["body"]) for row in rows] == expected
    assert decoder.corrupt.count == len(bad)


def test_a_message_with_two_faults_counts_once() -> None:
    odd = record(0, sys_flag=1, born_timestamp=2**62)
    rows, decoder = decoded(odd, "null")
    assert rows[0]["body"] is rows[0]["bornTimestamp"] is None
    assert decoder.corrupt.count == 1


FAULTS = [
    (record(0, sys_flag=1), "the body does not decompress"),
    (record(1), None),
    (record(2, born_timestamp=2**62), "the born_timestamp is no timestamp that Spark could hold"),
    (record(3, b"\xff"), "the body is not UTF-8"),
    (flipped(record(4)), "the body does not match its checksum"),
    (record(5, store_timestamp=2**62), "the store_timestamp is no timestamp that Spark could hold"),
    (flipped(record(6, b"0" * 99, compression=Compression.ZLIB)), "the body does not match its checksum"),
]
WITHOUT_BODY = [0, 3, 4, 6]


@pytest.mark.parametrize("policy", ["null", "skip"])
def test_each_of_several_faults_has_its_reason(policy: str) -> None:
    data = b"".join(data for data, _ in FAULTS)
    rows, decoder = decoded(data, policy, body_as="string", check_crc=True)
    reasons = {n: reason for n, (_, reason) in enumerate(FAULTS) if reason is not None}
    found = {each.queue_offset: each.reason for each in decoder.corrupt.first}
    assert found.keys() == reasons.keys()
    assert [n for n, reason in reasons.items() if not found[n].startswith(reason)] == []
    assert decoder.corrupt.count == 6
    if policy == "skip":
        assert [row["queueOffset"] for row in rows] == [1]
    else:
        assert [row["queueOffset"] for row in rows] == list(range(7))
        assert [row["queueOffset"] for row in rows if row["body"] is None] == WITHOUT_BODY


@pytest.mark.parametrize(
    ("odd", "count", "reason"),
    [
        (record(1, b"\xff" * 9, sys_flag=0x101), 1, "the body does not decompress"),
        (record(1, b"\xff" * 9, INNER, sys_flag=0xC0), 3, "the batch ends within the head"),
        (
            wrong_checksum(record(1, b"\xff" * 99, compression=Compression.LZ4)),
            1,
            "the body does not match its checksum",
        ),
    ],
)
def test_a_damaged_body_is_not_judged_as_text_too(odd: bytes, count: int, reason: str) -> None:
    """The first thing that is wrong is told, not what follows from it."""
    _, decoder = decoded(record(0) + odd, "null", body_as="string", check_crc=reason.endswith("checksum"))
    assert [each.queue_offset for each in decoder.corrupt.first] == list(range(1, 1 + count))
    assert [each.reason for each in decoder.corrupt.first if not each.reason.startswith(reason)] == []


@pytest.mark.parametrize(("told", "count"), [("0", 1), ("1", 1), ("2", 2), ("-2", 1), ("x", 1), (None, 1)])
def test_a_broken_inner_batch_counts_as_many_messages_as_it_tells(told: str | None, count: int) -> None:
    properties = {} if told is None else {"INNER_NUM": told}
    rows, decoder = decoded(record(1, inner[:-1], properties, sys_flag=0xC0), "null")
    assert [row["queueOffset"] for row in rows] == list(range(1, 1 + count))
    assert decoder.corrupt.count == count


def test_the_first_hundred_are_named_and_all_are_counted() -> None:
    decoder = BatchDecoder(["body"], queue=QUEUE, on_corrupt="skip")
    for start, end in ((0, 60), (60, 120), (120, 130)):
        decoder.decode(whole(b"".join(record(offset, sys_flag=1) for offset in range(start, end))))
    assert [each.queue_offset for each in decoder.corrupt.first] == list(range(100))
    assert decoder.corrupt.count == 130


def test_what_is_not_asked_for_is_not_judged() -> None:
    decoder = BatchDecoder(["queueOffset"], queue=QUEUE, on_corrupt="skip")
    (batch,) = decoder.decode(whole(record(0, sys_flag=1, born_timestamp=2**62)))
    assert batch.num_rows == 1
    assert decoder.corrupt.count == 0


@pytest.mark.parametrize("policy", ["null", "skip"])
def test_a_record_that_breaks_the_layout_raises_before_the_first_batch(policy: str) -> None:
    broken = record(0) + record(1)[:4] + b"\0\0\0\0" + record(1)[8:] + record(2)
    decoder = BatchDecoder(["body"], queue=QUEUE, on_corrupt=policy, max_batch_rows=1)  # type: ignore[arg-type]
    with pytest.raises(CorruptMessageError, match="magic") as error:
        next(decoder.batches(whole(broken)))
    assert type(error.value) is CorruptMessageError, "users look for this name"
    assert error.value.breaks_layout


def test_what_stands_for_an_unreadable_record_has_its_place_only() -> None:
    data = record(5)
    chunk = Chunk(memoryview(data), 0, len(data), 5, 6, unreadable=True)
    (batch,) = BatchDecoder(list(COLUMNS), queue=QUEUE, on_corrupt="null").decode([chunk, *whole(record(9))])
    first, second = batch.to_pylist()
    assert {name for name, value in first.items() if value is not None} == PLACE
    assert None not in second.values()
    decoder = BatchDecoder(["body"], queue=QUEUE, on_corrupt="skip")
    assert decoder.decode([chunk]) == []
    assert decoder.corrupt.count == 1


@pytest.mark.parametrize("text", ["TAGS\x01\udcd6\udcd0\x02KEYS\x01k\x02", "TAGS\x01t\x02KEYS\x01\udcd6"])
def test_text_in_another_encoding_is_replaced_not_refused(text: str) -> None:
    """A producer whose tags and keys are GBK: Java's clients read U+FFFD, and so does a query."""
    data = record(0) + record(1, properties=text.encode(errors="surrogateescape")) + record(2)
    rows, decoder = decoded(data, "fail")
    messages = decode_messages(data, broker_name="broker-a")
    assert [(row["tags"], row["keys"]) for row in rows] == [(each.tags, each.keys) for each in messages]
    assert dict(rows[1]["properties"]) == messages[1].properties
    assert "\ufffd" in rows[1]["tags"] + rows[1]["keys"]
    assert decoder.corrupt.count == 0


def test_checksums_are_compared_if_this_is_asked_for() -> None:
    data = whole(flipped(record(0)))
    assert [message.queue_offset for message in MessageDecoder(QUEUE).messages(data)] == [0]
    with pytest.raises(CorruptMessageError, match="checksum"):
        list(MessageDecoder(QUEUE, check_crc=True).messages(data))


# --- light message queues -------------------------------------------------------------------


def dispatched(offset: int, names: str, offsets: str) -> bytes:
    properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets, "TAGS": "t"}
    return record(offset, b"%d" % offset, properties)


def test_messages_of_a_light_queue_have_its_offsets() -> None:
    queue = MessageQueue("%LMQ%a", "broker-a", 0)
    data = (
        dispatched(70, "%LMQ%a", "4")
        + dispatched(73, "%LMQ%b,%LMQ%a", "9,5")
        + dispatched(88, "%LMQ%a,x", "6,0")
    )
    chunk = Chunk(memoryview(data), 0, len(data), 5, 7)
    (batch,) = BatchDecoder(["topic", "queueOffset", "body"], queue=queue).decode([chunk])
    assert batch.to_pydict() == {"topic": ["%LMQ%a"] * 2, "queueOffset": [5, 6], "body": [b"73", b"88"]}
    found = decode_messages(data, topic="%LMQ%a", broker_name="broker-a", queue_id=0, from_offset=5)
    assert found == list(MessageDecoder(queue).messages([chunk]))
    assert [message.queue_offset for message in found] == [5, 6]


@pytest.mark.parametrize("names", ["%LMQ%b", "%LMQ%ab", ""])
def test_a_record_that_is_not_of_the_light_queue_is_an_error(names: str) -> None:
    queue = MessageQueue("%LMQ%a", "broker-a", 0)
    data = dispatched(70, names, "4")
    with pytest.raises(CorruptMessageError, match="light queue") as caught:
        BatchDecoder(["body"], queue=queue).decode(whole(data))
    assert caught.value.facts["topic"] == "%LMQ%a"
    with pytest.raises(CorruptMessageError, match="light queue"):
        decode_messages(data, topic="%LMQ%a", broker_name="broker-a")


def test_holes_of_a_light_queue_are_by_its_offsets() -> None:
    data = dispatched(70, "%LMQ%a", "4") + dispatched(73, "%LMQ%a", "6")
    assert find_holes([Chunk(memoryview(data), 0, len(data), 4, 8)], "%LMQ%a") == [(5, 6), (7, 8)]
