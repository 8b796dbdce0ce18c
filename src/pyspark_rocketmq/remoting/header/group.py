"""Requests about clients, groups and transactions."""

from __future__ import annotations

from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header.base import RequestHeader, header, wire

__all__ = [
    "CheckClientConfigRequest",
    "CheckTransactionStateRequest",
    "EndTransactionRequest",
    "GetConsumerConnectionListRequest",
    "GetConsumerListByGroupRequest",
    "GetProducerConnectionListRequest",
    "HeartbeatRequest",
    "LockBatchMqRequest",
    "NotifyConsumerIdsChangedRequest",
    "QueryTopicConsumeByWhoRequest",
    "QueryTopicsByConsumerRequest",
    "UnlockBatchMqRequest",
    "UnregisterClientRequest",
]


@header
class HeartbeatRequest(RequestHeader):
    """``HeartbeatRequestHeader``: register this client's groups; the body says which."""

    CODE = RequestCode.HEART_BEAT


@header
class UnregisterClientRequest(RequestHeader):
    """``UnregisterClientRequestHeader``: take a client out of its groups."""

    CODE = RequestCode.UNREGISTER_CLIENT

    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class CheckClientConfigRequest(RequestHeader):
    """Have a filter expression checked: 23 if it does not parse; has no Java header class."""

    CODE = RequestCode.CHECK_CLIENT_CONFIG


@header
class GetConsumerListByGroupRequest(RequestHeader):
    """``GetConsumerListByGroupRequestHeader``: the ids of a group's online consumers; 1 if none."""

    CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


@header
class NotifyConsumerIdsChangedRequest(RequestHeader):
    """``NotifyConsumerIdsChangedRequestHeader``: one way, from the broker: rebalance."""

    CODE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


@header
class LockBatchMqRequest(RequestHeader):
    """``LockBatchMqRequestHeader``: lock queues for one consumer for 60 s; the body says which."""

    CODE = RequestCode.LOCK_BATCH_MQ


@header
class UnlockBatchMqRequest(RequestHeader):
    """``UnlockBatchMqRequestHeader``: give locks back."""

    CODE = RequestCode.UNLOCK_BATCH_MQ


@header
class GetConsumerConnectionListRequest(RequestHeader):
    """``GetConsumerConnectionListRequestHeader``: a group's connected consumers; 206 if none."""

    CODE = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


@header
class GetProducerConnectionListRequest(RequestHeader):
    """``GetProducerConnectionListRequestHeader``: a group's connected producers; 1 if none."""

    CODE = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


@header
class QueryTopicConsumeByWhoRequest(RequestHeader):
    """``QueryTopicConsumeByWhoRequestHeader``: the groups that read a topic."""

    CODE = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


@header
class QueryTopicsByConsumerRequest(RequestHeader):
    """``QueryTopicsByConsumerRequestHeader``: the topics that a group reads."""

    CODE = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


@header
class EndTransactionRequest(RequestHeader):
    """``EndTransactionRequestHeader``: commit (8) or roll back (12) a half message.

    Not idempotent: a second commit stores the message twice. 0 (unknown) is never answered.
    """

    CODE = RequestCode.END_TRANSACTION

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    broker_name: str = wire("bname")


@header
class CheckTransactionStateRequest(RequestHeader):
    """``CheckTransactionStateRequestHeader``: one way, from the broker: what became of a half message.

    ``topic`` is the half topic; the real one is in the record that the body holds.
    """

    CODE = RequestCode.CHECK_TRANSACTION_STATE

    topic: str | None = None
    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = wire("bname", default=None)
