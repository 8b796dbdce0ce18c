"""Which of the stored messages a reader has to read: by their tags, and by their store time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.model import AtTimestamp, Earliest, MessageSelector

__all__ = ["TAGS", "Wanted"]

TAGS: Final = ("Aa", "BB", "c", "d", None)
"""The tags of messages, in turn. The first two have the same hash, by which brokers filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The messages that the life's reader, and its batch job, have to read; by default all.

    Parameters
    ----------
    since_ms : int
        Those that were stored at or after this time, by their broker's clock; 0 for all.
    tags : tuple of str
        Those with one of these tags; empty for all.
    by_sql : bool
        Whether the tags are an SQL filter.
    """

    since_ms: int = 0
    tags: tuple[str, ...] = ()
    by_sql: bool = False

    def takes(self, tag: str | None, stored_ms: int) -> bool:
        """Whether a message has to be read."""
        return (not self.tags or tag in self.tags) and stored_ms >= self.since_ms

    @property
    def filter(self) -> dict[str, str]:
        """The filter, as options."""
        if not self.tags:
            return {}
        return {"sqlFilter": self.selector.expression} if self.by_sql else {"tags": " || ".join(self.tags)}

    @property
    def options(self) -> dict[str, str]:
        """The options of a query or a batch."""
        since = {"startingTimestamp": str(self.since_ms)} if self.since_ms else {}
        return self.filter | since

    @property
    def start(self) -> Earliest | AtTimestamp:
        """Where each queue begins."""
        return AtTimestamp(self.since_ms) if self.since_ms else Earliest()

    @property
    def selector(self) -> MessageSelector:
        """The filter."""
        if not self.tags:
            return MessageSelector()
        if self.by_sql:
            return MessageSelector.by_sql(f"TAGS IN ({', '.join(map(repr, self.tags))})")
        return MessageSelector.by_tag(" || ".join(self.tags))
