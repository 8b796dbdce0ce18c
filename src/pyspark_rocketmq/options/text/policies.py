"""Parse where to start and end into a closed type, without clock or broker.

Forms of a position: ``earliest``, ``latest``, ``group``, ``last:100``; of a time: see ``times``. Per queue as
JSON ``{"topic": {"broker": {"queue id": position}}}``; ``{"topic": position}`` sets all its queues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar, assert_never

from pyspark_rocketmq.model import (
    Ago,
    AtOffsets,
    AtTimestamp,
    Earliest,
    GroupOffsets,
    LastMessages,
    Latest,
    MessageQueue,
    Position,
    StartPolicy,
)
from pyspark_rocketmq.model.numbers import parse_long, parse_milliseconds
from pyspark_rocketmq.options.declare import Kind
from pyspark_rocketmq.options.text.times import TIMESTAMP, Moment, TimesByQueue

__all__ = [
    "ASSIGNMENT",
    "OFFSETS",
    "OFFSETS_BY_TIMESTAMP",
    "RESET",
    "UNLISTED",
    "asks_group",
    "complete",
    "mentions",
]

T = TypeVar("T")

LATEST_MARK: Final = -1
EARLIEST_MARK: Final = -2
_MAX_QUEUE_ID: Final = (1 << 31) - 1
_LAST: Final = re.compile(r"last\s*:\s*([0-9]{1,18})")


def _parse_named_position(text: str) -> Earliest | Latest | LastMessages | None:
    lowered = text.strip().lower()
    match lowered:
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    found = _LAST.fullmatch(lowered)
    return LastMessages(int(found[1])) if found else None


def _offset_position(value: Any) -> Position:
    """Convert a JSON value of an offsets map to a position."""
    match value:
        case bool():
            pass
        case int() if value == LATEST_MARK:
            return Latest()
        case int() if value == EARLIEST_MARK:
            return Earliest()
        case int() if value >= 0:
            return parse_long(value)
        case str() if (position := _parse_named_position(value)) is not None:
            return position
    forms = 'an offset, -1 latest, -2 earliest, "earliest", "latest", "last:100"'
    raise ValueError(f"{json.dumps(value)} is no position ({forms})")


def _time_position(value: Any) -> Moment:
    """Convert a JSON value of a timestamps map to a position."""
    match value:
        case bool():
            pass
        case int() if value >= 0:
            return AtTimestamp(parse_milliseconds(value))
        case str():
            return TIMESTAMP.parse(value)
    raise ValueError(
        f'{json.dumps(value)} is no time (milliseconds since the epoch, ISO 8601, "-10m", "now")'
    )


def _load_object(text: str) -> dict[str, Any]:
    """Read a JSON object, rejecting repeated keys (the last one would silently win)."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
            raise ValueError(f"the key {repeated!r} is given twice")
        return found

    try:
        value = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ValueError(f"JSON error at line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(value, dict) or not value:
        raise ValueError("it must be a JSON object that names at least one topic")
    return value


def _queue_id(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > _MAX_QUEUE_ID:
        raise ValueError(f"{text!r} is no queue id")
    return int(text)


def _at(path: str, call: Callable[[Any], T], value: Any) -> T:
    """Call, and add to an error where in the document it occurred."""
    try:
        return call(value)
    except ValueError as error:
        raise ValueError(f"at {path}: {error}") from None


def _entries(path: str, value: Any, what: str) -> Iterator[tuple[str, str, Any]]:
    """Iterate over one level of the document: (path, key, value)."""
    if not isinstance(value, dict) or not value:
        raise ValueError(f"at {path}: expected an object of {what}, found {json.dumps(value)}")
    for key, inner in value.items():
        yield f"{path} > {key}", key, inner


def _brokers(topic: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Iterate over a topic's brokers. In the form of Kafka's source, queue ids are in their place."""
    ids = list(value) if isinstance(value, dict | list) else []
    if ids and all(str(number).isdigit() for number in ids):
        raise ValueError(
            f"at {topic}: expected an object of brokers, found {json.dumps(value)} (the broker's name is "
            "missing between topic and queue id: each broker numbers its own queues)"
        )
    return _entries(topic, value, "brokers")


def _per_queue(text: str, position: Callable[[Any], T]) -> tuple[dict[MessageQueue, T], dict[str, T]]:
    """Return the values of a document by queue, and those by topic."""
    offsets: dict[MessageQueue, T] = {}
    topics: dict[str, T] = {}
    for topic, brokers in _load_object(text).items():
        if not isinstance(brokers, dict):
            topics[topic] = _at(topic, position, brokers)
            continue
        for broker_path, broker, queues in _brokers(topic, brokers):
            for path, key, value in _entries(broker_path, queues, "queue ids"):
                queue = MessageQueue(topic, broker, _at(path, _queue_id, key))
                if queue in offsets:  # "1" and "01"
                    raise ValueError(f"at {path}: the queue is given twice")
                offsets[queue] = _at(path, position, value)
    return offsets, topics


def _offsets(text: str) -> StartPolicy:
    if text.lstrip().startswith("{"):
        offsets, topics = _per_queue(text, _offset_position)
        return AtOffsets(offsets, topics=topics)
    if text.lower() == "group":
        return GroupOffsets(None)
    position = _parse_named_position(text)
    if position is not None:
        return position
    try:
        TIMESTAMP.parse(text)
    except ValueError:
        raise ValueError("") from None
    raise ValueError("that is a time: give it as startingTimestamp or endingTimestamp")


def _assignment(text: str) -> tuple[MessageQueue, ...]:
    found: dict[MessageQueue, None] = {}
    for topic, brokers in _load_object(text).items():
        for path, broker, queue_ids in _brokers(topic, brokers):
            if not isinstance(queue_ids, list) or not queue_ids:
                raise ValueError(f"at {path}: expected a list of queue ids, found {json.dumps(queue_ids)}")
            for queue_id in queue_ids:
                # In Python, bool is a subclass of int.
                if type(queue_id) is not int or not 0 <= queue_id <= _MAX_QUEUE_ID:
                    raise ValueError(f"at {path}: {json.dumps(queue_id)} is no queue id")
                found[MessageQueue(topic, broker, queue_id)] = None
    return tuple(sorted(found))


def _parse_unlisted(text: str) -> Earliest | Latest | GroupOffsets | None:
    match text.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "group":
            return GroupOffsets(None)
        case "fail":
            return None
    raise ValueError("")


def _reset(text: str) -> Earliest | Latest | None:
    found = _parse_unlisted(text)
    if isinstance(found, GroupOffsets):
        raise ValueError("")  # noqa: TRY004 - a wrong value, not a wrong type
    return found


def complete(
    policy: StartPolicy | None,
    *,
    unlisted: Earliest | Latest | GroupOffsets | None,
    reset: Earliest | Latest | None,
) -> StartPolicy | None:
    """Add the settings of other options: the group's reset, and the queues that are not listed."""
    match policy:
        case GroupOffsets():
            return GroupOffsets(reset)
        case AtOffsets():
            return replace(
                policy, default=GroupOffsets(reset) if isinstance(unlisted, GroupOffsets) else unlisted
            )
        case None | Earliest() | Latest() | AtTimestamp() | Ago() | LastMessages():
            return policy
    assert_never(policy)


def mentions(policy: StartPolicy, kind: type[Earliest | Latest]) -> bool:
    """Return whether the policy, or a part of it that the user set, is of the kind."""
    if isinstance(policy, AtOffsets):
        return any(
            isinstance(position, kind) for position in (*policy.offsets.values(), *policy.topics.values())
        )
    return isinstance(policy, kind)


def asks_group(policy: StartPolicy) -> bool:
    """Return whether the policy needs a group's committed offsets."""
    return isinstance(policy.default if isinstance(policy, AtOffsets) else policy, GroupOffsets)


_JSON_LABEL: Final = 'JSON {"topic": {"broker": {"queue id": %s}}} or {"topic": %s}'

OFFSETS: Final = Kind(
    f"earliest, latest, group, last:N, or {_JSON_LABEL % ('offset', 'offset')} (-1 latest, -2 earliest)",
    '{"orders": {"broker-a": {"0": 500, "1": -2}}}',
    _offsets,
)
OFFSETS_BY_TIMESTAMP: Final = Kind(
    _JSON_LABEL % ("time", "time"),
    '{"orders": "2030-01-31T08:00:00Z"}',
    lambda text: TimesByQueue(*_per_queue(text, _time_position)),
)
ASSIGNMENT: Final = Kind(
    'JSON {"topic": {"broker": [queue ids]}}', '{"orders": {"broker-a": [0, 1]}}', _assignment
)
UNLISTED: Final = Kind("one of earliest, latest, group, fail", "earliest", _parse_unlisted)
RESET: Final = Kind("one of earliest, latest, fail", "earliest", _reset)
