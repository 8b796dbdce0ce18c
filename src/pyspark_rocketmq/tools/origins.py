"""The topics that RocketMQ keeps for a consumer group."""

from __future__ import annotations

import enum

__all__ = ["Origin"]


class Origin(enum.Enum):
    """The kind of a group's topic: retry or dead letters."""

    DLQ = "dlq"
    RETRY = "retry"

    def topic(self, group: str) -> str:
        """Return the topic's name for a group."""
        return f"%{self.name}%{group}"
