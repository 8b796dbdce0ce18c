"""Sends messages from an event loop."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_rocketmq.client.aio.client import AsyncClient
from pyspark_rocketmq.client.aio.connection import AsyncConnection
from pyspark_rocketmq.client.queue_requests import queue_address
from pyspark_rocketmq.client.retry import RetryPolicy, retry_async
from pyspark_rocketmq.client.send.message_encoding import Outgoing, UniqueIds, encode_many, encode_one
from pyspark_rocketmq.client.send.producer import DEFAULT_GROUP
from pyspark_rocketmq.client.send.queue_selection import QueueSelector
from pyspark_rocketmq.client.send.send_requests import (
    ProducerOptions,
    SendRequests,
    check_accepted,
    choose_queue,
    final_error,
    may_be_stored,
)
from pyspark_rocketmq.client.trace.records import SendTracing
from pyspark_rocketmq.errors import OptionError, RequestTimeoutError, RocketMQError
from pyspark_rocketmq.model import MessageQueue, OutgoingMessage, SendResult
from pyspark_rocketmq.model.arguments import require, require_messages

__all__ = ["AsyncProducer"]


class AsyncProducer:
    """`Producer` for asyncio. Many tasks may send concurrently; sends that are awaited in turn keep order.

    Delivery promise: at least once. When `send` returns, the message is stored. If it raises or is canceled,
    the message is not stored, or may be stored.

    Parameters
    ----------
    client : AsyncClient
        It is not closed with the producer.
    group : str
    options : ProducerOptions
        ``trace_topic`` is refused. Sends have spans, as those of `Producer`.

    Examples
    --------
    >>> async with AsyncClient("127.0.0.1:9876") as client:  # doctest: +SKIP
    ...     await AsyncProducer(client).send(OutgoingMessage("orders", b"42", tags="new", keys="order-42"))
    """

    def __init__(
        self, client: AsyncClient, group: str = DEFAULT_GROUP, options: ProducerOptions | None = None
    ) -> None:
        self.client = require(client, AsyncClient, "client", must="an AsyncClient: AsyncClient(name_servers)")
        self.group = require(group, str, "the producer group", must="a text")
        self.options = require(options or ProducerOptions(), ProducerOptions, "options")
        self.ids = UniqueIds(client.clock)
        self._policy = RetryPolicy(attempts=self.options.retries + 1)
        self._requests = SendRequests(self.options, group=group, namespace=client.namespace)
        self._selector = QueueSelector(clock=client.clock, random=client.random)
        self._writable: set[str] = set()
        if self.options.trace_topic is not None:
            raise OptionError(
                "AsyncProducer writes no message trace: use Producer, or leave trace_topic out",
                option="trace_topic",
            )
        self._tracing = SendTracing(group, client.clock, str, None)  # spans only

    async def send(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> SendResult:
        """Send one message and wait until it is stored. Parameters and errors as `Producer.send`.

        Raises
        ------
        OptionError, LocalProtocolError
            The message is invalid; nothing was sent.
        SendError
            Every attempt failed, or the status is not accepted; see the cause.
        RocketMQError
            The error is permanent.
        """
        with self._tracing.watch(require_messages((message,))) as sent:
            outgoing = self._encode(sent.messages[0])
            sent.msg_ids = outgoing.msg_ids
            sent.result = await self._deliver(outgoing, queue, key=message.sharding_key)
            return sent.result

    async def send_batch(
        self, messages: Iterable[OutgoingMessage], queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic in one request: all are stored, or none. As `Producer.send_batch`."""
        compression, above = self.options.batch_compression, self.options.compress_above
        with self._tracing.watch(require_messages(messages)) as sent:
            outgoing = encode_many(sent.messages, self.ids, compression=compression, compress_above=above)
            sent.msg_ids = outgoing.msg_ids
            sent.result = await self._deliver(outgoing, queue)
            return sent.result

    async def send_one_way(self, message: OutgoingMessage, queue: MessageQueue | None = None) -> None:
        """Send one message without an answer: at most once. As `Producer.send_one_way`."""
        outgoing = self._encode(message)
        target = await self._choose(outgoing.topic, queue, message.sharding_key)
        call = self._requests.call(outgoing, target, now_ms=self.client.clock.now_ms())
        connection = await self._connect(target)
        deadline = self.client.deadline(self.options.send_timeout_ms, renewable=True)
        await connection.post(call.request, call.body, deadline=deadline)

    def _encode(self, message: OutgoingMessage) -> Outgoing:
        return encode_one(
            message,
            self.ids,
            compression=self.options.compression,
            compress_above=self.options.compress_above,
        )

    async def _deliver(
        self, outgoing: Outgoing, queue: MessageQueue | None, *, key: str | None = None
    ) -> SendResult:
        """Send an encoded message or batch, with retries."""
        deadline = self.client.deadline(self.options.send_timeout_ms * (self.options.retries + 1))
        fixed, tried, unsure = queue, queue, False

        async def attempt() -> SendResult:
            nonlocal fixed, tried, unsure
            tried = await self._choose(outgoing.topic, fixed, key)
            if key is not None:
                fixed = tried  # also when the number of queues changes between two tries
            try:
                call = self._requests.call(outgoing, tried, now_ms=self.client.clock.now_ms())
                connection = await self._connect(tried)
                until = deadline.sooner(self.options.send_timeout_ms, renewable=True)
                return call.parse(await connection.call(call.request, call.body, deadline=until))
            except RocketMQError as error:
                unsure = unsure or may_be_stored(error)
                self._note_failure(tried, error)
                raise

        try:
            result = await retry_async(
                attempt,
                deadline=deadline,
                random=self.client.random,
                policy=self._policy,
                on_stale_route=lambda: self.client.routes.invalidate(outgoing.topic),
            )
        except RocketMQError as error:
            raise final_error(outgoing, error, tried, unsure=unsure) from error
        return check_accepted(outgoing, result, self.options)

    async def _choose(self, topic: str, queue: MessageQueue | None, key: str | None) -> MessageQueue:
        route = await self.client.served_route(topic)
        return choose_queue(route, queue, key, selector=self._selector, writable=self._writable)

    async def _connect(self, queue: MessageQueue) -> AsyncConnection:
        return await self.client.connection(queue_address(await self.client.served_route(queue.topic), queue))

    def _note_failure(self, queue: MessageQueue, error: RocketMQError) -> None:
        """Let the next sends skip the broker, if the failure is the broker's."""
        route = self.client.routes.remembered(queue.topic) if error.retriable else None
        owner = None if route is None else route.owner(queue)
        if owner is not None:
            silent = isinstance(error, RequestTimeoutError)
            self._selector.avoid(owner, cost_s=self.options.send_timeout_ms / 1000 if silent else 0.0)
