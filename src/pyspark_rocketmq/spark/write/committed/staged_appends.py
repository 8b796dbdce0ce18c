"""Appends the rows of committed batches from their staging topic to the topic that consumers read."""

# The rows keep their unique keys. A record in the commit topic (`append_turn`) says where the queues ended
# before the first row: after a crash, or an answer that is missing, the keys that are stored from there on
# tell which rows are to be sent.

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq.client.read.queue_reader import DecodeOptions, read_batches
from pyspark_rocketmq.client.read.read_options import ReadOptions
from pyspark_rocketmq.client.requests import TOOLS_GROUP
from pyspark_rocketmq.client.retry import RetryPolicy
from pyspark_rocketmq.client.send.committed_scan import read_stored
from pyspark_rocketmq.client.send.producer import Producer, ProducerOptions
from pyspark_rocketmq.client.send.readable import wait_until_readable
from pyspark_rocketmq.client.send.send_pipeline import SendOutcome, SendPipeline
from pyspark_rocketmq.client.send.send_requests import check_accepted
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    ConnectError,
    DataLossError,
    FlowControlError,
    RocketMQError,
    RouteError,
    SendError,
)
from pyspark_rocketmq.model import MessageQueue, OffsetRange, SendStatus
from pyspark_rocketmq.planning.commits.records import Ranges
from pyspark_rocketmq.planning.commits.visible import clip, join, listed
from pyspark_rocketmq.record.compress import Compression
from pyspark_rocketmq.record.decode.columns import ENCODED_PROPERTIES
from pyspark_rocketmq.record.encode.batches import BatchLimits, encode_parcels, kinds_of
from pyspark_rocketmq.record.encode.outgoing_rows import UNIQUE_KEY_BYTES, OutgoingRows
from pyspark_rocketmq.record.encode.stored_rows import rows_of_stored, unique_keys_of
from pyspark_rocketmq.spark.write.committed.append_turn import AppendTurn
from pyspark_rocketmq.spark.write.committed.staging_topic import check_target
from pyspark_rocketmq.spark.write.parcels import outgoing_of
from pyspark_rocketmq.spark.write.sink_topics import SinkTopics

if TYPE_CHECKING:
    from pyspark_rocketmq.client.client import Client
    from pyspark_rocketmq.options import SinkOptions
    from pyspark_rocketmq.spark.write.committed.range_commits import RangeCommits
    from pyspark_rocketmq.spark.write.transaction_log import TransactionName

__all__ = ["StagedAppends"]

_LOG: Final = logging.getLogger(__name__)

_QUIET_S: Final = 3.5
"""After this time without an answer a send is stored, or never will be: brokers drop what waited for 3 s."""

_READABLE_MS: Final = 10_000

_AGAIN: Final = RetryPolicy()

_CONTINUES: Final = "the next run of the query or job, or pyspark-rocketmq tx append, continues"

_KEY: Final = np.dtype(f"S{UNIQUE_KEY_BYTES}")

_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset", "flag", "body", ENCODED_PROPERTIES)

_NOT_STORED: Final = (FlowControlError, ConnectError, RouteError)
"""Errors that say that a message is not stored."""

_Targets: TypeAlias = Mapping[tuple[str, int], MessageQueue]
"""The queue for the rows of each staging queue, by its broker and number."""

_Slot: TypeAlias = tuple[MessageQueue, int, int]
"""Where the rows of a send are staged: a queue, the first offset, and the one after the last."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """Rows of one staging queue, their offsets there and their unique keys, and the queue they are for."""

    queue: MessageQueue
    target: MessageQueue
    rows: OutgoingRows
    offsets: npt.NDArray[np.int64]
    unique: pa.Array


@dataclass(slots=True, kw_only=True)
class _Task:
    """What is appended, and what is stored so far.

    ``ends``: for each queue, the offset after the last row. ``weak``: the first status that is not accepted.
    """

    name: TransactionName
    targets: _Targets
    since: Mapping[MessageQueue, int]
    turn: AppendTurn
    settings: ProducerOptions
    skip_lost: bool
    sent: int = 0
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    weak: RocketMQError | None = None


@dataclass(slots=True)
class _Left:
    """The rows that a pass has not appended: those certainly not stored, and those that may be."""

    refused: list[_Slot] = field(default_factory=list)
    unknown: list[_Slot] = field(default_factory=list)
    cause: RocketMQError | None = None

    def has(self, queue: MessageQueue) -> bool:
        """Whether rows of a staging queue are left."""
        return any(slot[0] == queue for slot in (*self.refused, *self.unknown))


class StagedAppends:
    """Appends committed batches to their topic.

    Promise: each row of a committed batch is in the topic once when `append` returns; also if the process was
    killed before, or another one did a part of it. ``docs/guarantees.md`` lists the conditions.

    Parameters
    ----------
    client : Client
    options : SinkOptions
        Of the write; ``topic`` is the topic that consumers read.
    commits : RangeCommits
        Those of the staging topic.
    ordered : bool
        Whether the rows of a queue keep their order.
    """

    def __init__(self, client: Client, options: SinkOptions, commits: RangeCommits, *, ordered: bool) -> None:
        self._client = client
        self._options = options
        self._commits = commits
        self._ordered = ordered
        self._settings = ProducerOptions(
            send_timeout_ms=options.send_timeout_ms,
            retries=0,
            accept_statuses=options.accept_statuses,
            max_message_bytes=options.max_message_bytes,
        )
        # What is stored holds up no row behind it, whatever its status: `_judge` looks at that.
        taking_all = replace(self._settings, accept_statuses=frozenset(SendStatus))
        self._producer = Producer(client, options.producer_group, taking_all)
        self._limits = BatchLimits(
            max_rows=options.batch_size,
            max_bytes=options.batch_bytes,
            compression=Compression[options.compression.name],
            compress_above=options.compress_above,
        )

    def append(self, name: TransactionName, *, skip_lost: bool = False) -> int:
        """Append what is missing of a batch, if it is committed; return the number of rows sent.

        Parameters
        ----------
        name : TransactionName
        skip_lost : bool
            Whether rows that are not in the staging topic any more are left out.

        Raises
        ------
        TransactionFencedError
            Another process appends this batch.
        SendError
            Rows are missing, or stored with a status that is not accepted; the next call continues.
        DataLossError
            Rows are not in the staging topic any more.
        RocketMQError
            The topics cannot be read.
        """
        found = self._commits.find_commit(name)
        if found is None or not found[1].ranges:
            return 0
        committed_at, commit = found
        turn = AppendTurn(self._commits, name, committed_at, self._client.clock, self._client.host)
        since = turn.take(lambda: self._ends(self._targets(commit.ranges).values()))
        if since is None:
            return 0
        task = _Task(
            name=name,
            targets=self._targets(commit.ranges),
            since=since,
            turn=turn,
            settings=self._settings,
            skip_lost=skip_lost,
        )
        self._append_all(task, commit.ranges)
        wait_until_readable(self._client, task.ends, timeout_ms=_READABLE_MS)
        if task.weak is not None:
            raise SendError(
                f"the rows of batch {name} are in {self._options.topic}, and some are stored with a status "
                f"that acceptStatuses does not have; {_CONTINUES}: {task.weak}",
                failed=0,
            ) from task.weak
        turn.finish()
        _LOG.info("batch %s: %d rows appended to %s", name, task.sent, self._options.topic)
        return task.sent

    def _append_all(self, task: _Task, ranges: Ranges) -> None:
        """Make passes until every row is stored, or nothing gets through for ``outageTimeout``."""
        stored = self._settle(task.since) if task.turn.continues else {}
        patience, failures = self._client.deadline(self._options.outage_timeout_ms), 0
        while True:
            left = _Left()
            before = task.sent
            self._pass(ranges, stored, task, left)
            if left.cause is None:
                return
            if task.sent > before:
                failures, patience = 0, self._client.deadline(self._options.outage_timeout_ms)
            failures += 1
            pause_s = _AGAIN.pause_s(failures, self._client.random)
            if not left.cause.retriable or patience.remaining_s <= pause_s:
                raise SendError(
                    f"rows of batch {task.name} are committed and not yet in {self._options.topic}; "
                    f"{_CONTINUES}: {left.cause}",
                    failed=_count(_slots(left.refused + left.unknown, ranges)),
                ) from left.cause
            self._client.invalidate(str(self._options.topic))
            self._client.clock.sleep(pause_s)
            if left.unknown:
                stored = self._settle(task.since)
            ranges = _slots(left.refused + left.unknown, ranges)

    # --- one pass ---

    def _pass(
        self, ranges: Ranges, stored: Mapping[MessageQueue, OffsetRange], task: _Task, left: _Left
    ) -> None:
        """Send the rows of ranges that are not in ``stored``, each once, and note the outcomes."""
        with SendPipeline(
            self._producer,
            max_in_flight=self._options.sends_in_flight,
            ordered=self._ordered,
            before_send=task.turn.confirm,
        ) as pipeline:
            for some in self._rows(ranges, stored, task):
                one_queue = np.zeros(len(some.rows), np.int32)
                kinds = kinds_of(some.rows, self._limits)
                for parcel in encode_parcels(some.rows, one_queue, kinds, self._limits, unique=some.unique):
                    slot = some.queue, int(some.offsets[parcel.start]), int(some.offsets[parcel.end - 1]) + 1
                    if self._ordered and left.has(some.queue):  # its rows wait for one that was not stored
                        left.refused.append(slot)
                        continue
                    outgoing = outgoing_of(some.target.topic, parcel)
                    _judge(pipeline.submit(outgoing, some.target, token=slot), task, left)
            _judge(pipeline.flush(), task, left)

    def _rows(
        self, ranges: Ranges, stored: Mapping[MessageQueue, OffsetRange], task: _Task
    ) -> Iterator[_Staged]:
        """Read the staged rows of ranges."""
        known: MessageQueue | None = None
        keys = np.empty(0, _KEY)
        read = ReadOptions(consumer_group=TOOLS_GROUP, fail_on_data_loss=not task.skip_lost)
        batches = read_batches(self._client, listed(ranges), read, DecodeOptions(columns=_COLUMNS))
        for batch in _explained(batches, task.name):
            topic, broker_name, queue_id = (batch[name][0].as_py() for name in _COLUMNS[:3])
            target = task.targets[broker_name, queue_id]
            rows, unique = rows_of_stored(batch["body"], batch[ENCODED_PROPERTIES], batch["flag"])
            offsets = batch["queueOffset"].to_numpy()
            if stored:
                if target != known:
                    known, keys = target, self._keys(stored.get(target))
                missing = np.flatnonzero(~_are_in(_keys_of(unique), keys))
                rows, offsets, unique = rows.take(missing), offsets[missing], unique.take(pa.array(missing))
            if len(rows):
                yield _Staged(MessageQueue(topic, broker_name, queue_id), target, rows, offsets, unique)

    def _keys(self, stored: OffsetRange | None) -> npt.NDArray[np.bytes_]:
        """Return the encoded unique keys of the messages in a range, sorted."""
        batches = read_stored(self._client, [] if stored is None else [stored], (ENCODED_PROPERTIES,))
        found = [_keys_of(unique_keys_of(batch[ENCODED_PROPERTIES])) for batch in batches]
        return np.sort(np.concatenate([np.empty(0, _KEY), *found]))

    # --- topics ---

    def _targets(self, ranges: Ranges) -> _Targets:
        """Return the queue for the rows of each staging queue, by broker and number; waits for its broker."""
        topic = str(self._options.topic)
        topics = SinkTopics(self._client, self._options, patient=True)
        topics.queues(topic)

        def look() -> tuple[MessageQueue, ...]:
            queues = self._client.write_queues(topic)
            away = {queue.broker_name for queue in ranges}.difference(queue.broker_name for queue in queues)
            if away:
                self._client.invalidate(topic)
                raise BrokerNotFoundError(
                    f"a broker that has staged rows is away, or does not have the topic; {_CONTINUES}",
                    topic=topic,
                    broker_name=min(away),
                )
            return queues

        queues = self._commits.patiently(look)
        return {
            (staged.broker_name, staged.queue_id): check_target(staged, topic, queues) for staged in ranges
        }

    def _ends(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        wanted = list(queues)
        return self._commits.patiently(lambda: self._client.max_offsets(wanted))

    def _settle(self, since: Mapping[MessageQueue, int]) -> dict[MessageQueue, OffsetRange]:
        """Wait until no send can be stored any more that has no answer; return where the rows may be."""
        self._ends(since)  # brokers that stood still execute what they have received
        self._client.clock.sleep(_QUIET_S)
        stored = {}
        for queue, end in self._ends(since).items():
            if end < since[queue]:
                raise DataLossError(
                    "a queue is shorter than before: which rows of a batch it has is not known. If it lost "
                    "messages, finish without a check: read what it has, and write what is missing",
                    condition="OFFSET_WENT_BACK",
                    queue=queue,
                    before=since[queue],
                    now=end,
                )
            stored[queue] = OffsetRange(queue, since[queue], end)
        return stored


def _judge(outcomes: Iterable[SendOutcome], task: _Task, left: _Left) -> None:
    """Note what is stored, and what is left."""
    for outcome in outcomes:
        slot = cast("_Slot", outcome.token)
        if outcome.result is not None:
            end = outcome.result.queue_offset + outcome.outgoing.count
            task.ends[outcome.result.queue] = max(end, task.ends.get(outcome.result.queue, 0))
            try:
                check_accepted(outcome.outgoing, outcome.result, task.settings)
            except SendError as weak:
                task.weak = task.weak or weak
            task.sent += outcome.outgoing.count
        elif not outcome.sent or outcome.error is None:  # since another send failed, which is judged, too
            left.refused.append(slot)
        else:
            cause = outcome.error.__cause__
            error = cause if isinstance(cause, RocketMQError) else outcome.error
            (left.refused if isinstance(error, _NOT_STORED) else left.unknown).append(slot)
            if left.cause is None or (left.cause.retriable and not error.retriable):
                left.cause = error


def _explained(batches: Iterator[pa.RecordBatch], name: TransactionName) -> Iterator[pa.RecordBatch]:
    """Say what staged rows that are gone mean."""
    try:
        yield from batches
    except DataLossError as error:
        raise DataLossError(
            f"rows of batch {name} are committed, and gone from the staging topic before they were in their "
            "topic. If they cannot come back, finish the batch without them: pyspark-rocketmq tx append "
            f"TOPIC --skip-lost --yes. {error.message.partition('. With')[0]}",
            **error.facts,
        ) from error


def _keys_of(unique: pa.Array) -> npt.NDArray[np.bytes_]:
    """Return encoded unique keys as values of a fixed size, without those of another size."""
    usual = unique.filter(pc.equal(pc.binary_length(unique), UNIQUE_KEY_BYTES))
    if not len(usual):
        return np.empty(0, _KEY)
    return np.frombuffer(usual.cast(pa.binary(UNIQUE_KEY_BYTES)).buffers()[1], _KEY, count=len(usual))


def _are_in(keys: npt.NDArray[np.bytes_], known: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
    """Return which keys are among sorted ones."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[places] == keys
    return found


def _slots(slots: Iterable[_Slot], ranges: Ranges) -> Ranges:
    """Return the rows of sends: what lies between their offsets in ``ranges``."""
    parts = (
        clip({queue: ranges[queue]}, begins={queue: begin}, ends={queue: end}) for queue, begin, end in slots
    )
    return join(parts)


def _count(ranges: Ranges) -> int:
    return sum(end - begin for parts in ranges.values() for begin, end in parts)
