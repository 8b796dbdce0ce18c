"""Where reading starts or ends, and a group's progress as brokers report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark_rocketmq.model.queues import MessageQueue

__all__ = [
    "Ago",
    "AtOffsets",
    "AtTimestamp",
    "ConsumerOffset",
    "Earliest",
    "GroupOffsets",
    "LastMessages",
    "Latest",
    "Position",
    "QueueStats",
    "StartPolicy",
]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Offsets of a queue as its broker reports them; ``last_update_timestamp`` in ms, 0 if never written."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """A group's progress in a queue; ``last_timestamp`` (ms) is when the last consumed message was stored."""

    broker_offset: int
    consumer_offset: int
    last_timestamp: int


# --- where to start (or end) ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Earliest:
    """The queue's min offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The queue's max offset (the next to be written)."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The group's committed offset; without one, ``reset`` applies (None: fail)."""

    reset: Earliest | Latest | AtTimestamp | None


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first message stored at or after ``timestamp_ms`` (milliseconds since the epoch)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Ago:
    """The first message stored at or after the time ``ago_ms`` before the query's start."""

    ago_ms: int


@dataclass(frozen=True, slots=True)
class LastMessages:
    """``count`` offsets before the queue's max offset, but not before its min offset."""

    count: int


Position: TypeAlias = int | Earliest | Latest | AtTimestamp | Ago | LastMessages
"""Where one queue starts or ends; a number is an offset."""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Explicit positions by queue, else by topic; ``default`` applies to the rest (None: fail)."""

    offsets: Mapping[MessageQueue, Position]
    default: Earliest | Latest | GroupOffsets | AtTimestamp | None = None
    topics: Mapping[str, Position] = field(default_factory=dict)


StartPolicy: TypeAlias = Earliest | Latest | GroupOffsets | AtTimestamp | Ago | LastMessages | AtOffsets
