"""A pipeline as data: frozen nodes with their inputs, for the compiler and ``explain``.

Nodes are compared by identity: two equal steps of two branches are two steps.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from pyspark_rocketmq.streams.plan.choices import AggregateKind, FunctionKind, Numeric, OnError, TimeMode
from pyspark_rocketmq.streams.plan.dimension import Dimension
from pyspark_rocketmq.streams.plan.emission import ONCE, Firing
from pyspark_rocketmq.streams.plan.resources import Footprint
from pyspark_rocketmq.streams.plan.times import Time, Window

__all__ = [
    "TABLE_PREFIX",
    "Aggregate",
    "Apply",
    "ColumnsMap",
    "DimensionJoin",
    "Distinct",
    "Group",
    "KeyJoin",
    "LatestJoin",
    "Node",
    "Plan",
    "Process",
    "Script",
    "Select",
    "SelectFields",
    "Shape",
    "Sink",
    "Source",
    "StreamJoin",
    "TableJoin",
    "TimeSelect",
    "TimedProcess",
    "TopN",
    "Union",
    "Where",
    "Windowed",
    "ends",
    "walk_nodes",
]

TABLE_PREFIX: Final = "dim_"
"""What a dimension table's column is called by after a field of the record with its name."""

Function = Callable[..., Any]
Schema = str | StructType


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """A step. ``name`` is its name in errors and ``explain``."""

    name: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Its input steps."""
        values = (getattr(self, declared.name) for declared in fields(self))
        return tuple(value for value in values if isinstance(value, Node))


def walk_nodes(*ends: Node) -> Iterator[Node]:
    """Return every node once, inputs before the steps that use them."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) not in seen:
            seen.add(id(node))
            for before in node.inputs:
                yield from visit(before)
            yield node

    for end in ends:
        yield from visit(end)


# --- sources ----------------------------------------------------------------------------------


class Shape(enum.Enum):
    """The shape of a step's records."""

    TEXT = "text"
    JSON = "json"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Source(Node):
    """A step without inputs. ``streams.connectors`` has one class per system.

    Parameters
    ----------
    schema : str or StructType, optional
        The types of the records' fields.
    """

    schema: Schema | None = None

    @property
    def shape(self) -> Shape:
        """The shape of its records."""
        raise NotImplementedError

    @property
    def bounded(self) -> bool:
        """Whether it is bounded."""
        return False

    @property
    def endless_because(self) -> str | None:
        """Why it cannot be read up to an end that a trigger sets, or None if it can."""
        return None

    @property
    def test_name(self) -> str:
        """The key of its rows in ``test``."""
        return self.name

    @property
    def takes_test_rows(self) -> bool:
        """Whether ``test`` can replace its records with texts."""
        return True

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return ""


def ends(node: Node) -> bool:
    """Whether a step's records come to an end: those of all its sources do."""
    return all(source.bounded for source in walk_nodes(node) if isinstance(source, Source))


# --- one record at a time ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Apply(Node):
    """A Python function of each record."""

    input: Node
    how: FunctionKind
    function: Function
    schema: Schema | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Where(Node):
    """A condition that Spark computes. ``fields`` are the fields that it may use."""

    input: Node
    condition: Column | str
    fields: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnsMap(Node):
    """New records of columns that Spark computes."""

    input: Node
    columns: Mapping[str, Column | str]
    fields: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Script(Node):
    """Columns added one after another, as SQL expressions."""

    input: Node
    lines: tuple[tuple[str, str], ...]
    fields: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SelectFields(Node):
    """Some fields of a record."""

    input: Node
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimeSelect(Node):
    """Sets a field of the record as the event time."""

    input: Node
    field: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Select(Node):
    """The records of a split with one of the labels."""

    input: Node
    labels: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Union(Node):
    """The records of both inputs."""

    left: Node
    right: Node


# --- several records --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One result of a group: the kind, field and result name, or a function, or a Column.

    ``is_number`` is whether the values of a minimum or maximum, which are texts, are all numbers.
    """

    kind: AggregateKind
    field: str | None
    alias: str
    value: Any = None
    is_number: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Group(Node):
    """Groups without a window. Each change of a result is emitted."""

    input: Node
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    numeric: Numeric = "double"
    incremental: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Windowed(Node):
    """Groups in windows. A result is emitted once, when the watermark passes the window's end."""

    input: Node
    window: Window
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    watermark_s: float
    numeric: Numeric = "double"
    having: Column | str | None = None
    firing: Firing = ONCE


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopN(Node):
    """The first rows of each window (and group), by an order."""

    input: Node
    rank: str
    count: int
    keys: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distinct(Node):
    """The first of the records with equal fields, within a time."""

    input: Node
    fields: tuple[str, ...]
    within: Time


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StreamJoin(Node):
    """All pairs of two streams that meet a condition, in the same window or within an interval."""

    left: Node
    right: Node
    outer: bool
    condition: str
    window: Window | None
    interval: tuple[int, int] | None
    watermark_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableJoin(Node):
    """All pairs of a stream and a side that ends, which is a table: times are not compared."""

    left: Node
    right: Node
    outer: bool
    condition: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeyJoin(Node):
    """All pairs of two keyed streams in a window, mapped to a value by a function."""

    left: Node
    right: Node
    outer: bool
    window: Window
    function: Function
    watermark_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LatestJoin(Node):
    """Each value of two keyed streams with the latest of the other, mapped to a value by a function."""

    left: Node
    right: Node
    outer: bool
    function: Function


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Process(Node):
    """A user's processor with state per key."""

    input: Node
    keys: tuple[str, ...]
    processor: StatefulProcessor
    schema: Schema
    time_mode: TimeMode


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimedProcess(Process):
    """A processor with event-time timers (``eventTime``). Records older than the watermark are late."""

    watermark_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DimensionJoin(Node):
    """Joins rows of a table or a file to each record. The table is reloaded after ``refresh``."""

    input: Node
    table: Dimension
    outer: bool
    condition: str


# --- sinks ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sink(Node):
    """A step without successors. ``streams.connectors`` has one class per system."""

    input: Node

    @property
    def details(self) -> str:
        """Its description in ``explain``."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole pipeline.

    Parameters
    ----------
    job : str
        Names the query, the default group and the checkpoint's folder.
    sinks : tuple of Sink
    on_error : OnError
        The handling of records that are malformed or whose function raises.
    checkpoint : str, optional
        A folder or URI. Default: a folder below the jobs' home folder.
    idle_s : float, optional
        After this long without messages, windows by a field of the record close.
    footprint : Footprint, optional
        The memory limits of the job.
    """

    job: str
    sinks: tuple[Sink, ...]
    on_error: OnError = "skip"
    checkpoint: str | None = None
    idle_s: float | None = None
    dead_letters: Mapping[str, str] | None = field(default=None, repr=False)
    footprint: Footprint | None = None

    def nodes(self) -> list[Node]:
        """Return every step once, inputs first."""
        return list(walk_nodes(*self.sinks))
