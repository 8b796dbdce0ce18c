"""What the batches of a receiver's stream add up to.

A checkpoint pickles the function of an output: so this one stands in a module of its own, by name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_rocketmq.dstream import ReceivedRDD

Add = Callable[[ReceivedRDD], tuple[int, int]]


@dataclass
class Sums:
    """Messages and bytes of one round, until there is as much as wanted."""

    wanted: int
    add: Add
    parts: list[tuple[int, int]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


ROUND: dict[str, Sums] = {}


def take(rdd: ReceivedRDD) -> None:
    """Add a batch to the round."""
    sums = ROUND["now"]
    if rdd.received:
        sums.parts.append(sums.add(rdd))
        if sum(count for count, _ in sums.parts) >= sums.wanted:
            sums.done.set()
