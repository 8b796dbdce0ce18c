"""Change the number of state partitions of a stopped job."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.spark.features import FEATURES
from pyspark_rocketmq.spark.filesystem import local_folder
from pyspark_rocketmq.streams.run.job_registry import checkpoint_of, find_job, job_lock

__all__ = ["rescale"]

_SAME: Final = "SHUFFLE_PARTITIONS_ALREADY_MATCH"


def rescale(
    job: str, partitions: int, *, checkpoint: str | None = None, spark: SparkSession | None = None
) -> None:
    """Change the number of state partitions of a stopped job. The next run continues with them.

    ``spark.sql.shuffle.partitions`` is fixed by a job's first run, and so is the number of tasks that share
    its windows, groups and joins. This rewrites the state of a stopped job in a separate batch after the last
    one. It reads no message, emits no result, and leaves totals unchanged. It costs reading and writing the
    state once.

    Parameters
    ----------
    job : str
        The job: ``namespace.pipeline``, or its job id.
    partitions : int
        Above 0. If it equals the current number, nothing is done.
    checkpoint : str, optional
        Required for a job that has its own checkpoint and was never started on this machine.
    spark : SparkSession, optional
        Default: the active session, or a new one.

    Raises
    ------
    OptionError
        The job does not exist, it has no state yet, the number is not above 0, or Spark is older than 4.2.
    RocketMQError
        The job runs, or Spark cannot rewrite the state (the batch of a killed run must be finished first).
    """
    from pyspark_rocketmq.streams.run.session import get_session  # noqa: PLC0415 - imports what runs jobs

    FEATURES.require("4.2", "rescaling a job", "rescale it there, or keep its number of partitions")
    if partitions < 1:
        raise OptionError("a job's state needs at least one partition", partitions=partitions)
    place = checkpoint or _place(job)
    folder = local_folder(place)
    if folder is not None and not (folder / "commits").is_dir():
        raise OptionError(f"the job {job!r} has finished no batch yet: there is no state", checkpoint=place)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(job_lock(job, place, standby=False, clock=SYSTEM_CLOCK))
        except RocketMQError as error:
            raise RocketMQError(f"the job {job!r} is running: stop it first", checkpoint=place) from error
        session = get_session(spark)
        if any(query.name == job for query in session.streams.active):  # of a checkpoint without a lock
            raise RocketMQError(f"the job {job!r} is running: stop it first", checkpoint=place)
        try:
            session._streamingCheckpointManager.repartition(place, partitions)  # noqa: SLF001 - no other yet
        except (PySparkException, Py4JJavaError) as error:
            if _SAME in str(error):
                return
            raise RocketMQError(
                f"the state of the job {job!r} cannot be rewritten: {_why(error)}", checkpoint=place
            ) from error


def _why(error: PySparkException | Py4JJavaError) -> str:
    """Return Spark's reason, without its stack trace."""
    lines = str(error).splitlines()
    return next((line for line in lines if "[" in line), lines[0])


def _place(job: str) -> str:
    try:
        return find_job(job).checkpoint
    except OptionError:
        place = checkpoint_of(job)
        if not Path(place).is_dir():
            raise
        return place
