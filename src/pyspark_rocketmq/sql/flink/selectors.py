"""Which topic and tag a row goes to, by rocketmq-flink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.sql.flink.schemas import Row, text_of

__all__ = ["DefaultTopicSelector", "NativeSelector", "SimpleTopicSelector", "TopicSelector"]


class TopicSelector(ABC):
    """Chooses a row's topic and tag; a subclass of a user's own runs in Python, row by row."""

    @abstractmethod
    def getTopic(self, row: Row) -> str:
        """Return the topic."""

    @abstractmethod
    def getTag(self, row: Row) -> str | None:
        """Return the tag; none if it is empty."""


@runtime_checkable
class NativeSelector(Protocol):
    """A selector that is expressions of Spark."""

    def topic_column(self, rows: DataFrame) -> Column:
        """Return the topic."""

    def tag_column(self, rows: DataFrame) -> Column:
        """Return the tag."""


class DefaultTopicSelector(TopicSelector):
    """One topic, and one tag, for all.

    Parameters
    ----------
    topicName : str
    tagName : str
        No tag by default.
    """

    def __init__(self, topicName: str, tagName: str = "") -> None:
        self.topicName = topicName
        self.tagName = tagName

    def getTopic(self, row: Row) -> str:  # noqa: ARG002 - the same for all
        """Return the topic."""
        return self.topicName

    def getTag(self, row: Row) -> str | None:  # noqa: ARG002 - the same for all
        """Return the tag."""
        return self.tagName

    def topic_column(self, rows: DataFrame) -> Column:  # noqa: ARG002 - the same for all
        """Return the same as an expression."""
        return F.lit(self.topicName)

    def tag_column(self, rows: DataFrame) -> Column:  # noqa: ARG002 - the same for all
        """Return the same as an expression."""
        return F.lit(self.tagName or None).cast("string")


class SimpleTopicSelector(TopicSelector):
    """Two columns say topic and tag; where they are not there or null, the defaults do.

    Parameters
    ----------
    topicFieldName, defaultTopicName, tagFieldName, defaultTagName : str
    """

    def __init__(
        self, topicFieldName: str, defaultTopicName: str, tagFieldName: str, defaultTagName: str
    ) -> None:
        self.topicFieldName = topicFieldName
        self.defaultTopicName = defaultTopicName
        self.tagFieldName = tagFieldName
        self.defaultTagName = defaultTagName

    def getTopic(self, row: Row) -> str:
        """Return the row's topic, or the default."""
        return text_of(row.get(self.topicFieldName)) or self.defaultTopicName

    def getTag(self, row: Row) -> str | None:
        """Return the row's tag, or the default."""
        return text_of(row.get(self.tagFieldName)) or self.defaultTagName

    def topic_column(self, rows: DataFrame) -> Column:
        """Return the same as an expression."""
        return _or_default(rows, self.topicFieldName, self.defaultTopicName)

    def tag_column(self, rows: DataFrame) -> Column:
        """Return the same as an expression."""
        return F.nullif(_or_default(rows, self.tagFieldName, self.defaultTagName), F.lit(""))


def _or_default(rows: DataFrame, name: str, default: str) -> Column:
    if name not in rows.columns:
        return F.lit(default)
    return F.coalesce(F.nullif(rows[name].cast("string"), F.lit("")), F.lit(default))
