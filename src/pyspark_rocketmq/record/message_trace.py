"""Records of RocketMQ's message trace: who sent a message and who consumed it, when and how long."""

# Facts (TraceDataEncoder, AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl; 5.5.0)
# - A record is fields separated by 0x01 and ended by 0x02; a trace message has records of one topic. Its keys
#   are the message ids and the messages' keys, by which tools find it.
# - Absent texts are the word "null" in Java; tools show it as it is.
# - SubBefore and SubAfter of one call share a request id; SubAfter has no topic.
# - Message types by number: normal, half message, commit, delayed, ordered.

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Consumed", "Consuming", "Sent", "TraceMessageType", "encode_traces"]

_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"


class TraceMessageType(enum.IntEnum):
    """What kind of message was sent."""

    NORMAL = 0
    HALF = 1
    COMMIT = 2
    DELAYED = 3
    ORDERED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A send (``Pub``). Times in milliseconds; ``success`` is False if the message was not stored."""

    at_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    body_bytes: int = 0
    cost_ms: int = 0
    kind: TraceMessageType = TraceMessageType.NORMAL
    offset_msg_id: str = ""
    success: bool = True

    def fields(self) -> tuple[object, ...]:
        """Return the fields in Java's order."""
        return (
            *("Pub", self.at_ms, self.region, self.group, self.topic, self.msg_id, self.tags, self.keys),
            *(self.store_host, self.body_bytes, self.cost_ms, int(self.kind), self.offset_msg_id),
            self.success,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """A message that a listener is called with (``SubBefore``)."""

    at_ms: int
    region: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int = 0
    keys: str = ""

    def fields(self) -> tuple[object, ...]:
        """Return the fields in Java's order."""
        return (
            *("SubBefore", self.at_ms, self.region, self.group, self.request_id, self.msg_id),
            *(self.retry_times, self.keys),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """A message that a listener was called with (``SubAfter``). ``code``: 0 success, 1 later, 2 exception."""

    at_ms: int
    group: str
    request_id: str
    msg_id: str
    cost_ms: int = 0
    success: bool = True
    keys: str = ""
    code: int = 0

    def fields(self) -> tuple[object, ...]:
        """Return the fields in Java's order."""
        return (
            *("SubAfter", self.request_id, self.msg_id, self.cost_ms, self.success, self.keys, self.code),
            *(self.at_ms, self.group),
        )


def encode_traces(traces: Sequence[Sent | Consuming | Consumed]) -> bytes:
    """Return the body of a trace message. Separators within texts become spaces."""
    records = (_FIELD_END.join(map(_text, trace.fields())) + _RECORD_END for trace in traces)
    return "".join(records).encode(errors="replace")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace(_FIELD_END, " ").replace(_RECORD_END, " ")
