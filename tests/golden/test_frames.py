"""Frames that real brokers sent, kept byte for byte: what they meant once, they mean in every release."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.record.decode.arrow import DEFAULT_COLUMNS, BatchDecoder, Chunk
from pyspark_rocketmq.record.layout import MessageFlag
from pyspark_rocketmq.record.message import decode_messages
from pyspark_rocketmq.remoting.body import decode_consume_stats, decode_route, decode_topic_stats
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.frame import Frame, decode_frame, frame_length
from pyspark_rocketmq.remoting.header import OffsetResponse, PullMessageResponse

FRAMES = Path(__file__).with_name("frames")
QUEUE = MessageQueue("golden", "broker-a", 0)

pytestmark = pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])


def load(version: str, name: str) -> Frame:
    lines = (FRAMES / f"{version}-{name}.txt").read_text().splitlines()
    data = b"".join(bytes.fromhex(line.split("  # ", 1)[0]) for line in lines)
    assert frame_length(memoryview(data), 0, len(data)) == len(data)
    frame = decode_frame(memoryview(data))
    assert frame.command.is_response
    assert frame.command.opaque == 7
    return frame


def test_route(version: str) -> None:
    route = decode_route("golden", load(version, "route").body)
    assert route.read_queues() == route.write_queues() == (QUEUE,)
    (broker,) = route.brokers
    assert broker.master is not None
    assert broker.master.startswith("127.0.0.1:")


def test_no_route(version: str) -> None:
    frame = load(version, "no-route")
    assert frame.command.code == ResponseCode.TOPIC_NOT_EXIST
    assert "missing" in (frame.command.remark or "")


@pytest.mark.parametrize("name", ["max-offset", "max-offset-binary"])
def test_max_offset(version: str, name: str) -> None:
    frame = load(version, name)
    assert frame.command.code == ResponseCode.SUCCESS
    assert OffsetResponse.parse(frame.command.fields).offset == 3


def test_pulled_messages(version: str) -> None:
    frame = load(version, "pull")
    header = PullMessageResponse.parse(frame.command.fields)
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (3, 0, 3)
    plain, compressed, batched = decode_messages(frame.body, broker_name="broker-a", check_crc=True)
    assert (plain.body, plain.tags, plain.keys, plain.properties["p"]) == (b"plain", "TagA", "k1 k2", "v")
    assert (compressed.body, compressed.flag) == (b"compressed " * 20, 42)
    assert MessageFlag.COMPRESSED in MessageFlag(compressed.sys_flag)
    assert (batched.body.decode(), batched.keys, batched.queue_offset) == ("größer", "k3", 2)
    assert [message.queue for message in (plain, compressed, batched)] == [QUEUE] * 3


def test_the_batch_decoder_reads_the_same(version: str) -> None:
    body = load(version, "pull").body
    (batch,) = BatchDecoder(DEFAULT_COLUMNS, queue=QUEUE).decode([Chunk(body, 0, len(body), 0, 3)])
    rows = batch.to_pylist()
    messages = decode_messages(body, broker_name="broker-a")
    assert [row["body"] for row in rows] == [message.body for message in messages]
    assert [row["msgId"] for row in rows] == [message.msg_id for message in messages]
    assert [row["storeTimestamp"].timestamp() * 1000 for row in rows] == pytest.approx(
        [message.store_timestamp for message in messages]
    )


def test_statistics(version: str) -> None:
    stats = decode_topic_stats(load(version, "topic-stats").body)[QUEUE]
    assert (stats.min_offset, stats.max_offset) == (0, 3)
    progress = decode_consume_stats(load(version, "consume-stats").body)
    assert (progress[QUEUE].broker_offset, progress[QUEUE].consumer_offset) == (3, 2)
