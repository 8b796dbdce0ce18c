"""Messages as they are stored and sent, and the results of pulls and sends."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, index
from typing import Final, NamedTuple, NoReturn, SupportsIndex

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.numbers import parse_milliseconds
from pyspark_rocketmq.model.queues import MessageQueue

__all__ = [
    "DELAY_LIMIT_MS",
    "MAX_DELAY_LEVEL",
    "Message",
    "OutgoingMessage",
    "PullResult",
    "PullStatus",
    "SendResult",
    "SendStatus",
]


MAX_DELAY_LEVEL: Final = 18

DELAY_LIMIT_MS: Final = 1 << 62
"""Brokers add a delay to their clock, in 64 bits: where that overflows, they deliver the message at once."""


class Message(NamedTuple):
    """A stored message with everything that Java's ``MessageExt`` provides.

    ``body`` is decompressed; timestamps are milliseconds since the epoch; hosts are ``ip:port``.
    A tuple, because millions of them are created, and pickled between Spark's processes.
    ``msg_id`` is the client's unique id (property ``UNIQ_KEY``) and falls back to ``offset_msg_id``.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    body: bytes
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    commit_log_offset: int
    store_size: int

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was read from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def _missing(_: Message, name: str) -> NoReturn:
    raise AttributeError(f"a Message has no {name}{_in_python(name)}")


# In the class itself, type checkers would accept every name.
Message.__getattr__ = _missing  # type: ignore[attr-defined]


def _in_python(name: str) -> str:
    """Return the name of the attribute here for a getter or property of Java's ``MessageExt``."""
    if name in {"getProperty", "getUserProperty"}:
        return ": its properties are a dict: message.properties.get(name)"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub("^get(?=[A-Z])", "", name))
    attribute = words.lower().removesuffix("_string")
    return f": in Python it is message.{attribute}" if attribute in Message._fields else ""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send.

    Parameters
    ----------
    topic : str
    body : bytes
        Not empty: brokers of 5.1 and later fail on an empty body.
    tags : str, optional
        The tag; consumers filter by it.
    keys : str or sequence of str
        Indexed by the broker. A string may contain several keys, separated by spaces.
    properties : Mapping[str, str]
        User properties. Names that RocketMQ reserves are rejected when the message is sent.
    flag : int
        A signed 32-bit number that RocketMQ stores but does not interpret.
    sharding_key : str, optional
        Messages of one key go to one queue, in order, while the number of queues does not change.
    delay_level : int
        1 to 18 (1 s to 2 h by the broker's table); 0 for no delay.
    delay_ms, deliver_at_ms : int, optional
        Any delay, or delivery time (milliseconds since the epoch), by default up to three days ahead: brokers
        refuse more. A time in the past is delivered immediately; one in seconds is an error. RocketMQ 5 only;
        older brokers deliver immediately.
    wait_store_ok : bool
        Whether the broker responds only when the message is as durable as its configuration requires.

    Raises
    ------
    OptionError
        A value of another type, or that no broker accepts, or more than one kind of delay.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sharding_key: str | None = None
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    wait_store_ok: bool = True

    def __post_init__(self) -> None:
        if not self.topic:
            raise OptionError("a message needs a topic")
        kinds = tuple(map(type, _typed(self)))
        if kinds not in _FITTING:
            _check_kinds(self)
            _FITTING.add(kinds)
        if self.keys and not (isinstance(self.keys, str) or _texts(self.keys)):
            _refuse(self, "keys", "texts, or one text")
        if self.properties and not (_texts(self.properties) and _texts(self.properties.values())):
            _refuse(self, "properties", "a mapping of texts to texts")
        if not isinstance(self.body, bytes) or not self.body:
            raise OptionError("a message needs a body of at least one byte, as bytes", topic=self.topic)
        if not -(2**31) <= self.flag < 2**31:
            raise OptionError("flag must be a signed 32-bit integer", topic=self.topic, flag=self.flag)
        if not 0 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise OptionError("delay_level goes from 1 to 18", topic=self.topic, delay_level=self.delay_level)
        delays = (self.delay_level or None, self.delay_ms, self.deliver_at_ms)
        if sum(delay is not None for delay in delays) > 1:
            raise OptionError("give one of delay_level, delay_ms and deliver_at_ms", topic=self.topic)
        if self.delay_ms is not None and not 0 <= self.delay_ms < DELAY_LIMIT_MS:
            raise OptionError(
                "delay_ms is negative, or too large for brokers: they would deliver the message immediately",
                topic=self.topic,
                delay_ms=self.delay_ms,
            )
        if self.deliver_at_ms is not None:
            _check_moment(self, self.deliver_at_ms)

    @property
    def delayed(self) -> bool:
        """Whether the delivery of the message is delayed."""
        return bool(self.delay_level) or self.delay_ms is not None or self.deliver_at_ms is not None


def _check_moment(message: OutgoingMessage, deliver_at_ms: int) -> None:
    if deliver_at_ms < 0:
        raise OptionError("deliver_at_ms is negative", topic=message.topic, deliver_at_ms=deliver_at_ms)
    try:
        parse_milliseconds(index(deliver_at_ms))
    except ValueError as error:
        raise OptionError(f"deliver_at_ms is in milliseconds: {error}", topic=message.topic) from None


_KINDS: Final = {
    "topic": (str, "a text"),
    "tags": (str | None, "a text"),
    "keys": (Sequence, "texts, or one text"),
    "properties": (Mapping, "a mapping of texts to texts"),
    "sharding_key": (str | None, "a text"),
    "flag": (SupportsIndex, "a whole number"),
    "delay_level": (SupportsIndex, "a whole number"),
    "delay_ms": (SupportsIndex | None, "a whole number"),
    "deliver_at_ms": (SupportsIndex | None, "a whole number"),
}
"""By field: what fails in the encoding if it is of another type, which does not say where it comes from."""

_typed: Final = attrgetter(*_KINDS)

_FITTING: Final[set[tuple[type, ...]]] = set()
"""The types of messages so far: to look them up takes a tenth of the time of `_check_kinds`."""


def _check_kinds(message: OutgoingMessage) -> None:
    for (name, (kind, must)), value in zip(_KINDS.items(), _typed(message), strict=True):
        if not isinstance(value, kind):
            _refuse(message, name, must)


def _texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _refuse(message: OutgoingMessage, name: str, must: str) -> NoReturn:
    given = getattr(message, name)
    raise OptionError(f"{name} must be {must}, not {given!r}", topic=message.topic, field=name)


class PullStatus(enum.Enum):
    """The status of a pull (``PullStatus`` of the Java client)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """The result of one pull. The next pull must begin at ``next_begin_offset``."""

    status: PullStatus
    messages: tuple[Message, ...]
    next_begin_offset: int
    min_offset: int
    max_offset: int


class SendStatus(enum.Enum):
    """How durable a stored message is (``SendStatus`` of the Java client)."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Where a message (or the first of a batch) was stored."""

    status: SendStatus
    queue: MessageQueue
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    transaction_id: str | None = None
