from __future__ import annotations

import itertools
import random
import sys
import tracemalloc
import zlib

import lz4.frame
import pyarrow as pa
import pytest

from pyspark_rocketmq.errors import CorruptMessageError
from pyspark_rocketmq.record import codecs
from pyspark_rocketmq.record.compress import Compression, compress, decompress

LOOK = codecs.optional.__wrapped__
BODY = b"a body that compresses " * 500


@pytest.fixture(autouse=True, params=["with the extra", "without"])
def extra(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with the libraries of the extra ``compression`` and without them."""
    if request.param == "without":
        monkeypatch.setattr(codecs, "optional", lambda _: None)
    else:
        assert all(map(codecs.optional, ("deflate", "lz4.block", "zstandard"))), "they are installed"


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


def test_a_missing_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    assert LOOK("lz4.block") is None


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("size", [1, 1_000, 100_000, 5 << 20])
def test_bodies_of_all_sizes_come_back(kind: Compression, size: int) -> None:
    for body in (bytes(size), (BODY * (size // len(BODY) + 1))[:size], random.Random(size).randbytes(size)):
        packed = compress(body, kind)
        assert decompress(packed, kind.value) == body
        assert decompress(memoryview(packed), kind.value) == body


@pytest.mark.parametrize("content_size", [True, False])
@pytest.mark.parametrize("block_size", [4, 7])
def test_lz4_frames_of_other_writers(content_size: bool, block_size: int) -> None:
    body = BODY * 20
    for linked, checksum in itertools.product((True, False), repeat=2):
        frame = lz4.frame.compress(
            body,
            block_size=block_size,
            block_linked=linked,
            content_checksum=checksum,
            block_checksum=checksum,
            store_size=content_size,
        )
        assert decompress(frame, 0x101) == body


def test_several_frames_are_one_body() -> None:
    for kind in (Compression.LZ4, Compression.ZSTD):
        frame = compress(BODY, kind)
        assert decompress(frame + frame, kind.value) == BODY * 2


@pytest.mark.parametrize("kind", PACKED)
def test_a_bomb_is_stopped_at_the_limit(kind: Compression) -> None:
    packed = compress(bytes(100 << 20), kind)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptMessageError, match="larger than 1000 bytes"):
            decompress(packed, kind.value, limit=1_000)
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()
