"""The size of a micro-batch: combined limits that starve no queue and exceed no queue's end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from pyspark_rocketmq.model import MessageQueue

__all__ = ["Limits", "admit", "enough", "extend", "share"]

DEFAULT_MESSAGE_BYTES: Final = 1024
"""The assumed size of a queue's messages before one has been sampled."""

FIRST_INTERVAL_MS: Final = 1_000
"""The time to which a rate applies in the first micro-batch, which has no predecessor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a micro-batch; None is no limit.

    Parameters
    ----------
    max_offsets : int, optional
        Offsets over all queues.
    max_bytes : int, optional
        Bytes over all queues, by estimate.
    max_rate_per_queue : int, optional
        Offsets per second per queue.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    max_rate_per_queue: int | None = None


def enough(backlog: int, *, min_offsets: int | None, waited_ms: int, max_delay_ms: int) -> bool:
    """Return whether a micro-batch should be created now: the backlog is large enough, or has waited enough.

    Parameters
    ----------
    backlog : int
        Unread offsets.
    min_offsets : int, optional
        ``minOffsetsPerTrigger``.
    waited_ms : int
        Time since the last micro-batch, or since the query's (re)start.
    max_delay_ms : int
        ``maxTriggerDelay``.
    """
    return backlog > 0 and (min_offsets is None or backlog >= min_offsets or waited_ms >= max_delay_ms)


def admit(
    positions: Mapping[MessageQueue, int],
    reach: Mapping[MessageQueue, int],
    limits: Limits,
    *,
    elapsed_ms: int | None = None,
    message_bytes: Mapping[MessageQueue, int] | None = None,
    head_times_ms: Mapping[MessageQueue, int] | None = None,
) -> dict[MessageQueue, int]:
    """Return where each queue's part of the next micro-batch ends.

    Every end is between the queue's position and its reach. All limits apply together, with one exception: if
    there is a backlog, at least one message is taken, however small the limit is.

    Parameters
    ----------
    positions, reach : Mapping
        The next offset of each queue, and how far it could be read (`planning.discovery.targets`).
    limits : Limits
    elapsed_ms : int, optional
        Time since the last micro-batch, for the rate; None for the first one.
    message_bytes : Mapping, optional
        The size of a message by queue, as seen so far.
    head_times_ms : Mapping, optional
        The times of the next messages (`planning.alignment`): the oldest then go first, instead of turns.
    """
    backlog = {
        queue: reach[queue] - position for queue, position in positions.items() if reach[queue] > position
    }
    if (most := _most_per_queue(limits, elapsed_ms)) is not None:
        backlog = {queue: min(size, most) for queue, size in backlog.items()}
    # Each micro-batch moves the positions on, so the turn moves on with it: by as many queues as were
    # served when there is less than one message a queue, which makes a round of it.
    turn = sum(positions.values())
    ages = head_times_ms or {}
    if limits.max_offsets is not None:
        backlog = share(backlog, limits.max_offsets, turn=turn, ages=ages)
    if limits.max_bytes is not None:
        sizes = {queue: max(1, (message_bytes or {}).get(queue, DEFAULT_MESSAGE_BYTES)) for queue in backlog}
        backlog = share(backlog, limits.max_bytes, turn=turn, costs=sizes, ages=ages)
    return {queue: position + backlog.get(queue, 0) for queue, position in positions.items()}


def _most_per_queue(limits: Limits, elapsed_ms: int | None) -> int | None:
    if limits.max_rate_per_queue is None:
        return None
    return max(
        1, limits.max_rate_per_queue * (FIRST_INTERVAL_MS if elapsed_ms is None else elapsed_ms) // 1000
    )


def extend(
    positions: Mapping[MessageQueue, int],
    until: Mapping[MessageQueue, int],
    reach: Mapping[MessageQueue, int],
    limits: Limits,
    *,
    elapsed_ms: int | None = None,
    message_bytes: Mapping[MessageQueue, int] | None = None,
) -> dict[MessageQueue, int]:
    """Return where the parts of a micro-batch end when it fills its limits, each grown in proportion.

    For `planning.alignment`, which holds back queues after they got a share of the limits: however large
    their backlogs are, the others are read at the full rate.

    Parameters
    ----------
    positions, until, reach : Mapping
        Where each queue's part begins and ends now, and how far it could be read.
    limits, elapsed_ms, message_bytes
        As of `admit`.
    """
    taken = {queue: until[queue] - position for queue, position in positions.items()}
    if not any(taken.values()):
        return dict(until)
    if (most := _most_per_queue(limits, elapsed_ms)) is not None:
        reach = {queue: min(end, positions[queue] + most) for queue, end in reach.items()}
    budgets = []
    if limits.max_offsets is not None:
        budgets.append((limits.max_offsets, sum(taken.values())))
    if limits.max_bytes is not None:
        sizes = message_bytes or {}
        cost = sum(many * max(1, sizes.get(q, DEFAULT_MESSAGE_BYTES)) for q, many in taken.items())
        budgets.append((limits.max_bytes, cost))
    grown = {
        queue: max(many, min((many * budget // spent for budget, spent in budgets), default=many))
        for queue, many in taken.items()
    }
    return {queue: min(position + grown[queue], reach[queue]) for queue, position in positions.items()}


def share(
    backlog: Mapping[MessageQueue, int],
    budget: int,
    *,
    turn: int = 0,
    costs: Mapping[MessageQueue, int] | None = None,
    ages: Mapping[MessageQueue, int] | None = None,
) -> dict[MessageQueue, int]:
    """Divide a budget by backlog, after one message per queue.

    First every queue gets one message, as far as the budget goes, beginning with the queue whose turn it is;
    the rest is prorated by what the remaining backlogs cost. Without ``costs`` the sum is exactly
    ``min(budget, all backlogs)``; with costs it is never above the budget unless the first message alone is.

    Parameters
    ----------
    backlog : Mapping
        Messages by queue.
    budget : int
        At least 1.
    turn : int
        Whose turn it is; successive turns go around.
    costs : Mapping, optional
        What a message of each queue costs; 1 when absent.
    ages : Mapping, optional
        The time of each queue's next message: the oldest queue is served first, before any turn.
    """
    queues = sorted(queue for queue, size in backlog.items() if size > 0)
    cost = costs or dict.fromkeys(queues, 1)
    if sum(backlog[queue] * cost[queue] for queue in queues) <= budget:
        return {queue: backlog[queue] for queue in queues}
    first = turn % len(queues)
    order = list(chain(queues[first:], queues[:first]))
    if ages:
        order.sort(key=lambda queue: ages.get(queue, 0))
    shares = _one_each(order, budget, cost)
    left = budget - sum(shares[queue] * cost[queue] for queue in shares)
    if len(shares) == len(queues) and left > 0:
        _prorate(shares, backlog, left, cost)
    return shares


def _one_each(
    order: Iterable[MessageQueue], budget: int, cost: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Give one message each in order while the budget lasts; the first gets its own in any case."""
    shares: dict[MessageQueue, int] = {}
    left = budget
    for queue in order:
        if shares and cost[queue] > left:
            break
        shares[queue] = 1
        left -= cost[queue]
    return shares


def _prorate(
    shares: dict[MessageQueue, int],
    backlog: Mapping[MessageQueue, int],
    left: int,
    cost: Mapping[MessageQueue, int],
) -> None:
    """Add what is left of the budget, by largest remainder; integers only, as offsets have 64 bits."""
    rest = {queue: backlog[queue] - shares[queue] for queue in shares}
    total = sum(rest[queue] * cost[queue] for queue in rest)
    remainders: list[tuple[int, MessageQueue]] = []
    spent = 0
    for queue, size in rest.items():
        more, remainder = divmod(left * size, total)
        shares[queue] += more
        spent += more * cost[queue]
        remainders.append((-remainder, queue))
    for _, queue in sorted(remainders):
        if shares[queue] < backlog[queue] and spent + cost[queue] <= left:
            shares[queue] += 1
            spent += cost[queue]
