"""Bodies about clients and groups: heartbeats, members, queue locks, filter checks.

# Facts
#
# ``HeartbeatData``, ``ConsumerData``, ``SubscriptionData``, ``FilterAPI``, ``ConsumerConnection``,
# ``ProducerConnection``, ``GetConsumerListByGroupResponseBody``, ``LockBatchRequestBody``,
# ``LockBatchResponseBody``, ``CheckClientRequestBody`` (5.4.0).
#
# * The broker filters tags by ``codeSet``, their ``String.hashCode``, and does not compute it.
# * A later ``subVersion`` replaces a subscription; Java uses the time in ms.
# * Queues that others hold are missing in the answer to a lock, which lasts 60 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark_rocketmq.inventory import ClientConnection, ConsumerConnection
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.remoting.body.shape import Node, queue_key, read, write
from pyspark_rocketmq.remoting.command import Buffer
from pyspark_rocketmq.remoting.java_hash import java_hash

__all__ = [
    "decode_consumer_connection",
    "decode_consumer_ids",
    "decode_locked_queues",
    "decode_producer_connection",
    "encode_client_check",
    "encode_heartbeat",
    "encode_queue_lock",
]


def encode_heartbeat(
    client_id: str,
    *,
    producer_groups: Iterable[str] = (),
    consumer_groups: Iterable[str] = (),
    subscriptions: Mapping[str, MessageSelector] | None = None,
    subscription_version: int = 0,
    consume_type: str = "CONSUME_ACTIVELY",
    message_model: str = "CLUSTERING",
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET",
) -> bytes:
    """Write the body of HEART_BEAT.

    Parameters
    ----------
    client_id : str
        The same in every heartbeat of a client and in no other's.
    producer_groups, consumer_groups : iterable of str
        The groups that the client is a member of; the other arguments hold for all its consumer groups.
    subscriptions : mapping of str to MessageSelector, optional
        What the consumers read, by topic.
    subscription_version : int
        Larger than that of the subscriptions that these replace.
    consume_type : str
        ``CONSUME_ACTIVELY`` (pull), ``CONSUME_PASSIVELY`` (push) or ``CONSUME_POP``.
    message_model : str
        ``CLUSTERING`` or ``BROADCASTING``.
    consume_from_where : str
        ``CONSUME_FROM_LAST_OFFSET``, ``CONSUME_FROM_FIRST_OFFSET`` or ``CONSUME_FROM_TIMESTAMP``.
    """
    subscribed = [
        _subscription(topic, selector, subscription_version)
        for topic, selector in (subscriptions or {}).items()
    ]
    return write(
        {
            "clientID": client_id,
            "producerDataSet": [{"groupName": group} for group in producer_groups],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": consume_type,
                    "messageModel": message_model,
                    "consumeFromWhere": consume_from_where,
                    "unitMode": False,
                    "subscriptionDataSet": subscribed,
                }
                for group in consumer_groups
            ],
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
    )


def encode_client_check(client_id: str, group: str, topic: str, selector: MessageSelector) -> bytes:
    """Write the body of CHECK_CLIENT_CONFIG: have the broker parse a filter expression."""
    return write(
        {
            "clientId": client_id,
            "group": group,
            "namespace": "",
            "subscriptionData": _subscription(topic, selector, 0),
        }
    )


def encode_queue_lock(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    """Write the body of LOCK_BATCH_MQ and of UNLOCK_BATCH_MQ."""
    return write(
        {
            "consumerGroup": group,
            "clientId": client_id,
            "mqSet": [
                {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
                for queue in queues
            ],
        }
    )


def decode_locked_queues(view: Buffer) -> frozenset[MessageQueue]:
    """Read the answer to LOCK_BATCH_MQ: the queues that are locked now.

    Raises
    ------
    RemoteProtocolError
    """
    locked = read(view, "lock result")["lockOKMQSet"]
    return frozenset(queue_key(queue.value, queue.path) for queue in locked.elements())


def decode_consumer_ids(view: Buffer) -> tuple[str, ...]:
    """Read the answer to GET_CONSUMER_LIST_BY_GROUP: the client ids, sorted.

    Raises
    ------
    RemoteProtocolError
    """
    return tuple(sorted(read(view, "consumer list")["consumerIdList"].strings()))


def decode_consumer_connection(view: Buffer) -> ConsumerConnection:
    """Read the answer to GET_CONSUMER_CONNECTION_LIST.

    Raises
    ------
    RemoteProtocolError
    """
    group = read(view, "consumer connection")
    table = group["subscriptionTable"]
    return ConsumerConnection(
        _clients(group["connectionSet"]),
        group["consumeType"].string(""),
        group["messageModel"].string(""),
        group["consumeFromWhere"].string(""),
        {
            table.name(topic): MessageSelector(
                subscription["subString"].string("*"),
                "SQL92" if subscription["expressionType"].string("TAG") == "SQL92" else "TAG",
            )
            for topic, subscription in table.members()
        },
    )


def decode_producer_connection(view: Buffer) -> tuple[ClientConnection, ...]:
    """Read the answer to GET_PRODUCER_CONNECTION_LIST.

    Raises
    ------
    RemoteProtocolError
    """
    return _clients(read(view, "producer connection")["connectionSet"])


def _clients(connections: Node) -> tuple[ClientConnection, ...]:
    return tuple(
        ClientConnection(
            client["clientId"].string(),
            client["clientAddr"].string(""),
            client["language"].string("OTHER"),
            client["version"].integer(0),
        )
        for client in connections.elements()
    )


def _subscription(topic: str, selector: MessageSelector, version: int) -> dict[str, Any]:
    tags = sorted(selector.tags or ())
    return {
        "topic": topic,
        "subString": selector.expression,
        "tagsSet": tags,
        "codeSet": sorted({java_hash(tag) for tag in tags}),
        "subVersion": version,
        "expressionType": selector.expression_type,
        "classFilterMode": False,
    }
