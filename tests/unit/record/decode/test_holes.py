"""Which offsets of an answer have no record, where the quick check and the exact one could differ."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.decode.holes import find_holes
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.message import encode_message


def record(offset: int, body: bytes = b"body", **fields: object) -> bytes:
    return encode_message(body, topic="orders", queue_offset=offset, **fields)  # type: ignore[arg-type]


def records(*offsets: int) -> bytes:
    return b"".join(map(record, offsets))


def holes(data: bytes, from_offset: int, until_offset: int, delta: int = 0) -> list[tuple[int, int]]:
    return find_holes([Chunk(memoryview(data), 0, len(data), from_offset, until_offset, delta)])


@pytest.mark.parametrize("after", [0, 1, 2])
def test_as_many_records_as_offsets_may_have_a_hole(after: int) -> None:
    """A broker's answer may go beyond the offsets that are asked for."""
    assert holes(records(4, 5, *range(6, 6 + after)), 3, 5) == [(3, 4)]
    assert holes(records(3, 5, 6, *range(7, 7 + after)), 3, 6) == [(4, 5)]


@pytest.mark.parametrize("delta", [-7, 0, 1_000])
def test_offsets_after_the_last_record_are_a_hole(delta: int) -> None:
    assert holes(records(7), 7 + delta, 9 + delta, delta) == [(8 + delta, 9 + delta)]
    assert holes(records(7, 9), 7 + delta, 10 + delta, delta) == [(8 + delta, 9 + delta)]


def test_what_comes_after_the_wanted_offsets_is_no_hole() -> None:
    assert holes(records(0, 5), 0, 1) == []


def test_a_record_of_the_answer_before_fills_no_hole() -> None:
    first, second = records(5), records(7)
    assert len(first) == len(second)
    chunk = Chunk(memoryview(first + second), len(first), len(first) + len(second), 5, 6)
    assert find_holes([chunk]) == [(5, 6)]


def test_a_light_queue_s_holes_are_not_those_of_its_records() -> None:
    def dispatched(offset: int, in_queue: str) -> bytes:
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": in_queue}
        return encode_message(b"", properties, topic="orders", queue_offset=offset)

    data = dispatched(4, "4") + dispatched(5, "6")
    assert find_holes([Chunk(memoryview(data), 0, len(data), 4, 7)], "%LMQ%a") == [(5, 6)]


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"\0", id="too short for a size"),
        pytest.param(record(8)[:87], id="cut in its fixed part"),
        pytest.param(record(8)[:88], id="cut after its fixed part"),
        pytest.param(record(8)[:-1], id="cut at its end"),
    ],
)
def test_what_follows_a_record_that_is_cut_off_is_no_hole(rest: bytes) -> None:
    assert holes(record(7) + rest, 6, 20) == [(6, 7)]


def test_what_the_decoder_reports_is_no_hole() -> None:
    batch = encode_batch([BatchItem(b"x")] * 3)
    assert holes(record(7, batch[:-1], sys_flag=0xC0), 6, 20) == [(6, 7)]
    stranger = record(7)
    assert find_holes([Chunk(memoryview(stranger), 0, len(stranger), 6, 20)], "%LMQ%a") == []
