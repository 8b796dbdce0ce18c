"""``OVER`` aggregates of streams, in the order of the rows' times: as a step that waits for the watermark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import called
from pyspark_rocketmq.sql.flinksql.relations import WINDOW, Relation
from pyspark_rocketmq.sql.flinksql.selects import hidden_column, is_aggregation, window_part
from pyspark_rocketmq.sql.flinksql.state.parts import (
    NO_PLACE,
    FoldedAggregates,
    hidden_alias,
    named_item,
    of_source,
    read_step,
)
from pyspark_rocketmq.sql.flinksql.windows.intervals import interval_micros
from pyspark_rocketmq.sql.state.steps import ARGUMENT, KEPT, KEY, ORDER, RESULT, ROW, Over, Step
from pyspark_rocketmq.sql.statements import Query

__all__ = ["over_calls", "over_step", "refuse_over"]

_WHAT: Final = "OVER of a stream"
_CLAUSES: Final = {**NO_PLACE, "group": "GROUP BY", "having": "HAVING", "qualify": "QUALIFY"}


def over_calls(select: exp.Select) -> list[exp.Window]:
    """Return the calls with ``OVER`` in the items of a query."""
    return [
        window
        for item in select.expressions
        for window in item.find_all(exp.Window)
        if window.find_ancestor(exp.Select) is select
    ]


def refuse_over(calls: list[exp.Window], query: Query) -> None:
    """Refuse ``OVER`` in a query of a stream.

    Raises
    ------
    SqlError
    """
    position_of(query, calls[0]).fail(
        f"{_WHAT} needs separate state: leave SET 'outputMode' out, use a window and GROUP BY, or SET "
        "'execution.runtime-mode' = 'batch'"
    )


def over_step(select: exp.Select, sources: Mapping[str, Relation], name: str, query: Query) -> Step:
    """Make a query with ``OVER`` read its result from a step, in place; return the step.

    Raises
    ------
    SqlError
        Its frame, its order or its functions are none that a stream can have.
    """
    _name_windows(select, query)
    calls = over_calls(select)
    _refuse_others(select, calls, sources, query)
    (keys, time, frame) = _spec(calls[0], sources, query)
    folded = FoldedAggregates(query, _WHAT)
    items = [item if item.is_star else named_item(item, at) for at, item in enumerate(select.expressions)]
    passed: dict[str, exp.Expression] = {}
    places: dict[str, str] = {}
    found: list[exp.Expression] = []
    for item in items:
        if item.is_star:
            place = f"{ROW}{len(passed)}"
            passed[place] = hidden_alias(_struct(item, sources), place)
            found.append(exp.Column(this=exp.Star(), table=exp.to_identifier(place)))
            continue
        if (inner := item.find(exp.Select)) is not None:
            folded.refuse_inner(inner)
        folded.replace_calls(item)
        if (other := item.find(exp.Window)) is not None:
            position_of(query, other).fail(
                f"{called(other.this)} {_WHAT} is not supported: COUNT, SUM, AVG, MIN and MAX are, and "
                "ROW_NUMBER with a bound in the query around it (WHERE rank <= 10)"
            )
        for column in list(item.find_all(exp.Column)):
            if not column.name.startswith(RESULT):
                text = column.sql(dialect="spark").lower()
                place = places.setdefault(text, f"{KEPT}{len(passed)}")
                passed[place] = hidden_alias(column.copy(), place)
                column.replace(exp.column(place))
        found.append(item)
    source = of_source(select)
    given = [
        *(hidden_alias(key.copy(), f"{KEY}{at}") for at, key in enumerate(keys)),
        hidden_alias(time, f"{ORDER}0"),
        *(
            hidden_alias(argument, f"{ARGUMENT}{at}")
            for at, argument in enumerate(folded.arguments)
            if argument is not None
        ),
        *passed.values(),
    ]
    source.set("expressions", given)
    rows, preceding = frame
    over = Over(len(keys), tuple(folded.aggregates), rows, preceding)
    step = Step(name, source.sql(dialect="spark", comments=False), over)
    read_step(select, name)
    select.set("windows", None)
    select.set("expressions", found)
    return step


def _struct(star: exp.Expression, sources: Mapping[str, Relation]) -> exp.Expression:
    """Return the columns of a star as a struct, without a hidden window."""
    named = star.table.lower() if isinstance(star, exp.Column) else ""
    copy = star.copy()
    inner = copy.this if isinstance(copy, exp.Column) else copy
    if any(rows.window for name, rows in sources.items() if named in {"", name}):
        inner.set("except_", [*(inner.args.get("except_") or []), exp.to_identifier(WINDOW)])
    return exp.Anonymous(this="struct", expressions=[copy])


def _name_windows(select: exp.Select, query: Query) -> None:
    """Put the windows of a WINDOW clause where they are named."""
    named = {window.name.lower(): window for window in select.args.get("windows") or []}
    for call in over_calls(select):
        if not call.alias:
            continue
        window = named.get(call.alias.lower())
        if window is None:
            position_of(query, call).fail(f"no WINDOW is named {call.alias}")
        for part in ("partition_by", "order", "spec"):
            value = window.args.get(part)
            given = [each.copy() for each in value] if isinstance(value, list) else value and value.copy()
            call.set(part, given)
        call.set("alias", None)


def _refuse_others(
    select: exp.Select, calls: list[exp.Window], sources: Mapping[str, Relation], query: Query
) -> None:
    for clause, what in _CLAUSES.items():
        if select.args.get(clause) is not None:
            position_of(query, calls[0]).fail(
                f"{_WHAT} and {what} in one query: write {what} in a query around or inside it"
            )
    if is_aggregation(select):
        position_of(query, calls[0]).fail(
            f"{_WHAT} and an aggregation in one query: aggregate in an inner query"
        )
    if any(rows.changes for rows in sources.values()):
        position_of(query, calls[0]).fail(
            f"{_WHAT} cannot read rows that change, as in Flink: use a window of event time"
        )
    texts = {tuple(str(call.args.get(part)) for part in ("partition_by", "order", "spec")) for call in calls}
    if len(texts) > 1:
        position_of(query, calls[0]).fail(
            f"{_WHAT}: the windows of one query are the same, as in Flink: write one query for each"
        )


def _spec(
    call: exp.Window, sources: Mapping[str, Relation], query: Query
) -> tuple[list[exp.Expression], exp.Expression, tuple[bool, int | None]]:
    """Return the keys, the time, and the frame: whether it counts rows, and how far it reaches back."""
    order = call.args.get("order")
    ordered = order.expressions if order else []
    at = position_of(query, call)
    if len(ordered) != 1 or ordered[0].args.get("desc") or not isinstance(ordered[0].this, exp.Column):
        at.fail(
            f"{_WHAT} is ordered by the time of the rows, ascending: ORDER BY the column of WATERMARK FOR"
        )
    time: exp.Expression = ordered[0].this
    if any(time.name.lower() in rows.processing_time for rows in sources.values()):
        at.fail(f"{_WHAT} by PROCTIME() is not supported: ORDER BY the column of WATERMARK FOR")
    part = window_part(time, sources)
    if part is not None and part[1] == "time":
        time = exp.Anonymous(this="window_time", expressions=[hidden_column(part[0])])
    return list(call.args.get("partition_by") or []), time.copy(), _frame(call, query)


def _frame(call: exp.Window, query: Query) -> tuple[bool, int | None]:
    spec = call.args.get("spec")
    if spec is None:
        return False, None  # RANGE UNBOUNDED PRECEDING
    rows = str(spec.args["kind"]).upper() == "ROWS"
    start, end = spec.args.get("start"), spec.args.get("end")
    if str(spec.args.get("start_side") or "").upper() != "PRECEDING" and start != "CURRENT ROW":
        start = None
    if start is None or end not in {None, "CURRENT ROW"}:
        position_of(query, call).fail(
            f"{_WHAT} has a frame that ends with the row: ROWS (or RANGE) BETWEEN … PRECEDING AND CURRENT ROW"
        )
    if isinstance(start, str):
        return rows, None if start == "UNBOUNDED" else 0
    if not rows:
        return rows, interval_micros(start, query)
    if not start.is_int:
        position_of(query, call).fail(f"{_WHAT}: ROWS BETWEEN a number PRECEDING AND CURRENT ROW")
    return rows, int(start.name)
