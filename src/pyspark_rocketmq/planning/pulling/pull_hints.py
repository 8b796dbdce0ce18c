"""What reads have learned of a broker's answers, for the next read of the same kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model import MessageQueue, MessageSelector

__all__ = ["PullHint", "PullHints"]

_MOST: Final = 4096
"""Of topics, brokers and filters; what is forgotten is learned again in one round trip."""

_FIRST_GUESS_BYTES: Final = 4 << 20
"""The largest message that brokers take by default."""


@dataclass(slots=True)
class PullHint:
    """What pulls of one topic from one broker through one filter bring."""

    stride: int | None = None
    """How many offsets an answer covers."""
    answer_bytes: int | None = None
    """How large an answer is; None before the first one."""

    @property
    def expected_bytes(self) -> int:
        """How large the next answer may be."""
        return self.answer_bytes or _FIRST_GUESS_BYTES

    def learn(self, answer_bytes: int) -> None:
        """Record an answer's size: immediately if it is larger, gradually if it is smaller."""
        known = self.answer_bytes or 0
        self.answer_bytes = max(answer_bytes, (known * 7 + answer_bytes) // 8, 1)


class PullHints:
    """The hints of one client, by topic, broker and filter: messages of one topic say little of another's."""

    __slots__ = ("_hints",)

    def __init__(self) -> None:
        self._hints: dict[tuple[str, str, MessageSelector], PullHint] = {}

    def of(self, queue: MessageQueue, selector: MessageSelector) -> PullHint:
        """Return the hint for pulls of a queue; all readers share it."""
        if len(self._hints) >= _MOST:
            self._hints.clear()
        return self._hints.setdefault((queue.topic, queue.broker_name, selector), PullHint())
