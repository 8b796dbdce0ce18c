"""Translate expressions of a tree: functions, operators and literals that mean something else in Spark."""

from __future__ import annotations

import re
from typing import Final, cast

from sqlglot import exp

from pyspark_rocketmq.sql.flinksql.functions import AGGREGATES, FUNCTIONS, UNKNOWN, Function
from pyspark_rocketmq.sql.flinksql.functions.times import NO_LETTERS
from pyspark_rocketmq.sql.flinksql.grammar import RoundTime, position_of
from pyspark_rocketmq.sql.flinksql.operators.casts import TRANSLATED_TYPES, translate_cast
from pyspark_rocketmq.sql.flinksql.operators.forms import (
    IS_AVERAGE,
    IS_JSON,
    bind_random,
    called,
    fill,
    json_text,
)
from pyspark_rocketmq.sql.flinksql.operators.literals import decode_unicode, is_decimal_literal
from pyspark_rocketmq.sql.flinksql.operators.whole_numbers import (
    divide,
    note_whole,
    note_whole_average,
    note_whole_call,
    note_whole_rounded,
    pass_whole,
)
from pyspark_rocketmq.sql.statements import Query

__all__ = ["translate_expressions"]

_ROUNDED_UP: Final = "CASE WHEN {0} = _1 THEN _1 ELSE {0} + INTERVAL {1} END"
_ROUNDED: Final = "date_trunc('{}', _1)"
_SUNDAY: Final = "(date_trunc('WEEK', _1 + INTERVAL '1' DAY) - INTERVAL '1' DAY)"
"""Flink's weeks begin on Sunday, Spark's on Monday."""

_STEPS: Final = {"QUARTER": "'3' MONTH", "WEEK": "'7' DAY"}
_OF_DATES: Final = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY"})
"""The units of a DATE, which stays a DATE in Flink."""

_UNITS: Final = {"ISODOW": "DAYOFWEEK_ISO", "ISOYEAR": "YEAROFWEEK"}
_NO_UNITS: Final = {
    "EPOCH": "use UNIX_TIMESTAMP(CAST(t AS STRING))",
    "MILLISECOND": "use CAST(DATE_FORMAT(t, 'SSS') AS INT)",
    "MICROSECOND": "use CAST(DATE_FORMAT(t, 'SSSSSS') AS INT)",
    **dict.fromkeys(("CENTURY", "DECADE", "MILLENNIUM"), "compute it from YEAR"),
}
_NO_TIMES: Final = frozenset({"LOCALTIME", "CURRENT_TIME"})
_WHOLE_SECONDS: Final = "CAST(floor(extract(SECOND FROM _1)) AS BIGINT)"


def translate_expressions(tree: exp.Expression, query: Query) -> bool:
    """Translate all expressions of a tree in place; return whether something has changed.

    Raises
    ------
    SqlError
        A function of Flink's has no counterpart.
    """
    changed = tree.find(exp.Fetch, exp.Array) is not None or any(
        "\\" in text.name for text in tree.find_all(exp.Literal) if text.is_string
    )
    changed |= any(map(_is_written_otherwise, tree.find_all(exp.DataType)))
    for node in reversed(list(tree.walk())):
        translated = _translate(cast("exp.Expression", node), query)
        if translated is not None:
            changed = True
            node.replace(translated)
    return changed


def _translate(node: exp.Expression, query: Query) -> exp.Expression | None:  # noqa: C901, PLR0911, PLR0912 - a table
    match node:
        case exp.Anonymous():
            return _translate_call(node, query)
        case exp.Filter() | exp.Window():
            return _push_into_aggregates(node)
        case exp.Div():
            return divide(node)
        case exp.Bracket():
            return _translate_index(node, query)
        case exp.Cast() if is_decimal_literal(node):
            return exp.Literal.number(node.name)
        case exp.Cast() if node.to.this in TRANSLATED_TYPES:
            return translate_cast(node, query)
        case exp.UnicodeString():
            return exp.Literal.string(decode_unicode(node, query))
        case exp.Like() if not isinstance(node.parent, exp.Escape):
            return _like(node)
        case RoundTime():
            return _round(node)
        case exp.Extract():
            return _extract(node, query)
        case exp.JSONValue():
            return _translate_json_value(node, query)
        case exp.JSONObject():
            return _json_object(node)
        case exp.Is() if isinstance(node.expression, exp.JSON):
            return _is_json(node, query)
        case exp.Between() if node.args.get("symmetric"):
            return fill(_SYMMETRIC, [node.this, node.args["low"], node.args["high"]])
        case exp.Column() if _is_word(node, "LOCALTIMESTAMP"):
            return exp.Anonymous(this="now")
    refuse_expression(node, query)
    note_whole(node)
    return None


def _is_written_otherwise(kind: exp.DataType) -> bool:
    """Return whether a type has another name or form in Spark, such as ``BYTES`` and ``TIMESTAMP(3)``."""
    return kind.this in _OTHER_TYPES or (kind.this in _TIMES and bool(kind.expressions))


_OTHER_TYPES: Final = frozenset({exp.DType.STRUCT, exp.DType.TIMESTAMPLTZ, exp.DType.VARBINARY})
_TIMES: Final = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPTZ})


def _is_word(node: exp.Column, *words: str) -> bool:
    """Return whether a column is no column, but one of these words."""
    return node.name.upper() in words and not node.table and not node.this.quoted


_SYMMETRIC: Final = "(_1 BETWEEN least(_2, _3) AND greatest(_2, _3))"


def refuse_expression(node: exp.Expression, query: Query) -> None:
    """Refuse an operator or a type that Spark does not have.

    Raises
    ------
    SqlError
    """
    reason = None
    match node:
        case exp.SimilarTo():
            reason = "SIMILAR TO has no counterpart in Spark: use LIKE, or REGEXP(text, pattern)"
        case exp.Overlaps():
            reason = "OVERLAPS has no counterpart in Spark: compare the times, a < d AND c < b"
        case exp.LimitOptions() if node.args.get("percent") or node.args.get("with_ties"):
            reason = "FETCH … PERCENT and WITH TIES are not supported: use a bound of ROW_NUMBER() or RANK()"
        case exp.Cast() if node.to.this in {exp.DType.TIME, exp.DType.TIMETZ}:
            reason = "the type TIME is not supported: use a TIMESTAMP, or DATE_FORMAT(t, 'HH:mm:ss')"
        case exp.Column() if _is_word(node, *_NO_TIMES):
            reason = f"{node.name} is a TIME, which is not supported: use DATE_FORMAT(NOW(), 'HH:mm:ss')"
    if reason:
        position_of(query, node).fail(reason)


def _round(node: RoundTime) -> exp.Expression:
    unit = node.args["unit"].name.upper()
    down = _SUNDAY if unit == "WEEK" else _ROUNDED.format(unit)
    up = _ROUNDED_UP.format(down, _STEPS.get(unit, f"'1' {unit}"))
    rounded = fill(up if node.args["up"] else down, [node.this])
    return _typed_as(node.this, rounded) if unit in _OF_DATES else rounded


def _typed_as(given: exp.Expression, time: exp.Expression) -> exp.Expression:
    """Return a TIMESTAMP with the type of the time it was made of, which is known when Spark resolves it."""
    return fill("variant_get(CAST(_1 AS VARIANT), '$', typeof(_2))", [time, given])


def _extract(node: exp.Extract, query: Query) -> exp.Expression | None:
    unit = node.name.upper()
    if instead := _NO_UNITS.get(unit):
        position_of(query, node).fail(f"EXTRACT({unit} FROM …) is not supported: {instead}")
    if unit in _UNITS:
        return exp.Extract(this=exp.Var(this=_UNITS[unit]), expression=node.expression.copy())
    return fill(_WHOLE_SECONDS, [node.expression]) if unit == "SECOND" else None


def _json_object(node: exp.JSONObject) -> exp.Expression:
    """Translate ``JSON_OBJECT(KEY 'a' VALUE b NULL ON NULL)``."""
    absent = str(node.args.get("null_handling") or "").upper().startswith("ABSENT")
    pairs = []
    for pair in node.expressions:
        text = json_text(pair.expression)
        value = text if absent else fill("coalesce(_1, 'null')", [text])
        pairs.append(fill("concat(_1, ':', _2)", [json_text(pair.this), value]))
    made = fill("concat('{', array_join(CAST(array(_all) AS ARRAY<STRING>), ','), '}')", pairs)
    made.meta[IS_JSON] = True
    return made


_JSON_KINDS: Final = {
    "OBJECT": "LIKE 'OBJECT%'",
    "ARRAY": "LIKE 'ARRAY%'",
    "SCALAR": "NOT RLIKE '^(OBJECT|ARRAY)'",
}


def _is_json(node: exp.Is, query: Query) -> exp.Expression:
    """Translate ``text IS JSON [VALUE | OBJECT | ARRAY | SCALAR]``."""
    kind = str(node.expression.this or "VALUE").upper()
    if node.expression.args.get("unique"):
        position_of(query, node).fail("IS JSON WITH UNIQUE KEYS is not supported: leave UNIQUE KEYS out")
    parsed = "try_parse_json(_1) IS NOT NULL"
    test = _JSON_KINDS.get(kind)
    of_kind = f" AND schema_of_variant(try_parse_json(_1)) {test}" if test else ""
    return fill(f"CASE WHEN _1 IS NOT NULL THEN {parsed}{of_kind} END", [node.this])


def _translate_call(node: exp.Anonymous, query: Query) -> exp.Expression | None:
    name = called(node)
    if name in UNKNOWN:
        position_of(query, node).fail(
            f"{node.name} is Flink's, and Spark has no such function: {UNKNOWN[name]}"
        )
    if name in _WITH_PATTERN and len(node.expressions) > 1:
        _check_pattern(node.expressions[1], query)
    function = FUNCTIONS.get("SUBSTRING" if name == "SUBSTR" else name)
    if function is None:
        note_whole_call(node)
        return None
    distinct = node.expressions[0] if node.expressions else None
    if isinstance(distinct, exp.Distinct):
        return _translate_distinct(node, distinct, function, query)
    form = _form(function, len(node.expressions))
    if form is None:
        if function.differs.startswith("Spark has no such function"):
            takes = " or ".join(map(str, sorted(function.forms)))
            position_of(query, node).fail(f"{node.name} takes {takes} arguments, not {len(node.expressions)}")
        return None
    filled = _filled(node, form, node.expressions)
    if name == "TIMESTAMPADD" and node.expressions[0].name.upper() in _OF_DATES:
        return _typed_as(node.expressions[2], filled)
    return filled


_WITH_PATTERN: Final = frozenset(
    {"DATE_FORMAT", "FROM_UNIXTIME", "TO_DATE", "TO_TIMESTAMP", "UNIX_TIMESTAMP"}
)
_QUOTED: Final = re.compile(r"'[^']*'")


def _check_pattern(pattern: exp.Expression, query: Query) -> None:
    """Refuse letters of a pattern of times that Spark does not have.

    Raises
    ------
    SqlError
    """
    text = _QUOTED.sub("", pattern.name) if isinstance(pattern, exp.Literal) and pattern.is_string else ""
    for letter in sorted(NO_LETTERS & set(text)):
        year = ": y is the year" if letter in {"Y", "u"} else ""
        position_of(query, pattern).fail(
            f"the letter {letter} of a pattern of times is none of Spark's{year}"
        )


def _translate_distinct(
    node: exp.Anonymous, distinct: exp.Distinct, function: Function, query: Query
) -> exp.Expression:
    """Translate ``AVG(DISTINCT x)`` and its kin: all arguments are in the DISTINCT."""
    form = function.distinct.get(len(distinct.expressions))
    if form is None:
        if function.distinct:
            takes = " or ".join(map(str, sorted(function.distinct)))
            position_of(query, node).fail(
                f"{node.name}(DISTINCT …) takes {takes} arguments, not {len(distinct.expressions)}"
            )
        position_of(query, node).fail(f"{node.name} takes no DISTINCT here: leave it out")
    return _filled(node, form, distinct.expressions)


def _filled(node: exp.Anonymous, form: str, arguments: list[exp.Expression]) -> exp.Expression:
    filled = fill(form if called(node) in AGGREGATES else bind_random(form, arguments), arguments)
    for part in (filled, *(each.parent for each in filled.find_all(exp.Distinct))):
        if part is not None:
            part.meta.update(node.meta)  # its place
    if called(node) == "JSON_ARRAY":
        filled.meta[IS_JSON] = True
    if called(node) == "AVG":
        note_whole_average(filled, arguments)
        for quotient in filled.find_all(exp.Div):
            quotient.meta[IS_AVERAGE] = True
    note_whole_rounded(called(node), filled, arguments)
    return filled


def _like(node: exp.Like) -> exp.Expression | None:
    """Translate LIKE, which has no escape character in Flink without ESCAPE, and a backslash in Spark."""
    pattern = node.expression
    translated = node.copy()
    if not isinstance(pattern, exp.Literal):
        translated.set("expression", fill(_NO_ESCAPE, [pattern]))
    elif "\\" in pattern.name:
        translated.set("expression", exp.Literal.string(pattern.name.replace("\\", r"\\")))
    else:
        return None
    return translated


_NO_ESCAPE: Final = r"replace(_1, '\\', '\\\\')"


def _form(function: Function, count: int) -> str | None:
    return function.forms.get(0 if function.any_number else count)


def _push_into_aggregates(node: exp.Filter | exp.Window) -> exp.Expression | None:
    """Move FILTER and OVER from a translated aggregate to the calls in it."""
    inner = node.this
    if isinstance(inner, exp.Anonymous | exp.Filter) or not isinstance(inner, exp.Case):
        pass_whole(inner, node, node)
        return None
    for call in list(inner.find_all(exp.Anonymous)):
        if called(call) in AGGREGATES:
            wrapper = node.copy()
            wrapper.this.replace(call.copy())
            call.replace(wrapper)
    pass_whole(inner, inner, node)
    return inner


def _translate_index(node: exp.Bracket, query: Query) -> exp.Expression | None:
    """Translate ``array[1]``, the first element, and ``MAP['key', value]``."""
    if isinstance(node.this, exp.Column) and node.this.name.upper() == "MAP" and not node.this.table:
        return exp.Anonymous(this="map", expressions=[part.copy() for part in node.expressions])
    (index,) = node.expressions if len(node.expressions) == 1 else (None,)
    if index is None or (isinstance(index, exp.Literal) and index.is_string):
        return None
    if isinstance(index, exp.Literal) and index.name == "0":
        position_of(query, node).fail("an array is indexed from 1: [0] is Spark's (SET 'dialect' = 'spark')")
    return fill("try_element_at(_1, _2)", [node.this, index])


def _translate_json_value(node: exp.JSONValue, query: Query) -> exp.Expression:
    value = fill(FUNCTIONS["JSON_VALUE"].forms[2], [node.this, node.args["path"]])
    on = node.args.get("on_condition")
    for name in ("empty", "error"):
        given = None if on is None else on.args.get(name)
        if isinstance(given, exp.Expression):
            value = fill("coalesce(_1, CAST(_2 AS STRING))", [value, given])
        elif given is not None and str(given).upper().startswith("ERROR"):
            position_of(query, node).fail(
                "JSON_VALUE … ERROR ON EMPTY or ERROR is not supported: use a DEFAULT"
            )
    returning = node.args.get("returning")
    return (
        value
        if not isinstance(returning, exp.Expression)
        else exp.TryCast(this=value, to=returning.copy(), safe=True)
    )
