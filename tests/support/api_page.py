"""The entries of docs/api.md: each name with its source and the first sentences of its docstring.

Write ``- [`name`]`` for a new name and run ``make docs-api``.
"""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["ENTRY", "PAGE", "refreshed"]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "api.md"
ENTRY: Final = re.compile(r"^- \[`(pyspark_rocketmq\.[\w.]+)`\].*$", re.MULTILINE)


def refreshed(page: str) -> str:
    """Return a page with each entry as its docstring says it today."""
    return ENTRY.sub(lambda entry: _entry(entry[1]), page)


def _entry(name: str) -> str:
    module, thing = _resolve(name)
    source = Path(module.__file__ or "").relative_to(ROOT)
    summary = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return f"- [`{name}`](../{source}): {summary.replace('``', '`')}"


def _resolve(name: str) -> tuple[ModuleType, object]:
    """Return the module of a dotted name, and what the name is."""
    module = importlib.import_module("pyspark_rocketmq")
    parts = name.split(".")[1:]
    while parts and hasattr(module, "__path__") and find_spec(f"{module.__name__}.{parts[0]}") is not None:
        module = importlib.import_module(f"{module.__name__}.{parts.pop(0)}")
    thing: object = module
    for part in parts:
        thing = getattr(thing, part)
    return module, thing


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
