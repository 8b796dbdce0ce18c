"""One thread, virtual time: tasks that run until they wait, and what happens at which moment."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from types import TracebackType
from typing import Final

from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["EPOCH_MS", "Process", "Scheduler", "SimulatedClock", "SimulatedCondition", "Spinning", "Task"]

EPOCH_MS: Final = 1_700_000_000_000
"""The wall clock at virtual time 0."""

_MOST_LOOKS: Final = 200_000
"""So many looks at the clock without any time passing are an endless loop."""


_LOOKS_S: Final = 0.01
"""How often `Scheduler.run` asks whether all is done."""


class Spinning(BaseException):
    """The code under test loops without ever waiting; a BaseException, so that nothing handles it."""


@dataclass(slots=True, eq=False)
class Process:
    """An operating system's process: its tasks and connections end with it.

    Parameters
    ----------
    name : str
    skew_ms : int
        How far its wall clock is ahead of the brokers'.
    frozen_until : float
        Until when none of its tasks takes a step.
    listens : bool
        Whether it waits for what servers ask.
    """

    name: str
    skew_ms: int = 0
    dead: bool = False
    frozen_until: float = 0.0
    listens: bool = False

    def freeze(self, until_s: float) -> None:
        """Freeze it until a moment, or as long as it is frozen already."""
        self.frozen_until = max(self.frozen_until, until_s)


class Task(greenlet):
    """A thread of a process."""

    def __init__(self, work: Callable[[], None], hub: greenlet, process: Process, name: str) -> None:
        super().__init__(work, hub)
        self.process = process
        self.name = name
        self.waits = 0
        """Counts its waits: a wake-up that comes for an earlier one is ignored."""


class Scheduler:
    """Runs tasks and events in the order of their virtual time; equal moments in the order of their planning.

    Attributes
    ----------
    now : float
        Virtual seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = itertools.count()
        self._hub = getcurrent()
        self._tasks: dict[Task, None] = {}  # in the order of their start
        self._failure: BaseException | None = None

    def at(self, moment: float, action: Callable[..., None], *arguments: object) -> None:
        """Plan an event; one in the past happens now."""
        if moment < self.now:
            moment = self.now
        heappush(self._events, (moment, next(self._numbers), action, arguments))

    def after(self, delay_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Plan an event from now."""
        moment = self.now + delay_s if delay_s > 0 else self.now
        heappush(self._events, (moment, next(self._numbers), action, arguments))

    def start(self, work: Callable[[], None], process: Process, name: str) -> Task:
        """Start a task; an error that it raises ends the run."""

        def run(_: bool) -> None:
            try:
                work()
            except GreenletExit:
                pass
            except BaseException as failure:  # noqa: BLE001 - the task's outermost frame: `run` raises it
                self._failure = self._failure or failure
            finally:
                self._tasks.pop(task, None)

        task = Task(run, self._hub, process, name)
        self._tasks[task] = None
        self.at(self.now, self._resume, task, 0, True)
        return task

    def park(self, timeout_s: float | None) -> bool:
        """Let the current task wait: whether it was woken within ``timeout_s``."""
        task = self.current()
        process = task.process
        if process.dead:
            raise GreenletExit
        task.waits = number = task.waits + 1
        if timeout_s is not None:
            self.after(timeout_s, self._resume, task, number, False)
        woken: bool = self._hub.switch()
        if process.dead:
            raise GreenletExit
        return woken

    def current(self) -> Task:
        """Return the task that runs."""
        task = getcurrent()
        assert isinstance(task, Task), "only tasks wait"
        return task

    def wake(self, task: Task) -> None:
        """End the task's present wait."""
        self.at(self.now, self._resume, task, task.waits, True)

    def _resume(self, task: Task, number: int, woken: bool) -> None:
        if task.waits != number or task.dead:
            return
        if task.process.frozen_until > self.now:
            self.at(task.process.frozen_until, self._resume, task, number, woken)
        else:
            task.waits += 1
            task.switch(woken)

    def kill(self, process: Process) -> None:
        """End a process: none of its tasks takes another step, but for Python's clean-up."""
        process.dead = True
        self.at(self.now, self._throw, process)

    def _throw(self, process: Process) -> None:
        for task in [task for task in self._tasks if task.process is process]:
            task.throw(GreenletExit)

    def run(self, done: Callable[[], bool], *, until_s: float) -> bool:
        """Let time pass until ``done``, which is asked now and then: whether it was reached by ``until_s``.

        Raises
        ------
        BaseException
            What a task raised.
        """
        events = self._events
        look_at = self.now
        while events:
            moment, _, action, arguments = heappop(events)
            if moment > look_at:
                if done():
                    return True
                look_at = self.now + _LOOKS_S
            if moment > until_s:
                break
            if moment > self.now:
                self.now = moment
                self.looks = 0
            action(*arguments)
            if self._failure is not None:
                raise self._failure
        return done()

    def end(self) -> None:
        """End every task."""
        for process in [task.process for task in self._tasks]:
            process.dead = True
            self._throw(process)


class SimulatedClock:
    """A process's clock."""

    __slots__ = ("_process", "_scheduler")

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process

    def monotonic(self) -> float:
        """Return virtual seconds."""
        scheduler = self._scheduler
        scheduler.looks += 1
        if scheduler.looks > _MOST_LOOKS:
            raise Spinning(f"{self._process.name} loops at {scheduler.now:.3f} s")
        return scheduler.now

    def now_ms(self) -> int:
        """Return the process's wall clock."""
        return EPOCH_MS + round(self._scheduler.now * 1000) + self._process.skew_ms

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._scheduler.park(max(0.0, seconds))


class SimulatedCondition:
    """A condition for tasks; its lock is reentrant, as ``threading.Condition``'s is."""

    __slots__ = ("_depth", "_entering", "_owner", "_scheduler", "_waiting")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._depth = 0
        self._entering: deque[Task] = deque()
        self._waiting: list[Task] = []

    def __enter__(self) -> bool:
        task = getcurrent()
        if self._owner is not task:
            while self._owner is not None:
                self._entering.append(self._scheduler.current())
                self._scheduler.park(None)
            self._owner = task  # type: ignore[assignment]
        self._depth += 1
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._entering:
                self._release()

    def _release(self) -> None:
        self._owner = None
        if self._entering:
            self._scheduler.wake(self._entering.popleft())

    def wait(self, timeout: float | None = None) -> bool:
        """See ``threading.Condition.wait``."""
        task, depth = self._scheduler.current(), self._depth
        self._depth = 0
        self._waiting.append(task)
        self._release()
        try:
            return self._scheduler.park(timeout)
        finally:
            if task in self._waiting:
                self._waiting.remove(task)
            while self._owner is not None and not task.process.dead:
                self._entering.append(task)
                self._scheduler.park(None)
            self._owner, self._depth = task, depth

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """See ``threading.Condition.wait_for``."""
        until = None if timeout is None else self._scheduler.now + timeout
        while not predicate():
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify_all(self) -> None:
        """See ``threading.Condition.notify_all``."""
        for task in self._waiting:
            self._scheduler.wake(task)
        self._waiting.clear()
