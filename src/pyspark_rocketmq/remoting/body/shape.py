"""Reading and writing JSON bodies: every access is checked and every complaint names its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark_rocketmq.errors import LocalProtocolError, RemoteProtocolError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.remoting.command import Buffer
from pyspark_rocketmq.remoting.lenient_json import parse_json

__all__ = ["Node", "queue_key", "read", "write"]

_LONG: Final = 2**63


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a parsed document and where it stands; an absent or null value is None."""

    value: Any
    path: str

    def __getitem__(self, name: str) -> Node:
        """Return a member of an object, absent or not."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        return Node(self.value.get(name), f"{self.path}.{name}")

    def members(self) -> Iterator[tuple[Any, Node]]:
        """Iterate over an object's keys and values; None has none."""
        if self.value is None:
            return
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        for key, value in self.value.items():
            yield key, Node(value, f"{self.path}.{key}")

    def elements(self) -> Iterator[Node]:
        """Iterate over an array; None has no elements."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self._wrong("an array")
        for index, value in enumerate(self.value):
            yield Node(value, f"{self.path}[{index}]")

    def string(self, default: str | None = None) -> str:
        """Return a string."""
        value = default if self.value is None else self.value
        if type(value) is not str:
            raise self._wrong("a string")
        return value

    def integer(self, default: int | None = None, *, low: int = -_LONG, high: int = _LONG - 1) -> int:
        """Return an integer from ``low`` to ``high``."""
        value = default if self.value is None else self.value
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(f"an integer from {low} to {high}")
        return value

    def boolean(self, default: bool | None = None) -> bool:
        """Return a boolean."""
        value = default if self.value is None else self.value
        if type(value) is not bool:
            raise self._wrong("a boolean")
        return value

    def strings(self) -> tuple[str, ...]:
        """Return an array of strings."""
        return tuple(element.string() for element in self.elements())

    def texts(self) -> dict[str, str]:
        """Return an object of strings."""
        return {self.name(key): value.string() for key, value in self.members()}

    def name(self, key: Any) -> str:
        """Return a key of this object that is a string."""
        if type(key) is not str:
            raise self._wrong("an object with string keys")
        return key

    def number(self, key: Any) -> int:
        """Return a key of this object that is a number of at most 64 bits, not negative."""
        if type(key) is not str or not key.isascii() or not key.isdecimal() or len(key) > 18:
            raise self._wrong("an object with numeric keys")
        return int(key)

    def _wrong(self, expected: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"the peer sent a body of another shape: {self.path[:200]} should be {expected}",
            found=type(self.value).__name__,
        )


def read(view: Buffer, what: str) -> Node:
    """Parse a body; ``what`` names it in errors.

    Raises
    ------
    RemoteProtocolError
        It is no JSON.
    """
    return Node(parse_json(view), what)


def queue_key(key: Any, path: str) -> MessageQueue:
    """Return the queue that a key of a statistics table stands for."""
    node = Node(dict(key) if isinstance(key, frozenset) else key, f"{path}.<key>")
    return MessageQueue(
        node["topic"].string(), node["brokerName"].string(), node["queueId"].integer(low=0, high=2**31 - 1)
    )


def write(document: Any) -> bytes:
    """Write a body.

    Raises
    ------
    LocalProtocolError
        It has text without a UTF-8 form.
    """
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise LocalProtocolError("a request's body has text without a UTF-8 form") from None
