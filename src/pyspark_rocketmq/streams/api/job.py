"""The state of a pipeline's builder: its sinks and settings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import OnError, choices_of
from pyspark_rocketmq.streams.plan.resources import HARD_LIMIT, LOW_MEMORY, Footprint
from pyspark_rocketmq.streams.run.job_registry import checkpoint_of

__all__ = ["CheckpointStrategy", "Job", "ShuffleStrategy", "Strategy", "WindowStrategy"]


@dataclass(slots=True)
class Job:
    """A pipeline under construction."""

    name: str
    spark: SparkSession | None = None
    sinks: list[p.Sink] = field(default_factory=list)
    checkpoint: str | None = None
    local_only: bool | None = None
    idle_s: float | None = None
    on_error: OnError = "skip"
    dead_letters: Mapping[str, str] | None = None
    footprint: Footprint | None = None
    steps: int = 0

    def step(self, what: str) -> str:
        """Return the name of the next step, such as ``map#2``."""
        self.steps += 1
        return f"{what}#{self.steps}"

    def set_errors(self, mode: OnError, topic: str | None, options: Mapping[str, str]) -> None:
        """Set the handling of records with an error."""
        if mode not in choices_of(OnError):
            raise PlanError(f"onError is one of {', '.join(choices_of(OnError))}, not {mode!r}")
        if (mode == "dead-letters") != (topic is not None):
            raise PlanError("onError('dead-letters', topic=...) needs a topic, the others take none")
        self.on_error = mode
        self.dead_letters = None if topic is None else {"topic": topic, **options}

    def plan(self) -> p.Plan:
        """Return the pipeline built so far as data.

        Raises
        ------
        PlanError
            The pipeline has no sink, or the checkpoint is not where the state is required to be.
        """
        if not self.sinks:
            raise PlanError(
                "the pipeline goes nowhere: end it with toPrint(), toRocketmq(...) or another sink"
            )
        if self.local_only is False and self.checkpoint is None:
            raise PlanError(
                "setLocalStorageOnly(False) keeps the state on shared storage: say where, by "
                "with_(CheckpointStrategy.remote('hdfs://...'))"
            )
        return p.Plan(
            job=self.name,
            sinks=tuple(self.sinks),
            on_error=self.on_error,
            checkpoint=self.checkpoint or checkpoint_of(self.name),
            idle_s=self.idle_s,
            dead_letters=self.dead_letters,
            footprint=self.footprint,
        )


class Strategy:
    """A setting of how a job runs, for ``with_``."""

    def apply(self, job: Job) -> None:
        """Change the job."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CheckpointStrategy(Strategy):
    """The location of a job's progress and state."""

    location: str

    @classmethod
    def local(cls, folder: str) -> CheckpointStrategy:
        """Store them in a folder of this machine."""
        return cls(folder)

    @classmethod
    def remote(cls, uri: str) -> CheckpointStrategy:
        """Store them on shared storage: any path that Spark can write from every machine."""
        return cls(uri)

    def apply(self, job: Job) -> None:
        """Change the job."""
        job.checkpoint = self.location


class WindowStrategy:
    """Where windows keep their state, with RocketMQ Streams' names, and how much memory a job uses."""

    @staticmethod
    def exactlyOnce(checkpoint: str) -> CheckpointStrategy:
        """Store state and progress in a checkpoint. Spark's windows are exactly once with any checkpoint."""
        return CheckpointStrategy(checkpoint)

    @staticmethod
    def highPerformance() -> Strategy:
        """Return a strategy without effect: RocksDB on this machine is always used."""
        return _NoEffect("WindowStrategy.highPerformance")

    @staticmethod
    def lowMemory(hardLimit: bool = False) -> Strategy:
        """Run all processes of the job on one core in about a gigabyte of memory.

        The session that ``start()`` creates has a heap of 512 MiB, the serial collector and the C1 compiler.
        The query keeps its state in one partition per core and at most 64 MiB of RocksDB memory. An existing
        session keeps its heap and cores: a UserWarning names the settings that cannot apply.

        Parameters
        ----------
        hardLimit : bool
            A heap of 256 MiB, and Python processes that end with their task. Saves a quarter of a gigabyte;
            batches take seconds longer.
        """
        return _Footprint(HARD_LIMIT if hardLimit else LOW_MEMORY)

    exactly_once = exactlyOnce
    high_performance = highPerformance
    low_memory = lowMemory


@dataclass(frozen=True, slots=True)
class _Footprint(Strategy):
    footprint: Footprint

    def apply(self, job: Job) -> None:
        job.footprint = self.footprint


class ShuffleStrategy:
    """Names accepted for compatibility: Spark shuffles groups, not a topic."""

    @staticmethod
    def shuffleWithMQ() -> Strategy:
        """Return a strategy without effect."""
        return _NoEffect("ShuffleStrategy.shuffleWithMQ")

    @staticmethod
    def shuffleInMemory() -> Strategy:
        """Return a strategy without effect."""
        return _NoEffect("ShuffleStrategy.shuffleInMemory")


_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class _NoEffect(Strategy):
    name: str

    def apply(self, job: Job) -> None:
        del job
        if self.name not in _warned:
            _warned.add(self.name)
            warnings.warn(f"{self.name} has no effect: Spark does this by itself", UserWarning, stacklevel=4)
