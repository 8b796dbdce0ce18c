"""What an entry of the table of functions says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["ABSENT", "Example", "Function", "function"]

ABSENT: Final = "Spark has no such function"


@dataclass(frozen=True, slots=True)
class Example:
    """A call in Flink's dialect, and its result there."""

    call: str
    result: Any


@dataclass(frozen=True, slots=True)
class Function:
    """What a call of Flink's means in Spark.

    Parameters
    ----------
    forms : mapping of int to str
        Spark's expression by the number of arguments, which are ``_1``, ``_2``, … in it. A function that
        takes any number has the key 0: ``_all`` are all, ``_null`` is whether one of them is NULL.
    differs : str
        How Spark's function of the same name differs, or that there is none.
    examples : tuple of Example
    any_number : bool
    distinct : mapping of int to str
        The same as `forms`, for a call with DISTINCT. Empty if the function takes none.
    """

    forms: Mapping[int, str]
    differs: str
    examples: tuple[Example, ...]
    any_number: bool = False
    distinct: Mapping[int, str] = field(default_factory=dict)


def function(differs: str, *examples: tuple[str, Any], any_number: bool = False, **forms: str) -> Function:
    """Return an entry. ``of2`` is the expression for two arguments, ``distinct2`` the one for DISTINCT."""
    by_count, distinct = (
        {int(name.removeprefix(word)): form for name, form in forms.items() if name.startswith(word)}
        for word in ("of", "distinct")
    )
    return Function(by_count, differs, tuple(Example(*example) for example in examples), any_number, distinct)
