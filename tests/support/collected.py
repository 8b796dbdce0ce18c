"""Which tests a file has, as pytest collects them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache  # pages name some files many times
def collected_tests(file: Path) -> frozenset[str]:
    """Return the names of a file's tests: not those in a text or a comment, nor within other functions."""
    assert file.name.startswith("test_"), f"{file} is not collected"
    body = ast.parse(file.read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    nodes = [*body, *(node for each in classes for node in each.body)]
    return frozenset(
        node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
