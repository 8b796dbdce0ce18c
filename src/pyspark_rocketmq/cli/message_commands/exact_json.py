"""JSON of message bodies: every number keeps the digits that it was written with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["parse_json", "write_json"]

_INDENT: Final = 2
_SHALLOW: Final = 100
"""Values in one another that every stack has place for."""


class _Number(float):
    """A number with a fraction or an exponent, which a float may round or cannot hold."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text, to be written by `write_json`.

    Raises
    ------
    ValueError
        The text is not JSON. Neither are NaN and Infinity, which Python's parser accepts.
    RecursionError
        It is nested too deeply.
    """
    value = json.loads(text, parse_float=_Number, parse_constant=_refuse)
    if text.count(b"[") + text.count(b"{") > _SHALLOW:
        write_json(value)  # raises the error here
    return value


def write_json(value: Any, *, pretty: bool = False) -> str:
    """Return a value of `parse_json` as JSON, in one line or (``pretty``) in several."""
    return _write(value, "\n" if pretty else "")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no value of JSON")


def _write(value: Any, line: str) -> str:
    """Return a value as JSON. ``line`` begins a line with the value's indentation; empty for one line."""
    inner = line and line + " " * _INDENT
    match value:
        case _Number():
            return value.text
        case dict():
            members = [f"{_text(str(name))}: {_write(each, inner)}" for name, each in value.items()]
            return _join("{", members, "}", line, inner)
        case list():
            return _join("[", [_write(each, inner) for each in value], "]", line, inner)
    return _text(value)


def _join(start: str, parts: Sequence[str], end: str, line: str, inner: str) -> str:
    if not parts:
        return start + end
    return start + inner + (f",{inner}" if line else ", ").join(parts) + line + end


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
