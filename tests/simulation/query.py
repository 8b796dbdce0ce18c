"""A model of Spark's micro-batch engine, which drives the real stream reader and its tasks, and dies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tests.simulation.history import History, Row
from tests.simulation.network import Network, SimulatedHost
from tests.simulation.scheduler import Process, Scheduler, SimulatedClock
from tests.simulation.tasks import Executors, Kills, TaskSet

from pyspark_rocketmq.client import Client
from pyspark_rocketmq.client.net.host import Outcome
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.offsets.stream_offset import SourceOffset
from pyspark_rocketmq.options import SourceOptions, parse_options
from pyspark_rocketmq.spark.read.partition import RangesPartition, read_ranges
from pyspark_rocketmq.spark.read.schema import read_schema, to_projection
from pyspark_rocketmq.spark.read.stream import RocketMQStreamReader

__all__ = ["Query"]

_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "body")
_FOREVER_S: Final = 1e9


class DriverKilled(BaseException):
    """The driver is gone; a BaseException, so that the code under test does not handle it."""


@dataclass(slots=True)
class _Checkpoint:
    """What survives: the offset log, the commit log."""

    ends: list[dict[str, Any]] = field(default_factory=list)
    finished: int = 0


class Query:
    """A streaming query that is started again whenever it ends, as an operator does it.

    Parameters
    ----------
    network : Network
    options : mapping of str to str
        The source's.
    history : History
    chance : random.Random
    kills : Kills
    available_now : bool
        Each run reads what is there and ends.
    trigger_s : float
    skew_ms : int
        How far the driver's clock is ahead.
    committed : callable
        Returns the group's offsets at the brokers.
    note : callable
        Writes an event into the timeline.
    """

    def __init__(
        self,
        network: Network,
        options: Mapping[str, str],
        history: History,
        chance: random.Random,
        kills: Kills,
        *,
        available_now: bool,
        trigger_s: float,
        skew_ms: int,
        committed: Callable[[], list[tuple[MessageQueue, int]]],
        note: Callable[[str], None],
    ) -> None:
        self._network = network
        self._scheduler: Scheduler = network.scheduler
        self._options = parse_options(SourceOptions, dict(options), where="readStream", environ={})
        self._schema = read_schema(_COLUMNS)
        self._projection = to_projection(self._schema)
        self._history = history
        self._chance = chance
        self.kills = kills
        self._available_now = available_now
        self._trigger_s = trigger_s
        self._skew_ms = skew_ms
        self._committed = committed
        self._note = note
        self._kept = _Checkpoint()
        self._executors = Executors(network, self._options.client, chance)
        self._driver = Process("driver")
        self._planned = False

    @property
    def finished(self) -> dict[MessageQueue, int]:
        """Where each queue's finished batches end."""
        ends = self._kept.ends[: self._kept.finished]
        return dict(SourceOffset.from_dict(ends[-1]).offsets) if ends else {}

    # --- runs ---

    def start(self) -> None:
        """Begin; the query then lives until the simulation ends."""
        self._scheduler.start(self._live, Process("operator"), "operator")

    def _live(self) -> None:
        while True:
            self._driver = Process("driver", self._skew_ms)
            run: Outcome[BaseException | None] = Outcome(SimulatedHost(self._network, self._driver))
            self._scheduler.start(partial(self._run_to_its_end, run), self._driver, "query")
            failure = run.get(_FOREVER_S)
            self._scheduler.kill(self._driver)
            self._executors.kill()
            if isinstance(failure, RocketMQError):
                self._history.errors.append(f"{type(failure).__name__}: {failure}")
                self._history.did["query ended with an error"] += 1
                if self._planned and failure.retriable and not self._available_now:
                    self._history.died.append(f"{type(failure).__name__}: {failure}")
                self._note(f"the query ends: {type(failure).__name__}: {failure}")
            self._scheduler.park(self._chance.uniform(0.1, 2.0))

    def _run_to_its_end(self, over: Outcome[BaseException | None]) -> None:
        failure: BaseException | None = None
        try:
            self._run()
        except (DriverKilled, RocketMQError) as end:
            failure = end
        over.settle(failure)

    def _step(self, name: str) -> None:
        """A place where the driver may die."""
        if self._chance.random() < self.kills.driver:
            self._history.did[f"driver killed: {name}"] += 1
            self._note(f"the driver dies: {name}")
            raise DriverKilled
        self._check_commits()

    def _run(self) -> None:
        clock = SimulatedClock(self._scheduler, self._driver)
        host = SimulatedHost(self._network, self._driver)
        reader = RocketMQStreamReader(
            self._options,
            self._schema,
            connect=lambda options: PlanningClient(
                options, clock=clock, random=random.Random(self._chance.random()), host=host
            ),
            clock=clock,
            host=host,
        )
        limit = reader.getDefaultReadLimit()
        self._planned = False
        if self._available_now:
            reader.prepareForTriggerAvailableNow()
            self._step("prepared")
        if len(self._kept.ends) > self._kept.finished:
            self._note(f"batch {self._kept.finished} again")
            self._history.did["batch run again after a restart"] += 1
            self._run_batch(reader)
        while True:
            start = self._kept.ends[-1] if self._kept.ends else _kept(reader.initialOffset())
            end = _kept(reader.latestOffset(start, limit))
            self._planned = True
            self._step("planned")
            if end == start:
                if self._available_now:
                    break
                self._scheduler.park(self._trigger_s)
                continue
            if self._kept.ends:
                reader.commit(self._kept.ends[-1])
                self._step("committed")
            self._kept.ends.append(end)
            self._step("logged")
            self._run_batch(reader)
        reader.stop()

    def _run_batch(self, reader: RocketMQStreamReader) -> None:
        number = self._kept.finished
        end = self._kept.ends[number]
        start = self._kept.ends[number - 1] if number else _kept(reader.initialOffset())
        partitions = [it for it in reader.partitions(start, end) if isinstance(it, RangesPartition)]
        self._step("partitioned")
        parts = TaskSet(
            self._network,
            self._driver,
            self._executors,
            self._read,
            partitions,
            kills=self.kills,
            chance=self._chance,
            history=self._history,
            same=self._same,
            note=self._note,
        ).run()
        for part in parts:
            self._check_order(part)
        rows = sorted((row for part in parts for row in part), key=lambda row: row.place)
        self._step("read")
        before = self._history.batches.get(number)
        if before is not None and not self._same(before, rows):
            self._history.torn.append(
                f"batch {number}: {len(before)} rows at first, {len(rows)} when it was read again"
            )
        self._history.batches[number] = rows if before is None else before
        self._history.did["batches"] += 1
        self._step("written")
        self._kept.finished = number + 1
        self._step("finished")

    # --- tasks ---

    def _read(self, client: Client, partition: RangesPartition) -> Iterator[list[Row]]:
        """Read a partition as a task does."""
        for batch in read_ranges(client, partition.value, self._options, self._projection):
            columns = [batch.column(name).to_pylist() for name in _COLUMNS]
            yield [Row(values[:4], values[4].rstrip()) for values in zip(*columns, strict=True)]

    def _same(self, one: list[Row], other: list[Row]) -> bool:
        return self._still_there(one) == self._still_there(other)

    def _still_there(self, rows: list[Row]) -> list[Row]:
        """Return the rows that retention has not deleted so far."""
        return [row for row in rows if row.place not in self._history.expired]

    def _check_order(self, rows: list[Row]) -> None:
        """Within a partition, a queue's rows come in their order; partitions have none among themselves."""
        last: dict[tuple[str, str, int], int] = {}
        for row in rows:
            *queue, offset = row.place
            if offset <= last.get(tuple(queue), -1):
                self._history.disordered.append(
                    f"{row.place} comes after {last[tuple(queue)]} in a partition"
                )
            last[tuple(queue)] = offset

    # --- commits ---

    def _check_commits(self) -> None:
        """Nothing may be committed to the brokers that is not in the sink."""
        if not self._options.commits:
            return
        done = self.finished
        for queue, offset in self._committed():
            if offset > done.get(queue, -1) and offset > 0:
                self._history.ahead.append(f"{queue}: {offset} is committed, {done.get(queue)} is written")


def _kept(offset: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(offset))
