"""Lambdas that only rearrange fields, as data, so that Spark can run them without Python.

A function is lifted if its bytecode only loads JSON, gets fields by constant names, and builds one dict of
them. It is then run once with a symbol in place of the record. Everything else (arithmetic, conditions,
calls, closures) stays Python, which is always correct, but slower.
"""

from __future__ import annotations

import dis
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

__all__ = ["Field", "Identity", "Lifted", "ParseJson", "Projection", "lift"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its path, and whether a record without it is an error (``r["a"]``) or has null (``.get``)."""

    path: tuple[str, ...]
    required: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """The unchanged record."""


@dataclass(frozen=True, slots=True)
class ParseJson:
    """The text parsed as JSON."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A new record of fields. ``parses`` is True if the function gets text."""

    fields: tuple[tuple[str, Field], ...]
    parses: bool


Lifted = Identity | ParseJson | Projection

_ALLOWED: Final = frozenset(
    {
        *("RESUME", "CACHE", "NOP", "POP_TOP", "PUSH_NULL", "COPY", "PRECALL", "CALL", "RETURN_VALUE"),
        *("LOAD_FAST", "LOAD_FAST_BORROW", "STORE_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_ATTR"),
        *(
            "LOAD_METHOD",
            "BINARY_SUBSCR",
            "BINARY_OP",
            "BUILD_MAP",
            "BUILD_CONST_KEY_MAP",
            "STORE_FAST_LOAD_FAST",
        ),
        "NOT_TAKEN",
    }
)
_FORBIDDEN_FLAGS: Final = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines


class _NotLiftedError(Exception):
    """The function does more than rearrange fields."""


class _Symbol:
    """A symbol for a value. It supports only access to fields."""

    def _refuse(self, *_: Any) -> Any:
        raise _NotLiftedError

    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __ne__ = _refuse
    __iter__ = __len__ = __contains__ = __hash__ = __add__ = __radd__ = _refuse


class _Text(_Symbol):
    pass


class _Record(_Symbol):
    def __init__(self, path: tuple[str, ...], *, parsed: bool) -> None:
        self.path = path
        self.required = True
        self.parsed = parsed

    def __getitem__(self, name: Any) -> _Record:
        if not self.required or type(name) is not str or not _quotable(name):
            raise _NotLiftedError
        return _Record((*self.path, name), parsed=self.parsed)

    def get(self, name: Any) -> _Record:
        """Supported for the record only: whether a field has fields is not known."""
        if self.path:
            raise _NotLiftedError
        found = self[name]
        found.required = False
        return found


class _Json:
    """A symbol for the module ``json``."""

    @staticmethod
    def loads(text: Any) -> _Record:
        if not isinstance(text, _Text):
            raise _NotLiftedError
        return _Record((), parsed=True)


def lift(function: Callable[..., Any], *, text: bool) -> Lifted | None:
    """Return a function's effect on a record as data, or None if it does more than rearrange fields.

    Parameters
    ----------
    function : Callable
        A function of one argument.
    text : bool
        Whether it gets text. Otherwise it gets a record.
    """
    if function is json.loads:
        return ParseJson() if text else None
    if not isinstance(function, FunctionType) or not _is_plain(function):
        return None
    names: dict[str, Any] = {"__builtins__": {}}
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if value is json:
            names[name] = _Json
        elif value is json.loads:
            names[name] = _Json.loads
    twin = FunctionType(function.__code__, names)
    given = _Text() if text else _Record((), parsed=False)
    try:
        answer = twin(given)
    except Exception:  # noqa: BLE001 - whatever it does with a symbol, it is not lifted
        return None
    return _describe(answer, given)


def _is_plain(function: FunctionType) -> bool:
    code = function.__code__
    return (
        code.co_argcount == 1
        and not code.co_kwonlyargcount
        and not code.co_freevars
        and not code.co_flags & (_FORBIDDEN_FLAGS | 0x04 | 0x08)
        and not function.__defaults__
        and all(step.opname in _ALLOWED for step in dis.get_instructions(code))
    )


def _describe(answer: object, given: _Symbol) -> Lifted | None:
    if answer is given:
        return Identity()
    if isinstance(answer, _Record) and not answer.path:
        return ParseJson()
    if not isinstance(answer, dict) or not answer:
        return None
    found: list[tuple[str, Field]] = []
    parses = False
    for name, value in answer.items():
        if type(name) is not str or not isinstance(value, _Record) or not value.path:
            return None
        found.append((name, Field(value.path, value.required)))
        parses = value.parsed
    if _has_twins(name for name, _ in found) or _has_twins({field.path[0] for _, field in found}):
        return None  # Spark ignores the case of names
    return Projection(tuple(found), parses)


def _has_twins(names: Iterable[str]) -> bool:
    count = Counter(name.lower() for name in names)
    return any(times > 1 for times in count.values())


def _quotable(name: str) -> bool:
    return bool(name) and not set(name) & set("'\"\\[]`")
