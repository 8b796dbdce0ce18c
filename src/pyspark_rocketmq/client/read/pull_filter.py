"""Which filter a broker is asked to apply: never one that it would silently apply wrongly."""

# Facts (ClientManageProcessor, PullMessageProcessor, ExpressionMessageFilter, BatchConsumeQueue; 4.9 and 5.4)
# - A broker answers a pull whose SQL expression does not parse with every message and code 0. Asked by
#   CHECK_CLIENT_CONFIG (46) it tells; a slave does, too.
# - Of an inner batch (topics with queue.type=BatchCQ) a broker filters by the outer record's tag and
#   properties; those of the messages inside do not count.
# - GET_TOPIC_CONFIG (351) is 5.x only, as BatchCQ is; proxies do not know it (code 3).

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.client import requests as broker
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.record.light_queue import is_light
from pyspark_rocketmq.remoting.body import decode_topic_config
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import GetTopicConfigRequest, PullMessageRequest
from pyspark_rocketmq.remoting.template import RequestTemplate

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.client.net.connection import Response
    from pyspark_rocketmq.client.net.pull_lanes import PullChannel

__all__ = ["agree_on_selector", "pull_template", "settle_selector"]

_SUBSCRIPTION: Final = 4  # PullSysFlag.FLAG_SUBSCRIPTION: the request's own expression counts

_UNKNOWN: Final = frozenset(
    {
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
    }
)
"""Answers of brokers that cannot or may not tell a topic's settings; the pull itself says what is wrong."""


def pull_template(
    client: Client, channel: PullChannel, queue: MessageQueue, *, selector: MessageSelector, group: str
) -> RequestTemplate:
    """Return the pulls of a queue at a server, which differ in where they begin and how much they ask for.

    They hold the `agree_on_selector`. Raises as it does.
    """
    selector = agree_on_selector(client, channel, queue.topic, selector, group)
    request = PullMessageRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=0,
        sys_flag=_SUBSCRIPTION,
        subscription=selector.expression,
        expression_type=selector.expression_type,
        broker_name=queue.broker_name,
    )
    return RequestTemplate(request, "queue_offset", "max_msg_nums", namespace=client.namespace)


def agree_on_selector(
    client: Client, channel: PullChannel, topic: str, selector: MessageSelector, group: str
) -> MessageSelector:
    """Return what a server may be asked to filter; the reader compares the tags of what comes itself.

    It is the user's selector, or, where messages are stored as inner batches, one that takes all. The server
    is asked once in the client's life.

    Raises
    ------
    OptionError
        The server cannot apply an SQL filter: it does not parse, SQL is not enabled, or the topic stores
        inner batches.
    TransportError, BrokerError
        The server does not answer.
    """
    if selector.takes_all:
        return selector
    key = (channel.addr, topic, selector)
    if (known := client.pull_selectors.get(key)) is not None:
        return known
    deadline = client.deadline(client.request_timeout_ms)
    if selector.expression_type != "TAG":
        names = (client.namespace.qualify(topic), client.namespace.qualify(group))
        broker.check_selector(selector, *names).on(channel, deadline=deadline)
    answer = channel.call(GetTopicConfigRequest(topic=topic), deadline=deadline)
    settled = settle_selector(selector, answer, topic)
    if settled is None:
        return selector
    client.pull_selectors[key] = settled
    return settled


def settle_selector(selector: MessageSelector, answer: Response, topic: str) -> MessageSelector | None:
    """Return what a server may be asked to filter, by its answer to a request for the topic's settings.

    None: the user's selector, and the server has to be asked again. It lacks the topic, and may get it with
    any settings.

    Raises
    ------
    OptionError
        An SQL filter for a topic that stores inner batches.
    BrokerError
    """
    if not _stores_batches(answer, topic):
        # No server has settings of a light topic.
        may_come = answer.code == ResponseCode.TOPIC_NOT_EXIST and not is_light(topic)
        return None if may_come else selector
    if selector.expression_type != "TAG":
        raise OptionError(
            "the topic stores inner batches (queue.type=BatchCQ), of which brokers filter the outer record "
            "only: read without sqlFilter and filter the messages",
            option="sqlFilter",
            topic=topic,
        )
    return MessageSelector()


def _stores_batches(response: Response, topic: str) -> bool:
    if response.code in _UNKNOWN:
        return False
    return decode_topic_config(response.require(topic=topic).body).attributes.get("queue.type") == "BatchCQ"
