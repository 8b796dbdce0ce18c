"""The size of the next micro-batch: the options' limits, combined in one place.

`planning.limit` and `planning.alignment` decide; this module provides their input: the time since the last
micro-batch, the sizes of messages, their store times. None of it survives a restart, and none of it is needed
to replay a batch, whose end is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, assert_never

from pyspark_rocketmq.client.clock import Clock
from pyspark_rocketmq.client.read.samples import MessageTimes
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.expired import find_expired
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.options.choices import EventTime
from pyspark_rocketmq.planning.alignment import ahead, align, barrier, heads, tails
from pyspark_rocketmq.planning.limit import FIRST_INTERVAL_MS, Limits, admit, enough, extend
from pyspark_rocketmq.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark_rocketmq.spark.read.message_weights import MessageWeights

__all__ = ["Admission", "default_limit"]

_LOG: Final = logging.getLogger(__name__)

_MAX_LONG: Final = 2**63 - 1

_SAMPLED_QUEUES: Final = 64
"""Number of queues that are sampled for one micro-batch."""


def default_limit(options: SourceOptions) -> ReadLimit:
    """Return the limit that Spark passes back with each trigger, unless the trigger reads everything.

    Python sources can give Spark only one limit: the others apply when a micro-batch is cut.
    """
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    others = (options.max_bytes_per_trigger, options.max_rate_per_queue, options.min_offsets_per_trigger)
    return ReadAllAvailable() if others == (None, None, None) else ReadMaxRows(_MAX_LONG)


class Admission:
    """Cuts micro-batches for one run of a query.

    Parameters
    ----------
    options : SourceOptions
    clock : Clock
    """

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._started = clock.monotonic()
        self._last_batch: float | None = None
        self._last_look = self._started
        self._weights = MessageWeights(_SAMPLED_QUEUES)

    @property
    def idle_since(self) -> float:
        """When the last micro-batch was cut, or the run began, by the monotonic clock (s)."""
        return self._started if self._last_batch is None else self._last_batch

    def skip_expired(
        self,
        client: PlanningClient,
        positions: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        limit: ReadLimit,
    ) -> dict[MessageQueue, int]:
        """Return from where on the limits of the next micro-batch count.

        With ``failOnDataLoss=false``, after the messages that have expired. They are in the micro-batch: its
        tasks count them as lost.
        """
        if self._options.fail_on_data_loss or self._limits(limit) == Limits():
            return dict(positions)
        return {**positions, **find_expired(client, positions, reach)}

    def cut(
        self,
        client: PlanningClient,
        positions: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        limit: ReadLimit,
        *,
        closed: bool,
    ) -> dict[MessageQueue, int]:
        """Return where each queue's part of the next micro-batch ends; its position if it has none.

        Parameters
        ----------
        client : PlanningClient
        positions, reach : Mapping
            The next offset of each queue, and how far it could be read.
        limit : ReadLimit
            Spark's: `ReadAllAvailable` overrules every limit, though not the alignment.
        closed : bool
            Under ``Trigger.AvailableNow`` nothing is waited for.
        """
        now = self._clock.monotonic()
        until = dict(positions)
        if self._enough(positions, reach, now, ask=not closed and not isinstance(limit, ReadAllAvailable)):
            until = self._align(client, positions, reach, self._limits(limit), now)
        if until != positions:
            self._last_batch = now
        self._last_look = now
        return until

    def _enough(
        self,
        positions: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        now: float,
        *,
        ask: bool,
    ) -> bool:
        return enough(
            sum(reach.values()) - sum(positions.values()),
            min_offsets=self._options.min_offsets_per_trigger if ask else None,
            waited_ms=round((now - self.idle_since) * 1000),
            max_delay_ms=self._options.max_trigger_delay_ms,
        )

    def _limits(self, limit: ReadLimit) -> Limits:
        if not isinstance(limit, ReadMaxRows):
            return Limits()
        return Limits(
            max_offsets=limit.max_rows,
            max_bytes=self._options.max_bytes_per_trigger,
            max_rate_per_queue=self._options.max_rate_per_queue,
        )

    def _elapsed_ms(self, now: float) -> int | None:
        """Return the time that the rate counts: since the last batch, but not the time of having nothing."""
        if self._last_batch is None:
            return None
        waited_ms = round((now - self._last_look) * 1000)
        return min(round((now - self._last_batch) * 1000), max(FIRST_INTERVAL_MS, waited_ms))

    # --- event time ---

    def _align(
        self,
        client: PlanningClient,
        positions: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        limits: Limits,
        now: float,
    ) -> dict[MessageQueue, int]:
        elapsed_ms = self._elapsed_ms(now)
        sizes = self._sizes(client, heads(positions, reach)) if limits.max_bytes is not None else None
        until = admit(positions, reach, limits, elapsed_ms=elapsed_ms, message_bytes=sizes)
        if self._options.event_time_alignment is EventTime.OFF or not tails(until, reach):
            return until
        try:
            head_times = self._times(client, heads(positions, reach))
            until = admit(
                positions,
                reach,
                limits,
                elapsed_ms=elapsed_ms,
                message_bytes=sizes,
                head_times_ms=head_times,
            )
            aligned = self._hold_back(client, positions, until, reach, head_times)
            wider = extend(positions, aligned, reach, limits, elapsed_ms=elapsed_ms, message_bytes=sizes)
            if wider == aligned:
                return aligned
            return self._hold_back(client, positions, wider, reach, head_times)
        except RocketMQError as error:
            if not error.retriable:
                raise
            text = "no micro-batch now, queues cannot be aligned by event time: %s"
            client.warnings.warn(_LOG, text, error, about=type(error))
            return dict(positions)

    def _hold_back(
        self,
        client: PlanningClient,
        positions: Mapping[MessageQueue, int],
        until: Mapping[MessageQueue, int],
        reach: Mapping[MessageQueue, int],
        head_times: Mapping[MessageQueue, int],
    ) -> dict[MessageQueue, int]:
        """Return the ends of the micro-batch with no queue past the oldest message that stays unread."""
        tail_times = self._times(client, tails(until, reach))
        if not tail_times:
            return dict(until)
        after = ahead(positions, head_times_ms=head_times, tail_times_ms=tail_times)
        others = [queue for queue in until if queue not in after and until[queue] > positions[queue]]
        after |= client.offsets_at(dict.fromkeys(others, barrier(tail_times) + 1))
        return align(positions, until, head_times_ms=head_times, tail_times_ms=tail_times, offsets=after)

    def _times(self, client: PlanningClient, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        found = client.message_times(offsets, self._options.group)
        return {queue: self._event_time(times) for queue, times in found.items()}

    def _event_time(self, times: MessageTimes) -> int:
        match self._options.event_time_alignment:
            case EventTime.STORE:
                return times.store_timestamp
            case EventTime.BORN:
                return times.born_timestamp
            case EventTime.OFF:
                raise AssertionError("alignment is off")
            case other:
                assert_never(other)

    def _sizes(self, client: PlanningClient, waiting: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return self._weights.weigh(
            client, waiting, group=self._options.group, selector=self._options.selector
        )
