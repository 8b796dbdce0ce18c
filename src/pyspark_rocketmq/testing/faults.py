"""What can go wrong between a client and a mock server, as values, and when it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark_rocketmq.errors import OptionError

__all__ = [
    "Announce",
    "Cut",
    "Damage",
    "Delay",
    "Drip",
    "Fault",
    "FaultPlan",
    "HangUp",
    "Injection",
    "Refuse",
    "Reorder",
    "Repeat",
    "Short",
    "Silence",
    "Stranger",
]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with a response code and do not execute the request."""

    code: int
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """Execute the request and answer later; other answers overtake."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Silence:
    """Never answer."""

    executed: bool = False


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection instead of answering; with ``executed`` the request took effect before."""

    executed: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection after so many bytes of the answer."""

    after_bytes: int = 20


@dataclass(frozen=True, slots=True)
class Drip:
    """Send the answer in small pieces."""

    step_bytes: int = 64
    pause_s: float = 0.001


@dataclass(frozen=True, slots=True)
class Damage:
    """Send other bytes: ``change`` gets the answer's frame and returns what travels."""

    change: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Stranger:
    """Send an answer to a request that nobody made, then the real one."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Begin a frame of so many bytes and send no more of it."""

    size: int = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Short:
    """Answer a pull with fewer messages than were asked for and allowed."""

    messages: int = 1


@dataclass(frozen=True, slots=True)
class Reorder:
    """Hold answers of a connection until there are so many (or no more come), and send the last first."""

    hold: int = 4


@dataclass(frozen=True, slots=True)
class Repeat:
    """Send the answer twice."""


Fault: TypeAlias = (
    Refuse | Delay | Silence | HangUp | Cut | Drip | Damage | Stranger | Announce | Short | Reorder | Repeat
)


@dataclass(slots=True)
class Injection:
    """A fault in the plan; ``hits`` counts how often it happened."""

    fault: Fault
    on: frozenset[int] | None
    broker: str | None
    times: int | None
    after: int
    hits: int = 0

    def applies(self, code: int, broker: str | None) -> bool:
        """Whether it is about such a request and not used up."""
        return (
            (self.on is None or code in self.on)
            and (self.broker is None or broker == self.broker)
            and (self.times is None or self.hits < self.times)
        )


@dataclass(slots=True)
class FaultPlan:
    """The faults to come; of those that apply to a request the one injected first happens."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _injections: list[Injection] = field(default_factory=list)

    def inject(
        self,
        fault: Fault,
        *,
        on: int | Collection[int] | None,
        times: int | None,
        after: int,
        broker: str | None,
    ) -> Injection:
        """Add a fault; see `MockCluster.inject`."""
        if after < 0 or (times is not None and times < 1):
            raise OptionError("a fault happens at least once, after no or more requests", fault=fault)
        codes = frozenset((on,) if isinstance(on, int) else on) if on is not None else None
        injection = Injection(fault, codes, broker, times, after)
        with self._lock:
            self._injections.append(injection)
        return injection

    def heal(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._injections.clear()

    def take(self, code: int, broker: str | None) -> Fault | None:
        """Return what happens to the request that has just come in."""
        with self._lock:
            for injection in self._injections:
                if not injection.applies(code, broker):
                    continue
                if injection.after:
                    injection.after -= 1
                    continue
                injection.hits += 1
                return injection.fault
        return None
