"""A model of Spark's tasks: partitions that two executors work on, attempt by attempt."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from tests.simulation.host import SimulatedHost
from tests.simulation.scheduler import Process, SimulatedClock
from tests.simulation.stage import Stage

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import ClientOptions

__all__ = ["Executors", "Survive", "TaskSet"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_ATTEMPTS: Final = 4
"""``spark.task.maxFailures``."""
_SLOTS: Final = 4
"""Tasks at a time, of both executors together."""
_LONGEST_S: Final = 900.0
_LONG_S: Final = 60.0
"""No task takes this long when nothing is wrong any more, but that a master may be gone for good."""
_HEARTBEAT_S: Final = 0.5


class Executors:
    """Two processes with a client each; one that died is replaced."""

    def __init__(self, stage: Stage, name: str, options: ClientOptions, chance: random.Random) -> None:
        self._stage = stage
        self._name = name
        self._options = options
        self._chance = chance
        self._running: list[tuple[Process, Client]] = []
        self._busy = Counter[Process]()

    def take(self, number: int) -> tuple[Process, Client]:
        """Return one of the two."""
        self._running = [each for each in self._running if not each[0].dead]
        while len(self._running) < 2:
            process = Process(f"{self._name}-{len(self._running)}")
            client = Client(
                self._options,
                clock=SimulatedClock(self._stage.scheduler, process),
                random=random.Random(self._chance.random()),
                host=SimulatedHost(self._stage.network, process),
            )
            self._running.append((process, client))
        return self._running[number % 2]

    def begin(self, process: Process) -> None:
        """Record that an attempt runs there."""
        self._busy[process] += 1

    def end(self, process: Process, client: Client) -> None:
        """Record that an attempt has ended: a client without one has no request whose answer it awaits."""
        self._busy[process] -= 1
        if not self._busy[process]:
            self._stage.history.left_over += [
                f"{process.name} has {each!r} when no task runs"
                for each in client.pool.opened
                if each.alive and (each.in_flight or each.unclaimed)
            ]

    def kill(self) -> None:
        """End both."""
        for process, _ in self._running:
            self._stage.scheduler.kill(process)
        self._running.clear()


Survive = Callable[[], None]
"""A place where an executor may die."""


class _Perform(Protocol[R_co]):
    def __call__(self, client: Client, index: int, survive: Survive) -> R_co:
        """Do the work of a partition."""
        ...


class TaskSet(Generic[R]):
    """The tasks of one micro-batch.

    Parameters
    ----------
    stage : Stage
    driver : Process
        Whose task waits in `run`.
    executors : Executors
    perform : callable
        Does the work of a partition.
    count : int
        How many partitions there are.
    chance : random.Random
    compare : callable
        Told of the results of each two attempts of a partition.
    failed : callable
        Told why an attempt failed.
    """

    def __init__(
        self,
        stage: Stage,
        driver: Process,
        executors: Executors,
        perform: _Perform[R],
        count: int,
        *,
        chance: random.Random,
        compare: Callable[[int, R, R], None],
        failed: Callable[[RocketMQError], None],
    ) -> None:
        self._stage = stage
        self._driver = driver
        self._executors = executors
        self._perform = perform
        self._count = count
        self._chance = chance
        self._compare = compare
        self._tell_failed = failed
        self._turn = SimulatedHost(stage.network, driver).condition()
        self._found: dict[int, R] = {}
        self._failures = dict.fromkeys(range(count), 0)
        self._fatal: RocketMQError | None = None
        self._numbers = Counter[int]()
        self._waiting: deque[tuple[int, int]] = deque()
        self._running: dict[tuple[int, int], Process] = {}

    def run(self) -> list[R]:
        """Run every task to its end, and return the result of each partition.

        Raises
        ------
        RocketMQError
            A task failed four times.
        """
        for index in range(self._count):
            self._queue(index)
            if self._stage.strikes("speculative attempt", self._stage.kills.speculation, self._chance):
                self._stage.history.did["speculative attempt"] += 1
                self._queue(index)
        self._launch()
        self._look_after()
        with self._turn:
            done = self._turn.wait_for(self._is_over, _LONGEST_S)
        assert done, f"the tasks of a batch do not end within {_LONGEST_S:.0f} s"
        if self._fatal is not None and len(self._found) < self._count:
            raise self._fatal
        return [self._found[index] for index in range(self._count)]

    @property
    def results(self) -> list[R]:
        """The results of the partitions that are done."""
        return list(self._found.values())

    def _is_over(self) -> bool:
        return len(self._found) == self._count or self._fatal is not None

    def _queue(self, index: int) -> None:
        """Let a partition have one more attempt."""
        self._waiting.append((index, self._numbers[index]))
        self._numbers[index] += 1

    def _launch(self) -> None:
        while self._waiting and len(self._running) < _SLOTS and not self._driver.dead:
            index, number = attempt = self._waiting.popleft()
            process, client = self._executors.take(index + number)
            self._running[attempt] = process
            self._executors.begin(process)
            work = partial(self._work, attempt, client, process)
            self._stage.scheduler.start(work, process, f"task-{index}.{number}")

    def _work(self, attempt: tuple[int, int], client: Client, process: Process) -> None:
        index, number = attempt
        begin_s = self._stage.scheduler.now
        if number:
            client.renew()  # as a retried task does
        try:
            result = self._perform(client, index, partial(self._survive, process))
        except RocketMQError as error:
            self._stage.note(f"a task fails: {type(error).__name__}: {error}")
            self._executors.end(process, client)
            del self._running[attempt]
            self._failed(index, error)
        else:
            self._executors.end(process, client)
            del self._running[attempt]
            self._compare(index, self._found.setdefault(index, result), result)
        took_s = self._stage.scheduler.now - max(begin_s, self._stage.healed_at_s)
        if took_s > _LONG_S:
            self._stage.history.slow.append(f"task {index}.{number} of {process.name} took {took_s:.0f} s")
        self._launch()
        with self._turn:
            self._turn.notify_all()

    def _survive(self, process: Process) -> None:
        if self._stage.strikes(f"{process.name} killed", self._stage.kills.executor, self._chance):
            self._stage.history.did["executor killed"] += 1
            self._stage.note(f"{process.name} dies")
            self._stage.scheduler.kill(process)
            self._stage.scheduler.park(0)

    def _failed(self, index: int, error: RocketMQError) -> None:
        if index in self._found:
            return
        self._stage.history.did["task attempt failed"] += 1
        self._tell_failed(error)
        self._failures[index] += 1
        if self._failures[index] < _ATTEMPTS:
            self._queue(index)
        else:
            self._fatal = error

    def _look_after(self) -> None:
        """Run a dead executor's tasks elsewhere, as soon as its heartbeats are missed."""
        if self._is_over() or self._driver.dead:
            return
        for attempt in [attempt for attempt, process in self._running.items() if process.dead]:
            del self._running[attempt]
            if attempt[0] not in self._found:
                self._queue(attempt[0])
        self._launch()
        self._stage.scheduler.after(_HEARTBEAT_S, self._look_after)
