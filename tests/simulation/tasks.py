"""A model of Spark's tasks: partitions that two executors read, attempt by attempt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.simulation.history import History, Row
from tests.simulation.network import Network, SimulatedHost
from tests.simulation.scheduler import Process, SimulatedClock

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.options import ClientOptions
from pyspark_rocketmq.spark.read.partition import RangesPartition

__all__ = ["Executors", "Kills", "TaskSet"]

_ATTEMPTS: Final = 4
"""``spark.task.maxFailures``."""
_LONGEST_S: Final = 900.0
_HEARTBEAT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Kills:
    """How often what dies.

    Parameters
    ----------
    driver : float
        For each step of a micro-batch.
    executor : float
        For each record batch that a task reads.
    speculation : float
        For each partition: a second attempt runs beside the first.
    """

    driver: float = 0.0
    executor: float = 0.0
    speculation: float = 0.0


class Executors:
    """Two processes with a client each; one that died is replaced."""

    def __init__(self, network: Network, options: ClientOptions, chance: random.Random) -> None:
        self._network = network
        self._options = options
        self._chance = chance
        self._running: list[tuple[Process, Client]] = []

    def take(self, number: int) -> tuple[Process, Client]:
        """Return one of the two."""
        self._running = [each for each in self._running if not each[0].dead]
        while len(self._running) < 2:
            process = Process(f"executor-{len(self._running)}")
            client = Client(
                self._options,
                clock=SimulatedClock(self._network.scheduler, process),
                random=random.Random(self._chance.random()),
                host=SimulatedHost(self._network, process),
            )
            self._running.append((process, client))
        return self._running[number % 2]

    def kill(self) -> None:
        """End both."""
        for process, _ in self._running:
            self._network.scheduler.kill(process)
        self._running.clear()


ReadPartition = Callable[[Client, RangesPartition], Iterator[list[Row]]]


class TaskSet:
    """The tasks of one micro-batch.

    Parameters
    ----------
    network : Network
    driver : Process
        Whose task waits in `run`.
    executors : Executors
    read : callable
        Reads a partition, in parts between which an executor may die.
    partitions : sequence of RangesPartition
    same : callable
        Whether two attempts brought the same.
    """

    def __init__(
        self,
        network: Network,
        driver: Process,
        executors: Executors,
        read: ReadPartition,
        partitions: Sequence[RangesPartition],
        *,
        kills: Kills,
        chance: random.Random,
        history: History,
        same: Callable[[list[Row], list[Row]], bool],
        note: Callable[[str], None],
    ) -> None:
        self._scheduler = network.scheduler
        self._driver = driver
        self._executors = executors
        self._read = read
        self._partitions = partitions
        self._kills = kills
        self._chance = chance
        self._history = history
        self._same = same
        self._note = note
        self._turn = SimulatedHost(network, driver).condition()
        self._found: dict[int, list[Row]] = {}
        self._failures = dict.fromkeys(range(len(partitions)), 0)
        self._fatal: RocketMQError | None = None

    def run(self) -> list[list[Row]]:
        """Run every task to its end, and return the rows of each partition.

        Raises
        ------
        RocketMQError
            A task failed four times.
        """
        for index in range(len(self._partitions)):
            self._attempt(index, 0)
            if self._chance.random() < self._kills.speculation:
                self._history.did["speculative attempt"] += 1
                self._attempt(index, 1)
        with self._turn:
            done = self._turn.wait_for(self._is_over, _LONGEST_S)
        assert done, f"the tasks of a batch do not end within {_LONGEST_S:.0f} s"
        if self._fatal is not None and len(self._found) < len(self._partitions):
            raise self._fatal
        return [self._found[index] for index in range(len(self._partitions))]

    def _is_over(self) -> bool:
        return len(self._found) == len(self._partitions) or self._fatal is not None

    def _attempt(self, index: int, number: int) -> None:
        process, client = self._executors.take(index + number)
        ended: list[bool] = []
        work = partial(self._work, index, number, process, client, ended)
        self._scheduler.start(work, process, f"task-{index}.{number}")
        self._watch(index, number, process, ended)

    def _work(self, index: int, number: int, process: Process, client: Client, ended: list[bool]) -> None:
        if number:
            client.renew()  # as a retried task does
        rows: list[Row] = []
        try:
            for part in self._read(client, self._partitions[index]):
                rows += part
                if self._chance.random() < self._kills.executor:
                    self._history.did["executor killed"] += 1
                    self._note("an executor dies")
                    self._scheduler.kill(process)
                    self._scheduler.park(0)
        except RocketMQError as error:
            self._note(f"a task fails: {type(error).__name__}: {error}")
            ended.append(True)
            self._failed(index, number, error)
            return
        ended.append(True)
        with self._turn:
            if not self._same(self._found.setdefault(index, rows), rows):
                self._history.torn.append(f"partition {index} has other rows at a second attempt")
            self._turn.notify_all()

    def _failed(self, index: int, number: int, error: RocketMQError) -> None:
        if index in self._found:
            return
        self._history.did["task attempt failed"] += 1
        self._failures[index] += 1
        if self._failures[index] < _ATTEMPTS:
            self._attempt(index, number + 1)
            return
        with self._turn:
            self._fatal = error
            self._turn.notify_all()

    def _watch(self, index: int, number: int, process: Process, ended: list[bool]) -> None:
        """Run a dead executor's task elsewhere, as soon as its heartbeats are missed."""
        if ended or index in self._found or self._driver.dead:
            return
        if process.dead:
            self._attempt(index, number + 1)
        else:
            self._scheduler.after(_HEARTBEAT_S, partial(self._watch, index, number, process, ended))
