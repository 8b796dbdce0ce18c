"""The writers that Spark asks for: batch and streaming, both over Arrow."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.core import Client, shared_client
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import Guarantee, SinkOptions
from pyspark_rocketmq.spark.sink_schema import SinkLayout, sink_layout
from pyspark_rocketmq.spark.sink_topics import SinkTopics
from pyspark_rocketmq.spark.write_task import WriteReport, WriteScope, WriteTask

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RocketMQBatchWriter", "RocketMQStreamWriter", "TaskWritten"]

_LOG: Final = logging.getLogger(__name__)

_CONTENT_BYTES: Final = 8


@dataclass
class TaskWritten(WriterCommitMessage):
    """What one task reports to the driver."""

    report: WriteReport


class RocketMQBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame as messages.

    Delivery promise: at least once. When the write returns, every row is stored at its broker with an
    accepted status (or is a dead letter). A task that Spark runs again, or a job that is run again, sends
    its rows again; with ``deliveryGuarantee=effectively-once`` a reader can tell such repeats by their write
    id. A write that fails may have stored any part of its rows: brokers have no transaction over messages.

    Parameters
    ----------
    options : SinkOptions
    schema : StructType
        Of the rows.
    overwrite : bool
        Of the save mode; a topic cannot be overwritten.

    Raises
    ------
    OptionError
        The options or the rows' columns do not fit.
    TopicNotFoundError
        The topic does not exist and ``createTopic`` is off.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode('append')")
        self._options = options
        self._layout = sink_layout(schema, options)
        has_ids = "writeId" in self._layout.names or options.job_id is not None
        if options.guarantee is Guarantee.EFFECTIVELY_ONCE and not has_ids:
            raise OptionError(
                "effectively-once needs a column 'writeId', or jobId: the same when the job is run again",
                option="jobId",
            )
        _look_at_topic(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send a partition's rows, in a task's process."""
        return _write(iterator, self._options, self._layout, self._options.job_id or "batch")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written; the messages are where they belong already."""
        _conclude(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what tasks have stored stays stored."""


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch as messages.

    Whether the topic is there is seen by the tasks: Spark makes a writer anew to commit each batch, and
    nothing that is over may fail by such a look.

    Delivery promise: as `RocketMQBatchWriter`, batch by batch: Spark notes a batch as done only after every
    message of it was acknowledged, and writes it again otherwise.

    Parameters
    ----------
    options : SinkOptions
    schema : StructType

    Raises
    ------
    OptionError
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._layout = sink_layout(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send a partition's rows, in a task's process."""
        return _write(iterator, self._options, self._layout, _query_and_batch())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Log what was written; the messages are where they belong already."""
        _conclude(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what tasks have stored stays stored."""


def _look_at_topic(options: SinkOptions) -> None:
    """Fail before any task runs if the topic is not there; make it if that is asked for."""
    if options.topic is None:
        return
    with Client(options.client) as client:
        SinkTopics(client, options).queues(options.topic)


def _query_and_batch() -> str:
    """Return the query's id, which outlives restarts, with the number of its batch."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return f"{query}/{batch}"


def _write(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, layout: SinkLayout, job: str
) -> TaskWritten:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    client = shared_client(options.client)
    if context is not None and context.attemptNumber() > 0:
        # What failed may have been the connection or the route: neither is trusted again.
        client.pool.close()
        if options.topic is not None:
            client.invalidate(options.topic)
    task = WriteTask(client, options, layout, WriteScope(job=job, partition=partition))
    return TaskWritten(task.run(batches))


def _conclude(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Sum up the tasks' reports.

    Raises
    ------
    OptionError
        Rows of equal content were in several tasks and got one write id: readers would take them for
        repeats.
    """
    reports = [message.report for message in messages if isinstance(message, TaskWritten)]
    contents: Counter[bytes] = Counter()
    for report in reports:
        found = report.contents
        contents.update(found[at : at + _CONTENT_BYTES] for at in range(0, len(found), _CONTENT_BYTES))
    shared = sum(1 for tasks in contents.values() if tasks > 1)
    if shared:
        raise OptionError(
            f"{shared} contents are in rows of more than one Spark partition, so that their write ids are "
            "the same and readers would drop them as repeats: give a column 'writeId', or write "
            "identical_rows_together(df)"
        )
    _LOG.info(
        "%d rows written in %d sends, %d dead letters",
        sum(report.rows for report in reports),
        sum(report.sends for report in reports),
        sum(report.dead_letters for report in reports),
    )
