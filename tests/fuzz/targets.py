"""What is fuzzed: each target takes any bytes and must return, or raise only what it promises.

A target also compares what it decodes with another way to the same: a second decoder, or a way back.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, Final

from pyspark_rocketmq.client.net.receive_buffer import ReceiveBuffer
from pyspark_rocketmq.errors import (
    CorruptMessageError,
    LocalProtocolError,
    OptionError,
    RemoteProtocolError,
)
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import CompatibilityWarning, SinkOptions, SourceOptions, parse_options
from pyspark_rocketmq.record.batch_items import decode_batch
from pyspark_rocketmq.record.decode.arrow import COLUMNS, BatchDecoder, Chunk
from pyspark_rocketmq.record.decode.objects import MessageDecoder
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.remoting import body as bodies
from pyspark_rocketmq.remoting import header as headers
from pyspark_rocketmq.remoting.command import Command, Serializer, decode_header, encode_header
from pyspark_rocketmq.remoting.frame import decode_frame, encode_frame, frame_length
from pyspark_rocketmq.remoting.header.base import Header
from pyspark_rocketmq.remoting.lenient_json import parse_json

__all__ = ["TARGETS", "Target", "call"]

Target = Callable[[bytes], None]

_LIMIT: Final = 1 << 20
_QUEUE: Final = MessageQueue("orders", "broker-a", 3)
_FOREVER: Final = 2**63 - 1
_DECODERS: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda view: bodies.decode_route("orders", view),
    bodies.decode_cluster_info,
    bodies.decode_topic_list,
    bodies.decode_topic_stats,
    bodies.decode_consume_stats,
    bodies.decode_reset_offsets,
    bodies.decode_topic_configs,
    bodies.decode_group_configs,
    bodies.decode_consumer_connection,
    bodies.decode_locked_queues,
    bodies.decode_runtime_info,
    bodies.decode_broker_properties,
)
_HEADERS: Final[tuple[type[Header], ...]] = tuple(
    value
    for name, value in sorted(vars(headers).items())
    if isinstance(value, type) and issubclass(value, Header) and value.FIELDS
)


def frame(data: bytes) -> None:
    """A frame of any bytes; what decodes can be written and reads the same."""
    view = memoryview(data)
    length = frame_length(view, 0, len(view), limit=_LIMIT)
    if length is None or length > len(view):
        return
    found = decode_frame(view[:length])
    try:
        again = decode_frame(memoryview(encode_frame(found.command, found.body)))
    except LocalProtocolError:
        return  # text without a UTF-8 form came in by an escape
    assert (again.command, again.body) == (found.command, found.body)


def stream(data: bytes) -> None:
    """Frames that arrive in pieces of any size are those that arrive at once."""
    sizes, rest = data[:8], data[8:]
    assert _received(rest, [7, *sizes]) == _received(rest, [len(rest) + 1])


def _received(data: bytes, sizes: list[int]) -> list[tuple[Command, bytes]] | str:
    buffer, found, at, turn = ReceiveBuffer(), [], 0, 0
    try:
        while at < len(data):
            part = data[at : at + 1 + sizes[turn % len(sizes)]]
            with buffer.room() as room:
                part = part[: len(room)]
                room[: len(part)] = part
            buffer.add_received(len(part))
            for command, where, start, end in buffer.take_frames():
                found.append((command, bytes(where[start:end])))
            at, turn = at + len(part), turn + 1
    except RemoteProtocolError:
        return "no protocol"  # how much came before depends on the pieces
    return found


def header(data: bytes) -> None:
    """A header in either serialization, and its fields as one of the declared headers."""
    if len(data) < 2:
        return
    kind = Serializer.ROCKETMQ if data[0] & 1 else Serializer.JSON
    command = decode_header(memoryview(data[2:]), kind)
    if kind is Serializer.ROCKETMQ:
        # An empty value travels as nothing.
        kept = {name: value for name, value in command.fields.items() if value}
        again = decode_header(memoryview(encode_header(command, kind)), kind)
        assert (again.code, again.opaque, again.flag, again.fields) == (
            *(command.code, command.opaque, command.flag),
            kept,
        )
    declared = _HEADERS[data[1] % len(_HEADERS)]
    parsed = declared.parse(command.fields)
    assert declared.parse(parsed.fields()) == parsed


def body(data: bytes) -> None:
    """A body, by any decoder of the package; the tolerant reader agrees with the standard one."""
    if not data:
        return
    view = memoryview(data[1:])
    try:
        standard = json.loads(bytes(view))
    except (ValueError, RecursionError):
        pass
    else:
        if view[:3] != b"\xef\xbb\xbf" and b"\0" not in bytes(view[:4]):  # json.loads guesses encodings
            read = parse_json(view)
            assert read == standard or read != read or "NaN" in bytes(view).decode()
    _DECODERS[data[0] % len(_DECODERS)](view)


def record(data: bytes) -> None:
    """Stored messages: batches and objects are those of the reference codec, or all refuse."""
    if not data:
        return
    crc, records = bool(data[0] & 1), data[1:]
    chunk = Chunk(memoryview(records), 0, len(records), 0, _FOREVER)
    decoder = BatchDecoder(list(COLUMNS), queue=_QUEUE, check_crc=crc)
    try:
        batches = decoder.decode([chunk])
    except CorruptMessageError:
        return
    for batch in batches:
        batch.validate(full=True)
    messages = decode_messages(records, topic="orders", broker_name="broker-a", queue_id=3, check_crc=crc)
    assert list(MessageDecoder(_QUEUE, check_crc=crc).messages([chunk])) == messages
    for name, expected in (
        ("queueOffset", [message.queue_offset for message in messages]),
        ("body", [message.body for message in messages]),
        ("tags", [message.tags for message in messages]),
        ("keys", [message.keys for message in messages]),
        ("msgId", [message.msg_id for message in messages]),
        ("flag", [message.flag for message in messages]),
        ("bornHost", [message.born_host for message in messages]),
        ("properties", [sorted(message.properties.items()) for message in messages]),
    ):
        found = [value for batch in batches for value in batch.column(name).to_pylist()]
        if name == "properties":
            found = [sorted(pairs) for pairs in found]
        assert found == expected, name


def batch(data: bytes) -> None:
    """The body of a batch."""
    decode_batch(data)


def options(data: bytes) -> None:
    """Options of source and sink, a line each: ``key=value``; what parses prints no secret."""
    if not data:
        return
    given = {}
    for line in data[1:].decode("utf-8", "replace").split("\n"):
        key, _, value = line.partition("=")
        given[key] = value
    kind = SinkOptions if data[0] & 1 else SourceOptions
    where = ("read", "readStream", "write", "writeStream")[data[0] >> 1 & 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompatibilityWarning)
        parsed = parse_options(kind, given, where=where, environ={})  # type: ignore[arg-type]
    secret = parsed.client.secret_key
    assert secret is None or len(secret) < 6 or secret not in repr(parsed).replace(given.get("topic", ""), "")


TARGETS: Final[dict[str, tuple[Target, tuple[type[Exception], ...]]]] = {
    "frame": (frame, (RemoteProtocolError,)),
    "stream": (stream, ()),
    "header": (header, (RemoteProtocolError,)),
    "body": (body, (RemoteProtocolError,)),
    "record": (record, ()),
    "batch": (batch, (CorruptMessageError,)),
    "options": (options, (OptionError,)),
}
"""The targets, and the errors that each one may raise."""


def call(name: str, data: bytes) -> None:
    """Run a target; any error but those that it promises gets out."""
    target, promised = TARGETS[name]
    try:
        target(data)
    except promised:
        return
