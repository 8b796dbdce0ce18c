"""Frames: their bytes, their limits, and what is no frame."""

from __future__ import annotations

import struct

import pytest

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.command import Command, Serializer, encode_header
from pyspark_rocketmq.remoting.frame import (
    MAX_FRAME_SENT,
    MAX_FRAME_TAKEN,
    decode_frame,
    encode_frame,
    encode_frame_head,
    frame_head,
    frame_length,
)

COMMAND = Command(RequestCode.GET_MAX_OFFSET, 7, fields={"topic": "t"})


@pytest.mark.parametrize("serializer", Serializer)
def test_layout(serializer: Serializer) -> None:
    header = encode_header(COMMAND, serializer)
    frame = encode_frame(COMMAND, b"body", serializer=serializer)
    assert frame == (
        struct.pack(">i", 4 + len(header) + 4)
        + bytes([serializer])
        + len(header).to_bytes(3, "big")
        + header
        + b"body"
    )


@pytest.mark.parametrize("serializer", Serializer)
@pytest.mark.parametrize("body", [b"", b"body", bytearray(b"body"), memoryview(b"body")])
def test_reads_what_it_wrote(serializer: Serializer, body: bytes | bytearray | memoryview) -> None:
    view = memoryview(encode_frame(COMMAND, body, serializer=serializer))
    assert frame_length(view, 0, len(view)) == len(view)
    frame = decode_frame(view)
    assert frame.command == COMMAND
    assert frame.body == body


def test_body_is_not_copied() -> None:
    buffer = bytearray(encode_frame(COMMAND, b"body"))
    frame = decode_frame(memoryview(buffer))
    buffer[-1:] = b"!"
    assert frame.body == b"bod!"


def test_length_needs_four_bytes() -> None:
    frame = encode_frame(COMMAND)
    assert [frame_length(frame, 0, end) for end in range(9)] == [None] * 4 + [len(frame)] * 5


def test_length_in_the_middle_of_a_buffer() -> None:
    frame = encode_frame(COMMAND, b"x")
    assert frame_length(b"junk" + frame + b"more", 4, 4 + len(frame) + 4) == len(frame)
    assert frame_length(b"junk" + frame, 4, 7) is None
    assert frame_length(b"\0\0\0\6" + frame, 4, 4 + len(frame)) == len(frame), "no header fits into 6 bytes"


@pytest.mark.parametrize("end", [12, 15])
def test_what_is_after_the_received_bytes_is_not_looked_at(end: int) -> None:
    """A receive buffer is used again: the rest of it is of former frames."""
    frame = encode_frame(COMMAND)
    assert frame_length(b"junkjunk" + frame[: end - 8] + b"\xff" * 20, 8, end) == len(frame)


def test_the_smallest_frame() -> None:
    assert frame_length(b"\x00\x00\x00\x06\x00\x00\x00\x02{}", 0, 10) == 10
    with pytest.raises(RemoteProtocolError):
        frame_length(b"\x00\x00\x00\x05\x00\x00\x00\x01{", 0, 9)


def test_largest_frame_for_a_server() -> None:
    room = MAX_FRAME_SENT - len(encode_frame(COMMAND))
    assert len(encode_frame(COMMAND, bytes(room))) == 16_777_216
    with pytest.raises(LocalProtocolError) as caught:
        encode_frame(COMMAND, bytes(room + 1))
    assert caught.value.facts["size"] == 16_777_217
    assert caught.value.facts["limit"] == 16_777_216


def test_a_server_may_answer_with_more() -> None:
    body = bytes(30_000_000)
    view = memoryview(encode_frame(COMMAND, body, limit=MAX_FRAME_TAKEN))
    assert frame_length(view, 0, len(view)) == len(view)
    assert len(decode_frame(view).body) == len(body)


def test_header_beyond_24_bits_is_our_error() -> None:
    command = Command(1, 1, fields={"a": "x" * (1 << 24)})
    with pytest.raises(LocalProtocolError):
        encode_frame(command, limit=MAX_FRAME_TAKEN)


@pytest.mark.parametrize(("code", "body_bytes"), [(11, MAX_FRAME_SENT), (310, MAX_FRAME_SENT + 1)])
def test_a_frame_that_is_too_large_names_its_request_and_size(code: int, body_bytes: int) -> None:
    header = encode_header(Command(code, 7), Serializer.JSON)
    with pytest.raises(LocalProtocolError) as caught:
        encode_frame_head(Command(code, 7), body_bytes)
    assert caught.value.facts == {
        "code": code,
        "size": 8 + len(header) + body_bytes,
        "limit": MAX_FRAME_SENT,
    }


def test_the_largest_header_has_24_bits() -> None:
    room = (1 << 24) - 1
    assert frame_head(bytes(room), 0, code=1, limit=MAX_FRAME_TAKEN)[4:8] == b"\x00\xff\xff\xff"
    with pytest.raises(LocalProtocolError):
        frame_head(bytes(room + 1), 0, code=1, limit=MAX_FRAME_TAKEN)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"\x00\x00\x00\x00", id="nothing in it"),
        pytest.param(b"\x00\x00\x00\x03", id="no header word"),
        pytest.param(b"\x00\x00\x00\x05", id="no header"),
        pytest.param(b"\xff\xff\xff\xff", id="negative"),
        pytest.param(struct.pack(">I", MAX_FRAME_TAKEN - 3), id="above the limit by one"),
        pytest.param(b"HTTP/1.1 400 Bad Request", id="HTTP"),
        pytest.param(b"\x15\x03\x03\x00\x02\x02\x46", id="TLS alert"),
        pytest.param(bytes.fromhex("000006040000000000000400"), id="HTTP/2 settings of a gRPC port"),
        pytest.param(b"\x00\x00\x00\x10\x02\x00\x00\x04", id="unknown serialization"),
        pytest.param(b"\x00\x00\x00\x10\x00\x00\x00\x0d", id="header beyond the frame"),
        pytest.param(b"\x00\x00\x00\x10\x00\x00\x00\x00", id="empty header"),
    ],
)
def test_what_is_no_frame_is_found_out_by_its_first_bytes(start: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frame_length(start, 0, len(start))


def test_limit_is_the_callers() -> None:
    frame = encode_frame(COMMAND)
    assert frame_length(frame, 0, len(frame), limit=len(frame)) == len(frame)
    with pytest.raises(RemoteProtocolError):
        frame_length(frame, 0, len(frame), limit=len(frame) - 1)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\x00\x00\x04\x00\x00\x00", id="cut in the header word"),
        pytest.param(encode_frame(COMMAND)[:-1], id="cut"),
        pytest.param(encode_frame(COMMAND) + b"x", id="one byte too many"),
        pytest.param(b"\x00\x00\x00\x06\x00\x00\x00\x02[]", id="header that is no object"),
        pytest.param(b"\x00\x00\x00\x06\x07\x00\x00\x02{}", id="unknown serialization"),
        pytest.param(b"\x00\x00\x00\x06\x00\x00\x00\x03{}", id="header beyond the frame"),
    ],
)
def test_refuses_what_is_not_exactly_one_frame(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(memoryview(frame))
