"""The streaming reader: replayable offsets, planned at the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock, Deadline
from pyspark_rocketmq.client.net.host import SYSTEM_HOST, Host
from pyspark_rocketmq.client.read.settled_ends import MOVED_BACK_PATIENCE_MS
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.group_commits import GroupCommits
from pyspark_rocketmq.offsets.hidden_queues import HiddenQueues
from pyspark_rocketmq.offsets.offset_lookup import (
    Ends,
    PlanningClient,
    check_filter,
    doubt_routes,
    fetch_available_ends,
    find_late_begins,
    find_moved_back,
    resolve_offsets,
    wait_for_ends,
    whole_topics,
)
from pyspark_rocketmq.offsets.planning_client import OPERATION_TIMEOUT_MS
from pyspark_rocketmq.offsets.queue_lookup import queues_and_brokers, wait_for_queues
from pyspark_rocketmq.offsets.stream_offset import SourceIdentity, SourceOffset, read_offset
from pyspark_rocketmq.offsets.topic_recreation import (
    Place,
    check_witnesses,
    choose_witnesses,
    find_places_ahead,
    place,
)
from pyspark_rocketmq.options import ClientOptions, SourceOptions
from pyspark_rocketmq.planning.alignment import next_heartbeat
from pyspark_rocketmq.planning.data_loss import find_shortened
from pyspark_rocketmq.planning.offset_resolution import check_listed
from pyspark_rocketmq.planning.topics.discovery import plan_ranges, targets
from pyspark_rocketmq.spark.boundary import called_by_spark
from pyspark_rocketmq.spark.features import ReadLimit, SupportsTriggerAvailableNow
from pyspark_rocketmq.spark.read.admission import Admission, default_limit
from pyspark_rocketmq.spark.read.aligned_column import AlignedColumn, AlignedPartition, look_up_aligned
from pyspark_rocketmq.spark.read.heartbeat import Absences, HeartbeatPartition, check_heartbeat, heartbeat_row
from pyspark_rocketmq.spark.read.partition import plan_partitions, read_partition
from pyspark_rocketmq.spark.read.schema import to_projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OUTAGE_PATIENCE_MS", "RocketMQStreamReader"]

_LOG: Final = logging.getLogger(__name__)

OUTAGE_PATIENCE_MS: Final = 60_000
"""How long a running query waits while no broker answers: an exception would end the query."""

_PAUSE_S: Final = 0.5

_LAST_COMMIT_PATIENCE_S: Final = 5.0
"""How long an AvailableNow run that has read everything waits for its commit before it ends."""


@called_by_spark
class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads them.

    Delivery promise: a batch is a pure function of its two offsets and the options. The same (start, end)
    returns the same partitions and, while the broker has the messages, the same rows. With a sink that takes
    each batch once, this is exactly once. Every message from the start on is in exactly one batch.

    Parameters
    ----------
    options : SourceOptions
    schema : StructType
    connect : Callable
        Opens the client for planning; replaced in tests.
    clock : Clock
    host : Host
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        connect: Callable[[ClientOptions], PlanningClient] = PlanningClient,
        clock: Clock = SYSTEM_CLOCK,
        host: Host = SYSTEM_HOST,
    ) -> None:
        self._options = options
        self._aligned, schema = AlignedColumn.of(schema, options)
        self._projection = to_projection(schema, on_corrupt=options.on_corrupt)
        if options.heartbeat_interval_ms is not None:
            check_heartbeat(self._projection)
        self._policy = options.start_policy(streaming=True)
        self._identity = SourceIdentity.of(options)
        self._connect = connect
        self._clock = clock
        self._host = host
        self._admission = Admission(options, clock)
        self._commits: GroupCommits | None = None
        self._client: PlanningClient | None = None
        self._origin: SourceOffset | None = None
        self._frozen: Mapping[MessageQueue, int] | None = None
        self._frozen_at_ms: int | None = None
        self._asked_for: tuple[MessageQueue, ...] = ()  # for the ends of an AvailableNow run
        self._newest: SourceOffset | None = None
        self._hidden = HiddenQueues()
        self._witnessed: frozenset[Place] = frozenset()
        self._behind: Mapping[MessageQueue, Deadline] = {}
        self._absences = Absences(options.heartbeat_patience_ms, clock)

    # --- what Spark calls, in its order -------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the ends at which the run stops."""
        client = self._open_client()
        self._frozen_at_ms = self._clock.now_ms()
        self._asked_for = wait_for_queues(
            client, self._options, clock=self._clock, patience_ms=OUTAGE_PATIENCE_MS
        )
        self._frozen = fetch_available_ends(client, self._asked_for)

    def initialOffset(self) -> dict[str, Any]:
        """Return the marker of an unresolved start: the same at every call."""
        return SourceOffset(source=self._identity).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger``. A trigger that reads everything overrides it."""
        return default_limit(self._options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, or ``start`` itself if there is nothing to read.

        Raises
        ------
        RocketMQError
            No broker has answered for a minute, or the start cannot be resolved.
        DataLossError
            A queue ends before its position, or an offset that was read has another message now, and
        ``failOnDataLoss`` is set.
        """
        last = self._check(start)
        self._record_finished(last)
        # Before any request: messages that are not seen now were stored later than this.
        moment = self._clock.now_ms()
        self._absences.record_look()
        origin = last if last.resolved else self._resolve_start()
        ends = self._settle_ends(origin.offsets)
        check_filter(self._open_client(), ends.masters, self._options)
        known, origin = origin.offsets, origin.named_as(ends.seen)
        ends = self._hidden.check(
            *(self._open_client(), origin.offsets, ends),
            group=self._options.group,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        self._newest = origin.advance(ends.readable, {})
        begins = {q: at for q, at in origin.offsets.items() if not last.resolved or q not in known}
        begins |= self._new_begins(origin, ends)
        positions = {**origin.offsets, **begins}
        reach = targets(positions, ends.readable, frozen=self._frozen)
        unchecked = self._check_witnesses(origin, positions, reach, ends)
        counted = self._admission.skip_expired(self._open_client(), positions, reach, limit)
        until = self._admit(counted, reach, limit)
        complete = self._nobody_is_missed(positions, ends)
        beat = self._next_heartbeat(origin, moment, idle=reach == positions and complete)
        if (
            last.resolved
            and beat == last.heartbeat_at_ms
            and all(until[queue] == last.offsets.get(queue, begins.get(queue)) for queue in until)
        ):
            self._end_of_run()
            return start
        read = {q: at for q, at in until.items() if q in ends.masters and place(q) not in unchecked}
        witnesses = choose_witnesses(
            self._open_client(), origin.witnesses, positions, read, group=self._options.group
        )
        aligned = self._next_aligned(origin, until, reach, moment, complete=complete)
        return origin.advance(
            until, begins, heartbeat_at_ms=beat, aligned_at_ms=aligned, witnesses=witnesses
        ).to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest max offsets, for Spark's progress reports; None before the first request."""
        return None if self._newest is None else self._newest.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch from its two offsets and the options only: a replay has the same plan."""
        begin, until = self._check(start), self._check(end)
        if begin == until:
            return []
        ranges = plan_ranges(begin.offsets, until.offsets, until.begin)
        planned: list[InputPartition] = [*plan_partitions(ranges, self._options)]
        if until.heartbeat_at_ms > begin.heartbeat_at_ms:
            planned.append(HeartbeatPartition(until.heartbeat_at_ms))
        if self._aligned is not None:
            return [AlignedPartition((partition, max(1, until.aligned_at_ms))) for partition in planned]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in a task's process."""
        if isinstance(partition, AlignedPartition) and self._aligned is not None:
            inner, time_ms = partition.value
            return self._aligned.insert(self.read(inner), time_ms)
        if isinstance(partition, HeartbeatPartition):
            return iter((heartbeat_row(self._projection, partition.value),))
        return read_partition(partition, self._options, self._projection)

    def commit(self, end: dict[str, Any]) -> None:
        """Record that the batch up to ``end`` is finished; with a consumerGroup, commit it to the brokers."""
        self._record_finished(self._check(end))

    def stop(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    # --- how ----------------------------------------------------------------------------------

    def _admit(
        self, positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int], limit: ReadLimit
    ) -> dict[MessageQueue, int]:
        """Return where each queue's part of the next micro-batch ends."""
        return self._admission.cut(
            self._open_client(), positions, reach, limit, closed=self._frozen is not None
        )

    def _record_finished(self, offset: SourceOffset) -> None:
        """Commit the group's progress: Spark plans from the end of a batch only after it is finished."""
        if not self._options.commits or not offset.resolved:
            return
        if self._commits is None:
            self._commits = GroupCommits(
                self._options.group,
                self._open_client(),
                interval_ms=self._options.commit_interval_ms,
                clock=self._clock,
                host=self._host,
            )
        self._commits.record_finished(offset.offsets)

    def _end_of_run(self) -> None:
        """Complete the last commit of an AvailableNow run: Spark ends the process after this call."""
        if self._frozen is not None and self._commits is not None:
            self._commits.flush(_LAST_COMMIT_PATIENCE_S)

    def _next_heartbeat(self, origin: SourceOffset, moment: int, *, idle: bool) -> int:
        """Return the heartbeat time of the next end: later than the last one exactly if one is due."""
        interval_ms = self._options.heartbeat_interval_ms
        if interval_ms is None or self._frozen is not None:
            return origin.heartbeat_at_ms
        quiet_ms = round((self._clock.monotonic() - self._admission.idle_since) * 1000)
        previous = max(origin.heartbeat_at_ms, moment - quiet_ms)
        beat = next_heartbeat(previous, now_ms=moment, interval_ms=interval_ms, idle=idle)
        return beat if beat > previous else origin.heartbeat_at_ms

    def _nobody_is_missed(self, known: Iterable[MessageQueue], ends: Ends) -> bool:
        """Whether time may advance: for some time, a broker that is down may have older messages."""
        missed = {queue.broker_name for queue in known} - {queue.broker_name for queue in ends.masters}
        missed |= {queue.broker_name for queue in ends.failed}
        if self._frozen is not None:  # not read in this run, even if the broker answers again
            missed |= {queue.broker_name for queue in known if queue not in self._frozen}
        return not ends.held and not self._absences.waited_for(missed)

    def _next_aligned(
        self,
        origin: SourceOffset,
        until: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        moment: int,
        *,
        complete: bool,
    ) -> int:
        """Return the next end's ``alignedTimestamp``. A broker that is down may have older messages."""
        previous = origin.aligned_at_ms
        if self._aligned is None or (previous and not complete):
            return previous
        seen_ms = moment if self._frozen_at_ms is None else min(moment, self._frozen_at_ms)
        return look_up_aligned(
            self._open_client(), previous, until, reach, seen_ms=seen_ms, group=self._options.group
        )

    def _open_client(self) -> PlanningClient:
        if self._client is None:
            self._client = self._connect(self._options.client)
        return self._client

    def _check(self, document: Mapping[str, Any]) -> SourceOffset:
        return read_offset(document, self._options)

    def _resolve_start(self) -> SourceOffset:
        """Resolve the start once per reader. From then on, the first batch's end contains it."""
        if self._origin is None:
            client = self._open_client()
            moment = self._clock.now_ms()
            found, brokers = queues_and_brokers(
                client, self._options, clock=self._clock, patience_ms=OUTAGE_PATIENCE_MS
            )
            queues = self._visible(found)
            check_listed(self._policy, queues)
            there = self._frozen or fetch_available_ends(client, queues)
            unknown = [queue for queue in (*found, *self._asked_for) if queue not in there]
            there = whole_topics(there, unknown)
            offsets = resolve_offsets(
                client, self._policy, there, self._options, start_time_ms=moment, ends=there
            )
            self._origin = SourceOffset(
                source=self._identity,
                offsets=offsets,
                started_at_ms=moment,
                start=self._policy,
                brokers=brokers - {queue.broker_name for queue in unknown},
            )
        return self._origin

    def _settle_ends(self, known: Mapping[MessageQueue, int]) -> Ends:
        """Return the ends. Queues that end before their position get some time without delaying others."""
        while True:
            # What a broker told before may be old by now: others may have been waited for.
            expired = {queue for queue, until in self._behind.items() if until.expired}
            ends = wait_for_ends(
                self._open_client(),
                self._options,
                clock=self._clock,
                deadline=Deadline(self._clock, OUTAGE_PATIENCE_MS),
                # A run that ends when everything is read must not treat a slow broker as down.
                patience_ms=None if self._frozen is None else OPERATION_TIMEOUT_MS,
            )
            wrong = find_shortened(known, ends.masters)
            begun = Deadline(self._clock, MOVED_BACK_PATIENCE_MS)
            self._behind = {queue: self._behind.get(queue, begun) for queue in wrong}
            waiting = [queue for queue in wrong if queue not in expired]
            if not waiting:
                return ends
            doubt_routes(self._open_client(), waiting)
            if self._frozen is None and len(waiting) < len(ends.readable):
                return ends.holding(waiting)
            self._clock.sleep(_PAUSE_S)

    def _check_witnesses(
        self,
        origin: SourceOffset,
        positions: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        ends: Ends,
    ) -> frozenset[Place]:
        """Check that messages that were read still exist: at a run's start, and before more is read.

        Returns the places that could not be checked.
        """
        ahead = find_places_ahead(positions, reach)
        due = {
            queue: witness
            for queue, witness in origin.witnesses.items()
            if place(queue) in ahead or place(queue) not in self._witnessed
        }
        looks = check_witnesses(
            self._open_client(),
            due,
            ends.masters,
            group=self._options.group,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        self._witnessed |= looks.done
        return looks.failed

    def _new_begins(self, origin: SourceOffset, ends: Ends) -> dict[MessageQueue, int]:
        """Return where queues begin that are new or that end before their position."""
        client = self._open_client()
        moved = find_moved_back(
            client.begins if self._frozen is None else client.min_offsets,  # a run that ends needs all
            *(origin.offsets, ends.masters),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        if origin.started_at_ms is None:
            return moved
        seen = {queue: ends.masters[queue] for queue in self._visible(ends.masters)}
        return moved | find_late_begins(
            client,
            origin.start or self._policy,
            origin.offsets,
            seen,
            self._options,
            missing=[queue for queue in (*ends.masters, *ends.failed) if queue not in seen],
            started_at_ms=origin.started_at_ms,
            brokers=origin.brokers,
            first_topics=origin.source.reads,
        )

    def _visible(self, queues: Iterable[MessageQueue]) -> tuple[MessageQueue, ...]:
        """Exclude queues that appeared during an AvailableNow run: they wait for the next run."""
        return tuple(queue for queue in queues if self._frozen is None or queue in self._frozen)
