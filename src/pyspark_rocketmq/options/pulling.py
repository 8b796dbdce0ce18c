"""The options of pulls that batches, streams, RDDs and receivers share."""

from __future__ import annotations

from typing import Any

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageSelector
from pyspark_rocketmq.options.choices import TAGS, CorruptPolicy
from pyspark_rocketmq.options.declare import Kind, option
from pyspark_rocketmq.options.text.kinds import BOOLEAN, TEXT, choice, whole_number

__all__ = [
    "check_crc_option",
    "on_corrupt_option",
    "pull_batch_size_option",
    "pulls_in_flight_option",
    "selector_of",
    "sql_filter_option",
    "tags_option",
]


def tags_option() -> Any:
    """Declare ``tags``, a tuple of str."""
    return option(
        "tags",
        TAGS,
        default=(),
        default_text="*",
        aliases=("tag", "consumer.tag", "subExpression"),
        doc="Read only messages with one of these tags; the broker filters.",
    )


def sql_filter_option() -> Any:
    """Declare ``sqlFilter``, a str or None."""
    return option(
        "sqlFilter",
        Kind("an SQL92 condition", "amount > 100 AND region = 'EU'", TEXT.parse),
        default=None,
        doc="Read only messages whose properties match the condition. Requires enablePropertyFilter=true at "
        "the broker.",
    )


def pull_batch_size_option(name: str, default: int, *aliases: str) -> Any:
    """Declare the maximum number of messages per pull, an int."""
    return option(
        name,
        whole_number(1, example=default, maximum=10_000),
        default=default,
        aliases=aliases,
        doc="Maximum messages per pull. The broker's limit (32 by default) also applies.",
    )


def pulls_in_flight_option() -> Any:
    """Declare ``pullsInFlight``, an int or None."""
    return option(
        "pullsInFlight",
        whole_number(1, example=32, maximum=1024),
        default=None,
        default_text="32, up to 1024 at high latency",
        doc="Maximum concurrent pulls per task, within 32 MiB of responses.",
    )


def on_corrupt_option(*, objects: bool = False) -> Any:
    """Declare ``onCorrupt``, a CorruptPolicy."""
    nulls = " null is for recordBatches only." if objects else ""
    return option(
        "onCorrupt",
        choice(CorruptPolicy),
        default=CorruptPolicy.FAIL,
        default_text="fail",
        example="null",
        doc="For a message that cannot be decoded: fail, null (the affected columns), or skip (the message)."
        + nulls,
    )


def check_crc_option() -> Any:
    """Declare ``checkCrc``, a bool."""
    return option(
        "checkCrc",
        BOOLEAN,
        default=False,
        doc="Verify the stored checksum of each body. On a mismatch, onCorrupt applies.",
    )


def selector_of(tags: tuple[str, ...], sql_filter: str | None) -> MessageSelector:
    """Return the filter that the broker applies.

    Raises
    ------
    OptionError
        Both are set.
    """
    if tags and sql_filter:
        raise OptionError("give either tags or sqlFilter: a broker filters by one of them")
    if sql_filter is not None:
        return MessageSelector.by_sql(sql_filter)
    return MessageSelector.by_tag(" || ".join(tags))
