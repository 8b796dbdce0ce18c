"""Properties of several messages, where one string is not what clients write."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.arrow import BatchDecoder
from pyspark_rocketmq.record.decode.rows import Chunk
from pyspark_rocketmq.record.message import encode_message
from pyspark_rocketmq.record.properties import decode_properties

QUEUE = MessageQueue("orders", "broker-a", 3)
STRINGS = [
    b"",
    b"KEYS\x01k\x02",
    b"KEYS\x01a\x02KEYS\x01b\x02",
    b"KEYS\x01a",
    b"KEYS\x01\x02",
    b"abc\x02def\x02",
    b"\x01v\x02",
    b"\x02",
    b"x",
    b"TAGS\x01t\x02x",
    b"KEYS\x01k\x02\x02",
]


@pytest.mark.parametrize("first", STRINGS)
@pytest.mark.parametrize("second", STRINGS)
def test_a_message_s_properties_do_not_depend_on_those_of_the_next(first: bytes, second: bytes) -> None:
    pair = (first, second)
    data = b"".join(
        encode_message(b"x", text, topic="orders", queue_offset=offset) for offset, text in enumerate(pair)
    )
    decoder = BatchDecoder(["keys", "tags", "properties"], queue=QUEUE)
    (batch,) = decoder.decode([Chunk(memoryview(data), 0, len(data), 0, 9)])
    expected = [decode_properties(text) for text in pair]
    assert [dict(row["properties"]) for row in batch.to_pylist()] == expected
    assert batch.column("keys").to_pylist() == [each.get("KEYS") for each in expected]
    assert batch.column("tags").to_pylist() == [each.get("TAGS") for each in expected]
