"""What users pass to the client, checked before anything is sent: deeper down, errors do not name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model.messages import OutgoingMessage
from pyspark_rocketmq.model.numbers import parse_milliseconds
from pyspark_rocketmq.model.queues import MessageQueue

__all__ = [
    "require",
    "require_messages",
    "require_milliseconds",
    "require_offsets",
    "require_queue",
    "require_queues",
    "require_timeout_ms",
    "require_times",
    "require_whole",
]

N = TypeVar("N", bound=float)
V = TypeVar("V")


def require(value: object, kind: type[V], name: str, *, must: str | None = None) -> V:
    """Return an argument if it is of its type. The error has no value, which may be a secret.

    Raises
    ------
    OptionError
    """
    if not isinstance(value, kind):
        raise _wrong(name, must or _one(kind), value)
    return value


def require_messages(messages: Iterable[OutgoingMessage]) -> tuple[OutgoingMessage, ...]:
    """Return messages to send, which the caller may have as an iterator.

    Raises
    ------
    OptionError
    """
    if not isinstance(messages, Iterable):
        raise _wrong("messages", "an iterable of OutgoingMessage", messages)
    return tuple(
        require(message, OutgoingMessage, "a message", must="an OutgoingMessage(topic, body)")
        for message in messages
    )


def require_whole(value: int, name: str, least: int, most: int = 2**63 - 1) -> None:
    """Check a whole number, also one of numpy.

    Raises
    ------
    OptionError
    """
    if not isinstance(value, SupportsIndex) or not least <= value.__index__() <= most:
        bounds = f"from {least} on" if most == 2**63 - 1 else f"from {least} to {most}"
        raise _wrong(name, f"a whole number {bounds}", value)


def require_milliseconds(number: int, name: str) -> int:
    """Return an argument that is a time in milliseconds since the epoch, as `parse_milliseconds`.

    Raises
    ------
    OptionError
    """
    require_whole(number, name, 0)
    try:
        return parse_milliseconds(number.__index__())  # numpy's numbers may overflow
    except ValueError as error:
        raise OptionError(f"{name} is in milliseconds since the epoch: {error}") from None


def require_queues(queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
    """Return queues, which the caller may have as an iterator.

    Raises
    ------
    OptionError
    """
    if not isinstance(queues, Iterable):
        raise _wrong("queues", "an iterable of MessageQueue", queues)
    return tuple(require_queue(queue, "each queue") for queue in queues)


def require_queue(queue: object, name: str = "queue") -> MessageQueue:
    """Return a queue. One without a broker would be waited for, as one whose broker is down.

    Raises
    ------
    OptionError
    """
    given = require(queue, MessageQueue, name)
    for field in ("topic", "broker_name"):
        require(getattr(given, field), str, f"{field} of {name}", must="a text")
    return given


def require_offsets(offsets: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, int]:
    """Return offsets by queue. Brokers keep a negative one, which then stands for none.

    Raises
    ------
    OptionError
    """
    for queue, offset in _require_numbers(offsets, "offsets").items():
        if offset < 0:
            raise _wrong("offsets", "0 or more", offset, queue=queue)
    return offsets


def require_times(timestamps: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, int]:
    """Return times by queue, in milliseconds since the epoch.

    Raises
    ------
    OptionError
    """
    return _require_numbers(timestamps, "times, in milliseconds since the epoch,")


def _require_numbers(numbers: Mapping[MessageQueue, int], name: str) -> Mapping[MessageQueue, int]:
    if not isinstance(numbers, Mapping):
        raise _wrong(name, "a mapping of MessageQueue to whole numbers", numbers)
    for queue in require_queues(numbers):
        if not isinstance(numbers[queue], SupportsIndex):
            raise _wrong(name, "whole numbers", numbers[queue], queue=queue)
    return numbers


def require_timeout_ms(timeout_ms: N, name: str = "timeout_ms") -> N:
    """Return a time-out: without time, a request is sent whose answer is not waited for.

    Raises
    ------
    OptionError
    """
    if not isinstance(timeout_ms, int | float) or not timeout_ms > 0:
        raise _wrong(name, "a number of milliseconds above 0", timeout_ms)
    return timeout_ms


def _wrong(name: str, must: str, value: object, **facts: object) -> OptionError:
    """Return the error for an argument. Values other than numbers may be secrets: their types are shown."""
    shown = str(value) if value is None or isinstance(value, int | float) else _one(type(value))
    return OptionError(f"{name} must be {must}, not {shown}", **facts)


def _one(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeio' else 'a'} {kind.__name__}"
