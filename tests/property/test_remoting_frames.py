"""Frames and headers: what is written reads back, and anything else is our error."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.remoting.codes import LanguageCode
from pyspark_rocketmq.remoting.command import Command, Serializer, decode_header, encode_header
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame, frame_length

ours = examples(100)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    Command,
    code=int16,
    opaque=int32,
    flag=int32,
    fields=st.dictionaries(text, text.filter(bool), max_size=6),
    remark=st.none() | text.filter(bool),
    language=st.sampled_from(LanguageCode),
    version=int16,
)
serializers = st.sampled_from(Serializer)
frames = st.builds(
    lambda command, body, serializer: (command, body, encode_frame(command, body, serializer=serializer)),
    commands,
    st.binary(max_size=200),
    serializers,
)


@ours
@given(commands, serializers)
def test_header_round_trip(command: Command, serializer: Serializer) -> None:
    assert decode_header(encode_header(command, serializer), serializer) == command


@ours
@given(frames)
def test_frame_round_trip(case: tuple[Command, bytes, bytes]) -> None:
    command, body, data = case
    frame = decode_frame(memoryview(data))
    assert (frame.command, bytes(frame.body)) == (command, body)


@ours
@given(st.lists(frames, max_size=5), st.lists(st.integers(1, 60), min_size=1), st.integers(0, 9))
def test_any_split_of_a_stream_gives_the_same_frames(
    cases: list[tuple[Command, bytes, bytes]], steps: list[int], offset: int
) -> None:
    """Grow what has been received step by step, as a connection does, at any place of a buffer."""
    buffer = memoryview(bytes(offset) + b"".join(data for _, _, data in cases))
    seen, start, end, turn = [], offset, offset, 0
    while start < len(buffer):
        size = frame_length(buffer, start, end)
        if size is not None and end - start >= size:
            frame = decode_frame(buffer[start : start + size])
            seen.append((frame.command, bytes(frame.body)))
            start += size
        else:
            assert end < len(buffer), "a whole frame was there and not seen"
            end = min(end + steps[turn % len(steps)], len(buffer))
            turn += 1
    assert seen == [(command, body) for command, body, _ in cases]


@ours
@given(st.binary(max_size=80), serializers)
def test_any_header_decodes_or_is_the_peers_error(data: bytes, serializer: Serializer) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_header(data, serializer)


@ours
@given(frames, st.data())
def test_any_damage_decodes_or_is_the_peers_error(
    case: tuple[Command, bytes, bytes], data: st.DataObject
) -> None:
    damaged = bytearray(case[2])
    for at in data.draw(st.lists(st.integers(0, min(len(damaged), 60) - 1), min_size=1, max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    with contextlib.suppress(RemoteProtocolError):
        size = frame_length(damaged, 0, len(damaged))
        if size is not None:
            decode_frame(memoryview(damaged)[:size])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@ours
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("code", "opaque", "flag", "version", "language", "remark", "extFields", "x"), json_values
        ),
    )
)
def test_any_json_header_decodes_or_is_the_peers_error(document: dict[str, object]) -> None:
    try:
        command = decode_header(json.dumps(document).encode(), Serializer.JSON)
    except RemoteProtocolError:
        return
    assert all(type(value) is str for value in command.fields.values())
    assert command.remark is None or type(command.remark) is str
    assert type(command.code) is type(command.opaque) is type(command.flag) is type(command.version) is int
