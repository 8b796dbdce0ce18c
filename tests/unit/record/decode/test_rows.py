"""Rows of several messages and buffers keep what differs between them."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.arrow import BatchDecoder
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.message import encode_message

QUEUE = MessageQueue("orders", "broker-a", 3)
SAME = "10.0.0.1:50000"


@pytest.mark.parametrize(
    ("first", "second"),
    [(SAME, SAME), (SAME, "10.0.0.2:50000"), ("0.0.0.0:0", "0.0.0.0:128"), (SAME, "[::1]:50000")],
)
@pytest.mark.parametrize("field", ["born_host", "store_host"])
def test_each_message_has_its_own_hosts(field: str, first: str, second: str) -> None:
    hosts = [first, first, second]
    data = b"".join(
        encode_message(b"x", topic="orders", queue_offset=offset, **{field: host})  # type: ignore[arg-type]
        for offset, host in enumerate(hosts)
    )
    found = MessageDecoder(QUEUE).messages([Chunk(memoryview(data), 0, len(data), 0, 9)])
    assert [getattr(message, field) for message in found] == hosts


@pytest.mark.parametrize("damaged", [(0,), (1,), (0, 1)])
def test_what_is_damaged_in_some_buffers_stays_damaged(damaged: tuple[int, ...]) -> None:
    chunks = []
    for offset in range(2):
        data = encode_message(b"x", topic="orders", queue_offset=offset)
        chunks.append(Chunk(memoryview(data), 0, len(data), offset, offset + 1, unreadable=offset in damaged))
    (batch,) = BatchDecoder(["body"], queue=QUEUE, on_corrupt="null").decode(chunks)
    expected = [None if offset in damaged else b"x" for offset in range(2)]
    assert batch.column("body").to_pylist() == expected
