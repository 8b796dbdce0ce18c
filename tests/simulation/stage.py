"""What every actor of a life shares: the network, the history, and the accidents that strike actors."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.history import History
from tests.simulation.network import Network
from tests.simulation.scheduler import Scheduler

__all__ = ["Accident", "Kills", "Stage"]

_AFTER_EFFECTS_S: Final = 20.0
"""After this time, every connection that was broken off is noticed, and every request that was lost."""


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


@dataclass(frozen=True, slots=True)
class Accident:
    """Something that strikes an actor, such as its death at a step.

    Parameters
    ----------
    point : str
        Where in the actors' code.
    number : int
        Which passage of that point, from 1.
    at_s : float
        When it was. It does not decide when it is.
    """

    point: str
    number: int
    at_s: float = field(compare=False, default=0.0)


@dataclass(slots=True)
class Stage:
    """Where a life is lived.

    Parameters
    ----------
    network : Network
    kills : Kills
    listed : frozenset of Accident, optional
        The accidents of this life. Without a list they are drawn.
    """

    network: Network
    kills: Kills
    listed: frozenset[Accident] | None = None
    accidents: list[Accident] = field(default_factory=list)
    """Those that happened."""
    passed: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    healed: bool = False
    """Whether nothing goes wrong any more."""
    healed_at_s: float = math.inf
    folders: dict[str, str] = field(default_factory=dict)
    """What temporary folders are called in the timeline: their names are the machine's."""

    @property
    def scheduler(self) -> Scheduler:
        """The network's."""
        return self.network.scheduler

    def note(self, event: str) -> None:
        """Write into the timeline."""
        for folder, name in self.folders.items():
            event = event.replace(folder, name)
        self.history.events.append(f"{self.scheduler.now:9.3f} s  {event}")

    def strikes(self, point: str, rate: float, chance: random.Random) -> bool:
        """Whether an accident happens here and now.

        It is drawn in any case: what others draw from the same source does not depend on the list.
        """
        self.passed[point] += 1
        accident = Accident(point, self.passed[point], round(self.scheduler.now, 3))
        strikes = chance.random() < rate
        if self.listed is not None:
            strikes = accident in self.listed and not self.healed
        if strikes:
            self.accidents.append(accident)
        return strikes

    def heal(self) -> None:
        """Let nothing go wrong from now on."""
        self.healed, self.healed_at_s = True, self.scheduler.now
        self.history.well_from_s = self.scheduler.now + _AFTER_EFFECTS_S
        self.kills = Kills()
        self.network.heal()
        self.note("everything is well again")
