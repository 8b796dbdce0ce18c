"""The batch and streaming writers for Spark, both with Arrow."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.send.half_messages import HalfMessages
from pyspark_rocketmq.client.send.readable import wait_until_readable
from pyspark_rocketmq.client.shared import shared_client
from pyspark_rocketmq.client.trace.spans import span
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import ClientOptions, Guarantee, SinkOptions
from pyspark_rocketmq.record.encode.occurrences import count_shared
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import DataSourceStreamArrowWriter
from pyspark_rocketmq.spark.task_client import task_client
from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
from pyspark_rocketmq.spark.write.committed.staged_appends import StagedAppends
from pyspark_rocketmq.spark.write.committed.staging_topic import (
    batch_name,
    batch_of_job,
    options_of_tasks,
    require_same_queues,
)
from pyspark_rocketmq.spark.write.sink_schema import SinkLayout, sink_layout
from pyspark_rocketmq.spark.write.sink_topics import require_topic
from pyspark_rocketmq.spark.write.task_rows import all_rows
from pyspark_rocketmq.spark.write.transaction import Transactions
from pyspark_rocketmq.spark.write.transaction_log import TransactionLog, TransactionName, require_checkpoint
from pyspark_rocketmq.spark.write.write_task import WriteReport, WriteScope, WriteTask, is_ordered

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RocketMQBatchWriter", "RocketMQStreamWriter", "TaskWritten"]

_READABLE_MS: Final = 10_000
"""How long a batch write waits for the brokers to add its rows to their queues. It takes milliseconds."""

_LOG: Final = logging.getLogger(__name__)


@dataclass
class TaskWritten(WriterCommitMessage):
    """One task's report to the driver."""

    report: WriteReport
    transaction: TransactionName | None = None


@called_by_spark
class RocketMQBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame as messages.

    Delivery promise: at least once. When the write returns, every row is stored at its broker with an
    accepted status (or is a dead letter). A repeated task or job sends its rows again; with
    ``deliveryGuarantee=effectively-once``, a reader can detect such duplicates by their write id. A failed
    write may have stored any part of its rows: brokers have no transactions over several messages. With
    ``deliveryGuarantee=transactional``, no row is visible before all rows are stored, and no row of a write
    that failed before that. A write to the same topic with the same ``jobId``, and ``jobBatch``, completes an
    interrupted commit, and writes nothing if the commit was complete.

    A read that starts after the write returned includes its rows: tasks wait until the brokers have added
    them to their queues, at most ten seconds. They do not wait for delayed rows and transactions, nor if the
    writer may not read.

    Parameters
    ----------
    options : SinkOptions
    schema : StructType
        The schema of the rows.
    overwrite : bool
        Whether the save mode is overwrite, which topics do not support.

    Raises
    ------
    OptionError
        The options or the rows' columns are invalid.
    TopicNotFoundError
        The topic does not exist and ``createTopic`` is off.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode('append')")
        if options.job_batch is not None and options.job_id is None:
            raise OptionError("a batch is one of a job: set jobId", option="jobBatch")
        self._options = options
        self._layout = sink_layout(schema, options)
        self._write_id = uuid.uuid4().hex  # created at the driver: every task of the write gets the same id
        has_ids = "writeId" in self._layout.names or options.job_id is not None
        if options.guarantee is Guarantee.EFFECTIVELY_ONCE and not has_ids:
            raise OptionError(
                "effectively-once needs a column 'writeId', or jobId: the same when the job is run again",
                option="jobId",
            )
        if options.guarantee is Guarantee.TRANSACTIONAL and options.job_id is None:
            raise OptionError(
                "a transactional write needs jobId: the same when the job is run again", option="jobId"
            )
        require_topic(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send a partition's rows, in a task's process."""
        job, batch = self._options.job_id or self._write_id, self._options.job_batch
        scope = WriteScope(
            job=job if batch is None else f"{job}-{batch}",
            partition=_partition(),
            write=self._write_id,
            transaction=batch_of_job(self._options, job),
        )
        return _write(iterator, self._options, self._layout, scope, readable=not self._layout.delayed)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of a transaction visible. Without a transaction, they are stored already."""
        _conclude(messages, self._options, self._layout)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back the rows of a transaction. Without a transaction, stored rows stay stored."""
        _abandon(messages, self._options)


@called_by_spark
class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch as messages.

    The tasks check whether the topic exists: Spark creates a new writer to commit each batch, and such a
    check must not fail a completed batch.

    Delivery promise: as `RocketMQBatchWriter`, per batch: Spark records a batch as done only after every
    message of it is acknowledged, and otherwise writes it again. With ``deliveryGuarantee=transactional``, no
    row of a batch is visible before all rows are stored, and each row is visible once; see `Transactions` for
    the conditions.

    Parameters
    ----------
    options : SinkOptions
    schema : StructType
    connect : Callable
        Returns the driver's client, which commits; replaced in tests. Spark pickles it.

    Raises
    ------
    OptionError
        The options or the rows' columns are invalid.
    """

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        *,
        connect: Callable[[ClientOptions], Client] = shared_client,
    ) -> None:
        if options.asynchronous_progress and options.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise OptionError(
                "a query with asyncProgressTrackingEnabled does not repeat the same batches after a restart: "
                "it needs deliveryGuarantee=at-least-once",
                option="asyncProgressTrackingEnabled",
            )
        self._options = options
        self._layout = sink_layout(schema, options)
        self._connect = connect

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send a partition's rows, in a task's process."""
        name = _query_and_batch(self._options)
        scope = WriteScope(job=str(name), partition=_partition(), transaction=name)
        return _write(iterator, self._options, self._layout, scope)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Make the rows of a transaction visible. Without a transaction, they are stored already."""
        _require_checkpoint(messages, self._options)
        _conclude(messages, self._options, self._layout, self._connect)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Roll back the rows of a transaction. Without a transaction, stored rows stay stored."""
        _abandon(messages, self._options, self._connect)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _query_and_batch(options: SinkOptions) -> TransactionName:
    """Return the query's id, which does not change on restarts, with the number of its batch."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None
    assert batch is not None
    return batch_name(options, query, int(batch))


def _write(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    layout: SinkLayout,
    scope: WriteScope,
    *,
    readable: bool = False,
) -> TaskWritten:
    client = task_client(options.client)
    if options.is_staged:
        require_same_queues(client, options)
    with span("send", options.topic or "(several)") as current:  # of a worker that has OpenTelemetry's SDK
        report = WriteTask(client, options, layout, scope).run(all_rows(batches))
        if current is not None:
            current.set_attribute("messaging.batch.message_count", report.rows)
    if readable and not wait_until_readable(client, report.ends, timeout_ms=_READABLE_MS):
        _LOG.warning(
            "the rows of partition %d are stored, but not known to be readable: a read that starts now may "
            "miss some",
            scope.partition,
        )
    report.ends.clear()  # the driver does not need them
    return TaskWritten(report, scope.transaction)


def _conclude(
    messages: Sequence[WriterCommitMessage | None],
    options: SinkOptions,
    layout: SinkLayout,
    connect: Callable[[ClientOptions], Client] = shared_client,
) -> None:
    """Combine the tasks' reports, and commit if there is a transaction.

    Raises
    ------
    OptionError
        Rows of equal content were in several tasks and got one write id: readers would drop them as
        duplicates.
    SendError
        A transaction could not be committed (completely).
    """
    reports = [message.report for message in messages if isinstance(message, TaskWritten)]
    shared = count_shared([report.contents for report in reports])
    if shared:
        raise OptionError(
            f"{shared} contents are in rows of more than one Spark partition, so that their write ids are "
            "the same and readers would drop them as repeats: give a column 'writeId', or write "
            "identical_rows_together(df)"
        )
    transaction = _transaction(messages, options, connect)
    if transaction is not None:
        transactions, name, halves, group = transaction
        ordered = is_ordered(options, layout)
        if not transactions.commit(name, halves, group=group, ordered=ordered):
            _require_ascending(name, transactions.newest_done, reports, options)
    for name in _committed_by_ranges(messages, options):
        client = connect(options.client)
        commits = RangeCommits(client, options_of_tasks(options))
        if not commits.commit(name, [report.ranges for report in reports]):
            _require_ascending(name, commits.newest_done, reports, options)
        if options.is_staged and any(report.rows for report in reports):
            StagedAppends(client, options, commits, ordered=is_ordered(options, layout)).append(name)
    _LOG.info(
        "%d rows written in %d sends, %d dead letters",
        sum(report.rows for report in reports),
        sum(report.sends for report in reports),
        sum(report.dead_letters for report in reports),
    )


def _require_ascending(
    name: TransactionName,
    newest_done: Callable[[TransactionName], int | None],
    reports: Iterable[WriteReport],
    options: SinkOptions,
) -> None:
    """Refuse a batch of a job after a later one: only the number of the newest is known as written.

    A query has no such batch, unless it is a process that another one has overtaken.
    """
    if options.job_batch is None or not any(report.rows for report in reports):
        return
    newest = newest_done(name)
    if newest is not None and newest > name.number:
        raise OptionError(
            f"batch {name.number} of the job {options.job_id} is not written: batch {newest} of this job is "
            "committed, and whether an earlier one has these rows is not known. Numbers must ascend: give a "
            "query that starts without its former checkpoint, or a batch that is written late, its own jobId",
            option="jobBatch",
        )


def _require_checkpoint(messages: Sequence[WriterCommitMessage | None], options: SinkOptions) -> None:
    """Reject a folder for decisions that is not the query's checkpoint, but only has its name."""
    location = options.checkpoint_location
    if options.transactions is None or options.transaction_log is not None or location is None:
        return
    written = (message.transaction for message in messages if isinstance(message, TaskWritten))
    for query_id in {name.owner for name in written if name is not None}:
        require_checkpoint(location, query_id)


def _abandon(
    messages: Sequence[WriterCommitMessage | None],
    options: SinkOptions,
    connect: Callable[[ClientOptions], Client] = shared_client,
) -> None:
    """Roll back the rows of successful tasks; failed tasks roll back their rows themselves."""
    transaction = _transaction(messages, options, connect)
    if transaction is not None:
        transactions, name, halves, group = transaction
        transactions.abandon(name, halves, group=group)
    for name in _committed_by_ranges(messages, options):
        RangeCommits(connect(options.client), options_of_tasks(options)).abandon(name)


def _committed_by_ranges(
    messages: Sequence[WriterCommitMessage | None], options: SinkOptions
) -> set[TransactionName]:
    """Return the name of the batch if it is committed by ranges; nothing if it is not, or has no tasks."""
    written = (message.transaction for message in messages if isinstance(message, TaskWritten))
    return {name for name in written if name is not None} if options.commits_ranges else set()


def _transaction(
    messages: Sequence[WriterCommitMessage | None],
    options: SinkOptions,
    connect: Callable[[ClientOptions], Client],
) -> tuple[Transactions, TransactionName, pa.Table, str] | None:
    """Return the half messages of a transactional batch; None without a transaction."""
    wanted = options.transactions
    written = [message for message in messages if isinstance(message, TaskWritten)]
    if wanted is None or not written or written[0].transaction is None:
        return None
    client = connect(options.client)
    log = TransactionLog(wanted.folder, host=client.host)
    transactions = Transactions(client, log, outage_timeout_ms=options.outage_timeout_ms)
    halves = HalfMessages.unpack(message.report.halves for message in written)
    return transactions, written[0].transaction, halves, wanted.group
