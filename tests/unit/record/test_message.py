"""What the reference codec does besides coming back: inner batches, ids, errors."""

from __future__ import annotations

import pytest

from pyspark_rocketmq.errors import CorruptMessageError, LocalProtocolError
from pyspark_rocketmq.record.batch_items import BatchItem, decode_batch, encode_batch
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.message import decode_messages, encode_message

ITEMS = [
    BatchItem(b"one", {"TAGS": "a", "UNIQ_KEY": "U1"}, 1),
    BatchItem(b"two", {}, 2),
    BatchItem(b"three", {}, 3),
]


def test_a_batch_item_is_encoded_as_the_broker_expects() -> None:
    assert encode_batch([BatchItem(b"xy", {"a": "b"}, 7)]).hex() == (
        "0000001c000000000000000000000007000000027879000461016202"
    )


@pytest.mark.parametrize("compression", list(Compression))
def test_an_inner_batch_comes_back_as_its_messages(compression: Compression) -> None:
    record = encode_message(
        encode_batch(ITEMS),
        {"INNER_NUM": "3"},
        topic="t",
        queue_offset=10,
        sys_flag=0xC0,
        compression=compression,
    )
    messages = decode_messages(record, broker_name="b", check_crc=True)
    assert [(m.queue_offset, m.body, m.flag, m.tags) for m in messages] == [
        (10, b"one", 1, "a"),
        (11, b"two", 2, None),
        (12, b"three", 3, None),
    ]
    assert messages[0].msg_id == "U1"
    assert messages[1].msg_id == messages[1].offset_msg_id
    assert [m.queue_offset for m in decode_messages(record, broker_name="b", from_offset=11)] == [11, 12]


@pytest.mark.parametrize("sys_flag", [0x40, 0x80])
def test_one_flag_alone_makes_no_inner_batch(sys_flag: int) -> None:
    body = encode_batch(ITEMS)
    (message,) = decode_messages(encode_message(body, topic="t", sys_flag=sys_flag), broker_name="b")
    assert message.body == body


def test_topic_queue_and_offset_can_be_those_of_the_reader() -> None:
    record = encode_message(b"x", topic="parent", queue_id=1, queue_offset=5)
    (own,) = decode_messages(record, broker_name="b")
    assert (own.topic, own.queue_id, own.queue_offset) == ("parent", 1, 5)
    (said,) = decode_messages(record, topic="child", broker_name="b", queue_id=9, offset_delta=100)
    assert (said.topic, said.queue_id, said.queue_offset) == ("child", 9, 105)


def test_bytes_behind_the_properties_are_skipped() -> None:
    record = encode_message(b"x", {"a": "b"}, topic="t")
    longer = (len(record) + 4).to_bytes(4, "big") + record[4:] + b"more"
    assert [m.properties for m in decode_messages(longer + record, broker_name="b")] == [
        {"a": "b"},
        {"a": "b"},
    ]


def test_an_error_says_where() -> None:
    good = encode_message(b"x", topic="t", queue_id=4, queue_offset=7)
    with pytest.raises(CorruptMessageError, match="checksum") as caught:
        decode_messages(good + good[:88] + b"y" + good[89:], broker_name="b", check_crc=True)
    assert caught.value.facts == {
        "topic": "t",
        "broker_name": "b",
        "queue_id": 4,
        "queue_offset": 7,
        "position": len(good),
    }


def test_a_topic_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LocalProtocolError):
        encode_message(b"", topic="t" * 40_000)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 21,
        encode_batch(ITEMS)[:-1],
        b"\0\0\0\x15" + encode_batch([BatchItem(b"")])[4:],
        b"\xff\xff\xff\xff" + encode_batch([BatchItem(b"")])[4:],
        encode_batch([BatchItem(b"")])[:-2] + b"\x80\x00",
    ],
)
def test_a_damaged_batch_raises(data: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decode_batch(data)
