from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_rocketmq.client.push_worker import PulledRun
from pyspark_rocketmq.client.queue_reader import DecodeOptions
from pyspark_rocketmq.dstream.receiver_block import (
    block_batches,
    block_elements,
    count_records,
    encode_objects,
    encode_runs,
    run_messages,
)
from pyspark_rocketmq.errors import CorruptMessageError, OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.message import encode_message

QUEUE, RETRY = MessageQueue("orders", "broker-a", 1), MessageQueue("%RETRY%g", "broker-b", 0)


def a_run(
    queue: MessageQueue, first: int, *messages: tuple[bytes, dict[str, str]], delta: int = 0
) -> PulledRun:
    records = [
        encode_message(
            body, properties, topic=queue.topic, queue_id=queue.queue_id, queue_offset=first + at - delta
        )
        for at, (body, properties) in enumerate(messages)
    ]
    return PulledRun(queue, first, delta, b"".join(records))


RUNS = [
    a_run(QUEUE, 5, (b"five", {"TAGS": "a"}), (b"six", {"TAGS": "b"})),
    a_run(RETRY, 0, (b"again", {"TAGS": "a", "RETRY_TOPIC": "orders"})),
    a_run(QUEUE, 1_007, (b"seven", {}), delta=1_000),
]


def test_messages_come_back_in_order_within_their_queue_and_under_their_own_topic():
    found = list(block_elements(encode_runs(RUNS), None))
    assert [(m.topic, m.queue_offset, m.body) for m in found if m.broker_name == "broker-a"] == [
        ("orders", 5, b"five"),
        ("orders", 6, b"six"),
        ("orders", 1_007, b"seven"),
    ]
    assert [(m.topic, m.body) for m in found if m.broker_name == "broker-b"] == [("orders", b"again")]
    assert [m.body for m in block_elements(encode_runs(RUNS[:1]), frozenset({"b"}))] == [b"six"]
    assert [m.body for m in run_messages(RUNS[0], None)] == [b"five", b"six"]


def test_record_batches_have_the_same():
    decode = DecodeOptions(columns=["topic", "queueOffset", "body"])
    rows = [row for batch in block_batches(encode_runs(RUNS), decode, None) for row in batch.to_pylist()]
    assert sorted((row["topic"], row["queueOffset"], row["body"]) for row in rows) == [
        ("%RETRY%g", 0, b"again"),
        ("orders", 5, b"five"),
        ("orders", 6, b"six"),
        ("orders", 1_007, b"seven"),
    ]
    tagged = list(block_batches(encode_runs(RUNS[:1]), decode, frozenset({"a"})))
    assert [batch.column("body").to_pylist() for batch in tagged] == [[b"five"]]


def test_objects_come_back_and_are_no_messages():
    block = encode_objects([("a", 1), None, {"b": 2}])
    assert list(block_elements(block, None)) == [("a", 1), None, {"b": 2}]
    with pytest.raises(OptionError, match="deserialize"):
        list(block_batches(block, DecodeOptions(columns=["body"]), None))


@pytest.mark.parametrize("block", [encode_runs(RUNS), encode_objects([1])])
def test_any_damage_is_found(block):
    for at in range(len(block)):
        broken = bytearray(block)
        broken[at] ^= 0x40
        with pytest.raises(CorruptMessageError):
            list(block_elements(bytes(broken), None))
    for size in range(len(block)):
        with pytest.raises(CorruptMessageError):
            list(block_elements(block[:size], None))


def test_records_are_counted_without_decoding_them():
    assert [count_records(run) for run in RUNS] == [2, 1, 1]
    assert count_records(replace(RUNS[0], until_offset=6)) == 1
    assert [m.body for m in block_elements(encode_runs([replace(RUNS[0], until_offset=6)]), None)] == [
        b"five"
    ]
    assert count_records(replace(RUNS[0], records=b"")) == 0
    for broken in (RUNS[0].records[:-1], b"\0\0\0\0"):
        with pytest.raises(CorruptMessageError):
            count_records(replace(RUNS[0], records=broken))
