"""Sinks: one query per job for any number of sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_rocketmq.errors import PlanError
from pyspark_rocketmq.spark.boundary import called_for_batches
from pyspark_rocketmq.streams.compile.compiler import Compiler
from pyspark_rocketmq.streams.connectors.base import sink_of
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.flow import Flow
from pyspark_rocketmq.streams.frame.python_steps import BEAT
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.nodes import Shape

__all__ = ["final_flow", "run_once", "start_sinks"]


def final_flow(flow: Flow, sink: p.Sink, guard: Guard) -> Flow:
    """Return the rows that a sink writes, without heartbeats and malformed records.

    Raises
    ------
    PlanError
        The sink needs columns, and the records' fields are not known.
    """
    if flow.shape is Shape.JSON and not flow.checked:
        flow = flow.with_fields([], guard, sink)
    if sink_of(sink).needs_columns:
        if flow.shape is not Shape.COLUMNS:
            raise PlanError(
                "the fields of the records are not known here: use selectFields(...), schema= or a "
                "projection first",
                step=sink.name,
            )
        flow = flow.plain()
    if flow.beats:
        flow = replace(flow, df=flow.df.where(~F.col(BEAT)), beats=False)
    return flow


# --- streams ----------------------------------------------------------------------------------


def start_sinks(compiler: Compiler, guard: Guard, checkpoint: str, trigger: dict[str, Any]) -> StreamingQuery:
    """Start the one query of a job."""
    plan = compiler.plan
    shared = compiler.find_common_step()
    common = compiler.flow(shared)
    if len(plan.sinks) == 1:
        sink = plan.sinks[0]
        flow = final_flow(common, sink, guard)
        rows = sink_of(sink).rows(flow, plan)
        sink_of(sink).check_target(checkpoint, numbered=flow.updates)
        # Spark's sinks accept final rows, not updates.
        start = sink_of(sink).start_batches if flow.updates else sink_of(sink).start
        return start(_configure(rows, flow, plan, checkpoint, trigger), plan, checkpoint)
    if common.shape is Shape.JSON and not common.checked:  # once for all sinks, and where it is counted
        common = common.with_fields([], guard, shared)
    for sink in plan.sinks:  # fail on what a sink refuses now, not in the first batch
        sink_of(sink).rows(final_flow(compiler.flow(sink), sink, guard), plan)
        sink_of(sink).check_target(checkpoint, numbered=True)
    writers = [(sink, sink_of(sink).batch_writer(plan, checkpoint, numbered=True)) for sink in plan.sinks]
    writer = _configure(common.df, common, plan, checkpoint, trigger)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            given = {shared: replace(common, df=batch)}
            branches = Compiler(batch.sparkSession, plan, given)
            errors = branches.guard  # the job's would keep what every batch adds to it
            for sink, write_rows in writers:
                write_rows(sink_of(sink).rows(final_flow(branches.flow(sink), sink, errors), plan), number)
        finally:
            batch.unpersist()

    return writer.foreachBatch(called_for_batches(write)).start()


def _configure(
    df: DataFrame, flow: Flow, plan: p.Plan, checkpoint: str, trigger: dict[str, Any]
) -> DataStreamWriter:
    writer = df.writeStream.queryName(plan.job).option("checkpointLocation", checkpoint)
    return writer.outputMode("update" if flow.updates else "append").trigger(**trigger)


# --- bounded sources --------------------------------------------------------------------------


def run_once(compiler: Compiler, guard: Guard) -> None:
    """Run a plan with bounded sources: every window closes, and no row is late."""
    plan = compiler.plan
    writes = [  # all, so that what one sink refuses is known before another is written
        (
            sink_of(sink).batch_writer(plan, None, numbered=False),
            sink_of(sink).rows(final_flow(compiler.flow(sink), sink, guard), plan),
        )
        for sink in plan.sinks
    ]
    for write, rows in writes:
        write(rows, 0)
