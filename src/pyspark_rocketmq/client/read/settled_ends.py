"""Ends of queues that may lie before what was read: a broker that restarts rebuilds its index.

# Facts (``DefaultMessageStore.load`` and ``start``, ``BrokerController.startBasicService``; 4.9.8, 5.3.3)
#
# A master has all messages of its log in its index before it accepts connections: 4.9 waits in ``start`` for
# ``dispatchBehindBytes`` to be 0, 5.x dispatches them while it recovers. Of masters that were killed with
# 200,000 (4.9.7) and 1,000,000 messages (5.5.0), the first answer was the whole end: who knows no position,
# such as a batch from "earliest", takes it as it is. A master in controller mode ends at what its replicas
# have confirmed, which may be less for a while after it restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark_rocketmq.client.clock import Clock, Deadline
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.planning.data_loss import find_shortened

__all__ = ["MOVED_BACK_PATIENCE_MS", "settle_ends"]

MOVED_BACK_PATIENCE_MS: Final = 10_000
"""How long a queue may end before its position: a broker that restarts rebuilds its index."""

_PAUSE_S: Final = 0.5


def settle_ends(
    ends: Mapping[MessageQueue, int],
    known: Mapping[MessageQueue, int],
    ask: Callable[[], Mapping[MessageQueue, int]],
    clock: Clock,
) -> Mapping[MessageQueue, int]:
    """Return the ends. They are asked for again while a queue ends before its position and has time left.

    Parameters
    ----------
    ends : mapping of MessageQueue to int
        As they were told first.
    known : mapping of MessageQueue to int
        The positions.
    ask : callable
        Returns the ends of all queues now: what was told before may be old by now.
    clock : Clock
    """
    behind: dict[MessageQueue, Deadline] = {}
    expired: set[MessageQueue] = set()
    while True:
        begun = Deadline(clock, MOVED_BACK_PATIENCE_MS)
        behind = {queue: behind.get(queue, begun) for queue in find_shortened(known, ends)}
        if behind.keys() <= expired:
            return ends
        clock.sleep(_PAUSE_S)
        expired = {
            queue for queue, until in behind.items() if until.expired
        }  # only what is told later counts
        ends = ask()
