"""Requests to a broker: one function per request code, each a ``Call`` to make or to pipeline.

Administrative requests, which are never pipelined, are in ``admin``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.net.pull_lanes import is_of_proxy
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, MessageSelector, PullStatus
from pyspark_rocketmq.remoting.body import encode_client_check
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import (
    CheckClientConfigRequest,
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    OffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)

__all__ = [
    "FIRST_EXACT_SEARCH_VERSION",
    "TOOLS_GROUP",
    "PullAnswer",
    "SearchAnswer",
    "check_selector",
    "commit_offset",
    "committed_offset",
    "max_offset",
    "min_offset",
    "pull",
    "search_offset",
]

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""``MixAll.TOOLS_CONSUMER_GROUP``: exists at every broker, so that reading with it creates no group."""

FIRST_EXACT_SEARCH_VERSION: Final = 441
"""``MQVersion.V5_1_4``: from here on ``boundaryType`` is honored."""

CLIENT_ID: Final = "pyspark-rocketmq"

_SUSPEND: Final = 2
_SUBSCRIPTION: Final = 4

_PULL_STATUS: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def min_offset(queue: MessageQueue) -> Call[int]:
    """GET_MIN_OFFSET (31): the first offset that is still stored; 0 for a queue that does not exist."""
    request = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    return Call(request, _offset(queue))


def max_offset(queue: MessageQueue) -> Call[int]:
    """GET_MAX_OFFSET (30): the next offset to be written; 0 for a queue that does not exist."""
    request = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    return Call(request, _offset(queue))


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A broker's answer to a search by time; ``exact`` if it uses the lower boundary."""

    offset: int
    exact: bool


def search_offset(queue: MessageQueue, timestamp_ms: int) -> Call[SearchAnswer]:
    """SEARCH_OFFSET_BY_TIMESTAMP (29): the first offset at or after a time; before 5.1.4 an approximation.

    For a static topic's queue it is an estimate: see `time_search`.
    """

    def parse(response: Response) -> SearchAnswer:
        offset = _offset(queue)(response)
        exact = response.command.version >= FIRST_EXACT_SEARCH_VERSION and not queue.logical
        return SearchAnswer(offset, exact=exact)

    request = SearchOffsetRequest(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        boundary_type="lower",
        broker_name=queue.broker_name,
    )
    return Call(request, parse)


def committed_offset(group: str, queue: MessageQueue) -> Call[int | None]:
    """QUERY_CONSUMER_OFFSET (14): a group's committed offset (the next to read); None if it never committed.

    Brokers before 5.0 answer 0 for a queue without a commit whose first message is still in memory.
    """

    def parse(response: Response) -> int | None:
        response.require(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND, queue=queue, group=group)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = OffsetResponse.parse(response.fields).offset
        return offset if offset >= 0 else None

    request = QueryConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
        broker_name=queue.broker_name,
    )
    return Call(request, parse)


def commit_offset(group: str, queue: MessageQueue, next_offset: int) -> Call[None]:
    """UPDATE_CONSUMER_OFFSET (15): the broker accepts any offset, higher or lower than the current one."""

    def parse(response: Response) -> None:
        response.require(queue=queue, group=group)

    request = UpdateConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=next_offset,
        broker_name=queue.broker_name,
    )
    return Call(request, parse)


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The response to a pull; ``records`` is a view of the receive buffer."""

    status: PullStatus
    header: PullMessageResponse
    records: memoryview


def pull(
    queue: MessageQueue,
    offset: int,
    *,
    group: str,
    max_nums: int,
    selector: MessageSelector,
    suspend_ms: int | None = None,
) -> Call[PullAnswer]:
    """PULL_MESSAGE (11): messages from ``offset`` on, filtered by the selector.

    Parameters
    ----------
    suspend_ms : int, optional
        Let the broker wait for a message at the queue's end. It checks the time only every 5 s.
    """

    def parse(response: Response) -> PullAnswer:
        response.require(*_PULL_STATUS, queue=queue, offset=offset, group=group)
        header = PullMessageResponse.parse(response.fields)
        return PullAnswer(_PULL_STATUS[ResponseCode(response.code)], header, response.body)

    request = PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_nums,
        sys_flag=_SUBSCRIPTION if suspend_ms is None else _SUBSCRIPTION | _SUSPEND,
        suspend_timeout_millis=suspend_ms or 0,
        subscription=selector.expression,
        expression_type=selector.expression_type,
        broker_name=queue.broker_name,
    )
    return Call(request, parse)


def check_selector(selector: MessageSelector, topic: str, group: str) -> Call[None]:
    """CHECK_CLIENT_CONFIG (46): have a broker parse a selector; topic and group as the server names them."""

    def parse(response: Response) -> None:
        reasons = {
            ResponseCode.SUBSCRIPTION_PARSE_FAILED: "the filter expression does not parse",
            ResponseCode.SYSTEM_ERROR: "the broker does not filter by SQL (enablePropertyFilter=false)",
        }
        if response.code in reasons:
            reason = reasons[ResponseCode(response.code)]
            raise OptionError(
                reason, expression=selector.expression, remark=response.remark, addr=response.addr
            )
        if is_of_proxy(response):
            raise OptionError(
                "a proxy does not check an SQL filter, and brokers answer one that they cannot parse with "
                "every message: filter by tags, or set the name servers' address",
                option="sqlFilter",
                expression=selector.expression,
                addr=response.addr,
            )
        response.require(topic=topic, group=group)

    body = encode_client_check(CLIENT_ID, group, topic, selector)
    return Call(CheckClientConfigRequest(), parse, body)


def _offset(queue: MessageQueue) -> Callable[[Response], int]:
    def parse(response: Response) -> int:
        return OffsetResponse.parse(response.require(queue=queue).fields).offset

    return parse
