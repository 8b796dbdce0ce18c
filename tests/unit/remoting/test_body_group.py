"""Heartbeats, members, locks, filter checks."""

from __future__ import annotations

import json

import pytest

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.inventory import ClientConnection, ConsumerConnection
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.remoting.body import (
    decode_consumer_connection,
    decode_consumer_ids,
    decode_locked_queues,
    decode_producer_connection,
    encode_client_check,
    encode_heartbeat,
    encode_queue_lock,
)


def test_heartbeat() -> None:
    body = encode_heartbeat(
        "me@1",
        producer_groups=("p",),
        consumer_groups=("c",),
        subscriptions={"t": MessageSelector.by_tag("Aa || b"), "u": MessageSelector.by_sql("a > 5")},
        subscription_version=7,
    )
    assert json.loads(body) == {
        "clientID": "me@1",
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [
            {
                "groupName": "c",
                "consumeType": "CONSUME_ACTIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": "t",
                        "subString": "Aa || b",
                        "tagsSet": ["Aa", "b"],
                        "codeSet": [98, 2112],
                        "subVersion": 7,
                        "expressionType": "TAG",
                        "classFilterMode": False,
                    },
                    {
                        "topic": "u",
                        "subString": "a > 5",
                        "tagsSet": [],
                        "codeSet": [],
                        "subVersion": 7,
                        "expressionType": "SQL92",
                        "classFilterMode": False,
                    },
                ],
            }
        ],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }


def test_heartbeat_of_a_producer_and_of_a_push_consumer() -> None:
    assert json.loads(encode_heartbeat("me@1", producer_groups=("p", "q"))) == {
        "clientID": "me@1",
        "producerDataSet": [{"groupName": "p"}, {"groupName": "q"}],
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
    }
    body = encode_heartbeat(
        "me@1",
        consumer_groups=("c",),
        subscriptions={"t": MessageSelector()},
        consume_type="CONSUME_PASSIVELY",
        message_model="BROADCASTING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    (consumer,) = json.loads(body)["consumerDataSet"]
    assert consumer["subscriptionDataSet"][0]["subVersion"] == 0
    assert [consumer[name] for name in ("consumeType", "messageModel", "consumeFromWhere")] == [
        "CONSUME_PASSIVELY",
        "BROADCASTING",
        "CONSUME_FROM_FIRST_OFFSET",
    ]


# The values are Java's: "polygenelubricants".hashCode() is the smallest integer.
@pytest.mark.parametrize(
    ("tag", "code"),
    [("Aa", 2112), ("BB", 2112), ("TagA", 2598919), ("polygenelubricants", -(2**31)), ("😀", 1772899)],
)
def test_tag_codes_are_javas_hash_codes(tag: str, code: int) -> None:
    body = encode_client_check("me", "g", "t", MessageSelector.by_tag(tag))
    assert json.loads(body)["subscriptionData"]["codeSet"] == [code]


def test_client_check() -> None:
    assert json.loads(encode_client_check("me", "g", "t", MessageSelector.by_sql("a > "))) == {
        "clientId": "me",
        "group": "g",
        "namespace": "",
        "subscriptionData": {
            "topic": "t",
            "subString": "a > ",
            "tagsSet": [],
            "codeSet": [],
            "subVersion": 0,
            "expressionType": "SQL92",
            "classFilterMode": False,
        },
    }


def test_queue_lock() -> None:
    queue = MessageQueue("t", "b", 3)
    assert json.loads(encode_queue_lock("g", "me", [queue])) == {
        "consumerGroup": "g",
        "clientId": "me",
        "mqSet": [{"topic": "t", "brokerName": "b", "queueId": 3}],
    }
    body = b'{"lockOKMQSet":[{"brokerName":"b","queueId":3,"topic":"t"}]}'
    assert decode_locked_queues(body) == {queue}
    assert decode_locked_queues(b'{"lockOKMQSet":[]}') == frozenset()


def test_a_locked_queue_of_another_shape_is_named() -> None:
    with pytest.raises(
        RemoteProtocolError, match=r"lock result\.lockOKMQSet\[0\]\.<key> should be an object"
    ):
        decode_locked_queues(b'{"lockOKMQSet":[1]}')


@pytest.mark.parametrize("body", [b'{"lockOKMQSet":[1]}', b'{"lockOKMQSet":[{"topic":"t"}]}', b"[]"])
def test_queue_lock_of_another_shape(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_locked_queues(body)


def test_consumer_ids_are_sorted() -> None:
    assert decode_consumer_ids(b'{"consumerIdList":["b","a"]}') == ("a", "b")


def test_consumer_connection() -> None:
    body = (
        b'{"connectionSet":[{"clientAddr":"127.0.0.1:50000","clientId":"me@1","language":"JAVA","version":493}],'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"CLUSTERING","subscriptionTable":{"t":{"classFilterMode":false,"codeSet":[],'
        b'"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"t"}}}'
    )
    assert decode_consumer_connection(body) == ConsumerConnection(
        (ClientConnection("me@1", "127.0.0.1:50000", "JAVA", 493),),
        "CONSUME_PASSIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        {"t": MessageSelector()},
    )


def test_consumers_that_told_little() -> None:
    """Fields that a server leaves out because they are null."""
    body = (
        b'{"connectionSet":[{"clientId":"me@1"}],"subscriptionTable":{'
        b'"t":{"expressionType":"SQL92","subString":"a > 5"},"u":{"expressionType":"class"},"v":{}}}'
    )
    assert decode_consumer_connection(body) == ConsumerConnection(
        (ClientConnection("me@1", "", "OTHER", 0),),
        "",
        "",
        "",
        {"t": MessageSelector.by_sql("a > 5"), "u": MessageSelector(), "v": MessageSelector()},
    )
    assert decode_producer_connection(b"{}") == ()


@pytest.mark.parametrize(
    "body",
    [
        b'{"connectionSet":[{"clientAddr":"a:1"}]}',
        b'{"connectionSet":[{"clientId":"me","version":"493"}]}',
        b'{"connectionSet":[],"consumeType":1}',
        b'{"connectionSet":[],"subscriptionTable":{"t":1}}',
        b'{"connectionSet":[],"subscriptionTable":{1:{}}}'.replace(b"{1:", b"{{}:"),
    ],
)
def test_consumers_of_another_shape(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="consumer connection"):
        decode_consumer_connection(body)


def test_producer_connection() -> None:
    body = b'{"connectionSet":[{"clientAddr":"a:1","clientId":"me","language":"PYTHON","version":493}]}'
    assert decode_producer_connection(body) == (ClientConnection("me", "a:1", "PYTHON", 493),)


def test_text_without_utf8_form_is_our_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_heartbeat("\ud800")
