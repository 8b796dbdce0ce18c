"""A driver program that is started again whenever it ends, as an operator does it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.simulation.host import SimulatedHost
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.stage import Stage
from tests.simulation.tasks import Executors

from pyspark_rocketmq.client.net.host import Outcome
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import ClientOptions

__all__ = ["Program"]

_FOREVER_S: Final = 1e9


class _DriverKilled(BaseException):
    """The driver is gone; a BaseException, so that the code under test does not handle it."""


class Program:
    """Runs drivers, one after the other, until the simulation ends.

    Parameters
    ----------
    stage : Stage
    name : str
    options : ClientOptions
        Of its executors' clients.
    chance : random.Random
    run : callable
        What a driver does, from its start to its end.
    failed : callable
        Told of each error that ended one.
    skew_ms : int
        How far the driver's clock is ahead.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        options: ClientOptions,
        chance: random.Random,
        *,
        run: Callable[[], None],
        failed: Callable[[RocketMQError], None],
        skew_ms: int = 0,
    ) -> None:
        self._stage = stage
        self.name = name
        self._chance = chance
        self._run = run
        self._failed = failed
        self.skew_ms = skew_ms
        self.executors = Executors(stage, f"{name}-executor", options, chance)
        self.driver = Process(name)
        self._over: Outcome[RocketMQError | None] = Outcome(self.host)
        self._zombies: set[Process] = set()

    @property
    def clock(self) -> SimulatedClock:
        """The driver's."""
        return SimulatedClock(self._stage.scheduler, self.driver)

    @property
    def host(self) -> SimulatedHost:
        """The driver's."""
        return SimulatedHost(self._stage.network, self.driver)

    def jump(self, skew_ms: int) -> None:
        """Set its clock."""
        self.skew_ms = self.driver.skew_ms = skew_ms

    def start(self) -> None:
        """Begin."""
        self._stage.scheduler.start(self._live, Process("operator"), "operator")

    def _live(self) -> None:
        while True:
            self.driver = Process(self.name, self.skew_ms)
            over = self._over = Outcome(self.host)
            self._stage.scheduler.start(partial(self._run_to_its_end, over), self.driver, "driver")
            failure = over.get(_FOREVER_S)
            if self.driver not in self._zombies:
                self._stage.scheduler.kill(self.driver)
            self.executors.kill()
            if failure is not None:
                self._stage.history.did[f"{self.name} ended with an error"] += 1
                self._stage.note(f"{self.name} ends: {type(failure).__name__}: {failure}")
                self._failed(failure)
            self._stage.scheduler.park(self._chance.uniform(0.1, 4.0))

    def _run_to_its_end(self, over: Outcome[RocketMQError | None]) -> None:
        failure: RocketMQError | None = None
        try:
            self._run()
        except RocketMQError as error:
            failure = error
        except _DriverKilled:
            pass
        over.settle(failure)

    def step(self, name: str) -> None:
        """A place where the driver may die."""
        point = f"{self.name} killed: {name}"
        if self._stage.strikes(point, self._stage.kills.driver, self._chance):
            self._stage.history.did[point] += 1
            self._stage.note(f"{self.name} dies: {name}")
            raise _DriverKilled

    def endanger(self, within_s: float) -> None:
        """Let the driver die at any moment from now, or be replaced without its knowledge."""
        kills = self._stage.kills
        if self._stage.strikes(f"{self.name} killed midway", kills.midway, self._chance):
            self._end_soon(within_s, "killed midway", zombie=False)
        elif self._stage.strikes(f"{self.name} replaced", kills.zombie, self._chance):
            self._end_soon(within_s, "replaced, and runs on", zombie=True)

    def _end_soon(self, within_s: float, how: str, *, zombie: bool) -> None:
        driver, over = self.driver, self._over

        def end() -> None:
            if driver is not self.driver or driver.dead or self._stage.healed:
                return
            self._stage.history.did[f"{self.name} {how}"] += 1
            self._stage.note(f"{self.name} is {how}")
            if zombie:
                self._zombies.add(driver)
            over.settle(None)

        self._stage.scheduler.after(self._chance.uniform(0.0, within_s), end)
