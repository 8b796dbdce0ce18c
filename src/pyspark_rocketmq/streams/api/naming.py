"""snake_case twins of camelCase methods, made in one place."""

from __future__ import annotations

import re
from typing import Final, TypeVar

__all__ = ["snake_case", "twins"]

C = TypeVar("C", bound=type)

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ACRONYM: Final = re.compile(r"(?<=[A-Z])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """Return a camelCase name in snake_case: ``toDB`` is ``to_db``, ``fromRocketmq`` ``from_rocketmq``."""
    return _HUMP.sub("_", _ACRONYM.sub("_", name)).lower()


def twins(cls: C) -> C:
    """Give a class a snake_case name for each of its public camelCase methods."""
    for name, member in list(vars(cls).items()):
        twin = snake_case(name)
        if not name.startswith("_") and twin != name and twin not in vars(cls):
            setattr(cls, twin, member)
    return cls
