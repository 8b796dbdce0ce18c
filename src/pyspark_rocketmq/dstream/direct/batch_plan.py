"""The plan of a direct stream's batches: the state that Spark keeps in its checkpoint."""

from __future__ import annotations

import logging
import math
import threading
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.dstream.direct.committed_rows import CommittedRows
from pyspark_rocketmq.dstream.pace import Pace
from pyspark_rocketmq.dstream.ranges import OffsetRanges, to_ranges
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue, OffsetRange, StartPolicy
from pyspark_rocketmq.offsets.expired import find_expired
from pyspark_rocketmq.offsets.hidden_queues import HiddenQueues
from pyspark_rocketmq.offsets.offset_lookup import (
    Ends,
    PlanningClient,
    check_filter,
    doubt_routes,
    fetch_running_ends,
    find_late_begins,
    find_moved_back,
)
from pyspark_rocketmq.offsets.queue_lookup import is_outage
from pyspark_rocketmq.offsets.stream_offset import Witness
from pyspark_rocketmq.offsets.topic_recreation import (
    Place,
    check_witnesses,
    choose_witnesses,
    find_places_ahead,
    place,
)
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.planning.data_loss import find_shortened
from pyspark_rocketmq.planning.limit import Limits, admit
from pyspark_rocketmq.planning.rate import FinishedBatch, RateEstimate
from pyspark_rocketmq.planning.topics.discovery import targets
from pyspark_rocketmq.planning.topics.queue_names import rename_queues

__all__ = ["DirectPlan"]

_LOG: Final = logging.getLogger(__name__)

_Wait: TypeAlias = Literal["outage", "shortened"]

_PATIENCE_MS: Final[dict[_Wait, int]] = {"outage": 60_000, "shortened": 10_000}
"""How long batches stay empty while no broker answers, and queues wait that end before their position."""


@dataclass(slots=True)
class _Batch:
    ranges: OffsetRanges
    finished: bool = False


@dataclass
class DirectPlan:
    """Plans each batch of a direct stream once. Repeated calls, also after a recovery, return the same plan.

    One thread plans batches, another finishes them. Spark pickles everything except the clock into the
    checkpoint, so a recovered stream continues with the same positions, unfinished batches, and rate.

    Parameters
    ----------
    policy : StartPolicy
        For queues that appear later.
    positions : dict
        The next offset of each queue.
    started_at_ms : int
        The time at which the start was resolved.
    pace : Pace
    brokers : frozenset of str
        The brokers whose topics were all known at that time.
    floor : Mapping
        With ``isolation=read_committed``, what is stored before these offsets is no element.
    """

    policy: StartPolicy
    positions: dict[MessageQueue, int]
    started_at_ms: int
    pace: Pace
    brokers: frozenset[str] = frozenset()
    estimate: RateEstimate = RateEstimate()  # noqa: RUF009 - frozen
    clock: Clock = SYSTEM_CLOCK
    witnesses: dict[MessageQueue, Witness] = field(default_factory=dict)
    floor: Mapping[MessageQueue, int] = field(default_factory=dict)
    _jobless: set[int] = field(default_factory=set)
    _moved: tuple[int, Mapping[MessageQueue, int]] = (0, {})
    _failed: set[int] = field(default_factory=set)
    _taken_back: Mapping[MessageQueue, int] = field(default_factory=dict)
    _batches: dict[int, _Batch] = field(default_factory=dict)
    _waits: dict[_Wait | MessageQueue, float] = field(default_factory=dict)
    _hidden: HiddenQueues = field(default_factory=HiddenQueues)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = dict(self.__dict__)
            state["_batches"] = {t: _Batch(b.ranges, b.finished) for t, b in self._batches.items()}
            state["positions"], state["_jobless"] = dict(self.positions), set(self._jobless)
        for transient in ("_lock", "_waits", "_hidden", "_moved", "_failed", "_taken_back", "clock"):
            del state[transient]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.witnesses, self.floor, self._jobless = {}, {}, set()  # missing in plans of earlier releases
        transient = {
            "_lock": threading.Lock(),
            "_waits": {},
            "_hidden": HiddenQueues(),
            "_moved": (0, {}),
            "_failed": set(),
            "_taken_back": {},
            "clock": SYSTEM_CLOCK,
        }
        self.__dict__.update(state, **transient)

    def ranges(
        self,
        time_ms: int,
        client: PlanningClient,
        options: SourceOptions,
        *,
        remember_ms: int,
        rows: CommittedRows | None = None,
        has_job: bool = True,
        unfinished: Collection[int] = (),
    ) -> OffsetRanges:
        """Return the ranges of the batch of a time, one per known queue.

        Parameters
        ----------
        time_ms : int
            Spark's batch time.
        client : PlanningClient
        options : SourceOptions
        remember_ms : int
            How long Spark may request a finished batch again.
        rows : CommittedRows, optional
            With ``isolation=read_committed``.
        has_job : bool
            Whether an output of the stream runs at that time. Else only windows of later batches contain it.
        unfinished : collection of int
            The times of earlier batches that Spark still runs: after a recovery, it runs them again.

        Raises
        ------
        RocketMQError
            No broker has answered for a minute.
        DataLossError
            A queue ends before its position, an offset that was read has another message now, or a queue that
            its topic lost has unread messages, and ``failOnDataLoss`` is set; or as `CommittedRows.look`.
        """
        with self._lock:
            planned = self._batches.get(time_ms)
            if not has_job:
                self._jobless.add(time_ms)
        if planned is not None:
            return planned.ranges
        ahead = None if rows is None else rows.look(self.positions)  # before the ends of the queues
        ends = self._ends(client, options)
        if rows is not None:
            rows.check(self.positions, ends.masters)
        check_filter(client, ends.masters, options)
        begins = find_moved_back(
            client.begins, self.positions, ends.masters, fail_on_data_loss=options.fail_on_data_loss
        )
        begins |= find_late_begins(
            client,
            self.policy,
            self.positions,
            ends.masters,
            options,
            missing=ends.failed,
            started_at_ms=self.started_at_ms,
            brokers=self.brokers,
            first_topics=options.topics.__contains__,
        )
        floor = self._floor_with(begins)
        positions = {**self.positions, **begins}
        reach, limits = targets(positions, ends.readable), self._limits(options)
        if limits != Limits() and not options.fail_on_data_loss:
            commits = frozenset[str]() if ahead is None else ahead.topics
            counted = {queue: at for queue, at in positions.items() if queue.topic not in commits}
            begins |= find_expired(client, counted, reach)
            positions |= begins
        moved = {q: self.positions[q] for q in begins if q in self.positions} | dict(self._taken_back)
        unchecked = self._check_witnesses(client, options, find_places_ahead(positions, reach), ends)
        elapsed_ms = self.pace.pid.batch_interval_ms
        if ahead is None:
            until = admit(positions, reach, limits, elapsed_ms=elapsed_ms)
        else:
            until = ahead.admit(positions, reach, ends.readable, limits, elapsed_ms=elapsed_ms)
        read = {q: at for q, at in until.items() if q in ends.masters and place(q) not in unchecked}
        witnesses = choose_witnesses(client, self.witnesses, positions, read, group=options.group)
        ranges = to_ranges(OffsetRange(queue, positions[queue], until[queue]) for queue in sorted(positions))
        with self._lock:
            self.positions, self.witnesses, self.floor = until, witnesses, floor
            self._batches[time_ms] = _Batch(ranges)
            self._moved, self._taken_back = (time_ms, moved), {}
            done = {t for t, batch in self._batches.items() if batch.finished} | self._jobless
            running = sorted({time_ms, *unfinished})
            for time in [t for t in done if not _is_needed(t, running, remember_ms)]:
                self._batches.pop(time, None)
                self._jobless.discard(time)
        return ranges

    def _floor_with(self, begins: Mapping[MessageQueue, int]) -> Mapping[MessageQueue, int]:
        """Return the floor with that of queues that are new, in topics that have one."""
        topics = {queue.topic for queue in self.floor}
        late = {q: at for q, at in begins.items() if q.topic in topics and q not in self.positions}
        return {**self.floor, **late}

    def moved(self, time_ms: int) -> Mapping[MessageQueue, int]:
        """Return the positions before the newest batch of the queues whose range does not begin there."""
        newest_ms, moved = self._moved
        return moved if time_ms == newest_ms else {}

    def adopt(
        self, time_ms: int, ranges: OffsetRanges, moved: Mapping[MessageQueue, int] | None = None
    ) -> None:
        """Adopt an earlier run's plan of a batch, unless it is known or does not follow the last one.

        Parameters
        ----------
        time_ms : int
        ranges : OffsetRanges
        moved : Mapping, optional
            What that run's plan returned as `moved`.
        """
        begins = {found.queue: found.from_offset for found in ranges} | dict(moved or {})
        follows = all(self.positions.get(queue, begin) == begin for queue, begin in begins.items())
        with self._lock:
            if time_ms < max(self._batches, default=0):  # it was planned, finished and forgotten
                self._batches.setdefault(time_ms, _Batch(ranges, finished=True))
            if time_ms not in self._batches and follows:
                self._batches[time_ms] = _Batch(ranges)
                self.floor = self._floor_with({found.queue: found.from_offset for found in ranges})
                self.positions |= {found.queue: found.until_offset for found in ranges}

    def recover(self, pending: Collection[int], since_ms: float = math.inf) -> None:
        """Record the batches that Spark runs, or runs again after a recovery: all others are finished.

        Spark runs again those that are pending, and all from the time of the checkpoint on.

        Spark writes a checkpoint when a batch is done, possibly before its listeners are notified, and drops
        events when there are too many. Without this, such a batch would never count as finished, and no later
        batch would be committed.
        """
        with self._lock:
            for time, batch in self._batches.items():
                batch.finished = batch.finished or (time not in pending and time < since_ms)

    def find_unrun(self, time_ms: int, unfinished: Collection[int]) -> int | None:
        """Return the newest batch, if it is before a time and Spark neither runs it nor has told of its end.

        Parameters
        ----------
        time_ms : int
        unfinished : collection of int
            As in `ranges`.
        """
        with self._lock:
            newest = max(self._batches, default=time_ms)
            ran = newest in self._jobless or newest in self._failed or newest in unfinished
            return None if newest >= time_ms or ran or self._batches[newest].finished else newest

    def take_back(self, time_ms: int) -> None:
        """Forget the newest batch, which was never run: the next one begins where it did."""
        with self._lock:
            begins = {found.queue: found.from_offset for found in self._batches.pop(time_ms).ranges}
            self._taken_back = {queue: at for queue, at in self.positions.items() if queue in begins}
            self.positions = {**self.positions, **begins}

    def record_failed(self, time_ms: int) -> None:
        """Record that an output of a batch failed."""
        with self._lock:
            self._failed.add(time_ms)

    def remembered(self) -> frozenset[int]:
        """Return the times of the batches that Spark may request again."""
        with self._lock:
            return frozenset(self._batches)

    def record_finished(
        self, time_ms: int, delays: tuple[int, int, int]
    ) -> Mapping[MessageQueue, int] | None:
        """Record that every output of a batch succeeded.

        Parameters
        ----------
        time_ms : int
        delays : tuple of int
            Its end (ms since the epoch), processing delay and scheduling delay (ms).

        Returns
        -------
        Mapping or None
            The next offsets after the batches that are finished together with all batches before them.
        """
        with self._lock:
            batch = self._batches.get(time_ms)
            if batch is None:
                return None
            batch.finished = True
            done = FinishedBatch(
                ended_at_ms=delays[0],
                messages=batch.ranges.planned,
                processing_ms=delays[1],
                scheduling_ms=delays[2],
            )
            self.estimate = self.estimate.after(done, self.pace.pid)
            ends: dict[MessageQueue, int] | None = None
            for time in sorted(self._batches.keys() - self._jobless):
                if not self._batches[time].finished:
                    break
                ends = {found.queue: found.until_offset for found in self._batches[time].ranges}
            return ends

    def _limits(self, options: SourceOptions) -> Limits:
        rate: float | None = None
        if self.pace.backpressure:
            with self._lock:
                rate = self.estimate.rate or self.pace.initial_rate
        interval_s = self.pace.pid.batch_interval_ms / 1000
        return Limits(
            max_offsets=None if rate is None else max(1, int(rate * interval_s)),
            max_rate_per_queue=options.max_rate_per_queue,
        )

    def _check_witnesses(
        self, client: PlanningClient, options: SourceOptions, places: Collection[Place], ends: Ends
    ) -> frozenset[Place]:
        """Check that messages that were read still exist, before more of the same topic and broker is read.

        Returns the places that could not be checked.
        """
        looks = check_witnesses(
            client,
            {queue: witness for queue, witness in self.witnesses.items() if place(queue) in places},
            ends.masters,
            group=options.group,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return looks.failed

    def _ends(self, client: PlanningClient, options: SourceOptions) -> Ends:
        """Return the ends of reachable queues, except those before their position; none in an outage."""
        waited = self._waited()  # a process that was frozen in a request has an answer from before
        try:
            ends = fetch_running_ends(client, options)
            with self._lock:  # a checkpoint may name a static topic's queues after former owners
                self.positions = rename_queues(self.positions, ends.masters, choose=max)
            ends = self._hidden.check(
                *(client, self.positions, ends),
                group=options.group,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        except RocketMQError as error:
            if not is_outage(error) or "outage" in waited:
                raise
            self._waits.setdefault("outage", self.clock.monotonic())
            _LOG.warning("no server answers; the batch stays empty: %s", error)
            return Ends()
        wrong = find_shortened(self.positions, ends.masters)
        now = self.clock.monotonic()
        self._waits = {queue: self._waits.get(queue, now) for queue in wrong}
        waiting = [queue for queue in wrong if queue not in waited]
        if waiting:
            # A broker that restarts rebuilds its index: wait for it.
            _LOG.warning("queues end before their position and wait: %s", ", ".join(map(str, waiting)))
            doubt_routes(client, waiting)
            ends = ends.holding(waiting)
        return ends

    def _waited(self) -> frozenset[_Wait | MessageQueue]:
        """Return what batches have waited for long enough."""
        now = self.clock.monotonic()
        return frozenset(
            what
            for what, since in self._waits.items()
            if (now - since) * 1000 >= _PATIENCE_MS["outage" if what == "outage" else "shortened"]
        )


def _is_needed(time_ms: int, running: Sequence[int], remember_ms: int) -> bool:
    """Whether Spark may request a batch again: for the windows of one that runs, or after all of them."""
    at = bisect_left(running, time_ms)
    return at == len(running) or running[at] - remember_ms <= time_ms
