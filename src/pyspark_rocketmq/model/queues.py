"""Queues, ranges of their offsets, and the results of reading a range."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from pyspark_rocketmq.errors import OptionError

__all__ = [
    "LOGICAL_BROKER_PREFIX",
    "MASTER_ID",
    "CorruptMessage",
    "LostRange",
    "MessageQueue",
    "MessageSelector",
    "OffsetRange",
    "RangeReport",
    "split_tags",
]

MASTER_ID = 0
"""The broker id of a master; every other id is a slave."""

LOGICAL_BROKER_PREFIX: Final = "__syslo__"
"""Prefix of the broker name of a static topic's queues (``MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX``)."""


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker (a replica group of master and slaves).

    A queue of a static topic moves between brokers. Its ``broker_name`` is that of its scope,
    ``__syslo__global__``, as in the Java client; `TopicRoute.owner` returns its current broker.

    Parameters
    ----------
    topic, broker_name : str
    queue_id : int
        0-based.
    """

    topic: str
    broker_name: str
    queue_id: int

    @property
    def logical(self) -> bool:
        """Whether it is a queue of a static topic, whose owner may change."""
        return self.broker_name.startswith(LOGICAL_BROKER_PREFIX)

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, int]]:
        # As its parts: a frozen dataclass's own way takes twice as long, and checkpoints have many.
        return type(self), (self.topic, self.broker_name, self.queue_id)

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The messages of one queue from ``from_offset`` (inclusive) to ``until_offset`` (exclusive)."""

    queue: MessageQueue
    from_offset: int
    until_offset: int

    if not TYPE_CHECKING:  # type checkers take the signature from the fields

        def __new__(cls, *args: object, **_: object) -> Self:  # noqa: D102 - says what OffsetRange.create is for
            if args and isinstance(args[0], str):
                raise OptionError(
                    "OffsetRange begins with a MessageQueue. From parts, as in rocketmq-spark, it is "
                    "OffsetRange.create(topic, queue_id, broker_name, from_offset, until_offset): the topic "
                    "comes first (not the group, as rocketmq-spark's README writes it)",
                    given=args[0],
                )
            return object.__new__(cls)

    def __post_init__(self) -> None:
        whole = hasattr(self.from_offset, "__index__") and hasattr(
            self.until_offset, "__index__"
        )  # also numpy's
        if not whole or not 0 <= self.from_offset <= self.until_offset:
            raise OptionError(
                "an offset range needs whole numbers, 0 <= from_offset <= until_offset",
                queue=self.queue,
                from_offset=self.from_offset,
                until_offset=self.until_offset,
            )

    def __reduce__(self) -> tuple[type[Self], tuple[MessageQueue, int, int]]:
        return type(self), (self.queue, self.from_offset, self.until_offset)  # see MessageQueue

    @classmethod
    def create(
        cls, topic: str, queue_id: int, broker_name: str, from_offset: int, until_offset: int
    ) -> OffsetRange:
        """Return a range from its parts, in the argument order of rocketmq-spark."""
        if not hasattr(queue_id, "__index__"):
            raise OptionError("a queue id is a whole number", queue_id=queue_id)
        return cls(MessageQueue(topic, broker_name, queue_id), from_offset, until_offset)

    def __len__(self) -> int:
        return self.until_offset - self.from_offset

    @property
    def topic(self) -> str:
        """The queue's topic."""
        return self.queue.topic

    @property
    def broker_name(self) -> str:
        """The queue's broker."""
        return self.queue.broker_name

    @property
    def queue_id(self) -> int:
        """The queue's id."""
        return self.queue.queue_id

    def __str__(self) -> str:
        return f"{self.queue}[{self.from_offset}, {self.until_offset})"


ExpressionType: TypeAlias = Literal["TAG", "SQL92"]

_SINGLE_BAR: Final = re.compile(r"\s\|\s")


def split_tags(expression: str) -> list[str]:
    """Return the tags of ``"TagA || TagB"``, also empty ones.

    Raises
    ------
    ValueError
        It has ``" | "``, which brokers take for a part of one tag, so that no message matches.
    """
    if _SINGLE_BAR.search(expression):
        raise ValueError("tags are joined with '||', not with '|'")
    return [tag.strip() for tag in expression.split("||")]


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """The filter that a broker applies to messages (``MessageSelector`` of the Java client).

    Create it with `by_tag` or `by_sql`. The default selects every message.
    """

    expression: str = "*"
    expression_type: ExpressionType = "TAG"

    @classmethod
    def by_tag(cls, expression: str) -> MessageSelector:
        """Select by tag: ``"TagA || TagB"``; ``"*"`` or an empty string selects all."""
        try:
            tags = sorted({*split_tags(expression)} - {""})
        except ValueError as error:
            raise OptionError(str(error), expression=expression) from None
        if not tags and expression.strip():
            raise OptionError("a tag expression names tags between '||'", expression=expression)
        return cls("*" if not tags or "*" in tags else " || ".join(tags))

    @classmethod
    def by_sql(cls, expression: str) -> MessageSelector:
        """Select by an SQL92 condition on the properties. The broker needs ``enablePropertyFilter=true``."""
        return cls(expression, "SQL92")

    @property
    def takes_all(self) -> bool:
        """Whether every message is selected."""
        return self.expression_type == "TAG" and self.expression == "*"

    @property
    def tags(self) -> frozenset[str] | None:
        """The selected tags; None if it is no tag filter. Brokers compare hashes only: check tags again."""
        if self.takes_all or self.expression_type != "TAG":
            return None
        return frozenset(tag.strip() for tag in self.expression.split("||"))


@dataclass(frozen=True, slots=True)
class LostRange:
    """Messages of a planned range that the broker does not have (any more), and why."""

    offsets: OffsetRange
    condition: str


@dataclass(frozen=True, slots=True)
class CorruptMessage:
    """A message that cannot be decoded, and why."""

    queue: MessageQueue
    queue_offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.queue} at {self.queue_offset}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """The outcome of each offset of a range: ``rows + filtered + gaps + lost + skipped`` is its length.

    ``filtered``: messages that a tag or SQL filter excluded. ``gaps``: offsets without a message for
    consumers (compacted, remapped). ``lost``: messages that expired or were lost.
    """

    offsets: OffsetRange
    rows: int
    filtered: int
    gaps: int
    lost: tuple[LostRange, ...] = ()
    skipped: int = 0
    """Messages without a row, because they cannot be decoded."""
    nulled: int = 0
    """Rows of messages that cannot be decoded completely; also counted as rows."""
    corrupt: tuple[CorruptMessage, ...] = ()
    """The first hundred messages of both kinds."""
