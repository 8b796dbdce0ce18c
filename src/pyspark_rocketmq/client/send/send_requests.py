"""The request of a send, and what its answer means: shared by all producers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.client.net.connection import Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.send.message_encoding import DEFAULT_COMPRESS_ABOVE, MAX_SEND_BYTES, Outgoing
from pyspark_rocketmq.client.send.queue_selection import QueueSelector, queue_for_key
from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerError,
    BrokerNotFoundError,
    ConnectionLostError,
    FlowControlError,
    MessageIllegalError,
    PermissionDeniedError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
    SendRefusedError,
)
from pyspark_rocketmq.model import MessageQueue, Permission, SendResult, SendStatus, TopicRoute
from pyspark_rocketmq.model.arguments import require_queue, require_whole
from pyspark_rocketmq.options.text.kinds import require_member
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import SendBatchMessageRequest, SendMessageRequest, SendMessageResponse
from pyspark_rocketmq.remoting.namespace import Namespace
from pyspark_rocketmq.remoting.template import RequestTemplate, TemplatedRequest

__all__ = [
    "ProducerOptions",
    "SendRequests",
    "check_accepted",
    "choose_queue",
    "final_error",
    "may_be_stored",
]

_SEND_STATUS: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}

_REFUSED_ELSEWHERE: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.INVALID_PARAMETER,
    }
)
"""Codes on which Java tries another broker, but which are not retriable in other requests.

And the one with which brokers answer since 5.0 when the queue was removed: releases before had SYSTEM_ERROR.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer; times in milliseconds.

    Parameters
    ----------
    send_timeout_ms : int
        Timeout of one attempt, counted from the last answer to an earlier request of the connection: sends
        that share a slow link wait their turn. Java's is 3 s. This one is above the brokers' own timeouts
        (3 s for slaves, 5 s for the disk, 8 s in all): what is stored slowly is not sent again, and so not
        stored twice.
    retries : int
        Retries after the first attempt, at other brokers of the topic if there are any.
    accept_statuses : frozenset of SendStatus
        The statuses that count as success. With another status, the message is stored but may be lost in a
        crash: `SendError`.
    compression, compress_above
        The compression of single messages, and the minimum size of a compressed body.
    batch_compression : Compression
        The compression of batches in which every body has that size. Java's producer never compresses
        batches.
    max_message_bytes : int
        The broker's maximum size of one send (its ``maxMessageSize``).
    trace_topic : str, optional
        The topic for RocketMQ's message trace, such as ``TRACE_TOPIC``. Each send then costs a second one.
    """

    send_timeout_ms: int = 10_000
    retries: int = 3
    accept_statuses: frozenset[SendStatus] = frozenset({SendStatus.SEND_OK})
    compression: Compression = Compression.ZLIB
    compress_above: int = DEFAULT_COMPRESS_ABOVE
    batch_compression: Compression = Compression.NONE
    max_message_bytes: int = MAX_SEND_BYTES
    trace_topic: str | None = None

    def __post_init__(self) -> None:
        require_whole(self.send_timeout_ms, "send_timeout_ms", 1)
        require_whole(self.retries, "retries", 0)
        require_whole(self.compress_above, "compress_above", 0)
        require_whole(self.max_message_bytes, "max_message_bytes", 1)
        require_member(Compression, self.compression, "compression")
        require_member(Compression, self.batch_compression, "batch_compression")
        for status in self.accept_statuses:
            require_member(SendStatus, status, "accept_statuses")


def choose_queue(
    route: TopicRoute,
    queue: MessageQueue | None,
    key: str | None,
    *,
    selector: QueueSelector,
    writable: set[str],
) -> MessageQueue:
    """Return the queue to send to now: the given one, else the key's, else round-robin.

    Parameters
    ----------
    route : TopicRoute
    queue, key : optional
        The destination.
    selector : QueueSelector
    writable : set of str
        The topics that were writable before; the route's is added.

    Raises
    ------
    PermissionDeniedError
        The topic or the queue is not writable.
    BrokerNotFoundError
        No broker of the topic has a master now, or the topic is no longer writable.
    """
    topic, queues = route.topic, selector.write_queues(route)
    if not queues:
        if any(Permission.WRITE in data.perm for data in route.queues):
            raise BrokerNotFoundError("no broker of the topic has a master now", topic=topic)
        if topic in writable:
            raise BrokerNotFoundError(
                "the topic's permission now forbids writing, or its writable brokers are down", topic=topic
            )
        raise PermissionDeniedError(
            "the topic's permission forbids writing", code=ResponseCode.NO_PERMISSION, topic=topic
        )
    writable.add(topic)
    if queue is None:
        return queue_for_key(key, queues) if key is not None else selector.next(topic, queues, route.owner)
    require_queue(queue)
    if queue not in queues and any(other.broker_name == queue.broker_name for other in queues):
        raise PermissionDeniedError(
            "the queue does not exist or may not be written", code=ResponseCode.NO_PERMISSION, queue=queue
        )
    return queue  # of a broker without a master now: looking for its address tells, and is retried


class SendRequests:
    """Builds the send requests of a producer.

    Parameters
    ----------
    options : ProducerOptions
    group : str
        The producer group, as the user named it.
    namespace : Namespace
    """

    def __init__(self, options: ProducerOptions, *, group: str, namespace: Namespace) -> None:
        self._max_bytes = options.max_message_bytes
        self._group = group
        self._namespace = namespace
        self._templates: dict[tuple[str, str, bool], RequestTemplate] = {}

    def call(self, outgoing: Outgoing, queue: MessageQueue, *, now_ms: int) -> Call[SendResult]:
        """Build the send request for a queue.

        Raises
        ------
        MessageIllegalError
            The body is larger than ``max_message_bytes``: nothing is sent.
        """
        if len(outgoing.body) > self._max_bytes:
            raise MessageIllegalError(
                f"{len(outgoing.body)} bytes in one send, the limit is {self._max_bytes}",
                code=ResponseCode.MESSAGE_ILLEGAL,
                topic=outgoing.topic,
                messages=outgoing.count,
            )
        kind = outgoing.topic, queue.broker_name, outgoing.batch
        template = self._templates.get(kind) or self._templates.setdefault(kind, self._template(*kind))
        values = (queue.queue_id, outgoing.sys_flag, now_ms, outgoing.flag, outgoing.properties)
        return Call(
            TemplatedRequest(template, values),
            lambda response: _result(response, outgoing, queue),
            outgoing.body,
        )

    def _template(self, topic: str, broker_name: str, batch: bool) -> RequestTemplate:
        request = (SendBatchMessageRequest if batch else SendMessageRequest)(
            producer_group=self._group,
            topic=topic,
            default_topic=topic,
            queue_id=0,
            born_timestamp=0,
            broker_name=broker_name,
        )
        varying = ("queue_id", "sys_flag", "born_timestamp", "flag", "properties")
        return RequestTemplate(request, *varying, namespace=self._namespace)


def may_be_stored(error: RocketMQError) -> bool:
    """Whether the request of a failed attempt may have reached the broker, whose answer did not come."""
    return isinstance(error, RequestTimeoutError | ConnectionLostError)


def final_error(
    outgoing: Outgoing, error: RocketMQError, queue: MessageQueue | None, *, unsure: bool
) -> RocketMQError:
    """Return the error for the caller after the last attempt: the error itself if it is permanent.

    ``unsure``: an attempt `may_be_stored`.
    """
    if not error.retriable:
        return error
    outcome = "not acknowledged, but perhaps stored" if unsure else "not sent"
    final = SendError(
        f"{outcome}: {error.message}",
        failed=outgoing.count,
        **{"topic": outgoing.topic, "queue": queue} | error.facts,
    )
    final.__cause__ = error
    return final


def check_accepted(outgoing: Outgoing, result: SendResult, options: ProducerOptions) -> SendResult:
    """Return the result if its status is accepted.

    Raises
    ------
    SendError
    """
    if result.status not in options.accept_statuses:
        raise SendError(
            "stored, but not as durably as the broker is configured to: a crash may lose the message",
            failed=outgoing.count,
            status=result.status.value,
            queue=result.queue,
            queue_offset=result.queue_offset,
            msg_id=result.msg_id,
        )
    return result


def _result(response: Response, outgoing: Outgoing, queue: MessageQueue) -> SendResult:
    """Read the response to a send."""
    try:
        response.require(*_SEND_STATUS, queue=queue)
    except (AuthenticationError, FlowControlError):
        raise
    except BrokerError as error:
        if error.code not in _REFUSED_ELSEWHERE:
            raise
        raise SendRefusedError(error.message, **error.facts) from error
    header = SendMessageResponse.parse(response.fields)
    if header.queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, header.queue_id)
    return SendResult(
        status=_SEND_STATUS[response.code],
        queue=queue,
        queue_offset=header.queue_offset,
        msg_id=",".join(outgoing.msg_ids),
        offset_msg_id=header.msg_id,
        transaction_id=header.transaction_id,
    )
