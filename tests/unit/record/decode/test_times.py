"""The times of the shortest record."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.decode.times import first_times
from pyspark_rocketmq.record.layout import MIN_RECORD_SIZE
from pyspark_rocketmq.record.message import encode_message


def test_the_shortest_record_has_times_and_a_shorter_one_has_none() -> None:
    data = encode_message(b"", topic="", queue_offset=7, born_timestamp=8, store_timestamp=9)
    assert len(data) == MIN_RECORD_SIZE
    assert first_times(data) == (7, 8, 9)
    with pytest.raises(CorruptMessageError):
        first_times(data[:-1])
