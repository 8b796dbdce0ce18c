"""The fast look at a record's times against the codec that reads everything."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.records import records

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.decode.times import first_times
from pyspark_rocketmq.record.message import decode_messages

COMMON = examples(150)


@COMMON
@given(records())
def test_the_times_are_those_that_decoding_gives(drawn: list[tuple[bytes, int, int]]) -> None:
    data = b"".join(record for record, _, _ in drawn)
    messages = decode_messages(data, broker_name="b")
    if messages and messages[0].queue_offset == drawn[0][1]:  # else an empty inner batch comes first
        first = messages[0]
        expected = (first.queue_offset, first.born_timestamp, first.store_timestamp)
        assert first_times(memoryview(data)) == expected


@COMMON
@given(st.binary(max_size=300) | records().map(lambda drawn: b"".join(each[0] for each in drawn)), st.data())
def test_any_bytes_give_times_or_raise(data: bytes, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(data)))
    with contextlib.suppress(CorruptMessageError):
        first_times(data[:cut])
