"""The plan of a life: everything that its seed chooses before it begins."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.simulation.direct import DirectPlanned
from tests.simulation.edge_answers import WEAK
from tests.simulation.faults import Fault
from tests.simulation.group import GroupPlan
from tests.simulation.network import Habits
from tests.simulation.sink import SinkPlan
from tests.simulation.stage import Accident, Kills
from tests.simulation.wanted import Wanted

from pyspark_rocketmq.testing.log import PullLimits

__all__ = ["GROUP", "HIDES", "Plan"]

GROUP: Final = "report"
HIDES: Final = "a queue is hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a seed chooses before a life begins. The defaults are the plainest life."""

    seed: int = 0
    brokers: int = 1
    name_servers: int = 1
    slaves: int = 0
    slave_readable: bool = True
    queues: int = 1
    static: bool = False
    compacted: bool = False
    lossy: bool = False
    """Messages are deleted that were not read, and the query is told to go on."""
    strict: bool = False
    """Messages are deleted that were not read, and the query has to end."""
    retires: bool = False
    """A master is lost whose slaves have everything."""
    limits: PullLimits = PullLimits()  # noqa: RUF009 - frozen
    habits: Habits = Habits()  # noqa: RUF009 - frozen
    kills: Kills = Kills()  # noqa: RUF009 - frozen
    options: dict[str, str] = field(default_factory=lambda: {"startingOffsets": "earliest"})
    changes: tuple[dict[str, str], ...] = ()
    """Options of the query that it has when it is started again, see `Query`."""
    available_now: bool = False
    trigger_s: float = 0.5
    skew_ms: int = 0
    writers: tuple[tuple[int, float, bool], ...] = ()
    sink: SinkPlan | None = None
    body_bytes: int = 1
    faults: tuple[Fault, ...] = ()
    group: GroupPlan | None = None
    """The members that read in the query's place."""
    sinks: int = 0
    """Streaming writes that are committed in a commit topic; 0: others."""
    staged: bool = False
    """Whether they send their rows to a staging topic, instead of a query that reads the commit topic."""
    bystanders: int = 0
    """Brokers that do not have the topic: name servers know them while none of the topic's is registered."""
    proxies: int = 0
    job: bool = False
    """Whether a program reads the whole topic, again and again."""
    narrow: bool = False
    """Whether a reader with little memory reads the topic, too."""
    direct: DirectPlanned | None = None
    """The direct stream that reads in the query's place."""
    clocks_ms: tuple[int, ...] = ()
    """How far the brokers' clocks are ahead, one after the other."""
    wanted: Wanted = Wanted()  # noqa: RUF009 - frozen
    """The messages that the reader has to read."""
    check_s: float = 0.0
    """How often brokers ask about half messages, which a resolver answers; 0: never."""
    accidents: tuple[Accident, ...] | None = None
    """What strikes actors, if it is listed instead of drawn."""

    @property
    def sound(self) -> bool:
        """Whether nothing may be wrong in such a life: what it does to the query, the query can survive."""
        if self.lossy and self.options.get("failOnDataLoss") != "false":
            return False
        if self.strict and self.options.get("failOnDataLoss") == "false":
            return False
        if self.aligned and "eventTimeAlignment" not in self.options:
            return False
        if (self.check_s and self.sink is None) or (self.sink is not None and not self.sink.sound):
            return False
        visibility = ("staged" if self.staged else "committed") if self.sinks else None
        if self.sink is not None and self.sink.options.get("transactionVisibility") != visibility:
            return False
        served = self.slaves > 0 and self.slave_readable and self.brokers > 1
        if self.retires and (not served or self.lossy or self.strict):
            return False
        if not self.retires and any(fault.kind == "a master is gone for good" for fault in self.faults):
            return False
        if self.wanted.since_ms and self.skew_ms < self.slowest_ms:
            return False
        return all(self.allowed.get(fault.kind, True) for fault in self.faults)

    @property
    def slowest_ms(self) -> int:
        """How far the slowest clock of a broker is ahead: 0 or less."""
        return min((0, *self.clocks_ms))

    def last_fault_s(self, *, default: float) -> float:
        """When the last fault begins."""
        return max((fault.at_s for fault in self.faults), default=default)

    @property
    def on_corrupt(self) -> str:
        """What the reader does with messages that do not decode; nothing: there are none."""
        return self.options.get("onCorrupt", "")

    @property
    def aligned(self) -> bool:
        """Whether the query reads its queues in the order of their store times."""
        return "includeAlignedTimestamp" in self.options

    @property
    def binds(self) -> bool:
        """Whether messages have to go to queues of the writer's choice."""
        return any(ordered for *_, ordered in self.writers) or (self.sink is not None and self.sink.keyed)

    @property
    def hides(self) -> bool:
        """Whether queues are hidden, and shown again."""
        return any(fault.kind == HIDES for fault in self.faults)

    def own_chance(self, what: str) -> random.Random:
        """A source of its own for each later part: what one draws does not change what others do."""
        return random.Random(f"{self.seed} {what}")

    @property
    def allowed(self) -> dict[str, bool]:
        """Whether nothing may go wrong with some kinds of faults."""
        return dict.fromkeys(WEAK, not self.writers) | {
            # What is bound to a queue that is written no more is refused, as it should be.
            "a queue is written no more": not self.static and not self.binds,
            "a topic is read-only at a broker": not self.static,
            # Of a static topic's queue that has moved, what is not shown now is passed.
            "a master's index lags": not (self.strict or self.static or self.aligned),
            # The former master is asked for its ends until the route is looked up again, and may lack some.
            "a slave becomes the master": bool(self.slaves) and not self.retires and not self.aligned,
            # A queue that is found later begins at the time of the query's start, by the driver's clock.
            "the driver's clock jumps": not self.wanted.since_ms and not self.aligned,
            # Store times must not decrease in a queue, nor may a lock seem to have expired.
            "a broker's clock is set back": not (self.wanted.since_ms or self.aligned or self._ordered_group),
            "a broker's clock jumps ahead": not self._ordered_group,
            "a topic is created again": (self.lossy or self.strict) and self.sink is None,
            # A batch that is read meanwhile lacks it; without an error, what was planned with it is passed.
            # A reader that began meanwhile takes it for a new one, which it reads from its first message.
            "a queue is hidden": not (
                (self.static or self.lossy or self.strict or self.retires or self.job or self.aligned)
                or self.wanted.since_ms
            ),
        }

    @property
    def _ordered_group(self) -> bool:
        return self.group is not None and self.group.options.ordered

    @property
    def may_commit(self) -> bool:
        """Whether the sink can be one that commits its batches in a commit topic."""
        special = self.static or self.compacted or self.lossy or self.strict or self.retires or self.proxies
        others = self.group or self.job or self.narrow or self.bystanders or self.sinks
        return self.sink is not None and not special and not others

    def with_faults(self, more: Sequence[Fault]) -> Plan:
        """Return the plan with more faults, in the order of their moments."""
        return replace(self, faults=tuple(sorted((*self.faults, *more), key=lambda fault: fault.at_s)))
