"""Keeps Spark's watermark correct over many queues.

Spark's watermark follows the newest event time of *all* queues. Messages of a queue that is read slower than
the others would silently be dropped as late. So no queue may be read past the oldest unread message of any
queue with a backlog, and an idle source must report that time advances.

Alignment takes three rounds of look-ups, each for all queues together; the functions return what to look up::

    heads = times of the messages at heads(positions, reach)
    until = admit(positions, reach, limits, head_times_ms=heads)
    tails = times of the messages at tails(until, reach)
    if tails: offsets = ahead(positions, head_times_ms=heads, tail_times_ms=tails)
              offsets |= first offsets stored at or after barrier(tails) + 1, of all others that are read
    until = align(positions, until, head_times_ms=heads, tail_times_ms=tails, offsets=offsets)

Queues that are held back leave a part of the limits, which `planning.limit.extend` gives to the others. Then
the last two rounds are repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_rocketmq.model import MessageQueue

__all__ = ["ahead", "align", "aligned_until", "barrier", "heads", "next_heartbeat", "tails"]


def heads(
    positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Return the next offset of the queues with a backlog: the oldest messages that are unread now."""
    return {queue: position for queue, position in positions.items() if reach[queue] > position}


def tails(until: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Return the first offset after the micro-batch of the queues that keep a backlog."""
    return {queue: end for queue, end in until.items() if reach[queue] > end}


def barrier(tail_times_ms: Mapping[MessageQueue, int]) -> int:
    """Return the time (ms) that no queue may pass: that of the slowest queue's first unread message.

    Parameters
    ----------
    tail_times_ms : Mapping
        The times of the messages at `tails`; not empty.
    """
    return min(tail_times_ms.values())


def ahead(
    positions: Mapping[MessageQueue, int],
    *,
    head_times_ms: Mapping[MessageQueue, int],
    tail_times_ms: Mapping[MessageQueue, int],
) -> dict[MessageQueue, int]:
    """Return the positions of the queues that are past the barrier already: nothing is to be looked up there.

    Parameters are those of `align`; there are tails.
    """
    limit_ms = barrier(tail_times_ms)
    return {queue: positions[queue] for queue, head_ms in head_times_ms.items() if head_ms > limit_ms}


def align(
    positions: Mapping[MessageQueue, int],
    until: Mapping[MessageQueue, int],
    *,
    head_times_ms: Mapping[MessageQueue, int],
    tail_times_ms: Mapping[MessageQueue, int],
    offsets: Mapping[MessageQueue, int],
) -> dict[MessageQueue, int]:
    """Hold back the queues that would pass the barrier.

    By store time, which never decreases in a queue, every message of the micro-batch is then no newer than
    any message that stays unread. By born time this holds as far as born times follow store times: a message
    is stored after it was born, so the queues are held back by store time at the barrier's born time.

    Where there is a backlog, something is read: at least the oldest message of those that are admitted.

    Parameters
    ----------
    positions, until : Mapping
        Where the micro-batch begins and would end without alignment.
    head_times_ms, tail_times_ms : Mapping
        The times of the messages at `heads` and at `tails`.
    offsets : Mapping
        By queue, the first offset stored after the barrier, or `ahead`; may be empty when there are no tails.
    """
    if not tail_times_ms:
        return dict(until)
    limit_ms = barrier(tail_times_ms)
    admitted = [queue for queue in head_times_ms if until[queue] > positions[queue]]
    oldest = min(admitted, key=lambda queue: (head_times_ms[queue], queue), default=None)
    aligned: dict[MessageQueue, int] = {}
    for queue, end in until.items():
        least = positions[queue] + (queue == oldest)
        # What lies before a tail at the barrier is not past it, whatever its store times say.
        held = end if tail_times_ms.get(queue) == limit_ms else offsets.get(queue, end)
        aligned[queue] = min(end, max(least, held))
    return aligned


def next_heartbeat(previous_ms: int, *, now_ms: int, interval_ms: int, idle: bool) -> int:
    """Return the heartbeat time that the next end offset carries; it grows exactly when one is due.

    A micro-batch has a heartbeat row when its end carries a later time than its start, so a replay has it
    too.

    Parameters
    ----------
    previous_ms : int
        What the start offset carries.
    now_ms : int
    interval_ms : int
        ``heartbeatInterval``.
    idle : bool
        Whether no queue has a backlog: while messages wait, the clock must not run ahead of them.
    """
    return now_ms if idle and now_ms - previous_ms >= interval_ms else previous_ms


def aligned_until(previous_ms: int, tail_times_ms: Iterable[int], *, seen_ms: int) -> int:
    """Return the time (ms) that no message of a later micro-batch was stored before.

    Parameters
    ----------
    previous_ms : int
        What the micro-batch before it has; 0 before the first one.
    tail_times_ms : iterable of int
        The store times of the messages at `tails`.
    seen_ms : int
        A moment after which everything was stored that is not known of.

    Returns
    -------
    int
        At least 1, because Spark's first watermark is 0 and drops what is not after it.
    """
    return max(1, previous_ms, min([seen_ms, *tail_times_ms]))
