"""Launchers of a script's plans: Spark, or a recorder for ``streams explain``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.streams.plan.nodes import Plan
from pyspark_rocketmq.streams.run.runner import start

__all__ = ["Launcher", "PlanRecorder", "launch", "launching_with"]


class Launcher(Protocol):
    """Starts a plan, see `runner.start`."""

    def __call__(
        self,
        spark: SparkSession | None,
        plan: Plan,
        *,
        trigger: Mapping[str, Any] | None = None,
        standby: bool = False,
        elastic: int = 0,
    ) -> StreamingQuery | None:
        """Start a plan. Returns None if no query runs afterwards."""


class PlanRecorder:
    """Records plans instead of starting them."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(
        self,
        spark: SparkSession | None,
        plan: Plan,
        *,
        trigger: Mapping[str, Any] | None = None,
        standby: bool = False,
        elastic: int = 0,
    ) -> None:
        """Record a plan."""
        del spark, trigger, standby, elastic
        self.plans.append(plan)


_launcher: Final[ContextVar[Launcher]] = ContextVar("launcher", default=start)


@contextlib.contextmanager
def launching_with(launcher: Launcher) -> Iterator[None]:
    """Make calls of ``start()`` in this block, and in functions called from it, use a launcher."""
    token = _launcher.set(launcher)
    try:
        yield
    finally:
        _launcher.reset(token)


def launch(
    spark: SparkSession | None,
    plan: Plan,
    *,
    trigger: Mapping[str, Any] | None = None,
    standby: bool = False,
    elastic: int = 0,
) -> StreamingQuery | None:
    """Start a plan with the launcher of this context: Spark, unless `launching_with` set another."""
    return _launcher.get()(spark, plan, trigger=trigger, standby=standby, elastic=elastic)
