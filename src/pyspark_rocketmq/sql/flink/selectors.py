"""Selectors of a row's topic and tag, with rocketmq-flink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_rocketmq.sql.flink.schemas import Row, text_of

__all__ = ["DefaultTopicSelector", "NativeSelector", "SimpleTopicSelector", "TopicSelector"]


class TopicSelector(ABC):
    """Selects a row's topic and tag. A user's subclass runs in Python, row by row."""

    @abstractmethod
    def getTopic(self, row: Row) -> str:
        """Return the topic."""

    @abstractmethod
    def getTag(self, row: Row) -> str | None:
        """Return the tag. An empty text means no tag."""


@runtime_checkable
class NativeSelector(Protocol):
    """A selector of Spark expressions."""

    def topic_column(self, rows: DataFrame) -> Column:
        """Return the topic."""

    def tag_column(self, rows: DataFrame) -> Column:
        """Return the tag."""


class DefaultTopicSelector(TopicSelector):
    """The same topic and tag for all rows.

    Parameters
    ----------
    topicName : str
    tagName : str
        Default: no tag.
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
        """Return the same value as an expression."""
        return F.lit(self.topicName)

    def tag_column(self, rows: DataFrame) -> Column:  # noqa: ARG002 - the same for all
        """Return the same value as an expression."""
        return F.lit(self.tagName or None).cast("string")


class SimpleTopicSelector(TopicSelector):
    """The topic and tag from two columns, or the defaults if a column is missing or null.

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
        """Return the same value as an expression."""
        return _or_default(rows, self.topicFieldName, self.defaultTopicName)

    def tag_column(self, rows: DataFrame) -> Column:
        """Return the same value as an expression."""
        return F.nullif(_or_default(rows, self.tagFieldName, self.defaultTagName), F.lit(""))


def _or_default(rows: DataFrame, name: str, default: str) -> Column:
    if name not in rows.columns:
        return F.lit(default)
    return F.coalesce(F.nullif(rows[name].cast("string"), F.lit("")), F.lit(default))
