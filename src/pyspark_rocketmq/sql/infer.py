"""Infer the columns of JSON bodies from a sample."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

__all__ = ["Inferred", "infer_columns"]

_LONG: Final = range(-(1 << 63), 1 << 63)
_DEEPEST: Final = 100
"""Levels of types. What is nested deeper is a STRING, its JSON: Python and Spark's parser recurse."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    """An atomic type, with Spark's name."""

    name: str


@dataclass(frozen=True, slots=True)
class _List:
    element: _Type


@dataclass(frozen=True, slots=True)
class _Object:
    fields: Mapping[str, _Type]


_Type: TypeAlias = _Scalar | _List | _Object | None
"""None: only null was found."""

_STRING: Final = _Scalar("STRING")
_NUMBERS: Final = {"BIGINT", "DOUBLE"}
_SCALARS: Final = {bool: _Scalar("BOOLEAN"), int: _Scalar("BIGINT"), float: _Scalar("DOUBLE"), str: _STRING}


@dataclass(frozen=True, slots=True)
class Inferred:
    """The result of inferring from a sample.

    Parameters
    ----------
    columns : mapping of str to str
        Spark's types by column name, in the order of first appearance.
    seen, unfit : int
        The number of inspected bodies, and how many of them are not JSON objects.
    always : frozenset of str
        The columns that every object has, never null.
    """

    columns: Mapping[str, str]
    seen: int
    unfit: int
    always: frozenset[str] = field(default=frozenset())


def infer_columns(bodies: Iterable[bytes]) -> Inferred:
    """Infer columns that fit all bodies.

    Whole numbers are BIGINT, other numbers DOUBLE. A field with both numbers and texts is STRING, and so is a
    field that is always null. Texts that look like times stay texts.
    """
    merged: _Type = None
    counts: dict[str, int] = {}
    seen = unfit = 0
    for body in bodies:
        seen += 1
        value = _parse(body)
        if value is None:
            unfit += 1
            continue
        for name, part in value.items():
            counts[name] = counts.get(name, 0) + (part is not None)
        merged = _merge(merged, _type_of(value))
    fields = merged.fields if isinstance(merged, _Object) else {}
    always = frozenset(name for name, count in counts.items() if count == seen - unfit)
    return Inferred({name: _ddl(kind) for name, kind in fields.items()}, seen, unfit, always)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _type_of(value: Any, depth: int = 0) -> _Type:
    match value:
        case None:
            return None
        case list() | dict() if depth > _DEEPEST:
            return _STRING
        case list():
            element: _Type = None
            for part in value:
                element = _merge(element, _type_of(part, depth + 1))
            return _List(element)
        case dict():
            return _Object({name: _type_of(part, depth + 1) for name, part in value.items()})
        case int() if type(value) is int and value not in _LONG:
            return _Scalar("DOUBLE")
        case _:
            return _SCALARS[type(value)]


def _merge(one: _Type, other: _Type) -> _Type:
    """Return the narrowest type that fits both."""
    match one, other:
        case (None, kind) | (kind, None):
            return kind
        case _Object(), _Object():
            names = dict.fromkeys((*one.fields, *other.fields))
            return _Object({name: _merge(one.fields.get(name), other.fields.get(name)) for name in names})
        case _List(), _List():
            return _List(_merge(one.element, other.element))
    if one == other:
        return one
    if isinstance(one, _Scalar) and isinstance(other, _Scalar) and {one.name, other.name} == _NUMBERS:
        return _Scalar("DOUBLE")
    return _STRING


def _ddl(kind: _Type) -> str:
    match kind:
        case None:
            return _STRING.name
        case _Scalar():
            return kind.name
        case _List():
            return f"ARRAY<{_ddl(kind.element)}>"
        case _Object():
            if not kind.fields:
                return "MAP<STRING, STRING>"
            parts = (f"`{name.replace('`', '``')}`: {_ddl(part)}" for name, part in kind.fields.items())
            return f"STRUCT<{', '.join(parts)}>"
