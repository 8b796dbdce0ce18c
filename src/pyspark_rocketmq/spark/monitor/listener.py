"""The status of running queries for people and dashboards, and a stopped query's last commit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK, Clock
from pyspark_rocketmq.errors import OptionError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, offset_of_rocketmq
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.options.source import DEFAULT_GROUP
from pyspark_rocketmq.planning.topics.discovery import plan_ranges
from pyspark_rocketmq.spark.monitor.lag import Lag, lag_between, measure_lag, newest_lag
from pyspark_rocketmq.spark.read.message_weights import MessageWeights

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )

__all__ = ["QueryStatus", "RocketMQQueryListener"]

_LOG: Final = logging.getLogger(__name__)

_SAMPLED_QUEUES: Final = 2
"""Number of queues that are sampled after a batch: the listener must not read the backlog again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """The status of a RocketMQ source of a running query after a micro-batch.

    Parameters
    ----------
    query_id, run_id : str
    name : str, optional
        The query's name.
    source : int
        The number of the source in the query, from 0.
    batch_id : int
    offset : SourceOffset
        The end of the batch, with the identity of the source.
    planned : int, optional
        Number of offsets in the batch's ranges; None if the report does not show it.
    rows : int
        Number of rows that Spark read from the source, without heartbeats.
    rows_per_second, input_rows_per_second : float
        As Spark reports them: during processing, and since the previous batch.
    lag : Lag
        The lag when the batch was planned, or when it was measured later.
    at_ms : int
        Time of the status, in milliseconds since the epoch.
    """

    query_id: str
    run_id: str
    name: str | None
    source: int
    batch_id: int
    offset: SourceOffset
    planned: int | None
    rows: int
    rows_per_second: float
    input_rows_per_second: float
    lag: Lag
    at_ms: int

    @property
    def label(self) -> str:
        """The query's name, or its id without a name."""
        return self.name or self.query_id

    @property
    def skipped(self) -> int | None:
        """Offsets without a row: filtered, no message, expired, or not decoded (see the task logs)."""
        return None if self.planned is None else self.planned - self.rows

    def __str__(self) -> str:
        behind = "" if self.lag.seconds is None else f", {self.lag.seconds:.1f} s"
        ranges = "" if self.planned is None else f" of {self.planned} offsets"
        return (
            f"{self.label}: batch {self.batch_id}, {self.rows} rows{ranges}, "
            f"{self.rows_per_second:.0f} rows/s, behind {self.lag.messages} messages{behind}"
        )


class RocketMQQueryListener(StreamingQueryListener):
    """Monitors every RocketMQ source of a session's queries.

    After each micro-batch, it logs lag, rates and whether the rows match the planned ranges; `statuses`
    returns them. At a query's end, it commits the finished offsets for the group: Spark notifies a source of
    its last batch only when the next one is planned, so after a plain ``stop()`` RocketMQ's tools would show
    that batch as lag.

    Delivery promise: the committed offset is the next offset after a finished micro-batch, never more.
    Nothing is committed for queries with ``commitOffsets=false`` or without a group. The listener never fails
    a query: if a broker does not answer, its values are missing in the status, and a warning is logged.

    Parameters
    ----------
    **options
        Client options of the listener's connections, such as ``accessKey``, ``secretKey`` and ``tls``: a
        query's offsets contain no secrets. The name servers and the namespace are taken from the query's
        offsets.

    Examples
    --------
    >>> listener = RocketMQQueryListener()  # doctest: +SKIP
    >>> spark.streams.addListener(listener)  # doctest: +SKIP
    >>> for status in listener.statuses():  # doctest: +SKIP
    ...     print(status, status.lag.seconds_by_queue)
    """

    def __init__(
        self,
        *,
        connect: Callable[[ClientOptions], PlanningClient] = PlanningClient,
        clock: Clock = SYSTEM_CLOCK,
        **options: Any,
    ) -> None:
        self._options = options
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._statuses: dict[tuple[str, int], QueryStatus] = {}
        self._asking = threading.RLock()  # held during requests, so that no connection opens after `close`
        self._clients: dict[ClientOptions, PlanningClient] = {}
        self._weights = MessageWeights(_SAMPLED_QUEUES)
        self._closed = False

    # --- what it knows ------------------------------------------------------------------------

    def statuses(self) -> tuple[QueryStatus, ...]:
        """Return the statuses of the running queries after their last batches."""
        with self._lock:
            return tuple(self._statuses.values())

    def measure(self) -> tuple[QueryStatus, ...]:
        """Return the statuses of the running queries with their current lag, also of a query that hangs.

        If no broker answers, the lag stays unchanged, and a warning is logged.
        """
        return tuple(self._newest(status) for status in self.statuses())

    def close(self) -> None:
        """Close the connections permanently: later events change the statuses without requests to brokers."""
        with self._asking, ExitStack() as closing:
            self._closed = True
            for client in self._clients.values():
                closing.callback(client.close)
            self._clients.clear()

    # --- what Spark tells ---------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no position yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the position is the last batch's."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Update the status after a batch."""
        progress = event.progress
        for number, source in enumerate(progress.sources):
            end = _read(source.endOffset)
            if end is None or not end.resolved:
                continue
            status = QueryStatus(
                query_id=str(progress.id),
                run_id=str(progress.runId),
                name=progress.name,
                source=number,
                batch_id=progress.batchId,
                offset=end,
                planned=_planned(source, end),
                rows=source.numInputRows - _heartbeats(source, end),
                rows_per_second=source.processedRowsPerSecond,
                input_rows_per_second=source.inputRowsPerSecond,
                lag=self._lag(source, end),
                at_ms=self._clock.now_ms(),
            )
            with self._lock:
                self._statuses[status.run_id, number] = status
            _tell(status)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Commit the query's finished offsets for its group, and remove the query."""
        run_id = str(event.runId)
        with self._lock:
            keys = [key for key in self._statuses if key[0] == run_id]
            ended = [self._statuses.pop(key) for key in keys]
        for status in ended:
            self._commit(status.offset)

    # --- how ----------------------------------------------------------------------------------

    def _commit(self, offset: SourceOffset) -> None:
        group = offset.source.group
        if group is None or not offset.source.commits:
            return
        by_broker: dict[str, dict[MessageQueue, int]] = {}
        for queue, position in offset.offsets.items():
            by_broker.setdefault(queue.broker_name, {})[queue] = position
        for positions in by_broker.values():  # one that is down does not prevent commits at the others
            try:
                with self._asking:
                    self._client(offset).commit_offsets(group, positions)
            except RocketMQError as error:
                _LOG.warning("the last offsets of group %s are not committed: %s", group, error)

    def _lag(self, source: SourceProgress, end: SourceOffset) -> Lag:
        """Return the lag at the end of a batch: messages from the report, times from the brokers.

        Before Spark 4.2, reports have no newest offsets: then it is the lag at the time of the report.
        """
        newest = _read(source.latestOffset)
        known = {queue: at.known for queue, at in end.commits.items()}
        lag = Lag() if newest is None else lag_between(end.positions, {**newest.offsets, **known})
        measured: dict[str, Any] = {
            "group": _group(end),
            "now_ms": self._clock.now_ms(),
            "weights": self._weights,
        }
        try:
            with self._asking:
                if self._closed:
                    return lag
                client = self._client(end)
                if newest is None:
                    return newest_lag(client, end.positions, **measured)
                return measure_lag(client, lag, **measured)
        except RocketMQError as error:
            _LOG.warning("how long messages have waited is not known: %s", error)
            return lag

    def _newest(self, status: QueryStatus) -> QueryStatus:
        now = self._clock.now_ms()
        offset = status.offset
        try:
            with self._asking:
                if self._closed:
                    return status
                client = self._client(offset)
                lag = newest_lag(
                    client, offset.positions, group=_group(offset), now_ms=now, weights=self._weights
                )
        except RocketMQError as error:
            _LOG.warning("the lag of %s is not known: %s", status.label, error)
            return status
        return replace(status, lag=lag, at_ms=now)

    def _client(self, offset: SourceOffset) -> PlanningClient:
        """Return the client for a source's cluster. Requires the lock."""
        if self._closed:
            raise RocketMQError("the listener is closed")
        options = parse_options(ClientOptions, offset.source.client_options() | self._options)
        if options not in self._clients:
            self._clients[options] = self._connect(options)
        return self._clients[options]


def _group(offset: SourceOffset) -> str:
    return offset.source.group or DEFAULT_GROUP


def _read(text: str | None) -> SourceOffset | None:
    try:
        return offset_of_rocketmq(text)
    except OptionError as error:
        _LOG.warning("a query's offsets are not understood: %s", error)
        return None


def _planned(source: SourceProgress, end: SourceOffset) -> int | None:
    """Return the number of offsets in a batch, from its end and its start; None if they do not show it.

    With ``isolation=read_committed``, rows also come from before its start.
    """
    if end.committed_only:
        return None
    start = _read(source.startOffset)
    if start == end:
        return 0
    before: Mapping[MessageQueue, int] = {} if start is None else start.offsets
    try:
        return sum(map(len, plan_ranges(before, end.offsets, end.begin)))
    except OptionError:
        return None


def _heartbeats(source: SourceProgress, end: SourceOffset) -> int:
    start = _read(source.startOffset)
    return int(end.heartbeat_at_ms > (0 if start is None else start.heartbeat_at_ms))


def _tell(status: QueryStatus) -> None:
    _LOG.info("%s", status)
    if status.skipped is not None and status.skipped < 0:
        _LOG.warning(
            "%s: %d rows more than offsets; a query that reads its source twice counts its rows twice",
            status,
            -status.skipped,
        )
