"""Well-formed inputs that the fuzzer begins with."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.model import MessageSelector
from pyspark_rocketmq.record.batch_items import BatchItem, encode_batch
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.message import encode_message
from pyspark_rocketmq.remoting.body import encode_broker_properties, encode_heartbeat
from pyspark_rocketmq.remoting.command import FLAG_RESPONSE, Command, Serializer, encode_header
from pyspark_rocketmq.remoting.frame import encode_frame
from pyspark_rocketmq.remoting.header import PullMessageRequest, PullMessageResponse, SendMessageResponse

__all__ = ["SEEDS"]

_PULL = PullMessageRequest(
    consumer_group="g",
    topic="orders",
    queue_id=1,
    queue_offset=7,
    max_msg_nums=32,
    sys_flag=4,
    subscription="a || b",
    expression_type="TAG",
    broker_name="broker-a",
).fields()
_ANSWER = PullMessageResponse(next_begin_offset=39, min_offset=0, max_offset=99).fields()
_SENT = SendMessageResponse(msg_id="7F", queue_id=1, queue_offset=3, transaction_id="x").fields()
_COMMANDS = (
    Command(11, 1, fields=_PULL),
    Command(0, 1, FLAG_RESPONSE, _ANSWER, "FOUND"),
    Command(0, -2, FLAG_RESPONSE, _SENT),
    Command(2, 3, FLAG_RESPONSE, {}, "[TIMEOUT_CLEAN_QUEUE] größer"),
)
_ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911","1":"::1:10921"},"brokerName":"broker-a",'
    b'"cluster":"c"}],"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"writeQueueNums":4}],'
    b'"topicQueueMappingByBroker":{"broker-a":{"epoch":3,"currIdMap":{"0":0,"5":1}}}}'
)
_CLUSTERS = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
    b'"cluster":"c"}},"clusterAddrTable":{"c":["broker-a"]}}'
)
_STATS = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:{"minOffset":0,"maxOffset":9,'
    b'"lastUpdateTimestamp":1}}}'
)
_CONFIGS = (
    b'{"topicConfigTable":{"t":{"topicName":"t","readQueueNums":4,"writeQueueNums":4,"perm":6,"order":false,'
    b'"attributes":{"+message.type":"FIFO"}}}}'
)


def _record(offset: int, body: bytes, **fields: object) -> bytes:
    return encode_message(
        body,
        {"UNIQ_KEY": "7F000001", "TAGS": "t", "KEYS": "a b", "ü": "é"},
        **({"topic": "orders", "queue_offset": offset} | fields),
    )


_ITEMS = encode_batch([BatchItem(b"one", {"TAGS": "x"}, 1), BatchItem(b"two", {}, -1)])
_RECORDS = (
    _record(0, b"plain") + _record(1, b"again"),
    *(_record(5, b"packed " * 20, compression=kind) for kind in (*Compression,)),
    _record(0, b"six", born_host="[::1]:1", store_host="[2001:db8::7]:2"),
    _record(9, b"long", topic="t" * 200),
    _record(100, _ITEMS, sys_flag=0xC0),
)
_OPTIONS = (
    b"nameServer=a:1\ntopic=orders;payments\nstartingOffsets=earliest\nsecretKey=planted-secret\naccessKey=user",
    b'nameServer=a:1;b:2\nassign={"orders":{"broker-a":[0,1]}}\nmaxOffsetsPerTrigger=100',
    b"nameServer=[::1]:1\nsubscribePattern=ord.*\nstartingOffsets=latest\ntls=true",
    b"nameServer=a:1\ntopic=t\nstartingTimestamp=1767225600000\nfailOnDataLoss=false",
    b"nameServer=a:1\ntopic=t\ncolumns=body,tags\nbodyAs=string\nrequestTimeoutMs=5\nconsumerGroup=g",
)

SEEDS: Final[dict[str, list[bytes]]] = {
    "frame": [
        encode_frame(command, b"body", serializer=kind) for command in _COMMANDS for kind in Serializer
    ],
    "stream": [
        b"\x00\x01\x05\x09\x20\x40\x03\xff"
        + b"".join(encode_frame(command, b"b" * 9, serializer=kind) for command in _COMMANDS)
        for kind in Serializer
    ],
    "header": [
        bytes([kind, which]) + encode_header(command, kind)
        for which, command in enumerate(_COMMANDS)
        for kind in Serializer
    ],
    "body": [
        bytes([which]) + text
        for which, text in (
            *((0, _ROUTE), (1, _CLUSTERS), (3, _STATS), (6, _CONFIGS)),
            (2, b'{"topicList":["a","b"]}'),
            (8, encode_heartbeat("c", consumer_groups=("g",), subscriptions={"t": MessageSelector()})),
            (11, encode_broker_properties({"a.b": "c=d\\"})),
        )
    ],
    "record": [bytes([at & 1]) + records for at, records in enumerate(_RECORDS)],
    "batch": [_ITEMS],
    "options": [b"\x02" + text for text in _OPTIONS] + [b"\x07nameServer=a:1\ntopic=t\nbatchSize=7"],
}
