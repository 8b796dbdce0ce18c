"""DataFrame filters as less to read: which queues, offsets, store times and tags a query can use at all.

What is read may only be more than what is wanted: Spark evaluates every filter again. What is not
understood for certain is read.
"""

# Facts (Spark 4.1 to 4.3, seen by running it)
# - Filters are handed to `pushFilters` of a batch reader when spark.sql.python.filterPushdown.enabled is set.
#   When it is not, a reader that overrides the method fails the read.
# - Spark keeps one plan a `load()`. With push-down the last filtered use overwrites it, and every use of the
#   DataFrame reads by it, also one without a filter: after `df.where("queueId = 1").count()` a `df.count()`
#   counts queue 1 only, and a union or join of two filtered halves is wrong. So reading less is never on by
#   itself: `pushDownFilters` is the user's word that a load has one filter.

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient

__all__ = ["Bounds", "Demand", "demand_of", "narrow_positions"]

_CLOCK_SLACK_MS: Final = 60_000
"""How far a broker's clock may have been set back: store times are searched as if they only grew."""

_MOST_TAGS: Final = 32

_OPERATORS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    In: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers from ``low`` to ``high``, both included; None is no bound."""

    low: int | None = None
    high: int | None = None

    def __and__(self, other: Bounds) -> Bounds:
        """Return what lies within both."""
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Bounds(max(lows, default=None), min(highs, default=None))


@dataclass(frozen=True, slots=True)
class Demand:
    """What a query can use, as far as its filters are understood.

    Parameters
    ----------
    of_queues : tuple of (column, Filter)
        Filters on topic, brokerName and queueId.
    offsets : Bounds
    stored_ms : Bounds
        Store times, in milliseconds since the epoch.
    tags : frozenset of str, optional
        The only tags of use; None when any is.
    """

    of_queues: tuple[tuple[str, Filter], ...] = ()
    offsets: Bounds = Bounds()
    stored_ms: Bounds = Bounds()
    tags: frozenset[str] | None = None

    def wants(self, queue: MessageQueue) -> bool:
        """Return whether a message of the queue may pass the filters."""
        facts = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        return all(_holds(condition, facts[column]) is not False for column, condition in self.of_queues)


def demand_of(filters: Iterable[Filter], columns: Mapping[str, str]) -> Demand:
    """Return what filters, all of which must hold, ask for.

    Parameters
    ----------
    filters : iterable of Filter
    columns : Mapping[str, str]
        The message's column of each column name of the DataFrame.
    """
    demand = Demand()
    for condition in filters:
        column = columns.get(_attribute(condition))
        match column:
            case "topic" | "brokerName" | "queueId":
                demand = replace(demand, of_queues=(*demand.of_queues, (column, condition)))
            case "queueOffset":
                demand = replace(demand, offsets=demand.offsets & _bounds(condition, _whole))
            case "storeTimestamp":
                demand = replace(demand, stored_ms=demand.stored_ms & _bounds(condition, _milliseconds))
            case "tags":
                tags = _tags(condition)
                if tags is not None:
                    demand = replace(demand, tags=tags if demand.tags is None else demand.tags & tags)
            case _:
                pass
    return demand


def narrow_positions(
    client: PlanningClient, ranges: Iterable[OffsetRange], demand: Demand
) -> tuple[OffsetRange, ...]:
    """Return the parts of the ranges that may hold what is wanted.

    Raises
    ------
    RocketMQError
        A broker does not answer where the times are.
    """
    if demand.tags is not None and not demand.tags:
        return ()
    wanted = [offsets for offsets in ranges if demand.wants(offsets.queue)]
    low, high = demand.stored_ms.low, demand.stored_ms.high
    begins = _at(client, wanted, None if low is None else low - _CLOCK_SLACK_MS)
    ends = _at(client, wanted, None if high is None else high + _CLOCK_SLACK_MS + 1)
    return tuple(part for offsets in wanted if (part := _part(offsets, demand.offsets, begins, ends)))


def _part(
    offsets: OffsetRange,
    bounds: Bounds,
    begins: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
) -> OffsetRange | None:
    begin = max(offsets.from_offset, bounds.low or 0, begins.get(offsets.queue, 0))
    end = min(offsets.until_offset, ends.get(offsets.queue, offsets.until_offset))
    if bounds.high is not None:
        end = min(end, bounds.high + 1)
    return OffsetRange(offsets.queue, begin, end) if begin < end else None


def _at(
    client: PlanningClient, ranges: Iterable[OffsetRange], moment_ms: int | None
) -> dict[MessageQueue, int]:
    """Return the first offset of each queue that was stored at or after a moment, if there is one."""
    queues = [offsets.queue for offsets in ranges]
    if moment_ms is None or not queues:
        return {}
    return client.offsets_at(dict.fromkeys(queues, max(0, moment_ms)))


def _attribute(condition: Filter) -> str:
    """Return the name of the column that a filter is about; "" for a field of one."""
    if isinstance(condition, Not):
        return _attribute(condition.child)
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _holds(condition: Filter, fact: Any) -> bool | None:
    """Return whether a filter holds for a value that is never null; None when that is not certain."""
    if isinstance(condition, Not):
        inner = _holds(condition.child, fact)
        return None if inner is None else not inner
    values = condition.value if isinstance(condition, In) else (getattr(condition, "value", None),)
    holds = _OPERATORS.get(type(condition))
    if holds is None or any(type(value) is not type(fact) for value in values):
        return None
    return any(holds(fact, value) for value in values)


def _bounds(condition: Filter, number: Callable[[object], int | None]) -> Bounds:
    """Return the numbers that may pass a filter; a little more where rounding takes part."""
    values = condition.value if isinstance(condition, In) else (getattr(condition, "value", None),)
    given = [value for value in values if value is not None]
    numbers = [found for value in given if (found := number(value)) is not None]
    if not numbers or len(numbers) < len(given):
        return Bounds()
    match condition:
        case EqualTo() | EqualNullSafe() | In():
            return Bounds(min(numbers), max(numbers))
        case GreaterThan() | GreaterThanOrEqual():
            return Bounds(low=numbers[0])
        case LessThan() | LessThanOrEqual():
            return Bounds(high=numbers[0])
        case _:
            return Bounds()


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _milliseconds(value: object) -> int | None:
    """Return the moment's whole milliseconds; messages have no finer time."""
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // dt.timedelta(milliseconds=1)


def _tags(condition: Filter) -> frozenset[str] | None:
    """Return the only tags that pass; None when the broker cannot be asked for them."""
    match condition:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            tags = frozenset([value])
        case In(value=values):
            tags = frozenset(value for value in values if value is not None)
        case _:
            return None
    plain = all(isinstance(t, str) and t and t == t.strip() and "|" not in t and t != "*" for t in tags)
    return tags if plain and 0 < len(tags) <= _MOST_TAGS else None
