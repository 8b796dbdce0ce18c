"""Requests about offsets of queues and groups.

``broker_name`` is required: a plain broker ignores it, a proxy refuses requests without it (15).
"""

from __future__ import annotations

from pyspark_rocketmq.remoting.codes import RequestCode
from pyspark_rocketmq.remoting.header.base import RequestHeader, ResponseHeader, header, wire

__all__ = [
    "GetConsumeStatsRequest",
    "GetEarliestMsgStoretimeRequest",
    "GetEarliestMsgStoretimeResponse",
    "GetMaxOffsetRequest",
    "GetMinOffsetRequest",
    "GetTopicStatsInfoRequest",
    "OffsetResponse",
    "QueryConsumerOffsetRequest",
    "ResetConsumerClientOffsetRequest",
    "ResetOffsetRequest",
    "SearchOffsetRequest",
    "UpdateConsumerOffsetRequest",
]


@header
class OffsetResponse(ResponseHeader):
    """The one offset of four Java classes.

    ``GetMaxOffset-``, ``GetMinOffset-``, ``SearchOffset-``, ``QueryConsumerOffsetResponseHeader``.
    """

    offset: int


@header
class GetMaxOffsetRequest(RequestHeader):
    """``GetMaxOffsetRequestHeader``: the next offset to be written; 0 for an unknown topic or queue."""

    CODE = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: int
    broker_name: str = wire("bname")


@header
class GetMinOffsetRequest(RequestHeader):
    """``GetMinOffsetRequestHeader``: the first offset still there; 0 for an unknown topic or queue."""

    CODE = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: int
    broker_name: str = wire("bname")


@header
class SearchOffsetRequest(RequestHeader):
    """``SearchOffsetRequestHeader``: the offset at a store time.

    ``timestamp`` is in ms; ``boundary_type`` is ``lower`` (first message at or after it; max offset if
    none) or ``upper`` (last message at or before it). Brokers before 5.1.4 ignore
    the boundary and may be off either way.
    """

    CODE = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str = "lower"
    broker_name: str = wire("bname")


@header
class GetEarliestMsgStoretimeRequest(RequestHeader):
    """``GetEarliestMsgStoretimeRequestHeader``: when the first message of a queue was stored."""

    CODE = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: int
    broker_name: str = wire("bname")


@header
class GetEarliestMsgStoretimeResponse(ResponseHeader):
    """``GetEarliestMsgStoretimeResponseHeader``: ms since the epoch, -1 for an empty queue."""

    timestamp: int


@header
class QueryConsumerOffsetRequest(RequestHeader):
    """``QueryConsumerOffsetRequestHeader``: a group's committed offset; 22 if there is none.

    Without ``set_zero_if_not_found=False`` a 5.x broker answers 0 for a queue that was never
    committed and still has its first message in memory; 4.9 does so always.
    """

    CODE = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = False
    broker_name: str = wire("bname")


@header
class UpdateConsumerOffsetRequest(RequestHeader):
    """``UpdateConsumerOffsetRequestHeader``: commit the next offset to read.

    Accepts any number, backwards too. An unknown group is 26 and an unknown topic 17 from 5.3 on; older
    brokers accept both.
    """

    CODE = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int
    broker_name: str = wire("bname")


@header
class ResetOffsetRequest(RequestHeader):
    """``ResetOffsetRequestHeader``: set a group's offsets by time, or in one queue to ``offset``.

    ``queue_id`` -1 means all queues; ``timestamp`` -1 means the end.
    """

    CODE = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET

    group: str
    topic: str
    timestamp: int
    is_force: bool = True
    queue_id: int = -1
    offset: int | None = None


@header
class ResetConsumerClientOffsetRequest(RequestHeader):
    """``ResetOffsetRequestHeader`` as 4.9 brokers push it to online consumers."""

    CODE = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    group: str
    topic: str
    timestamp: int
    is_force: bool = True


@header
class GetTopicStatsInfoRequest(RequestHeader):
    """``GetTopicStatsInfoRequestHeader``: offsets of a broker's queues of a topic; 17 if unknown."""

    CODE = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


@header
class GetConsumeStatsRequest(RequestHeader):
    """``GetConsumeStatsRequestHeader``: a group's progress; no commit and an unknown group both show as 0."""

    CODE = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
