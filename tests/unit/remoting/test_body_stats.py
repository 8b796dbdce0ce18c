"""Tables whose keys are objects."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.model import ConsumerOffset, MessageQueue, QueueStats
from pyspark_rocketmq.remoting.body import decode_consume_stats, decode_reset_offsets, decode_topic_stats

Decoder = Callable[[bytes], object]

Q0 = MessageQueue("t", "broker-a", 0)
Q1 = MessageQueue("t", "broker-a", 1)
KEY0 = b'{"brokerName":"broker-a","queueId":0,"topic":"t"}'
KEY1 = b'{"topic":"t","queueId":1,"brokerName":"broker-a"}'


def test_topic_stats() -> None:
    body = (
        b'{"offsetTable":{' + KEY0 + b':{"lastUpdateTimestamp":1700000000000,"maxOffset":12,"minOffset":3},'
        b"" + KEY1 + b':{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}},"topicPutTps":0.5}'
    )
    assert decode_topic_stats(body) == {Q0: QueueStats(3, 12, 1700000000000), Q1: QueueStats(0, 0, 0)}


def test_consume_stats() -> None:
    body = (
        b'{"consumeTps":0.0,"offsetTable":{' + KEY0 + b':{"brokerOffset":12,"consumerOffset":5,'
        b'"lastTimestamp":1700000000000,"pullOffset":6}}}'
    )
    assert decode_consume_stats(body) == {Q0: ConsumerOffset(12, 5, 1700000000000)}


def test_times_that_are_left_out_are_unknown() -> None:
    topic = b'{"offsetTable":{' + KEY0 + b':{"maxOffset":12,"minOffset":3}}}'
    assert decode_topic_stats(topic) == {Q0: QueueStats(3, 12, 0)}
    group = b'{"offsetTable":{' + KEY0 + b':{"brokerOffset":12,"consumerOffset":5}}}'
    assert decode_consume_stats(group) == {Q0: ConsumerOffset(12, 5, 0)}


@pytest.mark.parametrize(
    ("decode", "what"),
    [
        (decode_topic_stats, "topic stats"),
        (decode_consume_stats, "consume stats"),
        (decode_reset_offsets, "reset offsets"),
    ],
)
def test_an_error_names_the_table(decode: Decoder, what: str) -> None:
    for body, place in ((b"[]", ""), (b'{"offsetTable":{{}:0}}', ".offsetTable.<key>.topic")):
        with pytest.raises(RemoteProtocolError, match=f": {what}{place} should be"):
            decode(body)


def test_reset_offsets() -> None:
    body = b'{"offsetTable":{' + KEY0 + b":12," + KEY1 + b":-1}}"
    assert decode_reset_offsets(body) == {Q0: 12, Q1: -1}


@pytest.mark.parametrize("decode", [decode_topic_stats, decode_consume_stats, decode_reset_offsets])
@pytest.mark.parametrize("body", [b'{"offsetTable":{}}', b"{}"])
def test_no_queues(decode: Decoder, body: bytes) -> None:
    assert decode(body) == {}


@pytest.mark.parametrize("decode", [decode_topic_stats, decode_consume_stats, decode_reset_offsets])
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"offsetTable":[]}',
        b'{"offsetTable":{"t":{}}}',
        b'{"offsetTable":{' + KEY0 + b":{}}}",
        b'{"offsetTable":{' + KEY0 + b':"x"}}',
        b'{"offsetTable":{' + KEY0.replace(b"0", b'"0"') + b":0}}",
        b'{"offsetTable":{' + KEY0.replace(b"0", b"-1") + b":0}}",
        b'{"offsetTable":{{"queueId":0,"topic":"t"}:0}}',
        b'{"offsetTable":{' + KEY0 + b":9223372036854775808}}",
        b'{"offsetTable":{"$ref":"$.offsetTable"}}',
    ],
)
def test_another_shape(decode: Decoder, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(body)
