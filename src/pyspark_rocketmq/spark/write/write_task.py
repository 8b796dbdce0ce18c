"""The Spark task of a write: sends rows as messages, and ends after every message is acknowledged."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.send.half_messages import HalfMessages
from pyspark_rocketmq.client.send.message_encoding import Outgoing
from pyspark_rocketmq.client.send.producer import Producer, ProducerOptions
from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
from pyspark_rocketmq.errors import MessageIllegalError, OptionError, RocketMQError, SendError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.options import Guarantee, SinkOptions
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.encode.batches import (
    WRITE_ID_BYTES,
    BatchLimits,
    arrange,
    as_half_messages,
    content_ids,
    encode_parcels,
    half_message_marks,
    kinds_of,
    unique_keys,
    with_write_ids,
)
from pyspark_rocketmq.record.encode.occurrences import FINGERPRINT, Occurrences
from pyspark_rocketmq.record.encode.outgoing_rows import MessageColumns, OutgoingRows, prepare
from pyspark_rocketmq.record.layout import MessageFlag
from pyspark_rocketmq.spark.write.committed.range_commits import TaskRanges
from pyspark_rocketmq.spark.write.committed.staging_topic import options_of_tasks
from pyspark_rocketmq.spark.write.dead_letters import DeadLetter, DeadLetters
from pyspark_rocketmq.spark.write.parcels import outgoing_of, pieces_of, split_batch
from pyspark_rocketmq.spark.write.sink_schema import SinkLayout
from pyspark_rocketmq.spark.write.sink_topics import SinkTopics, named_brokers
from pyspark_rocketmq.spark.write.transaction import roll_back
from pyspark_rocketmq.spark.write.transaction_log import TransactionName

__all__ = ["WriteReport", "WriteScope", "WriteTask", "is_ordered"]

_PREPARED: Final = int(MessageFlag.TRANSACTION_PREPARED)

_HALVES_A_SEND: Final = 16
"""Half messages are not batched: the number in flight instead of one batch."""

_GATHERED: Final = 16
"""Messages that are sent alone leave together: a write to a socket costs more than encoding one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteScope:
    """The identity of a task's rows: equal when the batch is written again.

    Parameters
    ----------
    job : str
        The query's id and its batch's number, or a batch write's ``jobId``.
    partition : int
        The task's partition.
    write : str, optional
        Unique id of the write: the query's id and its batch's number, or a generated id of a batch write;
        ``job`` by default.
    transaction : TransactionName, optional
        The name of the batch's transaction.
    """

    job: str
    partition: int
    write: str | None = None
    transaction: TransactionName | None = None


@dataclass(slots=True)
class WriteReport:
    """The result of a task.

    ``ends``: for each queue, the offset after the last message, without half messages. ``contents``: 8 bytes
    of each distinct content from which write ids were derived, for `count_shared`: equal content in two tasks
    would have equal ids. ``halves``: the packed half messages of a transactional write. ``ranges``: where its
    messages are, if the batch is committed by ranges; None if it sent nothing.
    """

    rows: int = 0
    sends: int = 0
    dead_letters: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    contents: bytes = b""
    halves: bytes = b""
    ranges: Ranges | None = None


@dataclass(slots=True)
class _Failure:
    """The first error of a task, and the total number of failed messages."""

    error: RocketMQError
    messages: int = 0


class WriteTask:
    """Writes the rows of one Spark partition.

    Delivery promise: when `run` returns, every row is stored with an accepted status, or a dead letter. If it
    raises, some rows may be stored; Spark runs the task again, so messages may be stored twice. The rows of a
    transaction are invisible half messages; those of a task that raises are rolled back.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    layout : SinkLayout
    scope : WriteScope
    """

    def __init__(self, client: Client, options: SinkOptions, layout: SinkLayout, scope: WriteScope) -> None:
        given, options = options, options_of_tasks(options)
        self._options = options
        self._layout = layout
        self._scope = scope
        self._transaction = options.transactions
        group = options.producer_group if self._transaction is None else self._transaction.group
        self._producer = Producer(client, group, _producer_options(options))
        self._topics = SinkTopics(client, options, patient=True)
        self._limits = BatchLimits(
            max_rows=options.batch_size if self._transaction is None else 1,
            max_bytes=options.batch_bytes,
            compression=Compression[options.compression.name],
            compress_above=options.compress_above,
        )
        self._ordered = is_ordered(options, layout)
        self._needs_ids = not (options.guarantee is Guarantee.AT_LEAST_ONCE or options.commits_ranges)
        self._makes_ids = self._needs_ids and "writeId" not in layout.names
        self._marks = b""
        if self._transaction is not None:
            group = client.namespace.qualify(self._transaction.group)
            self._marks = half_message_marks(group, str(scope.transaction))
        self._ranges: TaskRanges | None = None
        if options.commits_ranges:
            assert scope.transaction is not None
            self._ranges = TaskRanges(client, options, scope.transaction)
            self._marks = self._ranges.marks
        self._dead_letters = DeadLetters(self._producer, given, scope.write or scope.job, scope.partition)
        self._turn = itertools.count(1)
        self._seen = Occurrences()
        self._report = WriteReport()
        self._halves = HalfMessages()
        self._failure: _Failure | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> WriteReport:
        """Send all rows and wait for every response.

        Raises
        ------
        SendError
            Messages were not stored, or not durably enough. Contains their number and the first cause.
        OptionError
            A row cannot be sent and dead letters are off, or a topic does not support transactions.
        TopicNotFoundError
            A topic does not exist, and ``createTopic`` is off.
        """
        in_flight = self._options.sends_in_flight * (1 if self._transaction is None else _HALVES_A_SEND)
        with (
            SendPipeline(
                self._producer,
                max_in_flight=in_flight,
                ordered=self._ordered,
                outage_timeout_ms=self._options.outage_timeout_ms,
                replace=self._bury,
                gather=_GATHERED if self._limits.max_rows == 1 else 1,
            ) as pipeline,
            ExitStack() as unless_done,
        ):
            unless_done.callback(self._dead_letters.abandon)
            unless_done.callback(self._roll_back, pipeline)
            for batch in batches:
                for piece in pieces_of(batch):
                    self._send(piece, pipeline)
            self._judge(pipeline.flush())
            while self._dead_letters.unsent:
                self._submit_dead_letters(pipeline)
                self._judge(pipeline.flush())
            self._raise_failure(pipeline)
            self._dead_letters.close()
            unless_done.pop_all()
        self._report.dead_letters = self._dead_letters.count
        self._report.contents = self._seen.fingerprints().astype(FINGERPRINT, copy=False).tobytes()
        if self._transaction is not None:
            self._report.halves = self._halves.pack()
        if self._ranges is not None:
            self._report.ranges = self._ranges.joined()
        return self._report

    def _roll_back(self, pipeline: SendPipeline) -> None:
        """Roll back half messages that only this task knows, or tell readers not to wait for its messages."""
        if self._transaction is not None:
            self._judge(pipeline.drain())  # those that were in flight are stored too
            roll_back(self._producer.client, self._transaction.group, self._halves.table())
        if self._ranges is not None:
            self._ranges.abandon()

    # --- rows to sends ---

    def _send(self, batch: pa.RecordBatch, pipeline: SendPipeline) -> None:
        columns = self._layout.columns(batch, self._options)
        rows, refused = prepare(
            columns,
            drop_reserved=self._layout.as_read,
            needs_write_id=self._needs_ids,
            added_bytes=len(self._marks) + WRITE_ID_BYTES * self._makes_ids,
        )
        self._report.rows += len(columns)
        for place, cause in refused.items():
            self._dead_letters.add(DeadLetter.of_row(columns, place, cause, self._options.topic))
        for topic, mine in _by_topic(rows, self._options.topic):
            queues = self._topics.queues(topic, named_brokers(mine))
            if queues is None:
                self._refuse(columns, mine.place, topic, "its topic does not exist")
                continue
            if self._marks:
                self._check_transactions(topic, queues)
            if self._ranges is not None and not self._ranges.begin(queues):
                continue
            numbers, unknown = self._topics.assign(mine, queues)
            self._refuse(
                columns, mine.place[unknown], topic, "its queue does not exist, or may not be written"
            )
            self._send_topic(mine.without(unknown), np.delete(numbers, unknown), topic, queues, pipeline)

    def _check_transactions(self, topic: str, queues: tuple[MessageQueue, ...]) -> None:
        """Refuse transactions that cannot be committed later."""
        facts = {"option": "deliveryGuarantee", "topic": topic}
        if queues[0].logical:
            raise OptionError(
                "a static topic cannot have transactions, because its queues move to other brokers: "
                "write with another deliveryGuarantee",
                **facts,
            )
        if self._transaction is None:
            return
        if any(data.behind_proxy for data in self._producer.client.served_route(topic).brokers):
            raise OptionError(
                "a proxy forgets transactions after 30 s: set the name servers' address, "
                "or write with another deliveryGuarantee",
                **facts,
            )

    def _refuse(self, columns: MessageColumns, places: npt.NDArray[np.int64], topic: str, cause: str) -> None:
        for place in places:
            self._dead_letters.add(DeadLetter.of_row(columns, int(place), cause, topic))

    def _send_topic(
        self,
        rows: OutgoingRows,
        numbers: npt.NDArray[np.int32],
        topic: str,
        queues: tuple[MessageQueue, ...],
        pipeline: SendPipeline,
    ) -> None:
        """Send rows of one topic, each to the queue with its index."""
        if not len(rows):
            return
        rows = self._mark(self._identify(rows, topic).traced())
        if self._ordered:
            numbers[numbers < 0] = next(self._turn) % len(queues)  # one queue per send
        kinds = kinds_of(rows, self._limits)
        order = arrange(numbers, kinds, ordered=self._ordered) if self._limits.max_rows > 1 else None
        if order is not None:
            rows, numbers, kinds = rows.take(order), numbers[order], kinds[order]
        sys_flag = 0 if self._transaction is None else _PREPARED
        unique = unique_keys(*self._producer.ids.block(), len(rows))
        for parcel in encode_parcels(rows, numbers, kinds, self._limits, unique=unique):
            number = int(numbers[parcel.start])
            outgoing = outgoing_of(topic, parcel, sys_flag=sys_flag)
            self._submit(outgoing, None if number < 0 else queues[number], pipeline)

    def _identify(self, rows: OutgoingRows, topic: str) -> OutgoingRows:
        """Return the rows with write ids derived from their content, unless they have ids."""
        if not self._makes_ids:
            return rows
        ids = content_ids(rows, self._scope.job.encode(), self._seen, topic=topic)
        return rows.identify(with_write_ids(rows.properties, pa.array(ids, pa.binary())))

    def _mark(self, rows: OutgoingRows) -> OutgoingRows:
        """Return the rows as half messages if they are part of a transaction."""
        return rows.identify(as_half_messages(rows.properties, self._marks)) if self._marks else rows

    # --- sends to outcomes ---

    def _submit(self, outgoing: Outgoing, queue: MessageQueue | None, pipeline: SendPipeline) -> None:
        self._report.sends += 1
        if len(outgoing.body) > self._options.max_message_bytes:
            cause = f"its body travels as {len(outgoing.body)} bytes, more than maxMessageBytes"
            self._dead_letters.add(DeadLetter.of_outgoing(outgoing, cause))
            return
        self._judge(pipeline.submit(outgoing, queue))
        self._submit_dead_letters(pipeline)
        self._raise_failure(pipeline)

    def _submit_dead_letters(self, pipeline: SendPipeline) -> None:
        if self._dead_letters.unsent and self._options.dead_letter_topic is not None:
            self._topics.await_route(self._options.dead_letter_topic)
            self._judge(self._dead_letters.submit(pipeline))

    def _judge(self, outcomes: Iterable[SendOutcome]) -> None:
        for outcome in outcomes:
            if outcome.error is None:
                self._record(outcome)
            elif self._failure is None:
                self._failure = _Failure(outcome.error, outcome.outgoing.count)
            else:
                self._failure.messages += outcome.outgoing.count

    def _record(self, outcome: SendOutcome) -> None:
        """Record where messages are stored; dead letters are not half messages."""
        stored, ends = outcome.result, self._report.ends
        if stored is not None and outcome.outgoing.sys_flag & _PREPARED:
            self._halves.add(stored)
        elif stored is not None:
            if self._ranges is not None and stored.queue.topic == self._options.topic:
                self._ranges.add(stored, outcome.outgoing.count)
            end = stored.queue_offset + outcome.outgoing.count
            ends[stored.queue] = max(end, ends.get(stored.queue, 0))

    def _bury(self, outcome: SendOutcome) -> Sequence[Outgoing] | None:
        """Make a message that the broker rejected a dead letter. In a batch, find it by sending each message.

        The messages after it in its queue are still sent. None lets the send fail the task.
        """
        if (
            self._failure is not None
            or not isinstance(outcome.error, MessageIllegalError)
            or not self._dead_letters.takes(outcome)
        ):
            return None
        if not outcome.outgoing.batch:
            self._dead_letters.add(DeadLetter.of_outgoing(outcome.outgoing, str(outcome.error)))
            return ()
        singles = tuple(split_batch(outcome.outgoing))
        self._report.sends += len(singles)
        return singles

    def _raise_failure(self, pipeline: SendPipeline) -> None:
        """Wait for sends in flight, then raise the first cause with the number of failures."""
        if self._failure is None:
            return
        failure = self._failure
        self._judge(pipeline.flush())
        raise SendError(
            f"{failure.messages} messages of the task were not written; the first cause: {failure.error}",
            failed=failure.messages,
            partition=self._scope.partition,
        ) from failure.error


def is_ordered(options: SinkOptions, layout: SinkLayout) -> bool:
    """Return whether the messages of a queue keep the order of a task's rows."""
    keyed = options.sharding_key is not None or "shardingKey" in layout.names
    return keyed if options.ordered is None else options.ordered


def _producer_options(options: SinkOptions) -> ProducerOptions:
    return ProducerOptions(
        send_timeout_ms=options.send_timeout_ms,
        retries=options.retries,
        accept_statuses=options.accept_statuses,
        max_message_bytes=options.max_message_bytes,
    )


def _by_topic(rows: OutgoingRows, constant: str | None) -> Iterator[tuple[str, OutgoingRows]]:
    """Return each topic and its rows, in row order."""
    if not len(rows):
        return
    if rows.topic is None:
        assert constant is not None
        yield constant, rows
        return
    encoded = rows.topic.dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        mine = np.flatnonzero(codes == code)
        yield name.decode(), rows if len(mine) == len(rows) else rows.take(mine)
