from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from pyspark_rocketmq.client.groups.pulled_run import PulledRun
from pyspark_rocketmq.client.read.queue_reader import DecodeOptions
from pyspark_rocketmq.dstream.receiver.block import (
    BlockReading,
    block_batches,
    block_elements,
    count_records,
    encode_objects,
    encode_runs,
    reading_of,
    run_messages,
)
from pyspark_rocketmq.errors import CorruptMessageError, OptionError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import ReceiverOptions, parse_options
from pyspark_rocketmq.options.choices import CorruptPolicy
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


def test_a_redelivered_message_has_the_users_name_of_its_topic_in_a_namespace():
    again = a_run(RETRY, 0, (b"again", {"RETRY_TOPIC": "ns%orders"}))
    given = {"nameServer": "n:9876", "topic": "orders", "consumerGroup": "g", "namespace": "ns"}
    reading = reading_of(parse_options(ReceiverOptions, given, environ={}))
    assert [m.topic for m in block_elements(encode_runs([again, RUNS[0]]), reading)] == ["orders"] * 3


def test_messages_come_back_in_order_within_their_queue_and_under_their_own_topic():
    found = list(block_elements(encode_runs(RUNS)))
    assert [(m.topic, m.queue_offset, m.body) for m in found if m.broker_name == "broker-a"] == [
        ("orders", 5, b"five"),
        ("orders", 6, b"six"),
        ("orders", 1_007, b"seven"),
    ]
    assert [(m.topic, m.body) for m in found if m.broker_name == "broker-b"] == [("orders", b"again")]
    assert [m.body for m in block_elements(encode_runs(RUNS[:1]), BlockReading(frozenset({"b"})))] == [b"six"]
    assert [m.body for m in run_messages(RUNS[0])] == [b"five", b"six"]


def test_what_a_queue_has_again_when_it_comes_back_is_in_the_block_again():
    back = [RUNS[0], a_run(QUEUE, 6, (b"six", {}), (b"seven", {})), a_run(QUEUE, 8, (b"eight", {})), RUNS[0]]
    block = encode_runs(back)
    offsets = [5, 6, 6, 7, 8, 5, 6]
    assert [message.queue_offset for message in block_elements(block)] == offsets
    batches = block_batches(block, DecodeOptions(columns=["queueOffset"]), None)
    assert [row["queueOffset"] for batch in batches for row in batch.to_pylist()] == offsets


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
    assert list(block_elements(block)) == [("a", 1), None, {"b": 2}]
    with pytest.raises(OptionError, match="deserialize"):
        list(block_batches(block, DecodeOptions(columns=["body"]), None))


ONE_FILE = """
from pyspark_rocketmq.dstream.receiver.block import encode_objects
import sys

class Order:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return f"Order {self.number}"

sys.stdout.buffer.write(encode_objects([Order(1), Order(2)]))
"""


def test_objects_may_be_of_classes_of_the_program_s_own_file():
    block = subprocess.run([sys.executable, "-c", ONE_FILE], check=True, capture_output=True, timeout=60)
    assert repr(list(block_elements(block.stdout))) == "[Order 1, Order 2]"


@pytest.mark.parametrize("block", [encode_runs(RUNS), encode_objects([1])])
def test_any_damage_is_found(block):
    for at in range(len(block)):
        broken = bytearray(block)
        broken[at] ^= 0x40
        with pytest.raises(CorruptMessageError):
            list(block_elements(bytes(broken)))
    for size in range(len(block)):
        with pytest.raises(CorruptMessageError):
            list(block_elements(block[:size]))


def test_records_are_counted_without_decoding_them():
    assert [count_records(run) for run in RUNS] == [2, 1, 1]
    assert count_records(replace(RUNS[0], until_offset=6)) == 1
    assert [m.body for m in block_elements(encode_runs([replace(RUNS[0], until_offset=6)]))] == [b"five"]
    assert count_records(replace(RUNS[0], records=b"")) == 0
    for broken in (RUNS[0].records[:-1], b"\0\0\0\0"):
        with pytest.raises(CorruptMessageError):
            count_records(replace(RUNS[0], records=broken))


ODD = encode_message(b"?", topic="orders", queue_id=1, queue_offset=6, sys_flag=0x401)
SOUND = a_run(QUEUE, 5, (b"five", {}))
WITH_ODD = replace(SOUND, records=bytes(SOUND.records) + ODD)


def test_a_message_that_does_not_decode_fails_or_is_skipped(caplog: pytest.LogCaptureFixture):
    block = encode_runs([WITH_ODD])
    with pytest.raises(CorruptMessageError, match="type 4"):
        list(block_elements(block))
    skipping = BlockReading(on_corrupt=CorruptPolicy.SKIP)
    assert [m.body for m in block_elements(block, skipping)] == [b"five"]
    assert [m.body for m in run_messages(WITH_ODD, skipping)] == [b"five"]
    assert "at 6" in caplog.text
    with pytest.raises(OptionError, match="cannot have nulls"):
        list(block_elements(block, BlockReading(on_corrupt=CorruptPolicy.NULL)))


def test_record_batches_may_have_nulls_for_it():
    block = encode_runs([WITH_ODD])
    found = {}
    for policy in ("null", "skip"):
        decode = DecodeOptions(columns=["queueOffset", "body"], on_corrupt=policy)
        found[policy] = [row for batch in block_batches(block, decode, None) for row in batch.to_pylist()]
    five, odd = {"queueOffset": 5, "body": b"five"}, {"queueOffset": 6, "body": None}
    assert found == {"null": [five, odd], "skip": [five]}


def test_the_options_of_a_receiver_say_how_its_blocks_are_read():
    given = {"nameServer": "127.0.0.1:9876", "consumerGroup": "g", "topic": "orders"}
    given |= {"tags": "a", "onCorrupt": "skip", "checkCrc": "true"}
    options = parse_options(ReceiverOptions, given, environ={})
    assert reading_of(options) == BlockReading(frozenset({"a"}), CorruptPolicy.SKIP, check_crc=True)
