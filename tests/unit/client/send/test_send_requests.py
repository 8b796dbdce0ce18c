"""The requests of sends are those that the general encoder writes, however they are encoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from pyspark_rocketmq.client.net.endpoint import ConnectionOptions
from pyspark_rocketmq.client.net.frame_socket import LARGE_BODY, encode_request
from pyspark_rocketmq.client.send.message_encoding import Outgoing
from pyspark_rocketmq.client.send.send_requests import ProducerOptions, SendRequests
from pyspark_rocketmq.errors import LocalProtocolError, MessageIllegalError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.acl import Credentials
from pyspark_rocketmq.remoting.command import FLAG_ONE_WAY, Serializer
from pyspark_rocketmq.remoting.header import RequestHeader, SendBatchMessageRequest, SendMessageRequest
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

QUEUE = MessageQueue("orders", "broker-a", 3)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
PROPERTIES = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["KEYS\x01a b\x02", 'x\x01"\\%s%d', '","opaque":0,"', "\u2028é\x00"]
)

CONNECTIONS = {
    "json": (ConnectionOptions(), 0),
    "one-way": (ConnectionOptions(), FLAG_ONE_WAY),
    "binary": (ConnectionOptions(serializer=Serializer.ROCKETMQ), 0),
    "signed": (ConnectionOptions(credentials=Credentials("me", "secret")), 0),
    "namespace": (ConnectionOptions(namespace=Namespace("ns")), 0),
}


def requests(namespace: Namespace = NO_NAMESPACE, **options: int) -> SendRequests:
    return SendRequests(ProducerOptions(**options), group="g", namespace=namespace)  # type: ignore[arg-type]


@pytest.mark.parametrize("connection", CONNECTIONS)
@examples(40)
@given(properties=PROPERTIES, flag=NUMBERS, sys_flag=NUMBERS, batch=st.booleans(), queue_id=st.integers(0, 9))
def test_a_send_is_written_as_the_general_encoder_writes_it(
    connection: str, properties: str, flag: int, sys_flag: int, batch: bool, queue_id: int
) -> None:
    options, frame_flag = CONNECTIONS[connection]
    outgoing = Outgoing(
        topic="orders", body=b"body", properties=properties, flag=flag, sys_flag=sys_flag, batch=batch
    )
    kind: type[RequestHeader] = SendBatchMessageRequest if batch else SendMessageRequest
    header = kind(
        producer_group="g",
        topic="orders",
        default_topic="orders",
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        flag=flag,
        properties=properties,
        broker_name="broker-a",
    )
    sends = requests(options.namespace)
    for _ in range(2):  # the second one by the template of the first
        call = sends.call(outgoing, MessageQueue("orders", "broker-a", queue_id), now_ms=1_700_000_000_000)
        assert call.body == b"body"
        written = encode_request(options, call.request, call.body, 77, frame_flag)
        assert written == encode_request(options, header, b"body", 77, frame_flag)


def test_topics_and_brokers_are_not_mixed_up() -> None:
    sends = requests()
    for topic in ("orders", "payments"):
        for broker_name in ("broker-a", "broker-b"):
            for batch in (False, True):
                outgoing = Outgoing(topic=topic, body=b"x", batch=batch)
                call = sends.call(outgoing, MessageQueue(topic, broker_name, 0), now_ms=1)
                (frame,) = encode_request(ConnectionOptions(), call.request, call.body, 1, 0)
                code = b'"code":320' if batch else b'"code":310'
                for part in (f'"b":"{topic}"', f'"c":"{topic}"', f'"n":"{broker_name}"'):
                    assert part.encode() in frame
                assert code in bytes(frame)


def test_a_large_body_is_not_copied() -> None:
    body = bytes(LARGE_BODY)
    call = requests().call(Outgoing(topic="orders", body=body), QUEUE, now_ms=1)
    assert encode_request(ConnectionOptions(), call.request, call.body, 1, 0)[1] is body


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(MessageIllegalError, match="11 bytes in one send, the limit is 10"):
        requests(max_message_bytes=10).call(Outgoing(topic="orders", body=bytes(11)), QUEUE, now_ms=1)
    for connection in ("json", "signed"):
        options, _ = CONNECTIONS[connection]
        for broken, cause in (
            ({"properties": "a\x01\ud800\x02"}, "no UTF-8 form|without a UTF-8 form"),
            ({"flag": "7"}, "another type than declared"),
            ({"flag": 7.5}, "another type than declared"),
            ({"properties": 7}, "another type than declared"),
        ):
            call = requests().call(Outgoing(topic="orders", body=b"x", **broken), QUEUE, now_ms=1)  # type: ignore[arg-type]
            with pytest.raises(LocalProtocolError, match=cause):
                encode_request(options, call.request, call.body, 1, 0)
    call = requests(max_message_bytes=1 << 30).call(
        Outgoing(topic="orders", body=bytes(16 << 20)), QUEUE, now_ms=1
    )
    with pytest.raises(LocalProtocolError, match="the frame is larger than its receiver takes"):
        encode_request(ConnectionOptions(), call.request, call.body, 1, 0)
