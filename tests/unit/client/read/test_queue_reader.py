"""What becomes of answers: batches of one range, tags of the same hash, reports, damaged records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.support.lockstep import Answer, LockstepClient

from pyspark_rocketmq.client.read.queue_reader import (
    DecodeOptions,
    decode_batches,
    read_batches,
    read_messages,
)
from pyspark_rocketmq.client.read.range_reader import Pulled, read_chunks
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, OffsetRange, RangeReport
from pyspark_rocketmq.record.decode.arrow import Column
from pyspark_rocketmq.record.message import encode_message

FIRST, SECOND = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
READ = ReadOptions(consumer_group="g")
DECODE = DecodeOptions(columns=["queueId", "queueOffset", "body"])
TAGS = ("Aa", "BB")
"""Of the same hash: a broker that was asked for one hands out both."""


def record(offset: int, *, size: int = 1) -> bytes:
    tag = TAGS[offset % 2]
    return encode_message(b"%d" % offset * size, {"TAGS": tag}, topic="orders", queue_offset=offset)


def cut(data: bytes) -> bytes:
    """Return a record that says it is longer than it is possible."""
    return b"\xff" + data[1:]


def corrupt_body(data: bytes) -> bytes:
    return data[:8] + b"\0\0\0\0" + data[12:]


def client_of(
    a_pull: int, damage: dict[int, Callable[[bytes], bytes]] | None = None, *, size: int = 1
) -> LockstepClient:
    """Return the client of a broker that gives so many messages a pull, some of them damaged."""
    damaged = damage or {}

    def script(_: str, offset: int, most: int) -> Answer:
        end = offset + min(most, a_pull)
        whole = ((number, record(number, size=size)) for number in range(offset, end))
        return Answer(end, b"".join(damaged.get(number, bytes)(data) for number, data in whole))

    return LockstepClient(script)


def rows(batches: Iterable[object]) -> list[list[tuple[object, ...]]]:
    return [[tuple(row.values()) for row in batch.to_pylist()] for batch in batches]


def test_a_batch_is_of_one_range_and_has_as_many_rows_as_are_allowed() -> None:
    ranges = [OffsetRange(FIRST, 0, 10), OffsetRange(SECOND, 5, 9)]
    decode = DecodeOptions(columns=["queueId", "queueOffset", Column("text", "body")], max_batch_rows=4)
    reports: list[RangeReport] = []
    batches = list(read_batches(client_of(2), ranges, READ, decode, on_report=reports.append))
    expected = [(0, number) for number in range(10)] + [(1, number) for number in range(5, 9)]
    assert [batch.num_rows for batch in batches] == [4, 4, 2, 4]
    assert [row for batch in rows(batches) for row in batch] == [(q, o, b"%d" % o) for q, o in expected]
    assert {tuple(batch.schema.names) for batch in batches} == {("queueId", "queueOffset", "text")}
    assert reports == [
        RangeReport(offsets=ranges[0], rows=10, filtered=0, gaps=0),
        RangeReport(offsets=ranges[1], rows=4, filtered=0, gaps=0),
    ]


@pytest.mark.parametrize(("most", "sizes"), [(1_000, [1] * 6), (2_400, [2] * 3), (4_800, [4, 2])])
def test_a_batch_has_as_many_bytes_of_answers_as_are_allowed(most: int, sizes: list[int]) -> None:
    decode = DecodeOptions(columns=["body"], max_batch_bytes=most)
    ranges = [OffsetRange(FIRST, 0, 6)]
    batches = read_batches(client_of(1, size=900), ranges, READ, decode)
    found = [batch.num_rows for batch in batches]
    assert sum(found) == 6
    assert found == sizes


@pytest.mark.parametrize("limit", [{"max_batch_rows": 4}, {"max_batch_bytes": 400}])
def test_a_batch_does_not_wait_for_the_end_of_its_range(limit: dict[str, int]) -> None:
    client = client_of(2)
    options = ReadOptions(consumer_group="g", pulls_in_flight=2)
    batches = read_batches(
        client, [OffsetRange(FIRST, 0, 200)], options, DecodeOptions(columns=["body"], **limit)
    )
    assert next(batches).num_rows > 0
    assert len(client.pulls) < 10
    assert sum(batch.num_rows for batch in batches) > 180


@pytest.mark.parametrize("columns", [["queueOffset", "body"], ["tags", "queueOffset"], ["queueOffset"]])
def test_a_tag_of_the_same_hash_is_left_out(columns: list[str]) -> None:
    """And so is a batch without any row, and the column that was only needed to compare."""
    options = ReadOptions(consumer_group="g", selector=MessageSelector.by_tag("Aa"))
    ranges = [OffsetRange(FIRST, 0, 6), OffsetRange(SECOND, 1, 2)]
    reports: list[RangeReport] = []
    decode = DecodeOptions(columns=columns)
    batches = list(read_batches(client_of(32), ranges, options, decode, on_report=reports.append))
    (batch,) = batches
    assert batch.schema.names == columns
    assert batch.column("queueOffset").to_pylist() == [0, 2, 4]
    assert [(report.rows, report.filtered) for report in reports] == [(3, 3), (0, 1)]
    messages = read_messages(client_of(32), ranges, options)
    assert [(message.queue_id, message.queue_offset) for message in messages] == [(0, 0), (0, 2), (0, 4)]


@pytest.mark.parametrize("tags", [None, frozenset({"Aa"})])
def test_answers_that_were_kept_are_decoded_later(tags: frozenset[str] | None) -> None:
    events = read_chunks(client_of(2), [OffsetRange(FIRST, 0, 4)], READ)
    chunks = [chunk for event in events if isinstance(event, Pulled) for chunk in event.chunks]
    wanted = [(0, number, b"%d" % number) for number in range(4) if tags is None or number % 2 == 0]
    assert [row for batch in rows(decode_batches(FIRST, chunks, DECODE, tags)) for row in batch] == wanted
    assert rows(decode_batches(FIRST, chunks, DECODE, frozenset({"none"}))) == []


@pytest.mark.parametrize("damage", [corrupt_body, cut], ids=["the body", "the layout"])
def test_a_damaged_record_is_an_error_or_skipped_and_reported(
    damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    ranges = [OffsetRange(FIRST, 0, 4), OffsetRange(SECOND, 8, 10)]
    client = client_of(32, {2: damage})
    failing = DecodeOptions(columns=["queueOffset"], check_crc=True)
    with pytest.raises(CorruptMessageError) as caught:
        list(read_batches(client, ranges, READ, failing))
    assert caught.value.facts["topic"] == "orders"
    with pytest.raises(CorruptMessageError):
        list(read_messages(client, ranges, READ, check_crc=True))
    assert {offset for _, offset in client.pulls} == {0, 8}, "nothing is read message by message"
    reports: list[RangeReport] = []
    skipping = DecodeOptions(columns=["queueOffset"], on_corrupt="skip", check_crc=True)
    batches = read_batches(client, ranges, READ, skipping, on_report=reports.append)
    assert rows(batches) == [[(0,), (1,), (3,)], [(8,), (9,)]]
    assert [(r.rows, r.skipped, r.nulled, r.lost) for r in reports] == [(3, 1, 0, ()), (2, 0, 0, ())]
    assert [(at.queue, at.queue_offset) for at in reports[0].corrupt] == [(FIRST, 2)]
    messages = read_messages(client, ranges, READ, on_corrupt="skip", check_crc=True)
    assert [message.queue_offset for message in messages] == [0, 1, 3, 8, 9]
    assert "skipped, it does not decode: orders@broker-a:0 at 2" in caplog.text


def test_a_damaged_body_can_be_null() -> None:
    decode = DecodeOptions(columns=["queueOffset", "body"], on_corrupt="null", check_crc=True)
    reports: list[RangeReport] = []
    client = client_of(32, {1: corrupt_body})
    batches = read_batches(client, [OffsetRange(FIRST, 0, 3)], READ, decode, on_report=reports.append)
    assert rows(batches) == [[(0, b"0"), (1, None), (2, b"2")]]
    assert [(report.rows, report.skipped, report.nulled) for report in reports] == [(3, 0, 1)]
