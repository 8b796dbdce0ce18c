"""The state of a pipeline's builder: its sinks and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.choices import OnError, choices_of
from pyspark_rocketmq.streams.plan.resources import Footprint
from pyspark_rocketmq.streams.run.job_registry import checkpoint_of

__all__ = ["Job", "Strategy"]


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
    dead_letters: Mapping[str, str] | None = field(default=None, repr=False)
    footprint: Footprint | None = None
    steps: int = 0

    def step(self, what: str) -> str:
        """Return the name of the next step, such as ``map#2``."""
        self.steps += 1
        return f"{what}#{self.steps}"

    def set_errors(self, mode: OnError, dead_letters: Mapping[str, str]) -> None:
        """Set the handling of records with an error, and the sink's options for dead letters."""
        if mode not in choices_of(OnError):
            raise PlanError(f"onError is one of {', '.join(choices_of(OnError))}, not {mode!r}")
        if mode == "dead-letters" and "topic" not in dead_letters:
            raise PlanError("onError('dead-letters', topic=...) requires a topic")
        if mode != "dead-letters" and dead_letters:
            raise PlanError(f"onError({mode!r}) sends nothing: it takes no topic and no options")
        self.on_error = mode
        self.dead_letters = dead_letters or None

    def plan(self) -> p.Plan:
        """Return the pipeline built so far as data.

        Raises
        ------
        PlanError
            The pipeline has no sink, or the checkpoint is not where the state is required to be.
        """
        if not self.sinks:
            raise PlanError(
                "the pipeline has no sink: end it with toPrint(), toRocketmq(...) or another sink"
            )
        if self.local_only is False and self.checkpoint is None:
            raise PlanError(
                "setLocalStorageOnly(False) requires shared storage: set it by "
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
