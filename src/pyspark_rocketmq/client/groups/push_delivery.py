"""Delivers a push consumer's messages to its listener, and returns deferred messages to the broker."""

# Facts (ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService, DefaultMQPushConsumerImpl; 5.4.0)
# - The client sends deferred messages back to the broker, which stores them in %RETRY%group with a delay, and
#   after maxReconsumeTimes in %DLQ%group. The property RETRY_TOPIC contains the original topic.
# - Broadcasting members send nothing back.
# - In order, deferred messages are delivered again after a second, by default without limit; after
#   maxReconsumeTimes the client itself sends them to %DLQ%group: the broker does not know the attempts.

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeAlias

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.groups.push_options import ConsumeResult, PushOptions
from pyspark_rocketmq.client.groups.push_worker import QueueWorker
from pyspark_rocketmq.client.groups.threads import Pool
from pyspark_rocketmq.client.net.connection import Connection, Response
from pyspark_rocketmq.client.net.pipelining import Call, pipeline
from pyspark_rocketmq.client.send.producer import Producer
from pyspark_rocketmq.client.trace.records import CallTracing, TraceWriter, WatchedCall
from pyspark_rocketmq.errors import BrokerError, BrokerNotFoundError, OptionError, RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue
from pyspark_rocketmq.options.text.kinds import require_member
from pyspark_rocketmq.record.ids import encode_host, is_address_of
from pyspark_rocketmq.remoting.header import ConsumerSendMsgBackRequest
from pyspark_rocketmq.remoting.namespace import NO_NAMESPACE, Namespace

__all__ = [
    "Delivery",
    "Listener",
    "require_listener",
    "send_back_request",
    "send_messages_back",
    "storing_address",
    "with_original_topic",
]

_LOG: Final = logging.getLogger(__name__)

_TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
_TO_DEAD_LETTERS: Final = -1
_DEFAULT_RECONSUME_TIMES: Final = 16
_RETRY_TOPIC: Final = "RETRY_TOPIC"
_POLL_S: Final = 0.02

Listener: TypeAlias = Callable[[Sequence[Message]], ConsumeResult | None]
"""Called with up to ``batch_size`` messages of a queue, in order. None is ``SUCCESS``, an error ``LATER``."""


_RUNNING: Final[ContextVar[object]] = ContextVar("the delivery whose listener runs", default=None)


class Delivery:
    """Calls the listener: from a thread pool, or, if ordered, from the thread of each queue.

    Parameters
    ----------
    client : Client
    group : str
    options : PushOptions
    listener : Callable
    """

    def __init__(self, client: Client, group: str, options: PushOptions, listener: Listener) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._listener = listener
        writer = None
        if options.trace_topic is not None:
            send = Producer(client, _TRACE_GROUP).send_one_way
            writer = TraceWriter(options.trace_topic, send, client.clock)
        self._tracing = CallTracing(group, client.clock, writer)
        self._pool = None
        if not options.ordered:
            self._pool = Pool(client.host, options.threads, name=f"consume-{group}")

    def __call__(self, worker: QueueWorker, messages: Sequence[Message]) -> None:
        """Take the messages of one pull. Returns before they are finished, except in ordered mode."""
        for some in _batches(messages, self._options.batch_size):
            if self._pool is None:
                if not self._deliver_in_order(worker, some):
                    return
            elif not self._pool.submit(partial(self._consume, worker, some)):
                return  # the consumer is being closed

    @property
    def is_calling(self) -> bool:
        """Whether the listener is called by this thread, further up."""
        return _RUNNING.get() is self

    def close(self, workers: Sequence[QueueWorker], timeout_s: float) -> None:
        """Wait for running calls; the workers are stopped already."""
        if self._pool is not None:
            self._pool.close(timeout_s)
            return
        deadline = self._client.deadline(timeout_s * 1000)
        while not all(worker.idle for worker in workers) and not deadline.expired:
            self._client.clock.sleep(min(_POLL_S, deadline.remaining_s))

    def _consume(self, worker: QueueWorker, messages: Sequence[Message]) -> None:
        if worker.stopped:
            return
        if self._call(messages) is ConsumeResult.LATER:
            if not self._options.broadcasting:
                worker.defer(messages)
                return
            _LOG.warning(
                "%d messages of %s failed and are lost: broadcasting",
                len(messages),
                worker.queue,
            )
        worker.finish(messages)

    def _deliver_in_order(self, worker: QueueWorker, messages: Sequence[Message]) -> bool:
        """Call the listener until the messages are finished; return False if the queue is revoked first."""
        left = list(messages)

        def call() -> None:
            nonlocal left
            if self._call(left) is ConsumeResult.SUCCESS:
                worker.finish(left)
                left = []
                return
            stored = {m.queue_offset for m in left if self._store_dead_letter(worker, m)}
            worker.finish([m for m in left if m.queue_offset in stored])
            left = [
                m._replace(reconsume_times=m.reconsume_times + 1)
                for m in left
                if m.queue_offset not in stored
            ]

        worker.call_in_order(call)
        while left and not worker.stopped:
            worker.pause(self._options.order_pause_ms / 1000)
            worker.call_in_order(call)
        return not left

    def _store_dead_letter(self, worker: QueueWorker, message: Message) -> bool:
        """Store an ordered message that failed too often as a dead letter; return whether this succeeded."""
        most = self._options.max_reconsume_times
        if most < 0 or message.reconsume_times < most or self._options.broadcasting:
            return False
        request = send_back_request(self._group, self._options, message, delay_level=_TO_DEAD_LETTERS)
        try:
            addr = storing_address(self._client, message, worker.queue)
            deadline = self._client.deadline(self._client.request_timeout_ms)
            self._client.connection(addr).call(request, deadline=deadline).require(queue=worker.queue)
        except RocketMQError as error:
            text, about = "a dead letter of %s could not be stored yet: %s", (worker.queue, type(error))
            self._client.warnings.warn(_LOG, text, worker.queue, error, about=about)
            return False
        return True

    def _call(self, messages: Sequence[Message]) -> ConsumeResult:
        """Return the listener's result, whatever the tracing does: no message may stay in flight, or wait."""
        result: ConsumeResult | None = None
        originals = [with_original_topic(message, self._client.namespace) for message in messages]
        try:
            with self._tracing.watch(originals) as call:
                result = self._call_traced(originals, call)
        except Exception as error:  # noqa: BLE001 - a processor of spans may be the user's
            text, about = "group %s: a call of the listener cannot be traced", type(error)
            self._client.warnings.warn(_LOG, text, self._group, about=about, trace=True)
        return self._call_traced(originals, WatchedCall()) if result is None else result

    def _call_traced(self, messages: Sequence[Message], call: WatchedCall) -> ConsumeResult:
        running = _RUNNING.set(self)
        try:
            result = self._listener(messages)
            if result is not None:
                require_member(ConsumeResult, result, "the listener's result")
        except BaseException as error:  # noqa: BLE001 - the user's code, sys.exit(), too; as in Java, later
            _LOG.exception("the listener of group %s failed: the messages are redelivered", self._group)
            call.error = error
            return ConsumeResult.LATER
        finally:
            _RUNNING.reset(running)
        call.later = result is ConsumeResult.LATER
        return result or ConsumeResult.SUCCESS


def send_back_request(
    group: str, options: PushOptions, message: Message, *, delay_level: int | None = None
) -> ConsumerSendMsgBackRequest:
    """Return the request for a broker to redeliver a message later, or to store it as a dead letter."""
    most = options.max_reconsume_times
    return ConsumerSendMsgBackRequest(
        offset=message.commit_log_offset,
        group=group,
        delay_level=options.retry_delay_level if delay_level is None else delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=with_original_topic(message).topic,
        max_reconsume_times=_DEFAULT_RECONSUME_TIMES if most < 0 else most,
        broker_name=message.broker_name,
    )


def send_messages_back(
    client: Client, group: str, options: PushOptions, messages: Sequence[tuple[QueueWorker, Message]]
) -> None:
    """Send messages back to the brokers that store them, and record the outcomes at their workers."""
    calls: list[tuple[int, Connection, Call[Response]]] = []
    outcomes: dict[int, Response | RocketMQError] = {}
    for index, (worker, message) in enumerate(messages):
        try:
            connection = client.connection(storing_address(client, message, worker.queue))
        except RocketMQError as error:
            outcomes[index] = error
        else:
            calls.append(
                (index, connection, Call(send_back_request(group, options, message), Response.require))
            )
    answers = pipeline(calls, deadline=client.deadline(client.request_timeout_ms))
    for index, outcome in {**outcomes, **answers}.items():
        worker, message = messages[index]
        if not isinstance(outcome, RocketMQError):
            worker.record_sent_back(message)
            continue
        text = "a message of %s could not be sent back and is retried: %s"
        about = (worker.queue, type(outcome))
        client.warnings.warn(_LOG, text, worker.queue, outcome, about=about)
        refused = isinstance(outcome, BrokerError) and not outcome.retriable
        worker.record_not_sent_back(message, refused=refused)


def storing_address(client: Client, message: Message, queue: MessageQueue) -> str:
    """Return the address of the broker that stores the message: a static topic's queue may have moved.

    Raises
    ------
    RouteError
    """
    if not queue.logical:
        return client.queue_address(queue)
    host = encode_host(message.store_host)
    addresses = (addr for data in client.served_route(queue.topic).brokers for addr in data)
    found = next((addr for addr in addresses if is_address_of(addr, host)), None)
    if found is None:
        raise BrokerNotFoundError(
            "the broker that stored the message is not registered", topic=queue.topic, addr=message.store_host
        )
    return found


def _batches(messages: Sequence[Message], size: int) -> Iterator[Sequence[Message]]:
    return (messages[start : start + size] for start in range(0, len(messages), size))


def with_original_topic(message: Message, namespace: Namespace = NO_NAMESPACE) -> Message:
    """Return a redelivered message, from ``%RETRY%group``, with the topic that it was sent to.

    Brokers note it with the namespace.
    """
    topic = message.properties.get(_RETRY_TOPIC)
    return message if topic is None else message._replace(topic=namespace.plain(topic))


def require_listener(listener: Listener) -> None:
    """Check that messages can be passed: otherwise each of them would become a dead letter."""
    if not callable(listener):
        raise OptionError(f"the listener must be a function of messages, not a {type(listener).__name__}")
    if any(map(inspect.iscoroutinefunction, (listener, type(listener).__call__))):
        raise OptionError(
            "the listener must not be async: it is called in threads without an event loop. A function may "
            "use asyncio.run_coroutine_threadsafe(...).result()"
        )
