"""Which messages a reader wants: the options that batches, streams, RDDs and receivers share."""

from __future__ import annotations

from typing import Any

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageSelector
from pyspark_rocketmq.options.choices import TAGS
from pyspark_rocketmq.options.declare import Kind, option
from pyspark_rocketmq.options.kinds import TEXT

__all__ = ["selector_of", "sql_filter_option", "tags_option"]


def tags_option() -> Any:
    """Declare ``tags``, a tuple of str."""
    return option(
        "tags",
        TAGS,
        default=(),
        default_text="*",
        aliases=("tag", "consumer.tag", "subExpression"),
        doc="Only messages with one of these tags: the broker leaves the others out.",
    )


def sql_filter_option() -> Any:
    """Declare ``sqlFilter``, a str or None."""
    return option(
        "sqlFilter",
        Kind("an SQL92 condition", "amount > 100 AND region = 'EU'", TEXT.parse),
        default=None,
        doc="Only messages whose properties fulfil it; the broker needs enablePropertyFilter=true.",
    )


def selector_of(tags: tuple[str, ...], sql_filter: str | None) -> MessageSelector:
    """Return what the broker shall hand out.

    Raises
    ------
    OptionError
        Both are given.
    """
    if tags and sql_filter:
        raise OptionError("give either tags or sqlFilter: a broker filters by one of them")
    if sql_filter is not None:
        return MessageSelector.by_sql(sql_filter)
    return MessageSelector.by_tag(" || ".join(tags))
