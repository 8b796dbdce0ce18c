"""A pipeline as data: frozen nodes, each of which knows its inputs. Compiler and ``explain`` read it.

Nodes are told apart by identity: two equal steps of two branches are two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from pyspark_rocketmq.streams.plan.emission import ONCE, Firing
from pyspark_rocketmq.streams.plan.resources import Footprint
from pyspark_rocketmq.streams.plan.times import Time, Window

__all__ = [
    "Aggregate",
    "Apply",
    "ColumnsMap",
    "CustomSink",
    "DatabaseSink",
    "DimensionJoin",
    "Distinct",
    "FileSink",
    "FileSource",
    "ForeignSink",
    "ForeignSource",
    "FrameSource",
    "Group",
    "KeyJoin",
    "LatestJoin",
    "Node",
    "Plan",
    "PrintSink",
    "Process",
    "RocketMQSink",
    "RocketMQSource",
    "RowsSource",
    "Script",
    "Select",
    "SelectFields",
    "Sink",
    "Source",
    "StreamJoin",
    "TableSink",
    "TimeSelect",
    "TimedProcess",
    "TopN",
    "Union",
    "Where",
    "Windowed",
    "nodes_of",
]

Function = Callable[..., Any]
Schema = str | StructType


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """A step; ``name`` is what errors and ``explain`` call it."""

    name: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The steps before it."""
        values = (getattr(self, declared.name) for declared in fields(self))
        return tuple(value for value in values if isinstance(value, Node))


def nodes_of(*ends: Node) -> Iterator[Node]:
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


# --- where rows come from ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Source(Node):
    """What has no step before it."""

    schema: Schema | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RocketMQSource(Source):
    """Topics; a record is the body's text, or its JSON object."""

    topic: str
    options: Mapping[str, str] = field(repr=False)
    json: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ForeignSource(Source):
    """What another system hands out: ``kafka``, ``mqtt`` or ``tables``; a record as of `RocketMQSource`."""

    kind: str
    topic: str
    options: Mapping[str, str] = field(repr=False)
    json: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileSource(Source):
    """Files, once (bounded) or followed (``tail``: a folder to which files are added)."""

    path: str
    kind: str
    tail: bool
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowsSource(Source):
    """Values of this process: texts, or records."""

    rows: Sequence[Any]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FrameSource(Source):
    """A DataFrame or a Python data source of the user's own; ``time`` is its column of event times."""

    frame: DataFrame | DataSource
    time: str | None = None


# --- one record at a time ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Apply(Node):
    """A Python function: ``map``, ``flatMap``, ``filter``, ``forEach``, ``time``, ``label`` or ``key``."""

    input: Node
    how: str
    function: Function
    schema: Schema | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Where(Node):
    """A condition that Spark computes; ``fields`` are those that it may name."""

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
    """Columns added one after the other, as SQL texts."""

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
    """The event time is a field of the record."""

    input: Node
    field: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Select(Node):
    """The records of a split that have one of the labels."""

    input: Node
    labels: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Union(Node):
    """The records of both."""

    left: Node
    right: Node


# --- many records together --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One result of a group: a kind by name, a field, the result's name; or a function, or a Column."""

    kind: str
    field: str | None
    alias: str
    value: Any = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Group(Node):
    """Groups without a window: a result goes out whenever it changes."""

    input: Node
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    numeric: str = "double"
    incremental: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Windowed(Node):
    """Groups in windows: a result goes out once, when the watermark passes the window's end."""

    input: Node
    window: Window
    keys: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    watermark_s: float
    numeric: str = "double"
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
    """The first record of those that agree in the fields, within a time."""

    input: Node
    fields: tuple[str, ...]
    within: Time


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StreamJoin(Node):
    """All pairs of two streams that meet a condition, in one window or within an interval."""

    left: Node
    right: Node
    outer: bool
    condition: str
    window: Window | None
    interval: tuple[int, int] | None
    watermark_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeyJoin(Node):
    """All pairs of two keyed streams in a window, made one value by a function."""

    left: Node
    right: Node
    outer: bool
    window: Window
    function: Function
    watermark_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LatestJoin(Node):
    """Each value of two keyed streams with the latest of the other one, made one value by a function."""

    left: Node
    right: Node
    outer: bool
    function: Function


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Process(Node):
    """A user's processor with a state for each key; ``time_mode`` is ``none`` or ``processingTime``."""

    input: Node
    keys: tuple[str, ...]
    processor: StatefulProcessor
    schema: Schema
    time_mode: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TimedProcess(Process):
    """A processor with timers in event time (``eventTime``); records behind the watermark are late."""

    watermark_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DimensionJoin(Node):
    """Rows of a table or a file beside each record; it is loaded anew after ``refresh``."""

    input: Node
    table: Any
    outer: bool
    condition: str


# --- where results go -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sink(Node):
    """What has no step behind it."""

    input: Node


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PrintSink(Sink):
    """Standard output, a JSON line a row."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FileSink(Sink):
    """A folder of files, each row once for those who read it through Spark."""

    path: str
    kind: str

    @property
    def format(self) -> str:
        """Spark's name of the files' format: lines of JSON are texts that are JSON already."""
        return "text" if self.kind == "json" else self.kind


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TableSink(Sink):
    """A table of Spark's catalog."""

    table: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DatabaseSink(Sink):
    """A table of a database, rows and progress in one transaction."""

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RocketMQSink(Sink):
    """A topic."""

    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ForeignSink(Sink):
    """A topic of another system: ``kafka`` or ``mqtt``."""

    kind: str
    topic: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CustomSink(Sink):
    """A function of a batch's DataFrame and number."""

    function: Callable[[DataFrame, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole pipeline.

    Parameters
    ----------
    job : str
        The query's name, the default group, and the folder of the checkpoint.
    sinks : tuple of Sink
    on_error : {"skip", "fail", "dead-letters"}
        What becomes of records that are malformed or whose function raises.
    checkpoint : str, optional
        A folder or URI; one below the home of the jobs when absent.
    idle_s : float, optional
        After so long without messages windows by a field of the record close.
    footprint : Footprint, optional
        How little memory it is to take.
    """

    job: str
    sinks: tuple[Sink, ...]
    on_error: str = "skip"
    checkpoint: str | None = None
    idle_s: float | None = None
    dead_letters: Mapping[str, str] | None = None
    footprint: Footprint | None = None

    def nodes(self) -> list[Node]:
        """Return every step once, inputs first."""
        return list(nodes_of(*self.sinks))
