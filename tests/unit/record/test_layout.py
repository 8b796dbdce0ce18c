"""The layout's facts, each byte written by hand, against both codecs."""

from __future__ import annotations

import zlib

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record import layout
from pyspark_rocketmq.record.decode.arrow import COLUMNS, BatchDecoder, Chunk
from pyspark_rocketmq.record.decode.rows import HEAD
from pyspark_rocketmq.record.message import decode_messages, encode_message

BODY = b"hello"
PROPERTIES = b"KEYS\x01k1 k2\x02TAGS\x01red\x02"

V1 = (
    (116).to_bytes(4, "big")  # size: 88 + 5 of body + 1 + 6 of topic ... checked below
    + bytes.fromhex("daa320a7")  # magic
    + (zlib.crc32(BODY) & 0x7FFFFFFF).to_bytes(4, "big")
    + (3).to_bytes(4, "big")  # queue id
    + (-1 & 0xFFFFFFFF).to_bytes(4, "big")  # flag
    + (42).to_bytes(8, "big")  # queue offset
    + (0xABCDEF).to_bytes(8, "big")  # commit-log offset
    + (0x2).to_bytes(4, "big")  # sysFlag: multi tags
    + (1_700_000_000_123).to_bytes(8, "big")  # born timestamp
    + bytes([10, 0, 0, 7])
    + (50_000).to_bytes(4, "big")  # born host
    + (1_700_000_000_456).to_bytes(8, "big")  # store timestamp
    + bytes([127, 0, 0, 1])
    + (10_911).to_bytes(4, "big")  # store host
    + (2).to_bytes(4, "big")  # reconsume times
    + (77).to_bytes(8, "big")  # prepared transaction offset
    + (5).to_bytes(4, "big")
    + BODY
    + b"\x06orders"
    + len(PROPERTIES).to_bytes(2, "big")
    + PROPERTIES
)
V1 = len(V1).to_bytes(4, "big") + V1[4:]

EXPECTED = {
    "topic": "orders",
    "brokerName": "broker-a",
    "queueId": 3,
    "queueOffset": 42,
    "msgId": "7F00000100002A9F0000000000ABCDEF",
    "keys": "k1 k2",
    "tags": "red",
    "body": BODY,
    "properties": [("KEYS", "k1 k2"), ("TAGS", "red")],
    "offsetMsgId": "7F00000100002A9F0000000000ABCDEF",
    "flag": -1,
    "sysFlag": 2,
    "bornHost": "10.0.0.7:50000",
    "storeHost": "127.0.0.1:10911",
    "reconsumeTimes": 2,
    "preparedTransactionOffset": 77,
    "bodyCrc": zlib.crc32(BODY) & 0x7FFFFFFF,
    "traceparent": None,
}


def test_the_head_is_laid_out_as_the_layout_says() -> None:
    assert HEAD.itemsize == layout.FIXED_SIZE == 88
    at = {name: offset for name, (_, offset, *_) in HEAD.fields.items()}
    assert at["born_host"] == layout.BORN_HOST_AT
    assert at["store_host"] == layout.STORE_HOST_AT
    assert layout.MIN_RECORD_SIZE == 91
    assert len(encode_message(b"", topic="")) == 91


def test_a_record_written_by_hand_is_decoded_by_both() -> None:
    (message,) = decode_messages(V1, broker_name="broker-a", check_crc=True)
    assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 42)
    assert (message.born_timestamp, message.store_timestamp) == (1_700_000_000_123, 1_700_000_000_456)
    assert (message.commit_log_offset, message.store_size) == (0xABCDEF, len(V1))

    decoder = BatchDecoder(list(COLUMNS), queue=MessageQueue("orders", "broker-a", 3), check_crc=True)
    (batch,) = decoder.decode([Chunk(memoryview(V1), 0, len(V1), 0, 100)])
    (row,) = batch.to_pylist()
    assert row.pop("bornTimestamp").isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert row.pop("storeTimestamp").isoformat() == "2023-11-14T22:13:20.456000+00:00"
    assert row == EXPECTED


def test_what_is_encoded_is_what_was_written_by_hand() -> None:
    assert (
        encode_message(
            BODY,
            PROPERTIES,
            topic="orders",
            queue_id=3,
            queue_offset=42,
            commit_log_offset=0xABCDEF,
            flag=-1,
            sys_flag=0x2,
            born_timestamp=1_700_000_000_123,
            born_host="10.0.0.7:50000",
            store_timestamp=1_700_000_000_456,
            reconsume_times=2,
            prepared_transaction_offset=77,
        )
        == V1
    )


@pytest.mark.parametrize(("length", "magic", "width"), [(127, "daa320a7", 1), (128, "daa320ab", 2)])
def test_a_long_topic_makes_a_version_2_record(length: int, magic: str, width: int) -> None:
    record = encode_message(b"", topic="t" * length)
    assert record[4:8].hex() == magic
    assert record[88 : 88 + width] == length.to_bytes(width, "big")


def test_ipv6_hosts_take_20_bytes_and_set_their_flags() -> None:
    record = encode_message(b"", topic="", born_host="[::1]:7", store_host="[fe80::2]:9")
    assert len(record) == 91 + 24
    assert record[36:40].hex() == "00000030"
    assert record[48:68].hex() == "0" * 31 + "1" + "00000007"
    (message,) = decode_messages(record, broker_name="b")
    assert (message.born_host, message.store_host) == ("[::1]:7", "[fe80::2]:9")
    assert len(message.offset_msg_id) == 56
