"""Stand-ins under a test's control: chance, and a query whose connection breaks."""

from __future__ import annotations

import math

from py4j.protocol import Py4JNetworkError


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


class StoppedLater:
    """A query whose first stops are lost on their way to the JVM."""

    def __init__(self, lost: int) -> None:
        self._lost = lost
        self.stopped = False

    def stop(self) -> None:
        self._lost -= 1
        if self._lost >= 0:
            raise Py4JNetworkError("Answer from Java side is empty")
        self.stopped = True


class Endless:
    """A random source of pauses that no deadline allows: nothing is tried twice."""

    def uniform(self, a: float, b: float, /) -> float:
        del a, b
        return math.inf
