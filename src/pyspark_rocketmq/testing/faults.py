"""Faults between a client and a mock server, as values, and the plan of when they happen."""

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
    """Respond with an error code and do not execute the request."""

    code: int
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """Execute the request and respond later. Other responses may overtake it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Silence:
    """Never respond."""

    executed: bool = False


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection instead of responding. With ``executed`` the request takes effect first."""

    executed: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection after this number of bytes of the response."""

    after_bytes: int = 20


@dataclass(frozen=True, slots=True)
class Drip:
    """Send the response in small pieces."""

    step_bytes: int = 64
    pause_s: float = 0.001


@dataclass(frozen=True, slots=True)
class Damage:
    """Send other bytes: ``change`` gets the response's frame and returns the bytes to send."""

    change: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Stranger:
    """Send a response to a request that was never sent, then the real response."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Start a frame of this size and do not send the rest."""

    size: int = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Short:
    """Respond to a pull with fewer messages than requested and allowed."""

    messages: int = 1


@dataclass(frozen=True, slots=True)
class Reorder:
    """Hold a connection's responses until there are this many (or no more come), then send the last first."""

    hold: int = 4


@dataclass(frozen=True, slots=True)
class Repeat:
    """Send the response twice."""


Fault: TypeAlias = (
    Refuse | Delay | Silence | HangUp | Cut | Drip | Damage | Stranger | Announce | Short | Reorder | Repeat
)


@dataclass(slots=True)
class Injection:
    """A fault in the plan. ``hits`` counts how often it happened."""

    fault: Fault
    on: frozenset[int] | None
    broker: str | None
    times: int | None
    after: int
    hits: int = 0

    def applies(self, code: int, broker: str | None) -> bool:
        """Whether it applies to such a request and is not used up."""
        return (
            (self.on is None or code in self.on)
            and (self.broker is None or broker == self.broker)
            and (self.times is None or self.hits < self.times)
        )


@dataclass(slots=True)
class FaultPlan:
    """The planned faults. If several apply to a request, the one injected first happens."""

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
        """Remove every fault."""
        with self._lock:
            self._injections.clear()

    def take(self, code: int, broker: str | None) -> Fault | None:
        """Return the fault of the request that has just arrived, if any."""
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
