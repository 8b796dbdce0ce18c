"""Sends messages: single, in batches, one-way. `SendPipeline` sends many concurrently."""

# Facts (DefaultMQProducerImpl, DefaultMQProducer.retryResponseCodes, SendMessageProcessor; 5.4.0 and 4.9.7)
# - Codes 10, 11 and 12 mean: stored, but not (yet) as durably as the broker is configured to make it.
# - Java tries another broker on 17, 14, 1, 2, 16, 204, 205, 1500 and on transport errors.
# - A broker creates an unknown topic from `defaultTopic` if that exists. We send the topic itself, so that a
#   topic that was deleted meanwhile is not re-created with other settings.
# - Brokers do not check a topic's write permission: the route's is checked here.

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.net.connection import Connection
from pyspark_rocketmq.client.net.pipelining import Call
from pyspark_rocketmq.client.retry import RetryPolicy, retry
from pyspark_rocketmq.client.send.message_encoding import (
    Outgoing,
    UniqueIds,
    encode_many,
    encode_one,
)
from pyspark_rocketmq.client.send.queue_selection import QueueSelector
from pyspark_rocketmq.client.send.send_requests import (
    ProducerOptions,
    SendRequests,
    check_accepted,
    choose_queue,
    final_error,
    may_be_stored,
)
from pyspark_rocketmq.client.trace.records import SendTracing, TraceWriter
from pyspark_rocketmq.errors import (
    RequestTimeoutError,
    RocketMQError,
)
from pyspark_rocketmq.model import MessageQueue, OutgoingMessage, SendResult
from pyspark_rocketmq.model.arguments import require, require_messages, require_timeout_ms

__all__ = ["DEFAULT_GROUP", "Producer", "ProducerOptions"]

DEFAULT_GROUP: Final = "PYSPARK_ROCKETMQ_PRODUCER"


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
        self.client = require(client, Client, "client", must="a Client: Client(name_servers)")
        self.group = require(group, str, "the producer group", must="a text")
        self.options = require(options or ProducerOptions(), ProducerOptions, "options")
        self.ids = UniqueIds(client.clock, client.host)
        self.policy = RetryPolicy(attempts=self.options.retries + 1)
        self._requests = SendRequests(self.options, group=group, namespace=client.namespace)
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

    def send(
        self, message: OutgoingMessage, queue: MessageQueue | None = None, *, timeout_ms: float | None = None
    ) -> SendResult:
        """Send one message and wait until it is stored.

        Without ``queue``, the message's sharding key selects the queue, else round-robin. With a queue or a
        key, a retry uses the same queue, so that the key's order is kept.

        Parameters
        ----------
        message : OutgoingMessage
        queue : MessageQueue, optional
        timeout_ms : float, optional
            For all attempts together; by default ``send_timeout_ms`` for each.

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
        if timeout_ms is not None:
            require_timeout_ms(timeout_ms)
        with self._tracing.watch(require_messages((message,))) as sent:
            outgoing = self._encode(sent.messages[0])
            sent.msg_ids = outgoing.msg_ids
            sent.result = self.deliver(outgoing, queue, key=message.sharding_key, timeout_ms=timeout_ms)
            return sent.result

    def send_batch(
        self, messages: Iterable[OutgoingMessage], queue: MessageQueue | None = None
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
        with self._tracing.watch(require_messages(messages)) as sent:
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
        connection = self.connect(target)
        deadline = self.client.deadline(self.options.send_timeout_ms, renewable=True)
        connection.post(call.request, call.body, deadline=deadline)

    def _encode(self, message: OutgoingMessage) -> Outgoing:
        compression, above = self.options.compression, self.options.compress_above
        return encode_one(message, self.ids, compression=compression, compress_above=above)

    # --- the steps of a send, shared with the pipeline ---

    def deliver(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None = None,
        *,
        key: str | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send an encoded message or batch, with retries. Raises as `send`."""
        deadline = self.total_deadline() if timeout_ms is None else self.client.deadline(timeout_ms)
        fixed, tried, unsure = queue, queue, False

        def attempt() -> SendResult:
            nonlocal fixed, tried, unsure
            tried = self.choose(outgoing.topic, fixed, key)
            if key is not None:
                fixed = tried  # also when the number of queues changes between two tries
            try:
                call = self.call_for(outgoing, tried)
                connection = self.connect(tried)
                until = deadline.sooner(self.options.send_timeout_ms, renewable=True)
                return call.on(connection, deadline=until)
            except RocketMQError as error:
                unsure = unsure or may_be_stored(error)
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
            raise final_error(outgoing, error, tried, unsure=unsure) from error
        return check_accepted(outgoing, result, self.options)

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
        route = self.client.routes.fresh(topic)
        if route is None:
            deadline = self.client.deadline(self.options.send_timeout_ms)
            route = self.client.routes.get_served((topic,), deadline=deadline)[topic]
        return choose_queue(route, queue, key, selector=self._selector, writable=self._writable)

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
        return self._requests.call(outgoing, queue, now_ms=self.client.clock.now_ms())

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
