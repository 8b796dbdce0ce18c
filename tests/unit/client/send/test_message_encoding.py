from __future__ import annotations

import random
import threading

import pytest
from tests.support.clocks import FakeClock

from pyspark_rocketmq.client.send.message_encoding import UniqueIds, encode_many, encode_one
from pyspark_rocketmq.errors import LocalProtocolError, OptionError
from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.record.batch_items import decode_batch
from pyspark_rocketmq.record.compress import Compression, decompress
from pyspark_rocketmq.record.properties import decode_properties


@pytest.fixture
def ids() -> UniqueIds:
    return UniqueIds(FakeClock())


def test_ids_are_unique_among_threads(ids: UniqueIds) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend([ids.next() for _ in range(2_000)])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8_000
    assert {len(msg_id) for msg_id in found} == {32}


def test_two_producers_have_different_ids() -> None:
    clock = FakeClock()
    assert UniqueIds(clock).next()[:16] != UniqueIds(clock).next()[:16]


def test_one_message(ids: UniqueIds) -> None:
    message = OutgoingMessage("orders", b"body", tags="A", keys=["k1", "k2"], properties={"p": "1"}, flag=3)
    outgoing = encode_one(message, ids)
    assert (outgoing.topic, outgoing.body, outgoing.flag, outgoing.count) == ("orders", b"body", 3, 1)
    assert decode_properties(outgoing.properties.encode()) == {
        "p": "1",
        "UNIQ_KEY": outgoing.msg_ids[0],
        "KEYS": "k1 k2",
        "TAGS": "A",
    }


@pytest.mark.parametrize(
    ("delay", "name", "value"),
    [
        ({"delay_level": 18}, "DELAY", "18"),
        ({"delay_ms": 0}, "TIMER_DELAY_MS", "0"),
        ({"deliver_at_ms": 5}, "TIMER_DELIVER_MS", "5"),
        ({"wait_store_ok": False}, "WAIT", "false"),
        ({"sharding_key": "s"}, "__SHARDINGKEY", "s"),
    ],
)
def test_fields_become_properties(ids: UniqueIds, delay: dict[str, int], name: str, value: str) -> None:
    outgoing = encode_one(OutgoingMessage("orders", b"x", **delay), ids)
    assert decode_properties(outgoing.properties.encode())[name] == value


def test_compression_starts_at_the_limit_and_must_gain(ids: UniqueIds) -> None:
    large = encode_one(OutgoingMessage("orders", b"a" * 4096), ids)
    assert large.sys_flag == 0x301
    assert decompress(large.body, large.sys_flag) == b"a" * 4096
    assert encode_one(OutgoingMessage("orders", b"a" * 4095), ids).sys_flag == 0
    noise = random.Random(1).randbytes(4096)
    kept = encode_one(OutgoingMessage("orders", noise), ids)
    assert (kept.body, kept.sys_flag) == (noise, 0)


def test_a_body_that_does_not_shrink_stays(ids: UniqueIds) -> None:
    outgoing = encode_one(OutgoingMessage("orders", b"abc"), ids, compress_above=1)
    assert (outgoing.body, outgoing.sys_flag) == (b"abc", 0)


def test_a_batch(ids: UniqueIds) -> None:
    messages = [OutgoingMessage("orders", b"%d" % number, tags="T", flag=number) for number in range(3)]
    outgoing = encode_many(messages, ids)
    items = decode_batch(outgoing.body)
    assert [item.body for item in items] == [b"0", b"1", b"2"]
    assert [item.flag for item in items] == [0, 1, 2]
    assert tuple(item.properties["UNIQ_KEY"] for item in items) == outgoing.msg_ids
    assert (outgoing.count, outgoing.batch, outgoing.properties) == (3, True, "")


def test_a_batch_is_compressed_as_a_whole_or_not(ids: UniqueIds) -> None:
    """The flag of the request counts for every item."""
    large, small = OutgoingMessage("orders", b"l" * 100), OutgoingMessage("orders", b"s")
    mixed = encode_many([large, small], ids, compression=Compression.ZLIB, compress_above=100)
    assert mixed.sys_flag == 0
    assert [item.body for item in decode_batch(mixed.body)] == [large.body, small.body]
    both = encode_many([large, large], ids, compression=Compression.ZLIB, compress_above=100)
    assert both.sys_flag == 0x301
    assert {decompress(item.body, both.sys_flag) for item in decode_batch(both.body)} == {large.body}


def test_waiting_is_told_for_the_whole_batch(ids: UniqueIds) -> None:
    quick = OutgoingMessage("orders", b"x", wait_store_ok=False)
    assert decode_properties(encode_many([quick], ids).properties.encode()) == {"WAIT": "false"}
    with pytest.raises(OptionError, match="wait_store_ok"):
        encode_many([quick, OutgoingMessage("orders", b"x")], ids)


def test_a_batch_has_no_message_of_a_lite_topic(ids: UniqueIds) -> None:
    lite = OutgoingMessage("orders", b"x", properties={"__LITE_TOPIC": "one"})
    assert decode_properties(encode_one(lite, ids).properties.encode())["__LITE_TOPIC"] == "one"
    with pytest.raises(OptionError, match="send the message alone"):
        encode_many([lite], ids)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"body": b""},
        {"body": "text"},
        {"flag": 2**31},
        {"delay_level": 19},
        {"delay_level": -1},
        {"delay_level": 1, "delay_ms": 5},
        {"delay_ms": 1, "deliver_at_ms": 5},
    ],
)
def test_messages_are_checked_when_built(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        OutgoingMessage(**({"topic": "orders", "body": b"x"} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["TAGS", "UNIQ_KEY", "__SHARDINGKEY", "TIMER_DELIVER_MS", "INNER_NUM"])
def test_reserved_names_are_refused(ids: UniqueIds, name: str) -> None:
    with pytest.raises(OptionError, match=name):
        encode_one(OutgoingMessage("orders", b"x", properties={name: "1"}), ids)


def test_a_property_that_would_be_cut_names_the_topic(ids: UniqueIds) -> None:
    with pytest.raises(LocalProtocolError, match="topic=orders"):
        encode_one(OutgoingMessage("orders", b"x", keys="a\x02b"), ids)
