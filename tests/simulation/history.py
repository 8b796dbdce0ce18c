"""What happened in a life: what was stored and acknowledged, what a query gave out, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_rocketmq.testing.store import BrokerStore, Placed

__all__ = ["History", "Place", "RecordingStore", "Row"]

Place = tuple[str, str, int, int]
"""Topic, broker, queue and offset, as rows have them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the query's output."""

    place: Place
    body: bytes


@dataclass(slots=True)
class History:
    """Everything that judges need.

    Attributes
    ----------
    stored : dict
        The body of every message that a broker ever stored, by its place there.
    acknowledged : dict
        For each writer's lane, the numbers that were acknowledged.
    refused : list of str
        Why a writer gave up a send.
    batches : dict
        The rows of each micro-batch, as the sink has them, sorted by their places.
    torn : list of str
        Batches whose rows were others when they were read again.
    disordered : list of str
        Partitions whose rows were not in their queue's order.
    errors : list of str
        What ended the query.
    died : list of str
        Outages that ended a query that was running: each fault is shorter than its patience.
    expired : set of Place
        Messages that retention deleted.
    ahead : list of str
        Commits of offsets whose rows were not in the sink.
    events : list of str
        The timeline.
    did : Counter
        What happened how often.
    """

    stored: dict[Place, bytes] = field(default_factory=dict)
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    batches: dict[int, list[Row]] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    expired: set[Place] = field(default_factory=set)
    ahead: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class RecordingStore(BrokerStore):
    """A broker's data, which tells of every message that it stores."""

    on_append: Callable[[Place, bytes], None] = lambda place, body: None

    def append(self, topic: str, queue_id: int, stored_body: bytes, *args: object, **named: object) -> Placed:
        """Store a message."""
        placed = BrokerStore.append(self, topic, queue_id, stored_body, *args, **named)  # type: ignore[arg-type]
        self.on_append((topic, self.name, queue_id, placed.offset), stored_body.rstrip())
        return placed
