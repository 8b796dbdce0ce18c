"""Waits until stored messages can be read."""

# Facts (DefaultMessageStore, 4.9 to 5.4): a broker acknowledges a message that is in its commit log. Another
# thread (ReputMessageService) adds it to the index of its queue, from which pulls and the max offset are
# answered. Measured on an idle machine: up to 41 ms later.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.requests import max_offset
from pyspark_rocketmq.client.retry import ONCE_MORE
from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue

__all__ = ["wait_until_readable"]

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1


def wait_until_readable(client: Client, ends: Mapping[MessageQueue, int], *, timeout_ms: float) -> bool:
    """Wait until the max offset of each queue has reached an offset, and return whether it has.

    The messages are stored already: an error, such as a missing permission to read, ends the wait for its
    queue only. A broker that does not answer takes at most half of the time.

    Parameters
    ----------
    client : Client
    ends : Mapping[MessageQueue, int]
        For each queue, the offset after the last message that was sent to it.
    timeout_ms : float
        Maximum time.
    """
    deadline, pause_s = Deadline(client.clock, timeout_ms), _FIRST_PAUSE_S
    behind, all_answer = dict(ends), True
    while behind:
        calls = {queue: max_offset(queue) for queue in behind}
        outcomes = client.requests.try_each(calls, deadline=deadline.sooner(timeout_ms / 2), policy=ONCE_MORE)
        reached = {q: found for q, found in outcomes.items() if not isinstance(found, RocketMQError)}
        all_answer = all_answer and len(reached) == len(behind)
        behind = {queue: behind[queue] for queue, found in reached.items() if found < behind[queue]}
        if behind:
            if deadline.expired:
                return False
            client.clock.sleep(min(pause_s, deadline.remaining_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return all_answer
