"""Lives that failed once, kept as what happened in them.

A seed means something else as soon as the world changes; a plan with all faults and accidents does not.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from tests.simulation.plan import Plan

__all__ = ["FOLDER", "Scenario", "load", "save", "to_json"]

FOLDER: Final = Path(__file__).parent / "scenarios"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A shrunk life, and what it is about.

    Parameters
    ----------
    sentence : str
        What went wrong.
    seed : int
        The seed that found it, in the world of its day.
    judges : tuple of str
        Who objected.
    plant : str or None
        The planted mistake with which a judge objects again: the scenario still means something.
    test : str
        The test of the repair, without the simulation.
    plan : Plan
    """

    sentence: str
    seed: int
    judges: tuple[str, ...]
    plant: str | None = None
    test: str = ""
    plan: Plan


def load(path: Path) -> Scenario:
    """Read a scenario. What its plan does not name is as in the plainest life."""
    found: Scenario = _from_json(Scenario, json.loads(path.read_text()))
    return found


def save(path: Path, scenario: Scenario) -> None:
    """Write a scenario, one line for each fault, with what differs from the plainest life."""
    path.write_text(json.dumps(to_json(scenario), indent=1, ensure_ascii=False) + "\n")


def to_json(value: Any) -> Any:
    """Return a value as JSON has it: of a dataclass, the fields that differ from their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        plain = {each.name: each for each in fields(value)}
        shown = {name: getattr(value, name) for name in plain}
        return {name: to_json(each) for name, each in shown.items() if each != _default(plain[name])}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple):
        return [to_json(each) for each in value]
    return value


def _default(field: Any) -> object:
    return field.default_factory() if callable(field.default_factory) else field.default


def _from_json(kind: Any, value: Any) -> Any:
    """Return what a type hint says that JSON means."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (each for each in arguments if each is not type(None))
        return None if value is None else _from_json(inner, value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind[value]
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        unknown = value.keys() - hints.keys()
        if unknown:
            raise ValueError(f"{kind.__name__} has no {sorted(unknown)}")
        return kind(**{name: _from_json(hints[name], each) for name, each in value.items()})  # type: ignore[operator]
    if origin is tuple:
        inner = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(_from_json(hint, each) for hint, each in zip(inner, value, strict=True))
    if isinstance(value, Mapping):
        return dict(value)
    return value
