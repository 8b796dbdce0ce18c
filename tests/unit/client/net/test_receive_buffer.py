"""Received bytes stay what they were for as long as somebody looks at them, and buffers come back."""

from __future__ import annotations

import random

import pytest

from pyspark_rocketmq.client.net import receive_buffer
from pyspark_rocketmq.client.net.buffer_pool import KEPT_BYTES, BufferPool
from pyspark_rocketmq.client.net.receive_buffer import ReceiveBuffer
from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.remoting.command import FLAG_RESPONSE, Command
from pyspark_rocketmq.remoting.frame import encode_frame


def frame(opaque: int, size: int) -> bytes:
    return encode_frame(Command(0, opaque, flag=FLAG_RESPONSE), opaque.to_bytes(4, "big") * (size // 4))


def feed(buffer: ReceiveBuffer, data: bytes, rng: random.Random) -> list[tuple[int, memoryview]]:
    """Let bytes arrive in pieces of any size; return opaques and bodies."""
    bodies = []
    while data:
        with buffer.room() as room:
            size = min(len(data), len(room), rng.choice([1, 7, 1000, 100_000, 1 << 20]))
            room[:size] = data[:size]
        data = data[size:]
        buffer.add_received(size)
        bodies += [
            (command.opaque, memoryview(held)[start:end])
            for command, held, start, end in buffer.take_frames()
        ]
    return bodies


def feed_frames(
    buffer: ReceiveBuffer, first: int, sizes: list[int], rng: random.Random
) -> list[tuple[int, memoryview]]:
    """Let frames arrive, numbered from ``first``: each comes out once, whole, in its turn."""
    got = feed(buffer, b"".join(frame(first + at, size) for at, size in enumerate(sizes)), rng)
    assert [(number, len(body)) for number, body in got] == list(enumerate(sizes, first))
    return got


@pytest.mark.parametrize("seed", range(5))
def test_bodies_stay_intact_as_long_as_they_are_held(seed: int) -> None:
    rng = random.Random(seed)
    buffer = ReceiveBuffer()
    held: list[tuple[int, memoryview]] = []
    opaque = 0
    for _ in range(60):
        sizes = [rng.choice([0, 4, 400, 40_000, 300_000]) for _ in range(rng.randrange(1, 12))]
        held += feed_frames(buffer, opaque, sizes, rng)
        opaque += len(sizes)
        for number, body in held:
            assert body == number.to_bytes(4, "big") * (len(body) // 4)
        del held[: rng.randrange(len(held) + 1)]


def test_a_frame_larger_than_any_buffer_arrives_whole() -> None:
    (got,) = feed(ReceiveBuffer(), frame(7, 9 << 20), random.Random(1))
    assert got[0] == 7
    assert len(got[1]) == 9 << 20


def test_buffers_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counting(size: int) -> bytearray:
        made.append(size)
        return bytearray(size)

    monkeypatch.setattr(receive_buffer, "bytearray", counting, raising=False)
    buffer = ReceiveBuffer()
    rng = random.Random(2)
    feed_frames(buffer, 0, [40_000] * 100, rng)
    first = len(made)
    for _ in range(10):
        feed_frames(buffer, 0, [40_000] * 100, rng)
    assert len(made) <= first + 2  # ten times 4 MB went through


@pytest.mark.parametrize("seed", range(5))
def test_bodies_stay_intact_while_connections_share_a_pool(seed: int) -> None:
    rng = random.Random(seed)
    pool = BufferPool()
    buffers = [ReceiveBuffer(pool) for _ in range(6)]
    held: list[tuple[int, memoryview]] = []
    opaque = 0
    for _ in range(200):
        buffer = rng.choice(buffers)
        sizes = [rng.choice([0, 4, 400, 40_000, 300_000]) for _ in range(rng.randrange(1, 12))]
        held += feed_frames(buffer, opaque, sizes, rng)
        opaque += len(sizes)
        if rng.random() < 0.5:
            buffer.shrink()
        for number, body in held:
            assert body == number.to_bytes(4, "big") * (len(body) // 4)
        del held[: rng.randrange(len(held) + 1)]
        assert pool.kept_bytes <= KEPT_BYTES


def test_connections_that_rest_keep_16_mib_together() -> None:
    pool = BufferPool()
    buffers = [ReceiveBuffer(pool) for _ in range(20)]
    held = [feed_frames(each, 0, [256_000] * 24, random.Random(seed)) for seed, each in enumerate(buffers)]
    for buffer in buffers:
        buffer.shrink()
    held.clear()
    assert pool.kept_bytes == KEPT_BYTES == 16 << 20
    assert sum(len(buffer._held[0]) for buffer in buffers) <= 20 * 128 * 1024


def test_a_conversation_of_small_answers_needs_no_large_buffer() -> None:
    pool = BufferPool()
    buffer = ReceiveBuffer(pool)
    for number in range(2_000):
        feed_frames(buffer, number, [4_000], random.Random(number))
    buffer.shrink()
    assert pool.kept_bytes == 0


def test_only_the_connection_itself_goes_on_in_a_buffer_that_is_looked_at() -> None:
    """Answers of several connections in one buffer would keep it for the slowest of their readers."""
    pool = BufferPool()
    first, second = ReceiveBuffer(pool), ReceiveBuffer(pool)
    rng = random.Random(5)
    (large,) = feed(first, frame(1, 500_000), rng)
    first.shrink()
    (other,) = feed(second, frame(2, 500_000), rng)
    (again,) = feed(first, frame(3, 500_000), rng)
    assert again[1].obj is large[1].obj
    assert other[1].obj is not large[1].obj


def test_a_frame_that_arrives_in_part_survives_a_rest() -> None:
    buffer = ReceiveBuffer(BufferPool())
    data = frame(1, 500_000)
    assert not feed(buffer, data[:300_000], random.Random(6))
    buffer.shrink()
    ((number, body),) = feed(buffer, data[300_000:], random.Random(7))
    assert (number, len(body)) == (1, 500_000)


def test_what_is_no_frame_is_an_error() -> None:
    buffer = ReceiveBuffer()
    with pytest.raises(RemoteProtocolError):
        feed(buffer, b"HTTP/1.1 400 Bad Request\r\n\r\n", random.Random(3))
