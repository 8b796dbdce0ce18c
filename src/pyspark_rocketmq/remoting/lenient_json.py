"""A reader for the JSON that RocketMQ's servers write.

# Facts
#
# ``RemotingSerializable.encode`` by fastjson (4.9) or fastjson2 (5.4 and 5.5; 5.5.1, which has no
# fastjson, writes the same), never by the JSON standard:
#
# * Maps with numeric keys have bare numbers as keys, ``{0:"ip:port"}``: cluster info always, routes
#   below request version 401.
# * Maps whose keys are objects have objects as keys: topic statistics, consume statistics, reset
#   offsets. Seen: ``{"brokerName":"b","queueId":0,"topic":"t"}``, always these three.
# * Null members are left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from pyspark_rocketmq.errors import RemoteProtocolError
from pyspark_rocketmq.remoting.command import Buffer

__all__ = ["MAX_DEPTH", "MAX_SIZE", "parse_json"]

MAX_SIZE: Final = 64 * 1024 * 1024
"""The largest document taken, in bytes: a route of a million queues is some 20 MiB."""

MAX_DEPTH: Final = 64
"""How deep a document that is not standard JSON may nest; RocketMQ's bodies have at most six levels."""

_decoder = json.JSONDecoder()
_skip_white = re.compile(r"[ \t\r\n]*").match
_bare_number = re.compile(r"-?[0-9]{1,20}").match


def parse_json(view: Buffer) -> Any:
    """Read a document.

    Returns
    -------
    Any
        What `json.loads` would return; besides, a bare number as a key becomes its text and an object as a
        key the frozenset of its items.

    Raises
    ------
    RemoteProtocolError
        The bytes are no JSON, not even RocketMQ's, or too large, or nested too deeply.
    """
    if len(view) > MAX_SIZE:
        raise RemoteProtocolError("the peer sent a JSON body above the limit", size=len(view), limit=MAX_SIZE)
    try:
        text = str(view, "utf-8")
        try:
            return _decoder.decode(text)
        except ValueError:
            return _document(text)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError("the peer sent a body that is no JSON", size=len(view)) from error


def _document(text: str) -> Any:
    value, at = _value(text, _white(text, 0), 0)
    if _white(text, at) != len(text):
        raise ValueError("text after the document")
    return value


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    match text[at : at + 1]:
        case "{":
            return _object(text, at + 1, depth + 1)
        case "[":
            return _array(text, at + 1, depth + 1)
        case _:
            return _decoder.raw_decode(text, at)


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    _check_depth(depth)
    members: dict[Any, Any] = {}
    at = _white(text, at)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        key, at = _key(text, at, depth)
        at = _white(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("a key without a value")
        members[key], at = _value(text, _white(text, at + 1), depth)
        at = _white(text, at)
        match text[at : at + 1]:
            case ",":
                at = _white(text, at + 1)
            case "}":
                return members, at + 1
            case _:
                raise ValueError("an object without an end")


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    _check_depth(depth)
    elements: list[Any] = []
    at = _white(text, at)
    if text[at : at + 1] == "]":
        return elements, at + 1
    while True:
        element, at = _value(text, at, depth)
        elements.append(element)
        at = _white(text, at)
        match text[at : at + 1]:
            case ",":
                at = _white(text, at + 1)
            case "]":
                return elements, at + 1
            case _:
                raise ValueError("an array without an end")


def _key(text: str, at: int, depth: int) -> tuple[str | frozenset[tuple[str, Any]], int]:
    match text[at : at + 1]:
        case '"':
            return _decoder.raw_decode(text, at)
        case "{":
            members, end = _object(text, at + 1, depth + 1)
            try:
                return frozenset(members.items()), end
            except TypeError as error:
                raise ValueError("an object that is a key holds more than scalars") from error
        case _:
            number = _bare_number(text, at)
            if number is None:
                raise ValueError("not a key")
            return number.group(), number.end()


def _white(text: str, at: int) -> int:
    found = _skip_white(text, at)
    assert found is not None  # it matches the empty string
    return found.end()


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
