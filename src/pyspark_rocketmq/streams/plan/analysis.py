"""Analyze a plan without Spark: the shape of each step's records, and the lifted functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import OVER_RECORDS
from pyspark_rocketmq.streams.plan.expressions import comparisons, names_in
from pyspark_rocketmq.streams.plan.lambda_projection import Identity, Lifted, ParseJson, Projection, lift
from pyspark_rocketmq.streams.plan.nodes import Shape
from pyspark_rocketmq.streams.plan.times import length_of

__all__ = ["STATEFUL", "Analysis", "analyze", "check_ends", "keeps_own_state", "repeats_results"]

WATERMARKED: Final = (p.Windowed, p.TopN, p.Distinct, p.StreamJoin, p.KeyJoin, p.TimedProcess)
STATEFUL: Final = (*WATERMARKED, p.Group, p.Process, p.LatestJoin)

_SUMS: Final = frozenset({"sum", "avg"})


@dataclass(frozen=True, slots=True)
class Analysis:
    """A plan and the analysis of its steps.

    Parameters
    ----------
    nodes : list of Node
        Inputs first.
    """

    nodes: list[p.Node]
    shapes: dict[p.Node, Shape]
    lifted: dict[p.Node, Lifted]
    consumers: dict[p.Node, list[p.Node]]

    def is_python(self, node: p.Node) -> bool:
        """Whether Python runs for each record of this step."""
        if isinstance(node, p.Apply):
            return node not in self.lifted
        return isinstance(node, p.KeyJoin) or keeps_own_state(node)

    def wanted(self, node: p.Node) -> frozenset[str]:
        """Return the fields that later steps name, up to the next step that creates new records."""
        found: set[str] = set()
        for consumer in self.consumers[node]:
            found |= _named_fields(consumer)
            if isinstance(consumer, p.Where | p.Script | p.Union | p.Select | p.Distinct | p.TimeSelect):
                found |= self.wanted(consumer)
            if isinstance(consumer, p.DimensionJoin):
                found |= self.wanted(consumer) - set(consumer.table.columns)
        return frozenset(found)

    def takes_whole(self, node: p.Node) -> bool:
        """Whether a later step takes whole records, not only fields that it names."""
        return any(self._takes_whole(consumer) for consumer in self.consumers[node])

    def _takes_whole(self, node: p.Node) -> bool:
        match node:
            case p.SelectFields() | p.ColumnsMap() | p.Script() | p.Process():
                return False
            case p.Windowed() | p.Group():
                return any(item.kind in OVER_RECORDS for item in node.aggregates)
            case p.Where() | p.Select() | p.Union() | p.Distinct() | p.TimeSelect() | p.DimensionJoin():
                return self.takes_whole(node)
        return True

    def lateness_s(self, node: p.Node, *, open_windows: bool = False) -> float | None:
        """Return how late records may be at the next steps that wait for a watermark. None if none does.

        Parameters
        ----------
        open_windows : bool
            Add the length of their windows: an older record may still belong to one that is open.
        """
        found: list[float] = []
        for consumer in self.consumers[node]:
            match consumer:
                case p.Windowed(window=window) | p.StreamJoin(window=window) | p.KeyJoin(window=window):
                    length_s = 0 if window is None else length_of(window).length_ms / 1000
                    found.append(consumer.watermark_s + (length_s if open_windows else 0))
                case p.TimedProcess():
                    found.append(consumer.watermark_s)
                case p.Distinct():
                    found.append(consumer.within.length_ms / 1000)
                case p.TopN():
                    found.append(0)
                case _:
                    after = self.lateness_s(consumer, open_windows=open_windows)
                    found += [] if after is None else [after]
        return max(found, default=None)

    @property
    def exact(self) -> frozenset[str]:
        """The fields from which sums and averages are computed as decimals."""
        found: set[str] = set()
        for node in reversed(self.nodes):
            match node:
                case p.Windowed(numeric="decimal") | p.Group(numeric="decimal"):
                    found |= {item.field for item in node.aggregates if item.field and item.kind in _SUMS}
                case p.ColumnsMap(columns=columns):
                    found |= _names_of(columns.items(), found)
                case p.Script(lines=lines):
                    for line in reversed(lines):
                        found |= _names_of([line], found)
        return frozenset(found)

    @property
    def stateful(self) -> list[p.Node]:
        """The steps that keep state."""
        return [node for node in self.nodes if isinstance(node, STATEFUL)]


def keeps_own_state(node: p.Node) -> bool:
    """Whether a step keeps its own state, in Python workers, because Spark's windows cannot do it."""
    match node:
        case p.Windowed(firing=firing):
            return firing.stateful
        case p.Group(incremental=incremental):
            return incremental
    return isinstance(node, p.Process | p.LatestJoin)


def repeats_results(plan: p.Plan) -> bool:
    """Whether Spark's state gives results again when they change, so that the query's mode is ``update``."""
    return any(_updates(node) and not keeps_own_state(node) for node in plan.nodes())


def check_ends(plan: p.Plan) -> None:
    """Raise an error if a plan cannot run to the end of the existing data.

    Raises
    ------
    PlanError
        A processor uses processing time, so Spark runs batches endlessly for its timers. Or a source never
        reports its end.
    """
    for node in plan.nodes():
        if isinstance(node, p.Process) and node.time_mode == "processingTime":
            raise PlanError(
                "with timeMode='processingTime' Spark runs batches forever, and availableNow=True or "
                "test(batches=True) would not end: start the job with processingTime='1 second' and "
                "stop it",
                step=node.name,
            )
        if isinstance(node, p.Source) and node.endless_because is not None:
            raise PlanError(
                f"{node.endless_because}, so availableNow=True would not end: start the job without "
                "it and stop it",
                step=node.name,
            )


def analyze(plan: p.Plan) -> Analysis:
    """Return the analysis of a plan.

    Raises
    ------
    PlanError
        Steps are incompatible.
    """
    nodes = plan.nodes()
    consumers: dict[p.Node, list[p.Node]] = {node: [] for node in nodes}
    for node in nodes:
        for before in node.inputs:
            consumers[before].append(node)
    analysis = Analysis(nodes, {}, {}, consumers)
    for node in nodes:
        analysis.shapes[node] = _shape(node, analysis)
    _check_state(plan, analysis)
    return analysis


def _shape(node: p.Node, analysis: Analysis) -> Shape:
    shapes = analysis.shapes
    match node:
        case p.Source():
            return node.shape
        case p.Apply(how="map", schema=None):
            text = shapes[node.input] is Shape.TEXT
            found = lift(node.function, text=text)
            if found is None:
                return Shape.JSON
            analysis.lifted[node] = found
            match found:
                case Identity():
                    return shapes[node.input]
                case ParseJson():
                    return Shape.JSON
                case Projection():
                    return Shape.COLUMNS
        case p.Apply(how="map" | "flatMap", schema=schema):
            return Shape.JSON if schema is None else Shape.COLUMNS
        case p.Apply() | p.TimeSelect() | p.Select() | p.Distinct() | p.Where() | p.Sink():
            return shapes[node.input]
        case p.Union(left=left, right=right):
            if shapes[left] is not shapes[right]:
                raise PlanError(
                    f"one side has {shapes[left].value}, the other {shapes[right].value}: give both the "
                    "same fields first, with selectFields or schema=",
                    step=node.name,
                )
            return shapes[left]
    return Shape.JSON if _joins_texts(node, analysis) else Shape.COLUMNS


def _joins_texts(node: p.Node, analysis: Analysis) -> bool:
    """Whether it is a join whose results are JSON texts.

    Those with a table are columns where later steps name all that they take, or tell the table's column from
    the record's own.
    """
    if not isinstance(node, p.DimensionJoin):
        return isinstance(node, p.KeyJoin | p.LatestJoin)
    if analysis.shapes[node.input] is not Shape.JSON:
        return False
    told_apart = {f"{p.TABLE_PREFIX}{name}" for name in node.table.columns}
    return analysis.takes_whole(node) and not told_apart & analysis.wanted(node)


def _named_fields(node: p.Node) -> frozenset[str]:
    """Return the fields of its input that a step names."""
    match node:
        case p.Windowed(window=window):
            field = window.time_field
            return _named_in_results(node.keys, node.aggregates) | ({field} if field else frozenset())
        case p.Group():
            return _named_in_results(node.keys, node.aggregates)
        case p.Where() | p.ColumnsMap() | p.Script():
            return node.fields
        case p.SelectFields() | p.Distinct():
            return frozenset(node.fields)
        case p.Process():
            return frozenset(node.keys)
        case p.TimeSelect():
            return frozenset([node.field])
        case p.DimensionJoin():
            return frozenset(left for left, _, _ in comparisons(node.condition, step=node.name))
    return frozenset()


def _names_of(made: Iterable[tuple[str, Column | str]], wanted: set[str]) -> set[str]:
    """Return the fields from which some of the columns are made."""
    return {field for name, value in made if name in wanted for field in names_in(value)}


def _named_in_results(keys: tuple[str, ...], aggregates: tuple[p.Aggregate, ...]) -> frozenset[str]:
    names = {*keys, *(item.field for item in aggregates if item.field)}
    for item in aggregates:
        if item.kind == "column":
            names |= names_in(item.value)
    return frozenset(names)


def _check_state(plan: p.Plan, analysis: Analysis) -> None:
    """Reject plans that Spark would reject later with a less clear error."""
    if not plan.sinks:
        raise PlanError("the pipeline has no sink: end it with toPrint(), toRocketmq(...) or another sink")
    updating = [node for node in analysis.stateful if keeps_own_state(node) or _updates(node)]
    if updating and len(analysis.stateful) > 1:
        other = next(node for node in analysis.stateful if node is not updating[0])
        raise PlanError(
            "a step whose results change (no window, fireMode 1 or 2, emitBeforeFire, "
            "emitAfterFire) or that keeps its own state (process, incremental=True, joins "
            "without a window) must be the only stateful step of its job: write one part to a "
            "topic, and read it with a second job",
            step=updating[0].name,
            other=other.name,
        )


def _updates(node: p.Node) -> bool:
    return isinstance(node, p.Group) or (isinstance(node, p.Windowed) and node.firing.updates)
