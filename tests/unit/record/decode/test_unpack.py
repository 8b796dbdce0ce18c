"""How much is unpacked at a time."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.decode.corrupt import Corrupt
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.decode.scan import scan
from pyspark_rocketmq.record.message import encode_message

BATCH = encode_batch([BatchItem(b"0" * 400)])


@pytest.mark.parametrize("sys_flag", [0, 0xC0], ids=["bodies", "inner batches"])
@pytest.mark.parametrize(("more", "rows"), [(0, [2, 2, 1]), (1, [3, 2])])
def test_a_part_ends_with_the_body_that_fills_it(sys_flag: int, more: int, rows: list[int]) -> None:
    data = b"".join(
        encode_message(
            BATCH, topic="orders", queue_offset=offset, sys_flag=sys_flag, compression=Compression.ZLIB
        )
        for offset in range(5)
    )
    parts = scan(
        [Chunk(memoryview(data), 0, len(data), 0, 9)],
        Corrupt(MessageQueue("orders", "broker-a", 3)),
        with_body=True,
        check_crc=False,
        body_limit=1 << 20,
        part_bytes=2 * len(BATCH) + more,
    )
    assert [len(part) for part in parts] == rows
