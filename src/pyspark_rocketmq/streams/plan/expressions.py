"""The small languages of RocketMQ Streams as SQL: ``(a,==,b)&(c,>,1)`` and ``a=f(b);c=d``."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column

from pyspark_rocketmq.errors import PlanError

__all__ = ["Comparison", "comparisons", "condition_sql", "names_in", "quote", "script_lines"]

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
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TOKEN: Final = re.compile(r"\(([^(),]+),([^(),]+),((?:'[^']*')|[^()]*)\)|([()&|])|\s+")
_LITERALS: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'")
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
"""A left side, an operator of SQL, a right side."""


def quote(name: str) -> str:
    """Return a column's name as SQL takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def comparisons(text: str, *, step: str) -> list[Comparison]:
    """Return the comparisons of a condition that only has ``&``, as ``on`` takes it.

    Raises
    ------
    PlanError
        It is malformed, or has ``|``.
    """
    if "|" in text:
        raise PlanError("a join's condition knows & only", step=step, condition=text)
    found = [item for item in _tokens(text, step) if isinstance(item, tuple)]
    if not found:
        raise PlanError("the condition compares nothing: write (left,==,right)", step=step, condition=text)
    return found


def condition_sql(text: str, *, step: str) -> str:
    """Return a condition of comparisons, ``&``, ``|`` and brackets as SQL.

    A right side is a number, a text in single quotes, or a field.

    Raises
    ------
    PlanError
        It is malformed.
    """
    parts: list[str] = []
    for item in _tokens(text, step):
        match item:
            case (left, operator, right):
                parts.append(f"({_left(left, right)} {operator} {_operand(right, operator)})")
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
        A line assigns nothing.
    """
    lines = [line.strip() for line in text.replace("\n", ";").split(";")]
    found: list[tuple[str, str]] = []
    for line in filter(None, lines):
        name, sign, value = line.partition("=")
        if not sign or not _NAME.fullmatch(name.strip()) or not value.strip() or value.startswith("="):
            raise PlanError("a line of a script is name=expression", step=step, line=line)
        found.append((name.strip(), value.strip()))
    if not found:
        raise PlanError("the script is empty", step=step)
    return tuple(found)


def names_in(expression: Column | str) -> frozenset[str]:
    """Return the names that an expression may use as fields: rather too many than too few."""
    text = expression if isinstance(expression, str) else str(expression)[len("Column<'") : -len("'>")]
    if isinstance(expression, str):
        text = _LITERALS.sub("''", text)
    found = {exact or word for exact, word, call in _WORDS.findall(text) if not call}
    return frozenset(name for name in found if name and name.upper() not in _KEYWORDS)


def _tokens(text: str, step: str) -> list[Comparison | str]:
    found: list[Comparison | str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise PlanError(
                "the expression is malformed: write (field,==,'text')&(field,>,1)", step=step, at=text[at:]
            )
        at = token.end()
        left, operator, right, sign = token.groups()
        if left is not None:
            known = _OPERATORS.get(operator.strip().lower())
            if known is None:
                raise PlanError(
                    f"no operator {operator.strip()!r}; there are {', '.join(_OPERATORS)}", step=step
                )
            found.append((left.strip(), known, right.strip()))
        elif sign is not None:
            found.append(sign)
    return found


def _left(name: str, right: str) -> str:
    """Compare as numbers with a number: a text that is none is no match, and no failure."""
    return f"try_cast({quote(name)} AS DOUBLE)" if _NUMBER.fullmatch(right) else quote(name)


def _operand(text: str, operator: str) -> str:
    if _NUMBER.fullmatch(text):
        return text
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text
    if operator in {"like", "rlike"}:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return quote(text)
