"""Sends messages: single, in batches, one-way. `SendPipeline` sends many concurrently."""

# Facts (DefaultMQProducerImpl, DefaultMQProducer.retryResponseCodes, SendMessageProcessor; 5.4.0 and 4.9.7)
# - Codes 10, 11 and 12 mean: stored, but not (yet) as durably as the broker is configured to make it.
# - Java tries another broker on 17, 14, 1, 2, 16, 204, 205, 1500 and on transport errors.
# - A broker creates an unknown topic from `defaultTopic` if that exists. We send the topic itself, so that a
#   topic that was deleted meanwhile is not re-created with other settings.
# - Brokers do not check a topic's write permission: the route's is checked here.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.retry import RetryPolicy, retry
from pyspark_rocketmq.client.send.message_encoding import (
    DEFAULT_COMPRESS_ABOVE,
    MAX_SEND_BYTES,
    Outgoing,
    UniqueIds,
    encode_many,
    encode_one,
)
from pyspark_rocketmq.client.send.queue_selection import QueueSelector, queue_for_key
from pyspark_rocketmq.client.trace.records import SendTracing, TraceWriter
from pyspark_rocketmq.errors import (
    AuthenticationError,
    BrokerError,
    BrokerNotFoundError,
    FlowControlError,
    MessageIllegalError,
    PermissionDeniedError,
    RequestTimeoutError,
    RocketMQError,
    SendError,
    SendRefusedError,
)
from pyspark_rocketmq.model import MessageQueue, OutgoingMessage, Permission, SendResult, SendStatus
from pyspark_rocketmq.options.text.kinds import require_member
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.remoting.codes import ResponseCode
from pyspark_rocketmq.remoting.header import SendBatchMessageRequest, SendMessageRequest, SendMessageResponse

__all__ = ["DEFAULT_GROUP", "Producer", "ProducerOptions"]

DEFAULT_GROUP: Final = "PYSPARK_ROCKETMQ_PRODUCER"

_SEND_STATUS: Final = {
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
    }
)
"""Codes on which Java tries another broker, but which are not retriable in other requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer; times in milliseconds.

    Parameters
    ----------
    send_timeout_ms : int
        Timeout of one attempt. Java's is 3 s. This one is above the brokers' own timeouts (3 s for slaves,
        5 s for the disk, 8 s in all): what is stored slowly is not sent again, and so not stored twice.
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
        require_member(Compression, self.compression, "compression")
        require_member(Compression, self.batch_compression, "batch_compression")
        for status in self.accept_statuses:
            require_member(SendStatus, status, "accept_statuses")


class Producer:
    """Sends messages and waits until the broker acknowledges them.

    Delivery promise: at least once. When `send` returns, the message is stored. If it raises, the message is
    not stored, or (after a timeout or a lost connection) may be stored, and a retry may store it twice.
    Brokers do not detect duplicates.

    Thread-safe. Does not close the client.

    Parameters
    ----------
    client : Client
    group : str
        The producer group. RocketMQ's tools show it; it has an effect on transactions only.
    options : ProducerOptions

    Examples
    --------
    >>> with Client("127.0.0.1:9876") as client:  # doctest: +SKIP
    ...     Producer(client).send(OutgoingMessage("orders", b"42", tags="new", keys="order-42"))
    """

    def __init__(
        self, client: Client, group: str = DEFAULT_GROUP, options: ProducerOptions | None = None
    ) -> None:
        self.client = client
        self.group = group
        self.options = options or ProducerOptions()
        self.ids = UniqueIds(client.clock)
        self.policy = RetryPolicy(attempts=self.options.retries + 1)
        self._selector = QueueSelector(clock=client.clock, random=client.random)
        # Topics that were: of restarted name servers the first broker that they know may be a read-only one.
        self._writable: set[str] = set()
        topic = self.options.trace_topic
        writer = None if topic is None else TraceWriter(topic, self.send_one_way, client.clock)
        self._tracing = SendTracing(group, client.clock, client.queue_address, writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the caller closes the client."""

    def send(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> SendResult:
        """Send one message and wait until it is stored.

        Without ``queue``, the message's sharding key selects the queue, else round-robin. With a queue or a
        key, a retry uses the same queue, so that the key's order is kept.

        Returns
        -------
        SendResult
            Where the message is stored.

        Raises
        ------
        OptionError, LocalProtocolError
            The message is invalid; nothing was sent.
        MessageIllegalError, PermissionDeniedError, AuthenticationError, TopicNotFoundError, NameServerError
            The error is permanent.
        SendError
            Every attempt failed, or the status is not accepted; see the cause.
        """
        with self._tracing.watch((message,)) as sent:
            outgoing = self._encode(sent.messages[0])
            sent.msg_ids = outgoing.msg_ids
            sent.result = self.deliver(outgoing, queue, key=message.sharding_key)
            return sent.result

    def send_batch(
        self, messages: Sequence[OutgoingMessage], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: all are stored, at consecutive offsets, or none.

        Sharding keys do not select the queue of a batch: pass the queue if order matters. Raises as `send`.

        Returns
        -------
        SendResult
            Where the first message is stored. ``msg_id`` and ``offset_msg_id`` are comma-separated lists, as
            in the Java client.
        """
        compression, above = self.options.batch_compression, self.options.compress_above
        with self._tracing.watch(messages) as sent:
            outgoing = encode_many(sent.messages, self.ids, compression=compression, compress_above=above)
            sent.msg_ids = outgoing.msg_ids
            sent.result = self.deliver(outgoing, queue)
            return sent.result

    def send_one_way(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> None:
        """Send one message without waiting: at most once. The broker sends no response, not even an error.

        Raises
        ------
        TransportError
            The message could not be written to the connection.
        OptionError, LocalProtocolError, TopicNotFoundError, NameServerError
        """
        outgoing = self._encode(message)
        target = self.choose(outgoing.topic, queue, message.sharding_key)
        call = self.call_for(outgoing, target)
        deadline = self.client.deadline(self.options.send_timeout_ms)
        self.connect(target).post(call.request, call.body, deadline=deadline)

    def _encode(self, message: OutgoingMessage) -> Outgoing:
        compression, above = self.options.compression, self.options.compress_above
        return encode_one(message, self.ids, compression=compression, compress_above=above)

    # --- the steps of a send, shared with the pipeline ---

    def deliver(
        self, outgoing: Outgoing, queue: MessageQueue | None = None, *, key: str | None = None
    ) -> SendResult:
        """Send an encoded message or batch, with retries. Raises as `send`."""
        deadline = self.total_deadline()
        fixed, tried = queue, queue

        def attempt() -> SendResult:
            nonlocal fixed, tried
            tried = self.choose(outgoing.topic, fixed, key)
            if key is not None:
                fixed = tried  # also when the number of queues changes between two tries
            try:
                call = self.call_for(outgoing, tried)
                return call.on(self.connect(tried), deadline=deadline.sooner(self.options.send_timeout_ms))
            except RocketMQError as error:
                self.note_failure(tried, error)
                raise

        try:
            result = retry(
                attempt,
                deadline=deadline,
                clock=self.client.clock,
                random=self.client.random,
                policy=self.policy,
                on_stale_route=lambda: self.client.invalidate(outgoing.topic),
            )
        except RocketMQError as error:
            raise self.final_error(outgoing, error, tried) from error
        return self.check_accepted(outgoing, result)

    def choose(self, topic: str, queue: MessageQueue | None = None, key: str | None = None) -> MessageQueue:
        """Return the queue to send to now: the given one, else the key's, else round-robin.

        Raises
        ------
        PermissionDeniedError
            The topic or the queue is not writable.
        BrokerNotFoundError
            No broker of the topic has a master now, or the topic is no longer writable.
        TopicNotFoundError, NameServerError
        """
        deadline = self.client.deadline(self.options.send_timeout_ms)
        route = self.client.routes.get_served((topic,), deadline=deadline)[topic]
        queues = route.write_queues()
        if not queues:
            if any(Permission.WRITE in data.perm for data in route.queues):
                raise BrokerNotFoundError("no broker of the topic has a master now", topic=topic)
            if topic in self._writable:
                raise BrokerNotFoundError(
                    "the topic's permission now forbids writing, or its writable brokers are down",
                    topic=topic,
                )
            raise PermissionDeniedError(
                "the topic's permission forbids writing", code=ResponseCode.NO_PERMISSION, topic=topic
            )
        self._writable.add(topic)
        if queue is None:
            return (
                queue_for_key(key, queues)
                if key is not None
                else self._selector.next(topic, queues, route.owner)
            )
        if queue not in queues and any(other.broker_name == queue.broker_name for other in queues):
            raise PermissionDeniedError(
                "the queue does not exist or may not be written", code=ResponseCode.NO_PERMISSION, queue=queue
            )
        return queue  # of a broker without a master now: looking for its address tells, and is retried

    def connect(self, queue: MessageQueue) -> Connection:
        """Return the connection to the queue's master."""
        return self.client.connection(self.client.queue_address(queue))

    def call_for(self, outgoing: Outgoing, queue: MessageQueue) -> Call[SendResult]:
        """Build the send request for a queue.

        Raises
        ------
        MessageIllegalError
            The body is larger than ``max_message_bytes``: nothing is sent.
        """
        if len(outgoing.body) > self.options.max_message_bytes:
            raise MessageIllegalError(
                f"{len(outgoing.body)} bytes in one send, the limit is {self.options.max_message_bytes}",
                code=ResponseCode.MESSAGE_ILLEGAL,
                topic=outgoing.topic,
                messages=outgoing.count,
            )
        kind = SendBatchMessageRequest if outgoing.batch else SendMessageRequest
        request = kind(
            producer_group=self.group,
            topic=outgoing.topic,
            default_topic=outgoing.topic,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=self.client.clock.now_ms(),
            flag=outgoing.flag,
            properties=outgoing.properties,
            broker_name=queue.broker_name,
        )
        return Call(request, lambda response: _result(response, outgoing, queue), outgoing.body)

    def note_failure(self, queue: MessageQueue, error: RocketMQError) -> None:
        """Let the next sends skip the broker, if the failure is the broker's."""
        route = self.client.routes.remembered(queue.topic) if error.retriable else None
        owner = None if route is None else route.owner(queue)
        if owner is not None:
            silent = isinstance(error, RequestTimeoutError)
            self._selector.avoid(owner, cost_s=self.options.send_timeout_ms / 1000 if silent else 0.0)

    def total_deadline(self) -> Deadline:
        """Return the deadline of a send with all its attempts."""
        return self.client.deadline(self.options.send_timeout_ms * (self.options.retries + 1))

    def final_error(
        self, outgoing: Outgoing, error: RocketMQError, queue: MessageQueue | None
    ) -> RocketMQError:
        """Return the error for the caller after the last attempt: the error itself if it is permanent."""
        if not error.retriable:
            return error
        return SendError(
            f"not sent: {error.message}",
            failed=outgoing.count,
            **{"topic": outgoing.topic, "queue": queue} | error.facts,
        )

    def check_accepted(self, outgoing: Outgoing, result: SendResult) -> SendResult:
        """Return the result if its status is accepted.

        Raises
        ------
        SendError
        """
        if result.status not in self.options.accept_statuses:
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
    return SendResult(
        status=_SEND_STATUS[ResponseCode(response.code)],
        queue=MessageQueue(queue.topic, queue.broker_name, header.queue_id),
        queue_offset=header.queue_offset,
        msg_id=",".join(outgoing.msg_ids),
        offset_msg_id=header.msg_id,
        transaction_id=header.transaction_id,
    )
