"""A start policy as JSON: a query keeps the one that it started with, whatever its options say later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from pyspark_rocketmq.model import (
    Ago,
    AtOffsets,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    LastMessages,
    Latest,
    Position,
    StartPolicy,
)
from pyspark_rocketmq.model.nested_offsets import flatten, nest

__all__ = ["decode_start", "encode_start"]


def encode_start(policy: StartPolicy) -> Any:
    """Return the JSON form of a policy."""
    match policy:
        case GroupOffsets(reset):
            return {"group": None if reset is None else _encode(reset)}
        case AtOffsets(offsets, default, topics):
            return {
                "offsets": nest({queue: _encode(at) for queue, at in offsets.items()}),
                "topics": {topic: _encode(at) for topic, at in sorted(topics.items())},
                "default": None if default is None else encode_start(default),
            }
        case _:
            return _encode(policy)


def _encode(position: Position) -> Any:
    match position:
        case int():
            return position
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case AtTimestamp(timestamp_ms):
            return {"timestamp": timestamp_ms}
        case Ago(ago_ms):
            return {"ago": ago_ms}
        case LastMessages(count):
            return {"last": count}
        case _:
            assert_never(position)


def decode_start(form: Any) -> StartPolicy:
    """Read the JSON form of a policy.

    Raises
    ------
    ValueError, TypeError, KeyError
        It is none.
    """
    if isinstance(form, Mapping) and "offsets" in form:
        offsets = flatten(form["offsets"])
        default = form["default"]
        return AtOffsets(
            {queue: _decode(at) for queue, at in offsets.items()},
            None if default is None else decode_start(default),  # type: ignore[arg-type]
            {str(topic): _decode(at) for topic, at in form["topics"].items()},
        )
    if isinstance(form, Mapping) and "group" in form:
        reset = form["group"]
        return GroupOffsets(None if reset is None else _decode(reset))  # type: ignore[arg-type]
    match _decode(form):
        case int():
            raise ValueError("a number is the position of one queue, and no start")
        case position:
            return position


def _decode(form: Any) -> Position:
    match form:
        case int():
            return form
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case {"timestamp": int(timestamp_ms)}:
            return AtTimestamp(timestamp_ms)
        case {"ago": int(ago_ms)}:
            return Ago(ago_ms)
        case {"last": int(count)}:
            return LastMessages(count)
        case _:
            raise ValueError(f"no position: {form!r}")
