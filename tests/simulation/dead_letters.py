"""Rows that cannot be sent, what refuses them, and the dead letter of each."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.record.properties import PROPERTY_KEYS, PROPERTY_TAGS
from pyspark_rocketmq.remoting.codes import RequestCode, ResponseCode
from pyspark_rocketmq.remoting.frame import Frame
from pyspark_rocketmq.remoting.header import SendMessageRequest
from pyspark_rocketmq.spark.write.dead_letters import PROPERTY_BODY_BYTES, PROPERTY_CAUSE, PROPERTY_TOPIC
from pyspark_rocketmq.testing.handlers.execution import Refused
from pyspark_rocketmq.testing.handlers.requests import Operation, Replica
from pyspark_rocketmq.testing.log import PullLimits
from pyspark_rocketmq.testing.wire import Reply

__all__ = ["DEAD_LETTERS", "FLAWS", "LARGEST_BYTES", "DeadLetters", "Flaw", "SinkRow", "refusing_requests"]

DEAD_LETTERS: Final = "orders-dead"
"""The topic of dead letters."""

LARGEST_BYTES: Final = 5_000
"""``maxMessageBytes`` of a write with rows that cannot be sent."""

_ILLEGAL: Final = b"!illegal!"
_MANY: Final = 40_000
"""More than the properties of a message may have."""


class Flaw(enum.Enum):
    """Why a row cannot be sent: a part of its dead letter's cause."""

    EMPTY = "it has no body"
    LARGE = "more than maxMessageBytes"
    TAGS = "its tags holds 0x01"
    KEYS = "its properties take over"
    ILLEGAL = "brokers take none of these"


FLAWS: Final = tuple(Flaw)


@dataclass(frozen=True, slots=True)
class SinkRow:
    """A row of a streaming write.

    Parameters
    ----------
    lane : str
    number : int
        Its number in the lane.
    key : str, optional
        Its sharding key.
    flaw : Flaw, optional
    """

    lane: str
    number: int
    key: str | None = None
    flaw: Flaw | None = None

    @property
    def name(self) -> str:
        """Which row it is."""
        return f"{self.lane}:{self.number}"

    def body(self, size: int) -> bytes:
        """Return its body, filled up with spaces."""
        match self.flaw:
            case Flaw.EMPTY:
                return b""
            case Flaw.LARGE:
                return self.name.encode().ljust(LARGEST_BYTES + 1)
            case Flaw.ILLEGAL:
                return self.name.encode() + _ILLEGAL
        return self.name.encode().ljust(size)

    @property
    def tags(self) -> str | None:
        """Its tag."""
        return "a\x01b" if self.flaw is Flaw.TAGS else None

    @property
    def keys(self) -> str:
        """Its keys: a dead letter has the first of them at least."""
        return f"{self.name} {'k' * _MANY}" if self.flaw is Flaw.KEYS else self.name


class DeadLetters:
    """The dead letters of a life, and what has to be among them."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        """Those that are not as they should be."""
        self.due: set[str] = set()
        """Rows that cannot be sent, of batches that are written."""
        self.stored: set[str] = set()
        self._flawed: dict[str, tuple[SinkRow, bytes, str]] = {}

    def expect(self, row: SinkRow, body: bytes, topic: str) -> None:
        """Record a row that cannot be sent, before a task has it."""
        self._flawed[row.name] = row, body, topic

    def store(self, body: bytes, properties: Mapping[str, str]) -> None:
        """Record a dead letter; its body has no spaces at its end."""
        name = properties.get(PROPERTY_KEYS, "").partition(" ")[0]
        self.stored.add(name)
        if name in self._flawed:
            self.wrong += [f"the dead letter {name}: {each}" for each in self._differ(name, body, properties)]
        else:
            self.wrong.append(f"{name} is a dead letter, and could be sent")

    def _differ(self, name: str, body: bytes, properties: Mapping[str, str]) -> Iterator[str]:
        row, sent, topic = self._flawed[name]
        assert row.flaw is not None
        cause = properties[PROPERTY_CAUSE]
        if row.flaw.value not in cause:
            yield f"its cause is {cause!r}, not {row.flaw.value!r}"
        if body != (sent.rstrip() or cause.encode()):
            yield f"its body is {body!r}"
        if properties[PROPERTY_BODY_BYTES] != str(len(sent)):
            yield f"it had {properties[PROPERTY_BODY_BYTES]} bytes, not {len(sent)}"
        if properties[PROPERTY_TOPIC] != topic:
            yield f"its topic is {properties[PROPERTY_TOPIC]!r}, not {topic!r}"
        if (properties.get(PROPERTY_TAGS) or None) != (row.tags and row.tags.replace("\x01", "?")):
            yield f"its tag is {properties.get(PROPERTY_TAGS)!r}"

    def judge(self) -> list[str]:
        """Return what is wrong with them, and which are missing."""
        return self.wrong + [f"{name} is in no topic at all" for name in sorted(self.due - self.stored)]


def refusing_requests(operations: Mapping[int, Operation]) -> dict[int, Operation]:
    """Return the operations of brokers that refuse some rows, and each batch that has one of them.

    Facts (AbstractSendMessageProcessor, DefaultMessageStore.checkMessage; RocketMQ 5.4): a broker refuses a
    send as a whole, with MESSAGE_ILLEGAL. What is illegal here is no matter of the client.
    """

    def refusing(send: Operation) -> Operation:
        def execute(replica: Replica, frame: Frame, limits: PullLimits) -> Reply:
            if _ILLEGAL in bytes(frame.body) and _topic(frame) != DEAD_LETTERS:
                raise Refused(ResponseCode.MESSAGE_ILLEGAL, Flaw.ILLEGAL.value)
            return send(replica, frame, limits)

        return execute

    codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    return {code: refusing(operations[code]) for code in codes}


def _topic(frame: Frame) -> str:
    return SendMessageRequest.parse(frame.command.fields).topic
