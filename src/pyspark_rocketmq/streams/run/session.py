"""The session of a job: the user's, or one sized for this machine."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection
from typing import Final

from pyspark.sql import SparkSession

from pyspark_rocketmq.spark.worker_python import check_worker_python
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import STATEFUL
from pyspark_rocketmq.streams.plan.resources import Footprint

__all__ = ["get_plan_session", "get_session", "machine_settings", "partitions_warning"]

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TOO_MANY: Final = 16
"""Partitions per core above which a stateful query spends its time on opening state stores."""


def get_session(spark: SparkSession | None, footprint: Footprint | None = None) -> SparkSession:
    """Return the given session, the active one, or a new one whose workers run this interpreter.

    A new session on this machine has one shuffle partition per core: with Spark's default of 200 a query with
    state takes minutes per batch on a small machine. The user's settings take precedence.

    Warns if a footprint cannot apply to an existing session.
    """
    found = spark or SparkSession.getActiveSession()
    if found is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("pyspark-rocketmq streams")
        found = builder.getOrCreate() if footprint is None else footprint.new_session(builder)
        _size_session(found)
    if footprint is not None:
        footprint.check(found)
    return found


def get_plan_session(spark: SparkSession | None, plan: p.Plan) -> SparkSession:
    """Return the session of a plan, as `get_session`.

    Warns if the session has far more shuffle partitions than cores and the plan keeps state.
    """
    found = get_session(spark, plan.footprint)
    check_worker_python(found)
    stateful = any(isinstance(node, STATEFUL) for node in plan.nodes())
    if stateful and plan.footprint is None and _is_local(found):
        partitions = int(found.conf.get(_PARTITIONS) or 0)
        warning = partitions_warning(plan.job, partitions, found.sparkContext.defaultParallelism)
        if warning is not None:
            warnings.warn(warning, UserWarning, stacklevel=2)
    return found


def partitions_warning(job: str, partitions: int, cores: int) -> str | None:
    """Return a warning about a job's number of state partitions, or None if the number is reasonable."""
    if partitions <= _TOO_MANY * cores:
        return None
    return (
        f"{job} keeps state in {partitions} partitions on {cores} cores: each batch opens as many "
        f"state stores, which takes minutes. Set {_PARTITIONS} to about {cores} before the job's first "
        "start, or let start() make the session"
    )


def machine_settings(cores: int, given: Collection[str]) -> dict[str, str]:
    """Return the settings that size a new session for this machine, except those set by the user."""
    sized = {_PARTITIONS: str(cores), _BATCH_ROWS: "1000"}
    return {name: value for name, value in sized.items() if name not in given}


def _size_session(spark: SparkSession) -> None:
    """Size a new session for its machine."""
    if not _is_local(spark):
        return
    context = spark.sparkContext
    given = {name for name, _ in context.getConf().getAll()}
    for name, value in machine_settings(context.defaultParallelism, given).items():
        spark.conf.set(name, value)


def _is_local(spark: SparkSession) -> bool:
    """Whether all tasks run on this machine. In a cluster the number of cores changes."""
    return (spark.sparkContext.master or "").startswith("local")
