"""The query that sends a job's records with an error to a topic. It reads the source separately."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.spark.causes import find_cause
from pyspark_rocketmq.spark.stores.file_log import forget_unwritten_start
from pyspark_rocketmq.spark.write.update_mode import message_writer
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import repeats_results
from pyspark_rocketmq.streams.run.job_registry import (
    dead_letters_checkpoint,
    sources_of,
)

__all__ = ["DeadLetters", "start_dead_letters"]

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class DeadLetters:
    """A running query of dead letters.

    Parameters
    ----------
    query : StreamingQuery
    ends : bool
        Whether its trigger ends it, as that of the job. It may then end after the job's query.
    """

    query: StreamingQuery
    ends: bool

    def find_failure(self) -> str | None:
        """Return why the query has failed, or None if it has not."""
        error = self.query.exception()
        return None if error is None else find_cause(str(error))

    def await_end(self, job: str) -> None:
        """Wait until the query ends: by its trigger, or because the job's query has ended.

        Raises
        ------
        RocketMQError
            The query has failed.
        """
        try:
            self.query.awaitTermination()
        except StreamingQueryException as error:
            raise RocketMQError(
                f"the dead letters of the job {job!r} cannot be sent, so that it was stopped; they are sent "
                f"when it runs again: {find_cause(str(error))}"
            ) from error


def start_dead_letters(
    plan: p.Plan, guard: Guard, checkpoint: str, trigger: Mapping[str, Any]
) -> DeadLetters | None:
    """Start the query, with the job's trigger. Returns None if the plan has no dead letters.

    Parameters
    ----------
    plan : Plan
    guard : Guard
    checkpoint : str
        The job's checkpoint, which has that of the query.
    trigger : Mapping
    """
    streams = [df for df in guard.found if df.isStreaming]  # a table has its malformed lines still
    if plan.on_error != "dead-letters" or not streams:
        return None
    assert plan.dead_letters is not None
    letters, *others = streams
    for more in others:
        letters = letters.unionByName(more)
    rows = letters.select(
        F.coalesce("body", F.lit("(no body)")).alias("body"),
        F.create_map(F.lit("deadLetterCause"), F.col("cause")).alias("properties"),
    )
    place = _find_checkpoint(plan, checkpoint, _count_sources(letters))
    forget_unwritten_start(place)
    writer = rows.writeStream.queryName(f"{plan.job}.dead-letters").option("checkpointLocation", place)
    writer = writer.trigger(**trigger)
    if repeats_results(plan):  # a later step may fail at any of them; Spark's sinks accept no updates
        send = message_writer(f"{plan.job}.dead-letters", plan.dead_letters)
        query = writer.outputMode("update").foreachBatch(send).start()
    else:
        query = writer.format("rocketmq").options(**plan.dead_letters).start()
    return DeadLetters(query, ends=bool(trigger.get("availableNow") or trigger.get("once")))


def _count_sources(letters: DataFrame) -> int:
    """Return the number of sources that Spark reads: for each step that may fail, those before it."""
    leaves = letters._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    return sum(leaves.apply(at).isStreaming() for at in range(leaves.size()))


def _find_checkpoint(plan: p.Plan, checkpoint: str, sources: int) -> str:
    """Return the checkpoint of a query with this number of sources, which changes with the job's steps."""
    place = dead_letters_checkpoint(checkpoint)
    before = sources_of(place)
    if before is None or before == sources:
        return place
    other = f"{place}/{sources}"
    if sources_of(other) is None:
        _LOG.warning("the steps of %s have changed: its source is read for dead letters again", plan.job)
    return other
