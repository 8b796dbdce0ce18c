"""The types of option values: numbers, durations, sizes, addresses, names, lists."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Final, TypeVar

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import SendStatus
from pyspark_rocketmq.model.names import GROUP_TOPIC_PREFIXES, MAX_GROUP_LENGTH
from pyspark_rocketmq.options.declare import Kind

__all__ = [
    "ADDRESSES",
    "BOOLEAN",
    "DURATION_MS",
    "FILE",
    "GROUP",
    "NAMESPACE",
    "PATTERN",
    "SIZE",
    "STATUSES",
    "TEXT",
    "TOPIC",
    "TOPICS",
    "choice",
    "names",
    "parse_duration_ms",
    "require_member",
    "whole_number",
]

E = TypeVar("E", bound=enum.Enum)

_SEPARATORS: Final = re.compile(r"[;,]")
# Validators.java / TopicValidator.java: the same alphabet for topics and groups.
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_MAX_TOPIC: Final = 127
_MAX_SYSTEM_TOPIC: Final = 255
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]\x00-\x1f]+):(?P<port>[0-9]{1,5})")
_DURATION: Final = re.compile(r"\s*([0-9]{1,18})\s*([a-z]*)")
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?")
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000, "seconds": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    if "\0" in text:
        raise ValueError("it has a NUL character")
    return text


def _boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("")


def whole_number(minimum: int, *, example: int, maximum: int | None = None) -> Kind[int]:
    """Return the kind of the whole numbers from ``minimum`` to ``maximum`` (inclusive)."""
    label = f"a whole number from {minimum}" + (f" to {maximum}" if maximum is not None else " on")

    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text):
            raise ValueError("")
        number = int(text)
        if number < minimum or (maximum is not None and number > maximum):
            raise ValueError("")
        return number

    return Kind(label, str(example), parse)


def choice(values: type[E]) -> Kind[E]:
    """Return the kind of an enum's values, given as lower-case text."""
    by_text = {str(value.value).lower(): value for value in values}

    def parse(text: str) -> E:
        if text.lower() not in by_text:
            raise ValueError("")
        return by_text[text.lower()]

    return Kind(f"one of {', '.join(by_text)}", next(iter(by_text)), parse)


def require_member(kind: type[E], value: object, name: str) -> None:
    """Check an argument whose type is an enum: its text or name would fail much later.

    Raises
    ------
    OptionError
        The value is not a member of the enum.
    """
    if isinstance(value, kind):
        return
    members = [f"{kind.__name__}.{member.name}" for member in kind]
    given = str(value).rpartition(".")[2].lower()
    meant = [f"{kind.__name__}.{m.name}" for m in kind if given in (m.name.lower(), str(m.value).lower())]
    raise OptionError(
        f"{name} must be {' or '.join(meant or members)}, not the {type(value).__name__} {value!r}"
    )


def names(label: str, example: str, check: Callable[[str], str] = _text) -> Kind[tuple[str, ...]]:
    """Return the kind of a list of distinct names, separated by commas or semicolons."""

    def parse(text: str) -> tuple[str, ...]:
        found = [check(name.strip()) for name in _SEPARATORS.split(text) if name.strip()]
        if not found:
            raise ValueError("it names nothing")
        return tuple(dict.fromkeys(found))

    return Kind(label, example, parse)


def _topic(name: str) -> str:
    longest = _MAX_SYSTEM_TOPIC if name.startswith(GROUP_TOPIC_PREFIXES) else _MAX_TOPIC
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise ValueError(
            f"{name!r} is not a topic name (letters, digits, % - _ |, at most {longest} characters)"
        )
    return name


def _group(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > MAX_GROUP_LENGTH:
        raise ValueError(
            f"a group name has letters, digits, % - _ | and at most {MAX_GROUP_LENGTH} characters"
        )
    return name


def _address(text: str) -> str:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(_text(text))
    except re.error as error:
        raise ValueError(f"{error.msg} at position {error.pos}") from None


def parse_duration_ms(text: str) -> int:
    """Parse ``1h30m``, ``10 minutes``, ``250ms``; a bare number is milliseconds, as in Spark.

    Raises
    ------
    ValueError
        The text is not a duration.
    """
    lowered = text.strip().lower()
    if lowered.isascii() and lowered.isdigit():
        return int(lowered)
    total, position = 0, 0
    while position < len(lowered):
        match = _DURATION.match(lowered, position)
        if match is None or match[2] not in _UNITS_MS:
            raise ValueError("")
        total += int(match[1]) * _UNITS_MS[match[2]]
        position = match.end()
    if position == 0:
        raise ValueError("")
    return total


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("")
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def _statuses(text: str) -> frozenset[SendStatus]:
    found = set()
    for name in text.split(","):
        try:
            found.add(SendStatus(name.strip().upper()))
        except ValueError:
            raise ValueError(f"{name.strip()!r} is no send status") from None
    if SendStatus.SEND_OK not in found:
        raise ValueError("SEND_OK is missing: it is always accepted")
    return frozenset(found)


TEXT: Final = Kind("a text", "orders", _text)
FILE: Final = Kind("a path", "/etc/rocketmq/ca.pem", _text)
BOOLEAN: Final = Kind("true or false", "true", _boolean)
DURATION_MS: Final = Kind("a duration (a bare number is milliseconds)", "15m", parse_duration_ms)
SIZE: Final = Kind("a size in bytes, with or without k, m, g", "64m", _size)
STATUSES: Final = Kind(
    f"send statuses between commas, out of {', '.join(status.value for status in SendStatus)}",
    "SEND_OK,FLUSH_SLAVE_TIMEOUT",
    _statuses,
)
GROUP: Final = Kind("a group name", "orders-report", _group)
NAMESPACE: Final = Kind("a namespace", "MQ_INST_1", _group)
TOPIC: Final = Kind("a topic name", "orders", _topic)
TOPICS: Final = names("one or more topic names", "orders,payments", _topic)
ADDRESSES: Final = names("one or more host:port", "10.0.0.1:9876;10.0.0.2:9876", _address)
PATTERN: Final = Kind("a regular expression", "orders-.*", _pattern)
