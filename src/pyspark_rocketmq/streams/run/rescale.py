"""More, or fewer, partitions for the state of a job that does not run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.streams.run.job_registry import checkpoint_of, find_job, job_lock, local_path

__all__ = ["rescale"]

_SAME: Final = "SHUFFLE_PARTITIONS_ALREADY_MATCH"


def rescale(
    job: str, partitions: int, *, checkpoint: str | None = None, spark: SparkSession | None = None
) -> None:
    """Spread a job's state over so many partitions; the next run goes on with them.

    ``spark.sql.shuffle.partitions`` is fixed with a job's first run, and so is how many tasks share its
    windows, groups and joins. This rewrites the state of a job that does not run, as a batch of its own
    behind the last one: no message is read, no result goes out, totals stay what they were. It costs reading
    and writing the state once.

    Parameters
    ----------
    job : str
        Its name: ``namespace.pipeline``, or the job id.
    partitions : int
        Above 0. As many as there are already is no error, and nothing is done.
    checkpoint : str, optional
        Where it is for a job that was given a place of its own and was never started on this machine.
    spark : SparkSession, optional
        The active session, or a new one, when absent.

    Raises
    ------
    OptionError
        There is no such job, it has no state yet, or the number is not above 0.
    RocketMQError
        The job runs, or Spark cannot rewrite the state (a run that was killed has to be finished first).
    """
    from pyspark_rocketmq.streams.run.session import session_of  # noqa: PLC0415 - imports what runs jobs

    if partitions < 1:
        raise OptionError("a job's state needs at least one partition", partitions=partitions)
    place = checkpoint or _place(job)
    folder = local_path(place)
    if folder is not None and not (folder / "commits").is_dir():
        raise OptionError(f"the job {job!r} has finished no batch yet: there is no state", checkpoint=place)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(job_lock(job, place, standby=False, clock=SYSTEM_CLOCK))
        except RocketMQError as error:
            raise RocketMQError(f"the job {job!r} is running: stop it first", checkpoint=place) from error
        session = session_of(spark)
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
    """Return Spark's reason, without where in Spark it was found."""
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
