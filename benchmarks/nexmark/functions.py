"""The Python twin of Nexmark's function in Java."""

from __future__ import annotations

__all__ = ["count_char"]


def count_char(text: str, character: str) -> int:
    """Return how often a character is in a text."""
    return text.count(character)
