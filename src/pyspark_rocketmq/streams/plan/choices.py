"""The closed sets of words that select what a step or a job does."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

__all__ = [
    "OVER_RECORDS",
    "AggregateKind",
    "FireMode",
    "FunctionKind",
    "Numeric",
    "OnError",
    "TimeMode",
    "choices_of",
]

FunctionKind: TypeAlias = Literal["map", "flatMap", "filter", "forEach", "time", "label", "key", "serialize"]
"""What a user's function of a record is for. ``serialize`` returns the body of the record's message."""

AggregateKind: TypeAlias = Literal[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "first",
    "last",
    "concat",
    "distinct",
    "count_distinct",
    "count_distinct_large",
    "column",
    "reduce",
    "accumulate",
]
"""A result of a group. ``column`` is an aggregate of Spark's, the last two are a user's functions."""

OVER_RECORDS: Final[frozenset[AggregateKind]] = frozenset({"reduce", "accumulate"})
"""The results that need whole records, not one field of them."""

Numeric: TypeAlias = Literal["double", "decimal"]
"""The type in which numeric texts are summed."""

OnError: TypeAlias = Literal["skip", "fail", "dead-letters"]
"""What is done with a record that is malformed, or whose function raises."""

TimeMode: TypeAlias = Literal["none", "processingTime", "eventTime"]
"""The time of a processor's timers."""

FireMode: TypeAlias = Literal[0, 1, 2]
"""When a window emits results, see `emission`."""


def choices_of(choice: Any) -> tuple[Any, ...]:
    """Return the words of a choice, to check a value from a caller without type checks."""
    return get_args(choice)
