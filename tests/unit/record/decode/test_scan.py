"""Where records begin in answers, and which of them count."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.corrupt import Corrupt
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.decode.scan import keeps_layout, scan
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.record.message import encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int, body: bytes = b"body") -> bytes:
    return encode_message(body, {}, topic="orders", queue_offset=offset)


def in_one_buffer(*answers: tuple[bytes, int, int]) -> list[Chunk]:
    """Return chunks of one receive buffer, from the answers' records and the offsets that count of each."""
    buffer = memoryview(b"".join(records for records, _, _ in answers))
    chunks, start = [], 0
    for records, from_offset, until_offset in answers:
        chunks.append(Chunk(buffer, start, start + len(records), from_offset, until_offset))
        start += len(records)
    return chunks


def offsets(chunks: list[Chunk]) -> list[int]:
    limits = {"with_body": True, "check_crc": False, "body_limit": 1 << 20, "part_bytes": 1 << 20}
    parts = scan(chunks, Corrupt(QUEUE), **limits)
    return [offset for part in parts for offset in part.offset.tolist()]


@pytest.mark.parametrize("sizes", ["equal", "different"])
@pytest.mark.parametrize("length", [1, 3])
def test_of_answers_that_overlap_each_offset_counts_once(sizes: str, length: int) -> None:
    def records(start: int, end: int) -> bytes:
        return b"".join(
            record(number, b"x" * (1 if sizes == "equal" else number)) for number in range(start, end)
        )

    chunks = in_one_buffer((records(1, 5), 1, 4), (b"", 4, 4), (records(3, 3 + length), 4, 9))
    assert offsets(chunks) == list(range(1, max(4, 3 + length)))


def test_an_empty_answer_may_be_the_last_of_its_buffer() -> None:
    assert offsets(in_one_buffer((record(0), 0, 1), (b"", 1, 1))) == [0]
    for rest in (b"\0", b"\0" * 3):
        with pytest.raises(CorruptMessageError, match="do not fill it"):
            offsets(in_one_buffer((record(0), 0, 1), (rest, 1, 2)))


def test_offset_0_counts() -> None:
    assert offsets(in_one_buffer((record(0) + record(1), 0, 9))) == [0, 1]


def test_an_offset_that_comes_twice_in_an_answer_is_an_error() -> None:
    with pytest.raises(CorruptMessageError, match="within an answer do not ascend") as caught:
        offsets(in_one_buffer((record(4) + record(5) + record(5) + record(6), 0, 9)))
    assert caught.value.breaks_layout


def shortest(offset: int) -> bytes:
    return encode_message(b"", {}, topic="", queue_offset=offset)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(b"", id="none"),
        pytest.param(shortest(7), id="the shortest"),
        pytest.param(shortest(7) + shortest(8), id="two of the shortest"),
        pytest.param(record(7) + shortest(8), id="the shortest at the end"),
    ],
)
def test_records_that_keep_the_layout(records: bytes) -> None:
    assert len(shortest(7)) == MIN_RECORD_SIZE
    buffer = memoryview(b"?" + records + b"?")
    assert keeps_layout(Chunk(buffer, 1, len(buffer) - 1, 0, 9), QUEUE)


def resized(size: int) -> bytes:
    return size.to_bytes(4, "big", signed=True) + record(0)[4:]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(resized(0), id="a size of 0"),
        pytest.param(resized(-1), id="a negative size"),
        pytest.param(resized(1), id="a size that divides the answer's"),
        pytest.param(resized(MIN_RECORD_SIZE - 1), id="less than the shortest"),
        pytest.param(resized(len(record(0)) + 1), id="over the end"),
        pytest.param(resized(2**31 - 1), id="the largest size"),
        pytest.param(record(0)[:-1], id="cut off"),
        pytest.param(record(0) + record(1)[:20], id="cut off before its offset"),
        pytest.param(record(0) + b"\0", id="a byte too many"),
        pytest.param(record(0) + resized(0), id="a size of 0 after another record"),
    ],
)
def test_records_that_do_not_fill_their_answer_break_the_layout(records: bytes) -> None:
    for buffer in (records, records + record(5) * 2):
        chunk = Chunk(memoryview(buffer), 0, len(records), 0, 9)
        assert not keeps_layout(chunk, QUEUE)
        with pytest.raises(CorruptMessageError) as caught:
            offsets([chunk])
        assert caught.value.breaks_layout
