"""Bodies: any bytes decode or are the peer's error; RocketMQ's JSON reads like the standard's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.inventory import GroupConfig
from pyspark_rocketmq.model import MessageQueue, QueueStats
from pyspark_rocketmq.remoting import body as bodies
from pyspark_rocketmq.remoting.body import (
    decode_broker_properties,
    decode_group_config,
    decode_route,
    decode_topic_stats,
    encode_broker_properties,
    encode_group_config,
)
from pyspark_rocketmq.remoting.lenient_json import parse_json

ours = examples(60)

Decoder = Callable[[bytes], object]
DECODERS: list[Decoder] = [
    getattr(bodies, name)
    for name in bodies.__all__
    if name.startswith("decode_") and name != decode_route.__name__
] + [lambda view: decode_route("t", view)]

NAMES = [
    "brokerDatas",
    "brokerAddrs",
    "brokerName",
    "cluster",
    "queueDatas",
    "perm",
    "readQueueNums",
    "writeQueueNums",
    "currIdMap",
    "epoch",
    "topicQueueMappingByBroker",
    "brokerAddrTable",
    "clusterAddrTable",
    "topicList",
    "groupList",
    "offsetTable",
    "topicName",
    "topicConfigTable",
    "attributes",
    "subscriptionGroupTable",
    "groupName",
    "table",
    "lockOKMQSet",
    "topic",
    "queueId",
    "clientId",
    "consumerIdList",
    "connectionSet",
    "subscriptionTable",
    "version",
]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | text
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | text, inner, max_size=6)
    ),
    max_leaves=20,
)


@examples(300)
@given(
    st.sampled_from(DECODERS),
    st.binary(max_size=60) | st.text('{}[]":,0-1tn\\u ', max_size=40).map(str.encode),
)
def test_any_bytes_decode_or_are_the_peers_error(decode: Decoder, data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode(data)


@examples(400)
@given(st.sampled_from(DECODERS), documents)
def test_any_document_decodes_or_is_the_peers_error(decode: Decoder, document: object) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode(json.dumps(document).encode())


def lenient_key(key: str) -> str:
    return key if key.isascii() and key.isdecimal() and len(key) < 20 else json.dumps(key)


def lenient(value: Any) -> str:
    """Write as fastjson does: keys that are numbers stand bare."""
    match value:
        case dict():
            members = (f"{lenient_key(key)} : {lenient(item)}" for key, item in value.items())
            return f"{{ {', '.join(members)}}}"
        case list():
            return f"[{','.join(map(lenient, value))} ]"
        case _:
            return json.dumps(value)


numbered = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.integers(0, 10**18).map(str) | text, inner, max_size=4)
    ),
    max_leaves=20,
)


@examples(150)
@given(numbered)
def test_lenient_reader_reads_what_the_standard_one_reads(document: object) -> None:
    assert parse_json(lenient(document).encode()) == json.loads(json.dumps(document))


queues = st.builds(MessageQueue, text, text, st.integers(0, 2**31 - 1))
longs = st.integers(-(2**63), 2**63 - 1)


@examples(100)
@given(st.dictionaries(queues, st.builds(QueueStats, longs, longs, longs), max_size=5))
def test_tables_keyed_by_queues(table: dict[MessageQueue, QueueStats]) -> None:
    members = (
        json.dumps({"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic})
        + ":"
        + json.dumps(
            {
                "lastUpdateTimestamp": stats.last_update_timestamp,
                "maxOffset": stats.max_offset,
                "minOffset": stats.min_offset,
            }
        )
        for queue, stats in table.items()
    )
    assert (
        decode_topic_stats(f'{{"offsetTable":{{{",".join(members)}}},"topicPutTps":0.0}}'.encode()) == table
    )


@ours
@given(st.builds(GroupConfig, text, retry_max_times=longs, consume_enable=st.booleans()))
def test_group_config_round_trip(config: GroupConfig) -> None:
    assert decode_group_config(encode_group_config(config)) == config


@ours
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z][A-Za-z0-9.]{0,9}", fullmatch=True), st.text(max_size=15), max_size=5
    )
)
def test_broker_properties_are_one_line_of_ascii_each(settings_: dict[str, str]) -> None:
    lines = encode_broker_properties(settings_).decode("ascii").splitlines()
    assert [line.partition("=")[0] for line in lines] == list(settings_)


@ours
@given(st.dictionaries(text.filter(lambda name: not set(name) & set("=\n\r")), text, max_size=5))
def test_broker_properties_read_line_by_line(settings_: dict[str, str]) -> None:
    plain = {name: value.replace("\n", "").replace("\r", "") for name, value in settings_.items()}
    lines = "".join(f"{name}={value}\n" for name, value in plain.items())
    assert decode_broker_properties(lines.encode()) == plain
