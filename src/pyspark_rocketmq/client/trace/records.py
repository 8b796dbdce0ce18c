"""Traces sends and listener calls: as spans, and when asked for as records in RocketMQ's trace topic."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.trace.spans import current_properties, is_active, record_error, span
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import Message, MessageQueue, OutgoingMessage, SendResult
from pyspark_rocketmq.record.message_trace import Consumed, Consuming, Sent, TraceMessageType, encode_traces
from pyspark_rocketmq.record.properties import PROPERTY_TRACEPARENT

__all__ = ["TRACE_TOPIC", "CallTracing", "SendTracing", "TraceWriter", "WatchedCall", "WatchedSend"]

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""RocketMQ's own, which brokers create with ``traceTopicEnable=true``."""

_LOG: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 30
_MOST_KEYS_BYTES: Final = 16_384
"""Of a trace message's ids and keys: more than 32,767 bytes of properties cannot be sent."""

_REGION: Final = "DefaultRegion"
_SUCCESS, _LATER, _EXCEPTION = 0, 1, 2

Trace: TypeAlias = Sent | Consuming | Consumed


class TraceWriter:
    """Writes records to a trace topic, one way: at most once. A failure never fails what is traced.

    After a failure, nothing is written for half a minute, so that a missing topic or broker costs little.

    Parameters
    ----------
    topic : str
    send_one_way : Callable
        Sends a message without waiting.
    clock : Clock
    """

    def __init__(self, topic: str, send_one_way: Callable[[OutgoingMessage], None], clock: Clock) -> None:
        self._topic = topic
        self._send_one_way = send_one_way
        self._clock = clock
        self._paused_until_s = float("-inf")

    def write(self, describe: Callable[[], Sequence[Trace]]) -> None:
        """Write the records that ``describe`` returns. A failure is logged."""
        if self._clock.monotonic() < self._paused_until_s:
            return
        try:
            for traces in _portions(describe()):
                ids = dict.fromkeys(trace.msg_id for trace in traces)
                keys = dict.fromkeys(key for trace in traces for key in trace.keys.split())
                message = OutgoingMessage(self._topic, encode_traces(traces), keys=" ".join(ids | keys))
                self._send_one_way(message)
        except RocketMQError as error:
            _LOG.warning("messages are not traced in %s for %d s: %s", self._topic, _PAUSE_S, error)
            self._paused_until_s = self._clock.monotonic() + _PAUSE_S


def _portions(traces: Sequence[Trace]) -> Iterator[list[Trace]]:
    """Yield the records of one trace message each."""
    portion: list[Trace] = []
    size = 0
    for trace in traces:
        own = len(trace.msg_id) + len(trace.keys.encode()) + 2
        if portion and size + own > _MOST_KEYS_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(trace)
        size += own
    if portion:
        yield portion


@dataclass(slots=True)
class WatchedSend:
    """A send: the messages to encode, and what the sender adds."""

    messages: Sequence[OutgoingMessage]
    msg_ids: tuple[str, ...] = ()
    result: SendResult | None = None


class SendTracing:
    """Traces the sends of a producer.

    Parameters
    ----------
    group : str
    clock : Clock
    address : Callable
        Returns the address of a queue's broker.
    writer : TraceWriter, optional
        None: no records.
    """

    def __init__(
        self, group: str, clock: Clock, address: Callable[[MessageQueue], str], writer: TraceWriter | None
    ) -> None:
        self._group = group
        self._clock = clock
        self._address = address
        self._writer = writer

    @contextlib.contextmanager
    def watch(self, messages: Sequence[OutgoingMessage]) -> Iterator[WatchedSend]:
        """Run a send in a span. Messages without a trace context get that of the span."""
        sent = WatchedSend(messages)
        if not messages or (self._writer is None and not is_active()):
            yield sent
            return
        started_ms = self._clock.now_ms()
        attributes: dict[str, str | int] = {"messaging.rocketmq.client_group": self._group}
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
        contexts = (message.properties.get(PROPERTY_TRACEPARENT) for message in messages)
        try:
            with span("send", messages[0].topic, traceparents=contexts, attributes=attributes) as current:
                if context := current_properties():
                    sent.messages = [_with_context(message, context) for message in messages]
                yield sent
                if current is not None and sent.result is not None:
                    current.set_attribute("messaging.message.id", sent.result.msg_id)
        finally:
            if self._writer is not None and sent.msg_ids:
                self._writer.write(lambda: self._records(sent, started_ms))

    def _records(self, sent: WatchedSend, started_ms: int) -> list[Sent]:
        result = sent.result
        offset_ids = () if result is None else result.offset_msg_id.split(",")
        return [
            Sent(
                at_ms=started_ms,
                region=_REGION,
                group=self._group,
                topic=message.topic,
                msg_id=msg_id,
                tags=message.tags or "",
                keys=message.keys if isinstance(message.keys, str) else " ".join(message.keys),
                store_host="" if result is None else self._address(result.queue),
                body_bytes=len(message.body),
                cost_ms=self._clock.now_ms() - started_ms,
                kind=_kind(message),
                offset_msg_id=offset_ids[at] if at < len(offset_ids) else "",
                success=result is not None,
            )
            for at, (message, msg_id) in enumerate(zip(sent.messages, sent.msg_ids, strict=True))
        ]


@dataclass(slots=True)
class WatchedCall:
    """A call of a listener; the caller says how it ended."""

    later: bool = False
    error: BaseException | None = None


class CallTracing:
    """Traces the calls of a consumer's listener.

    Parameters
    ----------
    group : str
    clock : Clock
    writer : TraceWriter, optional
        None: no records.
    """

    def __init__(self, group: str, clock: Clock, writer: TraceWriter | None) -> None:
        self._group = group
        self._clock = clock
        self._writer = writer

    @contextlib.contextmanager
    def watch(self, messages: Sequence[Message]) -> Iterator[WatchedCall]:
        """Run a call in a span that has links to the messages' contexts."""
        call = WatchedCall()
        if not messages or (self._writer is None and not is_active()):
            yield call
            return
        started_ms = self._clock.now_ms()
        attributes: dict[str, str | int] = {
            "messaging.consumer.group.name": self._group,
            "messaging.batch.message_count": len(messages),
        }
        contexts = (message.properties.get(PROPERTY_TRACEPARENT) for message in messages)
        with span("process", messages[0].topic, traceparents=contexts, attributes=attributes) as current:
            yield call
            if current is not None and call.error is not None:
                record_error(current, call.error)
        if self._writer is not None:
            self._writer.write(lambda: self._records(messages, call, started_ms))

    def _records(
        self, messages: Sequence[Message], call: WatchedCall, started_ms: int
    ) -> list[Consuming | Consumed]:
        request_id = uuid.uuid4().hex.upper()
        ended_ms = self._clock.now_ms()
        before: list[Consuming | Consumed] = [
            Consuming(
                at_ms=started_ms,
                region=_REGION,
                group=self._group,
                request_id=request_id,
                msg_id=message.msg_id,
                retry_times=message.reconsume_times,
                keys=message.keys or "",
            )
            for message in messages
        ]
        return before + [
            Consumed(
                at_ms=ended_ms,
                group=self._group,
                request_id=request_id,
                msg_id=message.msg_id,
                cost_ms=(ended_ms - started_ms) // len(messages),
                success=not call.later and call.error is None,
                keys=message.keys or "",
                code=_EXCEPTION if call.error is not None else _LATER if call.later else _SUCCESS,
            )
            for message in messages
        ]


def _with_context(message: OutgoingMessage, context: dict[str, str]) -> OutgoingMessage:
    """Return the message with a trace context, unless it has one: a copy belongs to its first trace."""
    if PROPERTY_TRACEPARENT in message.properties:
        return message
    return replace(message, properties={**message.properties, **context})


def _kind(message: OutgoingMessage) -> TraceMessageType:
    if message.delayed:
        return TraceMessageType.DELAYED
    return TraceMessageType.ORDERED if message.sharding_key else TraceMessageType.NORMAL
