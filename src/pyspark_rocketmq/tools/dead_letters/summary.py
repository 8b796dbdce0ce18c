"""What dead letters are: how old, why, and with which tags."""

# Facts: a dead letter says how often it was redelivered (reconsumeTimes), not why its consumer failed. A
# message whose consumer gave up (a negative delay level) has fewer redeliveries than the group's maximum.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model import Message
from pyspark_rocketmq.tools.replay import PROPERTY_REPLAYS

__all__ = ["CAUSE_PROPERTY", "DeadLetterSummary", "age_of", "cause_of", "summarize"]

CAUSE_PROPERTY: Final = "deadLetterCause"
"""Set by the sink, and by consumers that want to say why."""

_CAUSE_CHARACTERS: Final = 120
_HOUR_MS: Final = 3_600_000
_AGES: Final = (
    (_HOUR_MS, "below 1 hour"),
    (24 * _HOUR_MS, "1 to 24 hours"),
    (7 * 24 * _HOUR_MS, "1 to 7 days"),
)
_OLDEST: Final = "above 7 days"


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """Numbers of messages: by age (the youngest first), cause and tag (the most first)."""

    ages: dict[str, int]
    causes: dict[str, int]
    tags: dict[str, int]


def age_of(message: Message, now_ms: int) -> str:
    """Return how long ago a message was stored, as a range."""
    age_ms = now_ms - message.store_timestamp
    return next((name for limit_ms, name in _AGES if age_ms < limit_ms), _OLDEST)


def cause_of(message: Message) -> str:
    """Return why a message is a dead letter, as far as the message says."""
    if said := message.properties.get(CAUSE_PROPERTY):
        return said.strip().partition("\n")[0][:_CAUSE_CHARACTERS]
    replays = message.properties.get(PROPERTY_REPLAYS)
    after = f", replayed {replays} times before" if replays else ""
    times = message.reconsume_times
    return f"failed after {times} redeliveries{after}" if times else f"failed without redelivery{after}"


def summarize(messages: Iterable[Message], now_ms: int) -> DeadLetterSummary:
    """Count messages by age, cause and tag."""
    found = list(messages)
    ages = Counter(age_of(message, now_ms) for message in found)
    causes = Counter(map(cause_of, found))
    tags = Counter(message.tags or "" for message in found)
    order = [*(name for _, name in _AGES), _OLDEST]
    return DeadLetterSummary(
        ages={name: ages[name] for name in order if name in ages},
        causes=dict(causes.most_common()),
        tags=dict(tags.most_common()),
    )
