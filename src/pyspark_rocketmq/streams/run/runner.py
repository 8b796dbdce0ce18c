"""Start a plan: the session, the lock, the state store, the query, and its end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import PlanError, RocketMQError
from pyspark_rocketmq.spark.body_formats import quote
from pyspark_rocketmq.spark.query_end import ends_within, stop_query
from pyspark_rocketmq.spark.session_settings import WATERMARK_SETTINGS, temporary_settings
from pyspark_rocketmq.spark.stores.checkpoint_log import CheckpointLog
from pyspark_rocketmq.spark.stores.file_log import forget_unwritten_start
from pyspark_rocketmq.streams.compile.compiler import Compiler, is_bounded
from pyspark_rocketmq.streams.connectors.base import SourceConnector
from pyspark_rocketmq.streams.frame.error_handling import Guard
from pyspark_rocketmq.streams.frame.row_counts import RunCounts
from pyspark_rocketmq.streams.plan import nodes as p
from pyspark_rocketmq.streams.plan.analysis import STATEFUL, check_ends, keeps_own_state
from pyspark_rocketmq.streams.plan.explain import explain_plan
from pyspark_rocketmq.streams.plan.state import describe_state
from pyspark_rocketmq.streams.run.dead_letters import DeadLetters, start_dead_letters
from pyspark_rocketmq.streams.run.driver_lock import driver_lock
from pyspark_rocketmq.streams.run.elastic import check_elastic, leading
from pyspark_rocketmq.streams.run.job_registry import (
    JobRecord,
    checkpoint_of,
    job_lock,
    take_stop_request,
)
from pyspark_rocketmq.streams.run.session import get_plan_session, get_session
from pyspark_rocketmq.streams.run.sinks import final_flow, run_once, start_sinks

__all__ = ["STATE_SETTINGS", "await_end", "final_frame", "finish", "start", "stop"]

_LOG: Final = logging.getLogger(__name__)

STATE_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_OTHER_STATE: Final = re.compile(
    r"\[(STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE"
    r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)\b"
)
"""Spark's conditions of a query whose steps do not fit the state in its checkpoint."""

_POLL_S: Final = 0.5

_END_S: Final = 10.0

_KEPT: Final = 32
"""How many ended runs are kept for those who ask how they ended. Each keeps its query in the JVM."""


@dataclass(slots=True)
class _Run:
    """A running job: its query, that of its dead letters, and the thread that watches both."""

    query: StreamingQuery
    letters: DeadLetters | None
    watcher: threading.Thread


_runs: dict[str, _Run] = {}


def start(
    spark: SparkSession | None,
    plan: p.Plan,
    *,
    trigger: Mapping[str, Any] | None = None,
    standby: bool = False,
    elastic: int = 0,
) -> StreamingQuery | None:
    """Start a plan. A plan with bounded sources is run to its end, without a query.

    Raises
    ------
    PlanError
        The plan cannot be compiled. The message names the step.
    RocketMQError
        Another process runs the job.
    """
    guard = Guard(plan.on_error)
    if elastic:
        check_elastic(spark, plan, elastic)
    if is_bounded(plan):
        if plan.on_error == "dead-letters":
            raise PlanError(
                "onError('dead-letters') is for streams: bounded sources still have their malformed records"
            )
        session = get_plan_session(spark, plan)
        with _limit_memory(session, plan):
            run_once(Compiler(session, plan, errors=guard), guard)
        return None
    if trigger and trigger.get("availableNow"):
        check_ends(plan)
    checkpoint = plan.checkpoint or checkpoint_of(plan.job)
    lock = job_lock(plan.job, checkpoint, standby=standby, clock=SYSTEM_CLOCK)
    held = contextlib.ExitStack()
    with contextlib.ExitStack() as undo:
        undo.enter_context(held)
        if elastic:
            session = held.enter_context(leading(plan.job, checkpoint, cores=elastic, clock=SYSTEM_CLOCK))
        else:
            if not standby:
                held.enter_context(lock)  # before a session is started needlessly
            session = get_plan_session(spark, plan)
        compiler = Compiler(session, plan, errors=guard)
        if standby and not elastic:
            compiler.flow(compiler.find_common_step())  # report compile errors now, not after the takeover
            held.enter_context(lock)
        held.enter_context(driver_lock(session, checkpoint, SYSTEM_CLOCK))
        held.enter_context(_follow(session, plan))
        record = _make_record(plan, checkpoint, compiler)
        record.check_pipeline()
        take_stop_request(plan.job)  # a request for an earlier run
        forget_unwritten_start(checkpoint)
        with temporary_settings(session, _query_settings(session)), _limit_memory(session, plan):
            chosen = dict(trigger or _choose_trigger(plan))
            query = start_sinks(compiler, guard, checkpoint, chosen)
            undo.callback(query.stop)  # before the job is released
            letters = start_dead_letters(plan, guard, checkpoint, chosen)
            if letters is not None:
                undo.callback(letters.query.stop)
        held.enter_context(_count(session, query, checkpoint))
        record.write()
        undo.pop_all()
    watcher = threading.Thread(
        target=_watch, args=(plan.job, query, letters, held), name=f"streams-{plan.job}", daemon=True
    )
    if not _runs:
        atexit.register(_finish_all)
    watcher.start()
    _keep(str(query.runId), _Run(query, letters, watcher))
    return query


def _keep(run_id: str, run: _Run) -> None:
    """Keep a run, with all that have not ended, and the last of the others."""
    ended = [known for known, each in list(_runs.items()) if not each.watcher.is_alive()]
    for known in ended[:-_KEPT]:
        _runs.pop(known, None)
    _runs[run_id] = run


def _make_record(plan: p.Plan, checkpoint: str, compiler: Compiler) -> JobRecord:
    nodes = plan.nodes()
    return JobRecord(
        job=plan.job,
        checkpoint=checkpoint,
        pid=os.getpid(),
        started_ms=SYSTEM_CLOCK.now_ms(),
        explanation=explain_plan(plan),
        sources=sorted(node.test_name for node in nodes if isinstance(node, p.Source)),
        stateful=[type(node).__name__ for node in nodes if isinstance(node, STATEFUL)],
        state=describe_state(plan),
        types=_state_types(nodes, compiler),
    )


def _state_types(nodes: list[p.Node], compiler: Compiler) -> list[str]:
    """Return the types of the groups and results of each step whose state we keep."""
    found = []
    for node in nodes:
        if isinstance(node, p.Windowed | p.Group) and keeps_own_state(node):
            flow, names = compiler.flow(node), [*node.keys, *(item.alias for item in node.aggregates)]
            found.append(", ".join(flow.type_of(name).simpleString() for name in names))
    return found


def await_end(query: StreamingQuery, plan: p.Plan) -> None:
    """Wait until a query ends, and that of its dead letters.

    Raises
    ------
    RocketMQError
        The job's checkpoint has the state of other steps, or its dead letters cannot be sent.
    StreamingQueryException
        The query failed.
    """
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if not _OTHER_STATE.search(str(error)):
            raise
        raise RocketMQError(
            f"the checkpoint of the job {plan.job!r} has the state of other steps: another pipeline ran "
            "under this name, or the windows, groups or joins of this one have changed. Each pipeline needs "
            "its own name; to begin again, remove the folder",
            checkpoint=plan.checkpoint or checkpoint_of(plan.job),
        ) from error
    run = _runs.get(str(query.runId))
    if run is not None and run.letters is not None:
        run.letters.await_end(plan.job)


def stop(query: StreamingQuery) -> None:
    """Stop a query and that of its dead letters after their current batches."""
    run = _runs.get(str(query.runId))
    if run is not None and run.letters is not None:
        run.letters.ends = False
    stop_query(query)


def finish(query: StreamingQuery) -> None:
    """Wait until an ended query has committed its last batch, sent its dead letters and released its job."""
    run = _runs.get(str(query.runId))
    if run is None:
        return
    while run.watcher.is_alive() and run.letters is not None and run.letters.ends:
        run.watcher.join(_POLL_S)  # their trigger ends it
    run.watcher.join(_END_S)


def _finish_all() -> None:
    """Let ended queries finish before the process exits."""
    for run in list(_runs.values()):
        if not run.query.isActive:
            finish(run.query)


def _choose_trigger(plan: p.Plan) -> dict[str, str]:
    """Return a plan's trigger: the interval of results before windows end, if set."""
    for node in plan.nodes():
        if isinstance(node, p.Windowed) and node.firing.updates:
            return {"processingTime": str(node.firing.before)}
        if isinstance(node, p.Process) and node.time_mode == "processingTime":
            return {"processingTime": "1 second"}  # Spark runs a batch each time, even without data
    return {"processingTime": "0 seconds"}


def _watch(job: str, query: StreamingQuery, letters: DeadLetters | None, held: contextlib.ExitStack) -> None:
    """Stop the query on request, and release the job at its end. A thread's outermost frame."""
    with held:
        try:
            while query.isActive:
                _watch_once(job, query, letters)
            while letters is not None and letters.ends and letters.query.isActive:
                if query.exception() is not None:
                    break
                _watch_once(job, letters.query, None)
        except Exception:  # noqa: BLE001, S110 - the JVM is gone, and the query with it
            pass
        finally:
            if letters is not None:
                letters.query.stop()


def _watch_once(job: str, query: StreamingQuery, letters: DeadLetters | None) -> None:
    """Wait a moment for the query's end, and stop it on request. A query that still runs keeps its job."""
    try:
        ends_within(query, _POLL_S)
        failure = None if letters is None else letters.find_failure()
        if failure is not None:
            _LOG.error("job %s is stopped, because its dead letters cannot be sent: %s", job, failure)
        if failure is not None or take_stop_request(job):
            query.stop()
    except Exception as error:  # noqa: BLE001 - that of a query that failed is for whoever awaits it
        if query.isActive:
            _LOG.warning("job %s runs on, and is watched again: %s", job, error)
            SYSTEM_CLOCK.sleep(_POLL_S)


def _state_settings(spark: SparkSession) -> dict[str, str]:
    """Return the RocksDB settings for a query that starts now, except those set by the user."""
    return {
        name: value
        for name, value in STATE_SETTINGS.items()
        if spark.conf.get(name, None) in {None, _default_setting(name)}
    }


def _query_settings(spark: SparkSession) -> dict[str, str]:
    return {**_state_settings(spark), **WATERMARK_SETTINGS}


def _limit_memory(spark: SparkSession, plan: p.Plan) -> contextlib.AbstractContextManager[None]:
    """Limit the memory of a query that starts now, if the plan requests it."""
    return contextlib.nullcontext() if plan.footprint is None else plan.footprint.apply_settings(spark)


def _default_setting(name: str) -> str:
    if name.endswith("enabled"):
        return "false"
    return "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@contextlib.contextmanager
def _follow(spark: SparkSession, plan: p.Plan) -> Iterator[None]:
    """Let the sources' systems do what they need while the query runs."""
    sources = [node for node in plan.nodes() if isinstance(node, SourceConnector)]
    with contextlib.ExitStack() as stack:
        for first in {type(source): source for source in reversed(sources)}.values():
            stack.enter_context(first.follow(spark))
        yield


@contextlib.contextmanager
def _count(spark: SparkSession, query: StreamingQuery, checkpoint: str) -> Iterator[None]:
    """Count the rows that the run drops."""
    counts = RunCounts(str(query.runId), CheckpointLog(spark, checkpoint).watermark_ms)
    counts.register()
    spark.streams.addListener(counts)
    try:
        yield
    finally:
        spark.streams.removeListener(counts)
        counts.record_end()


def final_frame(spark: SparkSession | None, plan: p.Plan) -> DataFrame:
    """Return the DataFrame of a plan's first sink, without hidden columns."""
    compiler = Compiler(get_session(spark), plan)
    sink = plan.sinks[0]
    flow = final_flow(compiler.flow(sink), sink, compiler.guard)
    if not flow.columns:
        return flow.df.select(flow.text().alias("value"))
    return flow.df.select(*map(quote, flow.columns))
