"""Windows: Flink's window table functions and group windows as Spark's windows.

A window table function becomes a query whose rows have Spark's window in a hidden column, ``__window``. Only
this column has the watermark, by which Spark finishes windows and forgets state: whoever groups or joins by
``window_start`` and ``window_end`` gets it as another key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.grammar import WindowTable, parse_expression, position_of
from pyspark_rocketmq.sql.flinksql.operators.forms import called
from pyspark_rocketmq.sql.flinksql.relations import WINDOW, Relation
from pyspark_rocketmq.sql.flinksql.selects import hidden_column, window_part
from pyspark_rocketmq.sql.flinksql.windows.intervals import interval_micros, interval_text, offset_text
from pyspark_rocketmq.sql.statements import Query

__all__ = ["group_windows", "session_select", "window_table"]

_AT: Final = "__at"
"""The time of a row that is to be in CUMULATE's windows."""

_COLUMNS: Final = {"window_start": "start", "window_end": "end", "window_time": "time"}
_KINDS: Final = {
    "TUMBLE": ("a time and its size", (1, 2)),
    "HOP": ("a time, its slide and its size", (2, 3)),
    "SESSION": ("a time and its gap", (1,)),
}
"""What a group window takes, and with how many intervals: an offset may be the last."""

_ENDS: Final = {"START": "start", "END": "end", "ROWTIME": "time"}


def window_table(node: WindowTable, source: Relation, query: Query) -> tuple[exp.Expression, Relation]:
    """Return the query of a window table function, and what is known of its rows.

    Raises
    ------
    SqlError
        Spark has no such window.
    """
    column = cast("exp.Column", node.args["column"])
    over_window = source.window.get(column.name.lower()) == "time"
    time = parse_expression(WINDOW) if over_window else column.copy()
    window = _window(node, time, query)
    rows = node.this.copy()
    star: exp.Expression = exp.Star()
    if source.window:
        names = [WINDOW, *(name for name in _COLUMNS if name in source.window)]
        star = exp.Star(except_=[exp.to_identifier(name) for name in names])
    inner = exp.select(star, exp.alias_(window, WINDOW)).from_(rows)
    starts = part("start")
    if is_cumulative := node.args["kind"] == "CUMULATE":
        starts = _cumulative_start(node, query)
        inner = inner.select(exp.alias_(part("time") if over_window else column.copy(), _AT))
    outer = exp.select(
        exp.Star(except_=[exp.to_identifier(_AT)]) if is_cumulative else "*",
        exp.alias_(starts, "window_start"),
        *(exp.alias_(part(kind), name) for name, kind in _COLUMNS.items() if kind != "start"),
    ).from_(inner.subquery("__windowed"))
    if is_cumulative:
        outer = outer.where(exp.LTE(this=starts.copy(), expression=exp.column(_AT)))
    subquery = outer.subquery()
    if alias := node.args.get("alias"):
        subquery.set("alias", alias.copy())
    known = Relation(
        stream=source.stream,
        changes=column.name.lower() in source.processing_time,
        window=dict(_COLUMNS),
        processing_time=source.processing_time,
        cumulative=f"CUMULATE of {interval_text(node.args['size'], query)}" if is_cumulative else "",
    )
    return subquery, known


def part(kind: str, window: exp.Expression | None = None) -> exp.Expression:
    """Return the start, end or time of a window: the hidden column, unless another is given."""
    given = window or exp.column(WINDOW)
    if kind == "time":  # Flink's counts milliseconds
        return exp.Sub(
            this=exp.Dot(this=given.copy(), expression=exp.to_identifier("end")), expression=_MILLI.copy()
        )
    return exp.Dot(this=given.copy(), expression=exp.to_identifier(kind))


_MILLI: Final = parse_expression("INTERVAL '0.001' SECOND")


def _window(node: WindowTable, time: exp.Expression, query: Query) -> exp.Expression:
    size = interval_text(node.args["size"], query)
    slide = node.args.get("slide") or node.args.get("step")
    texts = [size, interval_text(slide, query) if slide else size]
    if offset := node.args.get("offset"):
        texts.append(offset_text(offset, slide or node.args["size"], query))
    if texts == [size, size]:
        texts = [size]
    return exp.Anonymous(this="window", expressions=[time, *map(exp.Literal.string, texts)])


def _cumulative_start(node: WindowTable, query: Query) -> exp.Expression:
    """Return the start of a CUMULATE window, of which the hidden column is the sliding one with its end.

    The windows of one size begin together, and grow by the step. Those of Spark's sliding windows that end
    before the row's size does end as these do: of the others, this start is after the row.

    Raises
    ------
    SqlError
        The size is no multiple of the step.
    """
    step = node.args.get("step")
    if step is None:
        position_of(query, node).fail("CUMULATE is given no step: INTERVAL of the step, then of the size")
    size_us, step_us = interval_micros(node.args["size"], query), interval_micros(step, query)
    if step_us <= 0 or size_us <= 0 or size_us % step_us:
        position_of(query, node).fail("the size of CUMULATE is a multiple of its step, and both are positive")
    offset = node.args.get("offset")
    offset_us = interval_micros(offset, query) % size_us if offset else 0
    last = f"unix_micros({WINDOW}.end) - 1"
    return parse_expression(f"timestamp_micros({last} - pmod({last} - {offset_us}, {size_us}))")


def session_select(select: exp.Select, node: WindowTable, query: Query) -> None:
    """Turn a SESSION table that a query groups by into a group window of the query.

    Raises
    ------
    SqlError
        The query does not group by its window and its partition.
    """
    group = select.args.get("group")
    names = {key.name.lower() for key in group.expressions if isinstance(key, exp.Column)} if group else set()
    partition = node.args.get("partition")
    wanted = {column.name.lower() for column in partition.expressions} if partition else set()
    if not {"window_start", "window_end"} | wanted <= names:
        position_of(query, node).fail(
            "Spark has sessions for aggregations only: GROUP BY window_start, window_end and the columns of "
            "PARTITION BY"
        )
    window = exp.Anonymous(
        this="session_window",
        expressions=[node.args["column"].copy(), exp.Literal.string(interval_text(node.args["size"], query))],
    )
    _name_outputs(select)
    assert group is not None
    kept = [key for key in group.expressions if key.name.lower() not in _COLUMNS]
    group.set("expressions", [*kept, window])
    for column in list(select.find_all(exp.Column)):
        kind = _COLUMNS.get(column.name.lower())
        if kind and column.find_ancestor(exp.Select) is select:
            column.replace(part(kind, window))
    rows = node.this.copy()
    if alias := node.args.get("alias"):
        rows.set("alias", alias.copy())
    node.replace(rows)


def _name_outputs(select: exp.Select) -> None:
    """Keep the names of columns that are about to become expressions."""
    for item in list(select.expressions):
        if isinstance(item, exp.Column) and item.name.lower() in _COLUMNS:
            item.replace(exp.alias_(item.copy(), item.name))


def group_windows(select: exp.Select, sources: Mapping[str, Relation], query: Query) -> dict[str, str] | None:
    """Translate ``GROUP BY TUMBLE(…)`` and its kin in a query; return which outputs are parts of the window.

    None if it has no such window. Otherwise the query gets the hidden column.

    Raises
    ------
    SqlError
        A function such as ``TUMBLE_START`` has no such window in GROUP BY, or a window is a part of a key.
    """
    group = select.args.get("group")
    keys = [key for key in (group.expressions if group else []) if called(key) in _KINDS]
    if len(keys) > 1:
        position_of(query, keys[1]).fail("a query groups by one window")
    windows = {called(key): _group_window(key, sources, query) for key in keys}
    arguments = {called(key): _arguments(key, query) for key in keys}
    for call in list(select.find_all(exp.Anonymous)):
        kind, _, end = called(call).partition("_")
        if kind not in _KINDS or end not in _ENDS or call.find_ancestor(exp.Select) is not select:
            continue
        if kind not in windows:
            position_of(query, call).fail(f"{call.name} belongs to GROUP BY {kind}(…)")
        if _arguments(call, query) != arguments[kind]:
            position_of(query, call).fail(f"{call.name} takes what GROUP BY {kind}(…) takes: the same window")
        call.replace(part(_ENDS[end], windows[kind]))
    for key in keys:
        key.replace(windows[called(key)].copy())
    for call in group.find_all(exp.Anonymous) if group else ():
        if called(call) in {*_KINDS, "CUMULATE"} and call.find(exp.Interval):
            position_of(query, call).fail(
                f"{call.name} is no key here: read TABLE({called(call)}(…)), and group by window_start and "
                "window_end"
            )
    if group and any(rows.stream for rows in sources.values()):
        _add_key_to_session(group)
    if not windows:
        return None
    (window,) = windows.values()
    kinds = {part(kind, window).sql(): kind for kind in _ENDS.values()}
    outputs = {
        item.alias.lower(): kinds.get(item.unalias().sql(), "") for item in select.expressions if item.alias
    }
    select.append("expressions", exp.alias_(window.copy(), WINDOW))
    return {name: kind for name, kind in outputs.items() if kind}


def _add_key_to_session(group: exp.Group) -> None:
    """Add a key with one value to a session that is the only key, which Spark's streams refuse.

    A session has no row without a time. The optimizer removes a constant, but not this key.
    """
    (key, *others) = group.expressions or [None]
    if key is not None and called(key) == "SESSION_WINDOW" and not others:
        group.append("expressions", key.expressions[0].copy().is_(exp.null()))


def _arguments(call: exp.Expression, query: Query) -> list[str | int]:
    """Return the arguments of a window as they are compared: names without their table, and microseconds."""
    return [
        interval_micros(each, query)
        if isinstance(each, exp.Interval)
        else (each.name if isinstance(each, exp.Column) else each.sql()).lower()
        for each in call.expressions
    ]


def _group_window(call: exp.Expression, sources: Mapping[str, Relation], query: Query) -> exp.Expression:
    kind, (time, *intervals) = called(call), call.expressions or [None]
    takes, counts = _KINDS[kind]
    if time is None or len(intervals) not in counts:
        position_of(query, call).fail(f"{kind} takes {takes}")
    texts = [interval_text(interval, query) for interval in intervals]
    if kind == "HOP":  # Flink: slide, then size
        texts[:2] = reversed(texts[:2])
    elif kind == "TUMBLE" and len(texts) == 2:
        texts.insert(1, texts[0])
    name = "session_window" if kind == "SESSION" else "window"
    made = window_part(time, sources)
    if made and made[1] == "time" and kind != "SESSION":  # which alone has the watermark
        time = hidden_column(made[0])
    return exp.Anonymous(this=name, expressions=[time.copy(), *map(exp.Literal.string, texts)])
