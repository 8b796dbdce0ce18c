"""A pipeline as text and as a diagram: its steps, and which of them Spark runs without Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Final, Literal, TypeAlias

from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import STATEFUL, Analysis, analyze

__all__ = ["Step", "draw_plan", "explain_plan", "steps"]

_BOX_WIDTH: Final = 250
_BOX_HEIGHT: Final = 46
_GAP: Final = 34
_SHOWN: Final = 42
_OWN_STATE: Final = ", state in Python workers"
StepKind: TypeAlias = Literal["source", "native", "python", "sink"]
_COLORS: Final[dict[StepKind, str]] = {
    "source": "#dbeafe",
    "native": "#dcfce7",
    "python": "#fef3c7",
    "sink": "#ede9fe",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a pipeline.

    Parameters
    ----------
    name : str
    kind : {"source", "native", "python", "sink"}
    details : str
    after : tuple of str
        The names of its input steps.
    """

    name: str
    kind: StepKind
    details: str
    after: tuple[str, ...]


def steps(plan: p.Plan) -> tuple[Step, ...]:
    """Return the steps in order.

    Raises
    ------
    PlanError
        Steps are incompatible.
    """
    analysis = analyze(plan)
    return tuple(
        Step(
            node.name,
            _kind(node, analysis),
            _details(node, analysis),
            tuple(before.name for before in node.inputs),
        )
        for node in analysis.nodes
    )


def explain_plan(plan: p.Plan) -> str:
    """Return the steps in order, one per line.

    Raises
    ------
    PlanError
        Steps are incompatible.
    """
    found = steps(plan)
    width = max(len(step.name) for step in found)
    used = Counter(name for step in found for name in step.after)
    lines = [f"job {plan.job}"]
    for step in found:
        lines.append(f"  {step.name:<{width}}  {step.kind:<7} {step.details}".rstrip())
        if len(step.after) > 1 or (step.after and used[step.after[0]] > 1):
            lines[-1] += f"  <- {', '.join(step.after)}"
    return "\n".join(lines)


def _kind(node: p.Node, analysis: Analysis) -> StepKind:
    if isinstance(node, p.Source):
        return "source"
    if isinstance(node, p.Sink):
        return "sink"
    return "python" if analysis.is_python(node) else "native"


def _details(node: p.Node, analysis: Analysis) -> str:
    match node:
        case p.Source() | p.Sink():
            return node.details
        case p.Apply():
            if node in analysis.lifted:
                return f"lifted: {type(analysis.lifted[node]).__name__}"
            return "runs for each record in Python workers"
        case p.StreamJoin(condition=condition) | p.DimensionJoin(condition=condition):
            return condition
        case p.TableJoin(left=left, condition=condition):
            return f"{condition}, the {'left' if p.ends(left) else 'right'} side is a table"
        case p.SelectFields(fields=fields) | p.Distinct(fields=fields):
            return ", ".join(fields)
    return _state_details(node) if isinstance(node, STATEFUL) else ""


def _state_details(node: p.Node) -> str:
    match node:
        case p.Windowed():
            return _describe_window(node)
        case p.Group():
            own = _OWN_STATE if node.incremental else ""
            return f"by {', '.join(node.keys)}{own}: {_results(node.aggregates)}; results change"
        case p.Process(processor=processor, time_mode=time_mode):
            return f"{type(processor).__name__} by {', '.join(node.keys)}, time {time_mode}{_OWN_STATE}"
        case p.LatestJoin():
            return f"each value with the latest of the other side{_OWN_STATE}"
    return "keeps state"


def _describe_window(node: p.Windowed) -> str:
    text = f"{node.window}, watermark {node.watermark_s:g} s, by {', '.join(node.keys) or 'nothing'}"
    if node.firing.repeats:
        text += f", {node.firing}"
    if node.firing.stateful:
        text += _OWN_STATE
    return f"{text}: {_results(node.aggregates)}"


def _results(aggregates: tuple[p.Aggregate, ...]) -> str:
    return ", ".join(
        f"{item.alias}={item.kind}({item.field or ('*' if item.kind == 'count' else '...')})"
        for item in aggregates
    )


def draw_plan(plan: p.Plan) -> str:
    """Return the pipeline as an SVG diagram, with sources at the top."""
    analysis = analyze(plan)
    rows: dict[p.Node, int] = {}
    for node in analysis.nodes:
        rows[node] = max((rows[before] + 1 for before in node.inputs), default=0)
    places: dict[p.Node, tuple[int, int]] = {}
    for row in range(max(rows.values()) + 1):
        there = [node for node in analysis.nodes if rows[node] == row]
        for at, node in enumerate(there):
            places[node] = (at * (_BOX_WIDTH + _GAP) + _GAP, row * (_BOX_HEIGHT + _GAP) + _GAP)
    width = max(x for x, _ in places.values()) + _BOX_WIDTH + _GAP
    height = max(y for _, y in places.values()) + _BOX_HEIGHT + _GAP
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    parts = [f"{head}<title>{escape(plan.job)}</title>"]
    half = _BOX_WIDTH // 2
    for node, (x, y) in places.items():
        for before in node.inputs:
            from_x, from_y = places[before]
            ends = f'x1="{from_x + half}" y1="{from_y + _BOX_HEIGHT}" x2="{x + half}" y2="{y}"'
            parts.append(f'<line {ends} stroke="#64748b"/>')
    for node, (x, y) in places.items():
        kind, details = _kind(node, analysis), _details(node, analysis)
        shown = details if len(details) <= _SHOWN else details[: _SHOWN - 1] + "…"
        place = f'x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6"'
        title = f'<text x="{x + 10}" y="{y + 19}" font-weight="bold">{escape(node.name)} · {kind}</text>'
        text = f'<text x="{x + 10}" y="{y + 36}">{escape(shown)}</text>'
        parts.append(f'<rect {place} fill="{_COLORS[kind]}" stroke="#64748b"/>{title}{text}')
    return "".join([*parts, "</svg>"])
