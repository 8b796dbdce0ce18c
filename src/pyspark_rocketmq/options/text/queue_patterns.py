"""Patterns for queues that may no longer exist: by topic, by broker, or single queues."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options.declare import Kind

__all__ = ["QUEUE_PATTERNS", "QueuePattern", "covers"]

_FORM: Final = re.compile(r"(?P<topic>[^@\s]*)(?:@(?P<broker>[^@\s]+?)(?::(?P<queue>[0-9]{1,9}))?)?")


@dataclass(frozen=True, slots=True)
class QueuePattern:
    """All queues with these parts; None matches any.

    Parameters
    ----------
    topic, broker_name : str, optional
    queue_id : int, optional
    """

    topic: str | None = None
    broker_name: str | None = None
    queue_id: int | None = None

    def matches(self, queue: MessageQueue) -> bool:
        """Whether the pattern matches the queue."""
        return (
            self.topic in (None, queue.topic)
            and self.broker_name in (None, queue.broker_name)
            and self.queue_id in (None, queue.queue_id)
        )

    @property
    def whole_topic(self) -> str | None:
        """The topic, if the pattern matches all of its queues."""
        return self.topic if self.broker_name is None else None


def covers(patterns: Iterable[QueuePattern], queue: MessageQueue) -> bool:
    """Whether one of the patterns matches the queue."""
    return any(pattern.matches(queue) for pattern in patterns)


def _patterns(text: str) -> tuple[QueuePattern, ...]:
    found = {_pattern(part.strip()): None for part in re.split("[;,]", text) if part.strip()}
    if not found:
        raise ValueError("it names nothing")
    return tuple(found)


def _pattern(text: str) -> QueuePattern:
    match = _FORM.fullmatch(text)
    if match is None or not (match["topic"] or match["broker"]):
        raise ValueError(f"{text!r} is not topic, topic@broker, topic@broker:queue or @broker")
    queue_id = None if match["queue"] is None else int(match["queue"])
    return QueuePattern(match["topic"] or None, match["broker"], queue_id)


QUEUE_PATTERNS: Final = Kind(
    "queues: topic, topic@broker, topic@broker:queue or @broker, between commas",
    "orders@broker-a:3,payments,@broker-b",
    _patterns,
)
