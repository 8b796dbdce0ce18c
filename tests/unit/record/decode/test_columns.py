"""Columns whose values may not fit."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.arrow import BatchDecoder
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.message import encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)
LAST_MS = (2**63 - 1) // 1000
COLUMNS = ["bornTimestamp", "storeTimestamp"]


def microseconds(times: list[int], column: str, policy: str) -> list[int | None]:
    field = "born_timestamp" if column == "bornTimestamp" else "store_timestamp"
    data = b"".join(
        encode_message(b"x", topic="orders", queue_offset=offset, **{field: time})  # type: ignore[arg-type]
        for offset, time in enumerate(times)
    )
    decoder = BatchDecoder([column], queue=QUEUE, on_corrupt=policy)  # type: ignore[arg-type]
    batches = decoder.decode([Chunk(memoryview(data), 0, len(data), 0, 9)])
    return [value for batch in batches for value in batch.column(column).cast("int64").to_pylist()]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_first_and_the_last_time_that_fit_are_values(column: str) -> None:
    assert microseconds([LAST_MS, -LAST_MS], column, "fail") == [LAST_MS * 1000, -LAST_MS * 1000]
    for time in (LAST_MS + 1, -LAST_MS - 1):
        with pytest.raises(CorruptMessageError, match="no timestamp that Spark could hold"):
            microseconds([time], column, "fail")


@pytest.mark.parametrize("column", COLUMNS)
def test_a_time_that_does_not_fit_leaves_those_of_other_messages(column: str) -> None:
    assert microseconds([17, LAST_MS + 1, 19], column, "null") == [17_000, None, 19_000]
    assert microseconds([17, LAST_MS + 1, 19], column, "skip") == [17_000, 19_000]
