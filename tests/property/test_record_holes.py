"""The offsets without a record are exactly those that the reference codec finds no message at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.records import records

from pyspark_rocketmq.record.decode.arrow import Chunk
from pyspark_rocketmq.record.decode.holes import find_holes
from pyspark_rocketmq.record.message import decode_messages, encode_message


def offsets_of(answer: bytes, delta: int = 0) -> set[int]:
    decoded = decode_messages(answer, topic="orders", broker_name="b", offset_delta=delta)
    return {message.queue_offset for message in decoded}


@examples(200)
@given(data=st.data(), delta=st.sampled_from([0, 10_000]), around=st.integers(0, 3))
def test_what_has_no_message_is_a_hole(data: st.DataObject, delta: int, around: int) -> None:
    """Some records are left out of an answer; an offset in the middle is where a second answer begins."""
    drawn = data.draw(records())
    kept = [each for each in drawn if data.draw(st.booleans())]
    first = drawn[0][1] if drawn else 0
    start, end = first + delta, (drawn[-1][2] if drawn else 0) + delta + around
    cut = data.draw(st.integers(0, len(kept)))
    middle = min(max(kept[cut - 1][2] + delta, start), end) if cut else start
    answers = [b"".join(record for record, _, _ in part) for part in (kept[:cut], kept[cut:])]
    chunks = [
        Chunk(bytearray(answers[0]), 0, len(answers[0]), start, middle, delta),
        Chunk(bytearray(answers[1]), 0, len(answers[1]), middle, end, delta),
    ]
    there = offsets_of(answers[0], delta) | offsets_of(answers[1], delta)
    missing = [number for a, b in find_holes(chunks) for number in range(a, b)]
    assert missing == [number for number in range(start, end) if number not in there]


def test_what_follows_a_damaged_record_is_no_hole() -> None:
    intact = [encode_message(b"x", {}, topic="orders", queue_offset=offset) for offset in (7, 9, 10)]
    answer = bytearray(b"".join(intact))
    answer[len(intact[0]) : len(intact[0]) + 4] = b"\0\0\0\1"
    assert find_holes([Chunk(answer, 0, len(answer), 6, 20)]) == [(6, 7)]
