"""What the state of a plan's steps depends on, to find out whether a job can continue from a checkpoint.

Spark compares the types of the state, not what they mean: a maximum would continue from the minimum.
"""

from __future__ import annotations

from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import STATEFUL
from pyspark_rocketmq.streams.plan.choices import Numeric
from pyspark_rocketmq.streams.plan.emission import Firing
from pyspark_rocketmq.streams.plan.expressions import comparisons, names_in

__all__ = ["describe_state"]


def describe_state(plan: p.Plan) -> list[str]:
    """Return a description of each step with state, in order.

    It has what must not change while the state is used. Names of results, watermarks, ``having``, the number
    of a Top-N and functions may, and are not in it.
    """
    return [_describe(node) for node in plan.nodes() if isinstance(node, STATEFUL)]


def _describe(node: p.Node) -> str:
    match node:
        case p.Windowed():
            results = _results(node.aggregates, node.numeric)
            return f"{node.window} by {_names(node.keys)}: {results}{_firing(node.firing)}"
        case p.Group():
            own = ", record by record" if node.incremental else ""
            return f"groups by {_names(node.keys)}: {_results(node.aggregates, node.numeric)}{own}"
        case p.TopN():
            order = ", ".join(name if ascending else f"{name} DESC" for name, ascending in node.order)
            return f"first rows by {_names(node.keys)} in the order of {order}"
        case p.Distinct():
            return f"distinct {_names(node.fields)}"
        case p.StreamJoin():
            apart = node.window if node.interval is None else _interval(*node.interval)
            on = " & ".join(" ".join(parts) for parts in comparisons(node.condition, step=node.name))
            return f"{_join(outer=node.outer)} on {on}, {apart}"
        case p.KeyJoin():
            return f"{_join(outer=node.outer)}, {node.window}"
        case p.Process():
            return f"processor by {_names(node.keys)}"
    return type(node).__name__


def _names(fields: tuple[str, ...]) -> str:
    return ", ".join(fields) or "nothing"


def _results(aggregates: tuple[p.Aggregate, ...], numeric: Numeric) -> str:
    found = ", ".join(map(_result, aggregates))
    return found if numeric == "double" else f"{found} as {numeric}"


def _result(item: p.Aggregate) -> str:
    if item.kind != "column":
        return f"{item.kind}({item.field or ''})"
    # The text of a Column differs between releases of Spark.
    return (
        item.value
        if isinstance(item.value, str)
        else f"Column of {_names(tuple(sorted(names_in(item.value))))}"
    )


def _firing(firing: Firing) -> str:
    if not firing.stateful:
        return ""
    kept = ", kept after the end" if firing.after else ""  # such windows have other keys
    return f", fireMode {firing.mode}{kept}" + (", record by record" if firing.incremental else "")


def _join(*, outer: bool) -> str:
    return "left join" if outer else "join"


def _interval(before_ms: int, after_ms: int) -> str:
    return f"{before_ms / 1000:g} s before to {after_ms / 1000:g} s after"
