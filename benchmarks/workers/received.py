"""The totals of the batches of a receiver's stream.

A checkpoint pickles the function of an output by name, so it is in a separate module.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_rocketmq.dstream import ReceivedRDD

Add = Callable[[ReceivedRDD], tuple[int, int]]


@dataclass
class Sums:
    """Messages and bytes of one round, up to the wanted number."""

    wanted: int
    add: Add
    parts: list[tuple[int, int]] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def steady_rate(self) -> float:
        """Return the messages a second between the end of the first batch and the end of the last one."""
        if len(self.ends) < 2:
            return 0.0
        return sum(count for count, _ in self.parts[1:]) / (self.ends[-1] - self.ends[0])


ROUND: dict[str, Sums] = {}


def take(rdd: ReceivedRDD) -> None:
    """Add a batch to the round."""
    sums = ROUND["now"]
    if rdd.received:
        sums.parts.append(sums.add(rdd))
        sums.ends.append(time.monotonic())
        if sum(count for count, _ in sums.parts) >= sums.wanted:
            sums.done.set()
