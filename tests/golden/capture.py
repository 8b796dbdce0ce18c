"""Captures frames of a real broker into ``frames/``, each byte with what it means.

Run it by hand for a new generation of brokers: ``python -m tests.golden.capture 5.4.0``.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.wait import eventually

from pyspark_rocketmq.client import Admin, Client, Producer
from pyspark_rocketmq.client.net.endpoint import split_address
from pyspark_rocketmq.client.send.producer import ProducerOptions
from pyspark_rocketmq.devcluster import DevCluster
from pyspark_rocketmq.model import OutgoingMessage
from pyspark_rocketmq.remoting.command import Command, Serializer
from pyspark_rocketmq.remoting.frame import encode_frame
from pyspark_rocketmq.remoting.header import (
    GetConsumeStatsRequest,
    GetMaxOffsetRequest,
    GetRouteInfoRequest,
    GetTopicStatsInfoRequest,
    PullMessageRequest,
    RequestHeader,
)

FRAMES = Path(__file__).with_name("frames")

Field = tuple[bytes, str]

_RECORD = (
    (4, "record size"),
    (4, "magic, V1"),
    (4, "body CRC"),
    (4, "queue id"),
    (4, "user flag"),
    (8, "queue offset"),
    (8, "commit-log offset"),
    (4, "sysFlag"),
    (8, "born timestamp, ms"),
    (4, "born host, IPv4"),
    (4, "born port"),
    (8, "store timestamp, ms"),
    (4, "store host, IPv4"),
    (4, "store port"),
    (4, "reconsume times"),
    (8, "prepared transaction offset"),
)

_BINARY_HEADER = (
    (2, "code"),
    (1, "language"),
    (2, "version"),
    (4, "opaque"),
    (4, "flag"),
    (4, "remark length"),
)


def exchange(addr: str, request: RequestHeader, serializer: Serializer = Serializer.JSON) -> bytes:
    """Send one request over a bare socket and return the answer's bytes as they are."""
    with socket.create_connection(split_address(addr), timeout=10) as sock:
        command = Command(code=request.CODE, opaque=7, fields=request.fields())
        sock.sendall(encode_frame(command, serializer=serializer))
        with sock.makefile("rb") as stream:
            head = stream.read(4)
            return head + stream.read(struct.unpack(">i", head)[0])


def explain(frame: bytes, *, records: bool) -> Iterator[Field]:
    """Cut a frame into its fields."""
    header_length = int.from_bytes(frame[5:8], "big")
    yield frame[0:4], "bytes that follow"
    yield frame[4:5], "serialization of the header: 0 JSON, 1 ROCKETMQ"
    yield frame[5:8], "header length"
    header, body = frame[8 : 8 + header_length], frame[8 + header_length :]
    yield from _binary_header(header) if frame[4] else [(header, f"header: {header.decode()}")]
    if records:
        while body:
            size = int.from_bytes(body[:4], "big")
            yield from _record(body[:size])
            body = body[size:]
    elif body:
        yield body, f"body: {body.decode()}"


def _binary_header(header: bytes) -> Iterator[Field]:
    at = 0
    for size, name in _BINARY_HEADER:
        yield header[at : at + size], name
        at += size
    remark = int.from_bytes(header[at - 4 : at], "big")
    if remark:
        yield header[at : at + remark], f"remark: {header[at : at + remark].decode()}"
    at += remark
    yield header[at : at + 4], "length of the fields"
    at += 4
    while at < len(header):
        for size, name in ((2, "name"), (4, "value")):
            length = int.from_bytes(header[at : at + size], "big")
            yield header[at : at + size], f"{name} length"
            yield header[at + size : at + size + length], header[at + size : at + size + length].decode()
            at += size + length


def _record(record: bytes) -> Iterator[Field]:
    at = 0
    for size, name in _RECORD:
        yield record[at : at + size], name
        at += size
    for size, name in ((4, "body"), (1, "topic"), (2, "properties")):
        length = int.from_bytes(record[at : at + size], "big")
        yield record[at : at + size], f"{name} length"
        text = record[at + size : at + size + length]
        yield text, name if name == "body" else f"{name}: {text.decode()!r}"
        at += size + length


def write(name: str, frame: bytes, *, records: bool = False) -> None:
    """Write a frame as lines of hexadecimal bytes and what they are."""
    fields = list(explain(frame, records=records))
    assert b"".join(data for data, _ in fields) == frame
    (FRAMES / name).write_text("".join(f"{data.hex()}  # {meaning}\n" for data, meaning in fields))


def capture(version: str) -> None:
    """Start a broker, have it store three messages, and keep what it answers."""
    with DevCluster(version=version) as mq, Client(mq.name_server) as client:
        Admin(client).create_topic("golden", queues=1)
        (queue,) = client.read_queues("golden")
        with Producer(client, options=ProducerOptions(compress_above=100)) as producer:
            producer.send(
                OutgoingMessage("golden", b"plain", tags="TagA", keys=("k1", "k2"), properties={"p": "v"})
            )
            producer.send(OutgoingMessage("golden", b"compressed " * 20, flag=42))
            producer.send_batch([OutgoingMessage("golden", "größer".encode(), keys="k3")], queue)
        eventually(lambda: client.max_offsets([queue])[queue] == 3, timeout_s=10)
        client.commit_offsets("golden-group", {queue: 2})
        broker = client.broker_address(queue.broker_name, topic="golden")
        pull = PullMessageRequest(
            consumer_group="golden-group",
            topic="golden",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=4,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        route = GetRouteInfoRequest(topic="golden", accept_standard_json_only=True)
        missing = GetRouteInfoRequest(topic="missing", accept_standard_json_only=True)
        offset = GetMaxOffsetRequest(topic="golden", queue_id=0, broker_name=queue.broker_name)
        write(f"{version}-route.txt", exchange(mq.name_server, route))
        write(f"{version}-no-route.txt", exchange(mq.name_server, missing))
        write(f"{version}-max-offset.txt", exchange(broker, offset))
        write(f"{version}-max-offset-binary.txt", exchange(broker, offset, Serializer.ROCKETMQ))
        write(f"{version}-pull.txt", exchange(broker, pull), records=True)
        write(f"{version}-topic-stats.txt", exchange(broker, GetTopicStatsInfoRequest(topic="golden")))
        write(
            f"{version}-consume-stats.txt",
            exchange(broker, GetConsumeStatsRequest(consumer_group="golden-group")),
        )


if __name__ == "__main__":
    for each in sys.argv[1:]:
        capture(each)
