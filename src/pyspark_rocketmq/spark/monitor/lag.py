"""A reader's lag: in messages, in seconds and in bytes, by queue and in total."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark_rocketmq.client.clock import SYSTEM_CLOCK
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.model import MessageQueue, MessageSelector
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient, fetch_available_ends
from pyspark_rocketmq.offsets.stream_offset import SourceOffset, offset_of_rocketmq
from pyspark_rocketmq.options import ClientOptions, parse_options
from pyspark_rocketmq.spark.read.message_weights import MessageWeights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Lag", "QueueLag", "Spread", "lag", "lag_between", "measure_lag", "newest_lag"]


_SAMPLED_QUEUES: Final = 64
"""Number of queues whose message sizes are sampled for one answer."""

_TEXTS: Final = 2
"""Number of columns of a printed lag that are no numbers."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, mean and maximum of a number over all queues."""

    least: float
    mean: float
    most: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> Spread | None:
        """Return the spread of some numbers; None without numbers."""
        given = list(numbers)
        return cls(min(given), sum(given) / len(given), max(given)) if given else None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """A reader's position in a queue.

    Parameters
    ----------
    queue : MessageQueue
    position : int
        The next offset to read.
    max_offset : int
        The next offset to be written.
    seconds : float, optional
        Age of the next message to read, by store time; 0 if all is read, None if unknown.
    bytes : int, optional
        Unread bytes as sent by the brokers, estimated from a sample; None if unknown.
    """

    queue: MessageQueue
    position: int
    max_offset: int
    seconds: float | None = None
    bytes: int | None = None

    @property
    def messages(self) -> int:
        """The number of unread offsets."""
        return max(0, self.max_offset - self.position)


@dataclass(frozen=True, slots=True)
class Lag:
    """A reader's lag: by queue, and over all queues."""

    queues: tuple[QueueLag, ...] = ()

    @property
    def messages(self) -> int:
        """The number of unread offsets in all queues."""
        return sum(queue.messages for queue in self.queues)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest unread message, by store time; None if it is unknown for a queue."""
        known = [queue.seconds for queue in self.queues if queue.seconds is not None]
        return max(known, default=0.0) if len(known) == len(self.queues) else None

    @property
    def bytes(self) -> int | None:
        """The estimated unread bytes; None if they are unknown for a queue."""
        known = [queue.bytes for queue in self.queues if queue.bytes is not None]
        return sum(known) if len(known) == len(self.queues) else None

    @property
    def messages_by_queue(self) -> Spread | None:
        """Minimum, mean and maximum messages per queue."""
        return Spread.of(queue.messages for queue in self.queues)

    @property
    def seconds_by_queue(self) -> Spread | None:
        """Minimum, mean and maximum seconds of the queues for which they are known."""
        return Spread.of(queue.seconds for queue in self.queues if queue.seconds is not None)

    def __str__(self) -> str:
        """Return the lag as a table, with the total last. What is unknown is empty."""
        rows: list[tuple[str, ...]] = [("topic", "queue", "position", "max", "messages", "seconds", "bytes")]
        rows += [
            (
                queue.queue.topic,
                f"{queue.queue.broker_name}:{queue.queue.queue_id}",
                *map(_shown, (queue.position, queue.max_offset, queue.messages, queue.seconds, queue.bytes)),
            )
            for queue in self.queues
        ]
        rows.append(("total", "", "", "", *map(_shown, (self.messages, self.seconds, self.bytes))))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if at < _TEXTS else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )


class _HasProgress(Protocol):
    @property
    def lastProgress(self) -> Any: ...


def lag(where: SparkSession | str, group: str, topic: str, **options: Any) -> Lag:
    """Return a consumer group's current lag in a topic.

    Parameters
    ----------
    where : SparkSession or str
        The name servers (``"host:port;host:port"``): uses the group's committed offsets. Or a session: uses
        the position and the name servers of its running query that reads the topic for the group; the
        position is newer by up to ``commitIntervalMs`` and a batch.
    group, topic : str
    **options
        Client options such as ``accessKey``, ``secretKey``, ``tls``.

    Returns
    -------
    Lag
        A queue without a committed offset counts from its first message.

    Raises
    ------
    OptionError
        No running query of the session reads the topic for the group, or an option is invalid.
    RocketMQError
        A name server or broker does not answer within 10 s.
    """
    if isinstance(where, str):
        with closing(_connect({"nameServer": where, **options})) as client:
            queues = client.read_queues(topic)
            begins = client.min_offsets(queues)
            committed = client.committed_offsets(group, queues)
            positions = {queue: max(committed[queue] or 0, begins[queue]) for queue in queues}
            return _now(client, positions, group)
    # In Spark 4.3, queries with asyncProgressTrackingEnabled stay in `active` after they have ended.
    found = _find_running((query for query in where.streams.active if query.isActive), group, topic)
    if found is None:
        raise OptionError(
            "no running query of this session reads the topic for the group and has finished a batch: "
            "give the name servers instead of the session to see what the group has committed",
            group=group,
            topic=topic,
        )
    with closing(_connect(found.source.client_options() | options)) as client:
        positions = {queue: at for queue, at in found.offsets.items() if queue.topic == topic}
        return _now(client, positions, group)


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def lag_between(positions: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> Lag:
    """Return the lag in messages, without requests; a queue without an end is omitted."""
    return Lag(
        tuple(
            QueueLag(
                queue=queue,
                position=position,
                max_offset=ends[queue],
                seconds=0.0 if position >= ends[queue] else None,
                bytes=0 if position >= ends[queue] else None,
            )
            for queue, position in sorted(positions.items())
            if queue in ends
        )
    )


def newest_lag(
    client: PlanningClient,
    positions: Mapping[MessageQueue, int],
    *,
    group: str,
    now_ms: int,
    weights: MessageWeights,
) -> Lag:
    """Request the current lag of a reader at these positions from the brokers.

    Queues whose broker is down are omitted.

    Raises
    ------
    RocketMQError
        No broker answers.
    """
    ends = fetch_available_ends(client, positions)
    return measure_lag(client, lag_between(positions, ends), group=group, now_ms=now_ms, weights=weights)


def measure_lag(client: PlanningClient, lag: Lag, *, group: str, now_ms: int, weights: MessageWeights) -> Lag:
    """Add seconds and bytes to a lag in messages: seconds by each queue's next message, bytes by samples.

    Raises
    ------
    RocketMQError
        A broker does not answer.
    """
    behind = {queue.queue: queue.position for queue in lag.queues if queue.messages}
    if not behind:
        return lag
    times = client.message_times(behind, group)
    sizes = weights.weigh(client, behind, group=group, selector=MessageSelector())

    def look(queue: QueueLag) -> QueueLag:
        if queue.queue not in behind:
            return queue
        stored, size = times.get(queue.queue), sizes.get(queue.queue)
        return replace(
            queue,
            seconds=None if stored is None else max(0, now_ms - stored.store_timestamp) / 1000,
            bytes=None if size is None else size * queue.messages,
        )

    return Lag(tuple(map(look, lag.queues)))


def _connect(options: Mapping[str, Any]) -> PlanningClient:
    return PlanningClient(parse_options(ClientOptions, options))


def _now(client: PlanningClient, positions: Mapping[MessageQueue, int], group: str) -> Lag:
    weights = MessageWeights(_SAMPLED_QUEUES)
    return newest_lag(client, positions, group=group, now_ms=SYSTEM_CLOCK.now_ms(), weights=weights)


def _find_running(queries: Iterable[_HasProgress], group: str, topic: str) -> SourceOffset | None:
    """Return the position of the running query that reads the topic for the group."""
    for query in queries:
        progress = query.lastProgress
        for source in progress["sources"] if progress else ():
            offset = offset_of_rocketmq(source["endOffset"])
            if offset is None or offset.source.group != group:
                continue
            if any(queue.topic == topic for queue in offset.offsets):
                return offset
    return None
