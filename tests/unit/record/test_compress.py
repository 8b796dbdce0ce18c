from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record.compress import Compression, compress, decompress

BODY = b"a body that compresses " * 500
PACKED = [kind for kind in Compression if kind is not Compression.NONE]


@pytest.mark.parametrize(
    ("kind", "sys_flag", "first_bytes"),
    [
        (Compression.ZLIB, 0x301, "785e"),
        (Compression.LZ4, 0x101, "04224d18"),
        (Compression.ZSTD, 0x201, "28b52ffd"),
    ],
)
def test_formats_and_flags_are_those_of_the_java_client(
    kind: Compression, sys_flag: int, first_bytes: str
) -> None:
    packed = compress(BODY, kind)
    assert kind.value == sys_flag
    assert packed.hex().startswith(first_bytes)
    assert decompress(memoryview(packed), sys_flag | 0x10) == BODY


def test_clients_before_4_9_4_leave_the_type_empty() -> None:
    assert decompress(zlib.compress(BODY), 0x1) == BODY


def test_zstd_without_content_size_is_read() -> None:
    frame = compress(BODY, Compression.ZSTD)
    assert frame[4] & 0xC0 == 0  # no frame content size field: what Java's streaming encoder writes
    with pytest.raises((pa.ArrowInvalid, ValueError)):
        pa.decompress(frame, codec="zstd")
    assert decompress(frame, 0x201) == BODY


def test_a_plain_or_empty_body_is_left_alone() -> None:
    assert decompress(b"x", 0x700) == b"x"
    assert decompress(b"", 0x101) == b""


@pytest.mark.parametrize("kind", PACKED)
def test_nothing_is_unpacked_above_the_limit(kind: Compression) -> None:
    packed = compress(BODY, kind)
    assert decompress(packed, kind.value, limit=len(BODY)) == BODY
    with pytest.raises(CorruptMessageError, match="larger than 100 bytes"):
        decompress(packed, kind.value, limit=100)


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"\0" * 20, lambda data: data[:8] + data[9:]]
)
def test_a_damaged_body_raises(kind: Compression, damage) -> None:
    with pytest.raises(CorruptMessageError, match=kind.name.lower()):
        decompress(damage(compress(BODY, kind)), kind.value)


def test_an_unknown_type_raises() -> None:
    with pytest.raises(CorruptMessageError, match="type 4"):
        decompress(b"x", 0x401)
