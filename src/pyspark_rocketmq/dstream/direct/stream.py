"""The direct stream: no receiver. The driver plans the ranges of each batch, tasks read them.

PySpark has no input streams in Python. So this is an input stream of empty RDDs, and a transformation that
replaces each of them with the batch's RDD. Spark calls the transformation once per batch, when it generates
the batch's jobs, and pickles it, with the plan, into every checkpoint.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pyspark import RDD, SparkContext
from pyspark.streaming import DStream, StreamingContext, StreamingListener

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.dstream.direct.batch_log import BatchLog
from pyspark_rocketmq.dstream.direct.batch_plan import DirectPlan
from pyspark_rocketmq.dstream.direct.commit import LAST_COMMIT_PATIENCE_S, CommitCallback, Committer
from pyspark_rocketmq.dstream.direct.committed_rows import CommittedRows
from pyspark_rocketmq.dstream.jvm import (
    failures,
    has_error,
    has_job,
    has_reported_error,
    keep_pending,
    listen,
    make_planned_stream,
    outputs_of,
    pending_times,
    recovered_from_ms,
    remember_ms,
    report_input,
    revive,
    streaming_context,
    unfinished_times,
)
from pyspark_rocketmq.dstream.ranges import CanCommitOffsets, OffsetRanges, RangesLike
from pyspark_rocketmq.dstream.rdd import MessageHandler, RocketMQRDD
from pyspark_rocketmq.dstream.rdd_registry import keep_live, pass_batches
from pyspark_rocketmq.dstream.strategies import LocationStrategy
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.group_commits import GroupCommits
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.options import SourceOptions, parse_direct_options

__all__ = ["BatchMaker", "RocketMQDStream", "end_commits"]

_LOG: Final = logging.getLogger(__name__)

_SHOWN_RANGES: Final = 20

_EVENT_PATIENCE_MS: Final = 60_000
"""How long Spark may take to report the end of a batch."""


class BatchMaker:
    """Creates the RDD of each batch. Spark calls and pickles it.

    Parameters
    ----------
    plan : DirectPlan
    given : Mapping
        The options as the user set them: values from the environment are not written to checkpoints.
    topics : tuple of str
    group : str
    fail_on_data_loss, auto_commit : bool
    location : LocationStrategy
    handler : Callable, optional
    """

    def __init__(
        self,
        plan: DirectPlan,
        given: Mapping[str, Any],
        *,
        topics: tuple[str, ...],
        group: str,
        fail_on_data_loss: bool,
        auto_commit: bool,
        location: LocationStrategy,
        handler: MessageHandler | None,
    ) -> None:
        self.plan = plan
        self.given = dict(given)
        self.topics = topics
        self.group = group
        self.fail_on_data_loss = fail_on_data_loss
        self.auto_commit = auto_commit
        self.location = location
        self.handler = handler
        self.stream_id = -1
        self._run: _Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}

    @property
    def options(self) -> SourceOptions:
        """The reading options."""
        options = replace(parse_direct_options(self.given), fail_on_data_loss=self.fail_on_data_loss)
        return options.source_of_stream(self.topics, self.group)

    @property
    def commit_topics(self) -> Mapping[str, str]:
        """The commit topic of each topic; empty without ``isolation=read_committed``."""
        return parse_direct_options(self.given).commit_topics(self.topics)

    def __call__(self, time: datetime, rdd: RDD[Any]) -> RocketMQRDD:
        """Return the RDD of the batch of a time."""
        time_ms = round(time.timestamp() * 1000)
        if self._run is None:
            self._run = _Run(self, rdd.context)
        revive(rdd.context, rdd)
        return self._run.batch(time_ms)


class _Run(StreamingListener):
    """A stream's state in this process: its connections, its RDDs, and Spark's events about its batches."""

    def __init__(self, maker: BatchMaker, sc: SparkContext) -> None:
        super().__init__()
        self._maker = maker
        self._sc = sc
        self._options = maker.options
        self._client = PlanningClient(self._options.client)
        by = maker.commit_topics
        self._rows = CommittedRows(self._client, by) if by else None
        self._rdds: dict[int, RocketMQRDD] = {}
        self._placed: Mapping[MessageQueue, str] = {}
        self._commits = GroupCommits(maker.group, self._client, interval_ms=0, clock=SYSTEM_CLOCK)
        self._context = streaming_context(sc)
        self._outputs = outputs_of(sc, self._context, maker.stream_id)
        if self._context.isCheckpointPresent():
            maker.plan.recover(pending_times(self._context), recovered_from_ms(self._context))
        directory = self._context.checkpointDir()
        self._log = None if directory is None else BatchLog(sc, directory, maker.stream_id)
        listen(sc, self._context, self)
        weakref.finalize(self, end_commits, self._commits, self._client)

    def batch(self, time_ms: int) -> RocketMQRDD:
        """Plan a batch, create its RDD, and report it to Spark."""
        ranges = self._plan(time_ms)
        found = None if self._rows is None else self._rows.split(ranges, self._maker.plan.floor)
        made = RocketMQRDD(
            self._sc,
            ranges,
            self._options,
            self._maker.given,
            self._maker.location,
            handler=self._maker.handler,
            placed=self._placed,
            committed=None if found is None else found.committed,
            parts=None if found is None else found.parts,
        )
        self._placed = made.placed
        self._rdds[time_ms] = made
        for forgotten in self._rdds.keys() - self._maker.plan.remembered():
            del self._rdds[forgotten]
        keep_live(made)
        self._report(time_ms, ranges)
        return made

    def _plan(self, time_ms: int) -> OffsetRanges:
        plan = self._maker.plan
        before = None if self._log is None else self._log.read(time_ms)
        if before is not None:
            plan.adopt(time_ms, *before)
        remembered = remember_ms(self._context, self._maker.stream_id)
        unfinished = unfinished_times(self._context)
        if not has_error(self._context):  # Spark drops events when there are too many
            plan.recover(unfinished, time_ms - _EVENT_PATIENCE_MS)
        if self._rows is None and remembered <= plan.pace.pid.batch_interval_ms:  # no window has it
            self._take_back(time_ms, unfinished)
        ranges = plan.ranges(
            *(time_ms, self._client, self._options),
            remember_ms=remembered,
            rows=self._rows,
            has_job=has_job(self._sc, self._outputs, time_ms),
            unfinished=unfinished,
        )
        if self._log is not None:
            if before is None or before[0] != ranges:  # a driver that dies while it writes leaves no ranges
                self._log.write(time_ms, ranges, plan.moved(time_ms))
            self._log.forget(plan.remembered())
        return ranges

    def _take_back(self, time_ms: int, unfinished: Collection[int]) -> None:
        """Plan the messages of the batch before again if it never ran.

        Where another stream of the job, or a function of the user, fails, Spark reports that, and continues
        with the next batch, also while it stops gracefully.
        """
        plan = self._maker.plan
        unrun = plan.find_unrun(time_ms, unfinished)
        if unrun is None or not has_reported_error(self._sc, self._context):
            return
        if plan.find_unrun(time_ms, unfinished) == unrun:  # also now that listeners know what has ended
            _LOG.warning("the batch of %d was not run: the next one has its messages", unrun)
            plan.take_back(unrun)

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Record that all outputs of a batch succeeded."""
        info = batchCompleted.batchInfo()
        time_ms = info.batchTime().milliseconds()
        if failures(info):
            _LOG.warning("the batch of %d failed: nothing after it is committed automatically", time_ms)
            self._maker.plan.record_failed(time_ms)
            keep_pending(self._sc, self._context, time_ms)
            return
        delays = (info.processingEndTime(), info.processingDelay(), info.schedulingDelay())
        ends = self._maker.plan.record_finished(time_ms, delays)
        if ends and self._maker.auto_commit:
            self._commits.record_finished(ends)
        if ends and self._log is not None:
            self._log.write_ends(time_ms, ends)

    def _report(self, time_ms: int, ranges: OffsetRanges) -> None:
        full = [str(found) for found in ranges if len(found) > 0]
        more = [f"and {len(full) - _SHOWN_RANGES} more"] if len(full) > _SHOWN_RANGES else []
        about = "\n".join(full[:_SHOWN_RANGES] + more)
        report_input(
            self._sc, self._context, self._maker.stream_id, time_ms, messages=ranges.planned, about=about
        )


def end_commits(commits: GroupCommits, client: PlanningClient) -> None:
    """Make the last commit of a program that ends."""
    commits.flush(LAST_COMMIT_PATIENCE_S)
    client.close()


class RocketMQDStream(DStream[Any], CanCommitOffsets):
    """A stream of `Message`, or of the message handler's results. Its RDDs have ``offsetRanges``.

    Delivery promise: every message is in exactly one batch, in offset order within its queue, one partition
    per queue. A batch that is computed again, also after a recovery from a checkpoint, has the same messages.
    Output operations are at least once, as in Spark.

    Created by ``RocketMQUtils.createMQPullStream``.

    Parameters
    ----------
    ssc : StreamingContext
    maker : BatchMaker
    """

    def __init__(self, ssc: StreamingContext, maker: BatchMaker) -> None:
        sc = ssc.sparkContext
        java, maker.stream_id = make_planned_stream(ssc, maker)
        super().__init__(java, ssc, sc.serializer)
        self._committer = Committer(maker.given, maker.group)

    def __reduce__(self) -> tuple[Any, ...]:
        # An output operation may reference the stream to commit with it: a checkpoint keeps only the
        # committer.
        return self._committer.__reduce__()

    def commitAsync(self, offsetRanges: RangesLike, callback: CommitCallback | None = None) -> None:
        """Commit the ends of ranges; see `Committer.commitAsync`."""
        self._committer.commitAsync(offsetRanges, callback)

    def transform(self, func: Callable[..., RDD[Any]]) -> Any:
        """Apply a function to each batch's RDD, which has ``offsetRanges``."""
        return super().transform(pass_batches(func))

    def foreachRDD(self, func: Callable[..., None]) -> None:
        """Call a function with each batch's RDD, which has ``offsetRanges``."""
        super().foreachRDD(pass_batches(func))
