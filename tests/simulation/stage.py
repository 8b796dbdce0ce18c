"""What every actor of a life shares: the network, the history, and how often something dies."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.history import History
from tests.simulation.network import Network
from tests.simulation.scheduler import Scheduler

__all__ = ["Kills", "Stage"]


@dataclass(frozen=True, slots=True)
class Kills:
    """How often what dies.

    Parameters
    ----------
    driver : float
        For each step of a micro-batch.
    executor : float
        For each record batch that a task reads or writes.
    speculation : float
        For each partition: a second attempt runs beside the first.
    midway : float
        For each commit of a batch: the driver dies at any moment of it.
    zombie : float
        For each commit of a batch: its driver is replaced, and does not know it.
    """

    driver: float = 0.0
    executor: float = 0.0
    speculation: float = 0.0
    midway: float = 0.0
    zombie: float = 0.0


@dataclass(slots=True)
class Stage:
    """Where a life is lived.

    Parameters
    ----------
    network : Network
    kills : Kills
    """

    network: Network
    kills: Kills
    history: History = field(default_factory=History)
    healed: bool = False
    """Whether nothing goes wrong any more."""

    @property
    def scheduler(self) -> Scheduler:
        """The network's."""
        return self.network.scheduler

    def note(self, event: str) -> None:
        """Write into the timeline."""
        self.history.events.append(f"{self.scheduler.now:9.3f} s  {event}")

    def heal(self) -> None:
        """Let nothing go wrong from now on."""
        self.healed = True
        self.kills = Kills()
        self.network.heal()
        self.note("everything is well again")
