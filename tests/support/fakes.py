"""Chance under a test's control."""

from __future__ import annotations


class Highest:
    """A random source that always draws the upper end."""

    def uniform(self, a: float, b: float, /) -> float:
        del a
        return b


class Lowest:
    """A random source that always draws the lower end."""

    def uniform(self, a: float, b: float, /) -> float:
        del b
        return a
