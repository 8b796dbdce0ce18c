"""Translate RocketMQ Streams' expressions to SQL: ``(a,==,b)&(c,>,1)`` and ``a=f(b);c=d``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import Column

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.body_formats import quote

__all__ = [
    "Comparison",
    "compare_fields",
    "comparisons",
    "condition_sql",
    "names_in",
    "quoted_names",
    "script_lines",
]

_OPERATORS: Final = {
    "==": "=",
    "=": "=",
    "!=": "<>",
    "<>": "<>",
    ">": ">",
    ">=": ">=",
    "<": "<",
    "<=": "<=",
    "like": "like",
    "regex": "rlike",
    "rlike": "rlike",
}
_ORDERS: Final = frozenset({"<", "<=", ">", ">="})
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?")
_DOUBLE_DIGITS: Final = 15
"""Up to this number of digits, different whole numbers are different doubles."""

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TYPES: Final = {
    "int": "BIGINT",
    "integer": "BIGINT",
    "long": "BIGINT",
    "short": "BIGINT",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "string": "STRING",
    "boolean": "BOOLEAN",
}
_TOKEN: Final = re.compile(
    rf"\(([^(),]+),([^(),]+),(?:\s*({'|'.join(_TYPES)})\s*,)?((?:'[^']*')|[^()]*)\)|([()]|&&?|\|\|?)|\s+"
)
_LITERALS: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'")
_STATEMENT: Final = re.compile(rf"(?:{_LITERALS.pattern}|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[^;\n])+")
"""A semicolon or the end of a line ends a statement, but not within quotes."""

_WORDS: Final = re.compile(r"`([^`]+)`|([A-Za-z_]\w*)(\s*\()?")

_KEYWORDS: Final = frozenset(
    [
        "AND",
        "OR",
        "NOT",
        "IS",
        "NULL",
        "IN",
        "LIKE",
        "RLIKE",
        "BETWEEN",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "AS",
        "TRUE",
        "FALSE",
        "CAST",
        "DIV",
        "INTERVAL",
    ]
)

Comparison = tuple[str, str, str]
"""A left side, an SQL operator, a right side."""

_Token = tuple[str, str, str, str | None]
"""A comparison, and the type in which it compares."""


def comparisons(text: str, *, step: str) -> list[Comparison]:
    """Return the comparisons of a condition with only ``&``, as for ``on``.

    Raises
    ------
    PlanError
        The condition is malformed, or has ``|``.
    """
    if "|" in text:
        raise PlanError("a join condition takes & only", step=step, condition=text)
    if "(" not in text:
        text = "&".join(f"({part})" for part in text.split("&") if part.strip())
    found = [item[:3] for item in _tokens(text, step) if isinstance(item, tuple)]
    if not found:
        raise PlanError("the condition has no comparison: write (left,==,right)", step=step, condition=text)
    return found


def condition_sql(text: str, *, step: str) -> str:
    """Return a condition of comparisons, ``&``, ``|`` and parentheses as SQL.

    A right side is a number or a text, as in RocketMQ Streams. Quotes around a text are optional. A field is
    in backquotes. A type before the right side (``(age,>,int,18)``) says how both sides are compared.

    Raises
    ------
    PlanError
        The condition is malformed.
    """
    parts: list[str] = []
    for item in _tokens(text, step):
        match item:
            case (left, operator, right, kind):
                parts.append(f"({_comparison(left, operator, right, kind)})")
            case "&":
                parts.append("AND")
            case "|":
                parts.append("OR")
            case str():
                parts.append(item)
    if not parts or parts.count("(") != parts.count(")"):
        raise PlanError(
            "the expression is malformed: write (field,==,'text')&(field,>,1)", step=step, expression=text
        )
    return " ".join(parts)


def script_lines(text: str, *, step: str) -> tuple[tuple[str, str], ...]:
    """Return the assignments of a script: names and SQL expressions.

    Raises
    ------
    PlanError
        A line is not an assignment.
    """
    lines = [line.strip() for line in _STATEMENT.findall(text)]
    found: list[tuple[str, str]] = []
    for line in filter(None, lines):
        name, sign, value = line.partition("=")
        if not sign or not _NAME.fullmatch(name.strip()) or not value.strip() or value.startswith("="):
            raise PlanError("a statement of a script is name=expression", step=step, line=line)
        found.append((name.strip(), value.strip()))
    if not found:
        raise PlanError("the script is empty", step=step)
    return tuple(found)


def names_in(expression: Column | str) -> frozenset[str]:
    """Return the names that an expression uses as fields.

    If it cannot be parsed, these are all its words. Spark then says what is wrong, or some are no fields.
    """
    found = _names_in_sql(expression) if isinstance(expression, str) else _names_in_column(expression)
    if found is not None:
        return found
    text = expression if isinstance(expression, str) else str(expression)[len("Column<'") : -len("'>")]
    words = {exact or word for exact, word, call in _WORDS.findall(_LITERALS.sub("''", text)) if not call}
    return frozenset(name for name in words if name and name.upper() not in _KEYWORDS)


def _names_in_sql(text: str) -> frozenset[str] | None:
    """Return the first parts of all columns. Types, units and texts are no names, whatever they look like."""
    import sqlglot  # noqa: PLC0415 - most pipelines have no SQL
    from sqlglot import expressions as exp  # noqa: PLC0415

    try:
        tree = sqlglot.parse_one(f"SELECT {text}", dialect="spark")
    except sqlglot.errors.SqlglotError:
        return None
    return frozenset(found.parts[0].name for found in tree.find_all(exp.Column) if found.parts[0].name)


def _names_in_column(found: Any) -> frozenset[str] | None:
    """Return the names in Spark's own tree. None if it has none, as with Spark Connect.

    The text of a Column tells neither a field from a text, nor where a name with a space ends.
    """
    try:
        return frozenset(_names_in_node(found._jc.node()))  # noqa: SLF001
    except Exception:  # noqa: BLE001 - whatever another release has there
        return None


def _names_in_node(node: Any) -> Iterator[str]:
    match node.getClass().getSimpleName():
        case "UnresolvedAttribute":
            yield node.nameParts().apply(0)
        case "AttributeReference":
            yield node.name()
        case "SqlExpression":
            yield from names_in(node.expression())
        case "ExpressionColumnNode":  # such as a Python function, whose arguments are wrapped
            yield from _names_in_node(node.expression())
        case "ColumnNodeExpression":
            yield from _names_in_node(node.node())
    children = node.children()
    for at in range(children.size()):
        yield from _names_in_node(children.apply(at))


def quoted_names(sql: str) -> frozenset[str]:
    """Return the names in backquotes: all fields in a result of `condition_sql`."""
    return frozenset(exact for exact, _, _ in _WORDS.findall(_LITERALS.sub("''", sql)) if exact)


def _tokens(text: str, step: str) -> list[_Token | str]:
    found: list[_Token | str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise PlanError(
                "the expression is malformed: write (field,==,'text')&(field,>,1)", step=step, at=text[at:]
            )
        at = token.end()
        left, operator, kind, right, sign = token.groups()
        if left is not None:
            known = _OPERATORS.get(operator.strip().lower())
            if known is None:
                raise PlanError(
                    f"no operator {operator.strip()!r}; use one of {', '.join(_OPERATORS)}", step=step
                )
            found.append((left.strip(), known, right.strip(), kind))
        elif sign is not None:
            found.append(sign[0])
    return found


def _comparison(name: str, operator: str, right: str, kind: str | None) -> str:
    """Compare with a number numerically. A text that is not numeric does not match and is not an error."""
    operand = _right(right, kind)
    if kind is not None:
        return f"try_cast({quote(name)} AS {_TYPES[kind]}) {operator} {operand}"
    if operand.startswith("`"):
        return compare_fields(quote(name), operator, operand)
    if not _NUMBER.fullmatch(right):
        return f"{quote(name)} {operator} {operand}"
    as_double = f"try_cast({quote(name)} AS DOUBLE) {operator} {operand}"
    if len(right) <= _DOUBLE_DIGITS or "." in right:
        return as_double
    # A double is equal to its neighbors, too: ids are often that long.
    return f"coalesce(try_cast({quote(name)} AS DECIMAL(38, 10)) {operator} {operand}, {as_double})"


def compare_fields(left: str, operator: str, right: str) -> str:
    """Return SQL that orders two fields as numbers if both are, also as texts, else as they are."""
    plain = f"{left} {operator} {right}"
    if operator not in _ORDERS:
        return plain
    numbers = (
        f"try_cast(CAST({left} AS STRING) AS {kind}) {operator} try_cast(CAST({right} AS STRING) AS {kind})"
        for kind in ("DECIMAL(38, 10)", "DOUBLE")
    )
    return f"coalesce({', '.join(numbers)}, {plain})"


def _right(text: str, kind: str | None) -> str:
    operand = _operand(text, is_text=kind == "string")
    return operand if kind is None else f"try_cast({operand} AS {_TYPES[kind]})"


def _operand(text: str, *, is_text: bool) -> str:
    if not is_text and _NUMBER.fullmatch(text):
        return text
    if len(text) > 1 and text[0] == text[-1] == "`":
        return text
    if len(text) > 1 and text[0] == text[-1] == "'":
        text = text[1:-1]
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
