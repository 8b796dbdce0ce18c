"""How a job runs, for ``with_``: where its progress and state are, and how much memory it uses."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_rocketmq.streams.api.compat import NoEffect
from pyspark_rocketmq.streams.api.job import Job, Strategy
from pyspark_rocketmq.streams.plan.resources import HARD_LIMIT, LOW_MEMORY, Footprint

__all__ = ["CheckpointStrategy", "WindowStrategy"]


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
        return NoEffect("WindowStrategy.highPerformance")

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
