"""Requests that carry or bring messages."""

from __future__ import annotations

from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header.base import RequestHeader, ResponseHeader, header, wire

__all__ = [
    "ConsumerSendMsgBackRequest",
    "PullMessageRequest",
    "PullMessageResponse",
    "QueryMessageRequest",
    "QueryMessageResponse",
    "RecallMessageRequest",
    "RecallMessageResponse",
    "SendBatchMessageRequest",
    "SendMessageRequest",
    "SendMessageResponse",
    "ViewMessageRequest",
]


@header
class PullMessageRequest(RequestHeader):
    """``PullMessageRequestHeader``: messages of a queue from an offset on.

    Bits of ``sys_flag`` (``PullSysFlag``): 1 commit ``commit_offset`` for the group, 2 wait up to
    ``suspend_timeout_millis`` at the queue's end, 4 ``subscription`` counts, no heartbeat needed.
    The broker caps ``max_msg_nums`` by its own limits (32 messages, 256 KiB by default). Unknown groups
    are created if the broker may, else 26.
    """

    CODE = RequestCode.PULL_MESSAGE

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    sys_flag: int
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    subscription: str | None = None
    sub_version: int = 0
    expression_type: str | None = None
    broker_name: str = wire("bname")


@header
class PullMessageResponse(ResponseHeader):
    """``PullMessageResponseHeader``: there with codes 0, 19, 20 and 21.

    ``offset_delta`` (static topics) is to be added to the queue offset of every record;
    ``forbidden_type`` comes with code 16: 1 broker, 2 group, 3 topic, 4 broadcast, 5 subscription.
    """

    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int = 0
    offset_delta: int = 0
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None


@header
class SendMessageRequest(RequestHeader):
    """``SendMessageRequestHeaderV2``: store one message; the body is the (compressed) message body.

    ``queue_id`` -1 lets the broker pick. The broker does not check the topic's write permission.
    ``properties`` is the encoded property list; ``flag`` is the user's own integer.
    """

    CODE = RequestCode.SEND_MESSAGE_V2

    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c", default="TBW102")
    default_topic_queue_nums: int = wire("d", default=4)
    queue_id: int = wire("e")
    sys_flag: int = wire("f", default=0)
    born_timestamp: int = wire("g")
    flag: int = wire("h", default=0)
    properties: str = wire("i", default="")
    reconsume_times: int = wire("j", default=0)
    unit_mode: bool = wire("k", default=False)
    max_reconsume_times: int | None = wire("l", default=None)
    batch: bool = wire("m", default=False)
    broker_name: str = wire("n")


@header
class SendBatchMessageRequest(SendMessageRequest):
    """``SendMessageRequestHeaderV2`` for a batch; the body is the batch encoding.

    ``batch`` (not the code) makes the broker unpack the body, so it is True here. Proxies up to 5.3.2 look
    for the broker in ``bname``, as in requests other than a send; later ones, and brokers, in ``n``.
    """

    CODE = RequestCode.SEND_BATCH_MESSAGE

    batch: bool = wire("m", default=True)
    broker_name: str = wire("n", also="bname")


@header
class SendMessageResponse(ResponseHeader):
    """``SendMessageResponseHeader``: there with codes 0, 10, 11 and 12, which all mean stored.

    ``msg_id`` is the offset message id, for a batch a comma list; ``queue_offset`` is the first one's.
    4.9 has no ``transaction_id`` (the unique key).
    """

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@header
class QueryMessageRequest(RequestHeader):
    """``QueryMessageRequestHeader``: messages by key or unique key; 22 if none. Times are in ms."""

    CODE = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int


@header
class QueryMessageResponse(ResponseHeader):
    """``QueryMessageResponseHeader``: how far the index is."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


@header
class ViewMessageRequest(RequestHeader):
    """``ViewMessageRequestHeader``: the message at a commit-log position.

    The broker does not check the position: a wrong one brings garbage with code 0. 5.x needs ``topic``
    for permissions.
    """

    CODE = RequestCode.VIEW_MESSAGE_BY_ID

    offset: int
    topic: str | None = None


@header
class ConsumerSendMsgBackRequest(RequestHeader):
    """``ConsumerSendMsgBackRequestHeader``: redeliver a message later through the group's retry topic.

    ``offset`` is its commit-log position; ``delay_level`` 0 lets the broker choose, -1 sends to the
    dead letters.
    """

    CODE = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: int
    group: str
    delay_level: int
    origin_msg_id: str
    origin_topic: str
    unit_mode: bool = False
    max_reconsume_times: int
    broker_name: str = wire("bname")


@header
class RecallMessageRequest(RequestHeader):
    """``RecallMessageRequestHeader``: take back a timer message that is not due yet (5.3.2)."""

    CODE = RequestCode.RECALL_MESSAGE

    producer_group: str
    topic: str
    recall_handle: str
    broker_name: str = wire("bname")


@header
class RecallMessageResponse(ResponseHeader):
    """``RecallMessageResponseHeader``."""

    msg_id: str
