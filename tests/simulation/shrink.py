"""Shrinking: from a life in which a judge found something to the plainest one in which it still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from tests.simulation.life import Verdict
from tests.simulation.plan import Plan
from tests.simulation.scene import Fault
from tests.simulation.stage import Accident

__all__ = ["shrink"]

_Schedule = tuple[Fault | Accident, ...]
_SHORT_S: Final = (0.1, 1.0)
_KEPT: Final = frozenset({"seed", "faults", "accidents"})
"""Fields of a plan that do not become plainer: the seed of delays and pauses, and the schedule."""


def shrink(plan: Plan, live: Callable[[Plan], Verdict], *, lives: int = 400) -> tuple[Plan, Verdict]:
    """Return a life with fewer faults and accidents, and a plainer world, in which the same judge objects.

    It ends at the earliest fault that suffices (a prefix), has of that prefix only what is needed (delta
    debugging), and lists its accidents: it stays what it is when the world draws something else.

    Parameters
    ----------
    plan : Plan
        Of a life in which a judge objects.
    live : callable
    lives : int
        The most that are lived.
    """
    verdict = live(plan)
    search = _Search(plan, verdict, live, lives, frozenset(verdict.wrong))
    if verdict.wrong:
        search.try_one(replace(plan, accidents=search.verdict.accidents))
        search.cut()
        search.drop()
        search.simplify()
        search.drop()
    return search.plan, search.verdict


@dataclass(slots=True)
class _Search:
    """The best plan so far, how many lives are left, and the judges that objected to the first plan."""

    plan: Plan
    verdict: Verdict
    live: Callable[[Plan], Verdict]
    left: int
    judges: frozenset[str]

    def try_one(self, plan: Plan) -> bool:
        """Whether a judge still objects that objected at first; the plan is then the best one."""
        if self.left <= 0:
            return False
        self.left -= 1
        verdict = self.live(plan)
        if not self.judges & verdict.wrong.keys():
            return False
        self.plan, self.verdict = plan, verdict
        return True

    @property
    def schedule(self) -> _Schedule:
        """What goes wrong, in the order of its time."""
        return tuple(sorted((*self.plan.faults, *(self.plan.accidents or ())), key=lambda one: one.at_s))

    def _try_schedule(self, schedule: _Schedule) -> bool:
        faults = tuple(one for one in schedule if isinstance(one, Fault))
        accidents = tuple(one for one in schedule if isinstance(one, Accident))
        return self.try_one(replace(self.plan, faults=faults, accidents=accidents))

    def cut(self) -> None:
        """Find the shortest prefix, as if longer ones failed as well; where that is not so, a longer one."""
        schedule = self.schedule
        low, high = 0, len(schedule)
        while low < high:
            middle = (low + high) // 2
            if self._try_schedule(schedule[:middle]):
                high = middle
            else:
                low = middle + 1

    def drop(self) -> None:
        """Leave out parts, large ones first, until each single one is needed (Zeller's ddmin)."""
        size = (len(self.schedule) + 1) // 2
        while size:
            at = 0
            while at < len(self.schedule):
                schedule = self.schedule
                if not self._try_schedule(schedule[:at] + schedule[at + size :]):
                    at += size
            size //= 2

    def simplify(self) -> None:
        """Take plainer values as long as one is accepted."""
        while any(self.try_one(plainer) for plainer in _plainer_plans(self.plan)):
            pass


def _plainer_plans(plan: Plan) -> Iterator[Plan]:
    yield from (each for each in _plainer_fields(plan, Plan(), without=_KEPT) if each.sound)
    for at, fault in enumerate(plan.faults):
        for lasts_s in _SHORT_S:
            if lasts_s < fault.lasts_s:
                shorter = replace(fault, lasts_s=lasts_s)
                yield replace(plan, faults=(*plan.faults[:at], shorter, *plan.faults[at + 1 :]))


def _plainer(value: Any, plain: Any) -> Iterator[Any]:
    """Return values between one and the plainest, the plainest first."""
    if value == plain:
        return
    yield plain
    if is_dataclass(value) and not isinstance(value, type):
        yield from _plainer_fields(value, plain if isinstance(plain, type(value)) else type(value)())
    elif isinstance(value, Mapping):
        for name in sorted(value.keys() - plain.keys()):
            yield {key: each for key, each in value.items() if key != name}
    elif isinstance(value, tuple):
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value - plain) > 1:
        yield plain + (value - plain) // 2


def _plainer_fields(value: Any, plain: Any, *, without: frozenset[str] = frozenset()) -> Iterator[Any]:
    for each in fields(value):
        if each.name not in without:
            for plainer in _plainer(getattr(value, each.name), getattr(plain, each.name)):
                yield replace(value, **{each.name: plainer})
