"""The reference codec: what is encoded comes back, whatever it is."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.records import RECORD_FIELDS, batch_items, properties, raw_properties, records

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.batch_items import decode_batch, encode_batch
from pyspark_rocketmq.record.compress import Compression, compress, decompress
from pyspark_rocketmq.record.ids import encode_host, format_host
from pyspark_rocketmq.record.message import decode_messages, encode_message
from pyspark_rocketmq.record.properties import decode_properties, encode_properties

COMMON = examples(150)


@COMMON
@given(properties)
def test_properties_come_back(mapping: dict[str, str]) -> None:
    assert decode_properties(encode_properties(mapping)) == mapping


@COMMON
@given(st.binary(max_size=60) | raw_properties)
def test_any_property_bytes_decode_or_raise(data: bytes) -> None:
    with contextlib.suppress(CorruptMessageError):
        assert all(name and value for name, value in decode_properties(data).items())


@COMMON
@given(st.binary(max_size=5000), st.sampled_from(list(Compression)))
def test_bodies_come_back(body: bytes, kind: Compression) -> None:
    assert decompress(compress(body, kind), kind.value, limit=len(body)) == body


@COMMON
@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_compressed_body_cut_short_raises(body: bytes, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([kind for kind in Compression if kind is not Compression.NONE]))
    packed = compress(body, kind)
    cut = data.draw(st.integers(1, len(packed) - 1))
    with pytest.raises(CorruptMessageError):
        decompress(packed[:cut], kind.value)


@COMMON
@given(batch_items)
def test_batches_come_back(items: list) -> None:
    assert decode_batch(encode_batch(items)) == items


@COMMON
@given(st.binary(max_size=100))
def test_any_batch_bytes_decode_or_raise(data: bytes) -> None:
    with contextlib.suppress(CorruptMessageError):
        decode_batch(data)


@COMMON
@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_come_back(ip: object, port: int) -> None:
    packed = encode_host(f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}")
    assert encode_host(format_host(packed)) == packed


@COMMON
@given(st.fixed_dictionaries(RECORD_FIELDS), st.integers(0, 2**63 - 1), st.binary(max_size=200), properties)
def test_a_message_comes_back(fields: dict, offset: int, body: bytes, mapping: dict[str, str]) -> None:
    record = encode_message(body, mapping, queue_offset=offset, **fields)
    (message,) = decode_messages(record, broker_name="broker-a", check_crc=True)
    for name in fields.keys() - {"compression", "sys_flag"}:
        assert getattr(message, name) == fields[name]
    assert message.sys_flag & ~0x30 == fields["sys_flag"] | fields["compression"].value
    assert (message.body, message.properties, message.queue_offset) == (body, mapping, offset)
    assert (message.keys, message.tags) == (mapping.get("KEYS"), mapping.get("TAGS"))
    assert message.msg_id == mapping.get("UNIQ_KEY", message.offset_msg_id)
    assert message.store_size == len(record)


@COMMON
@given(records(), st.integers(0, 100))
def test_offsets_of_all_messages_come_back(drawn: list[tuple[bytes, int, int]], skip: int) -> None:
    expected = [offset for _, first, behind in drawn for offset in range(first, behind)]
    from_offset = expected[skip % len(expected)] if expected else 0
    messages = decode_messages(
        b"".join(data for data, _, _ in drawn), broker_name="b", from_offset=from_offset
    )
    assert [message.queue_offset for message in messages] == [
        each for each in expected if each >= from_offset
    ]


@COMMON
@given(st.binary(max_size=300))
def test_any_bytes_decode_or_raise(data: bytes) -> None:
    with contextlib.suppress(CorruptMessageError):
        decode_messages(data, broker_name="b", check_crc=True)
