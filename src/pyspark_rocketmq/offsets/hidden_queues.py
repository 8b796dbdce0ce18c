"""Known queues that cannot be read because their topic has fewer read queues now."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.planning_client import Ends, PlanningClient
from pyspark_rocketmq.offsets.queue_lookup import is_outage
from pyspark_rocketmq.planning.data_loss import decide_hidden

__all__ = ["HiddenQueues"]

_LOG: Final = logging.getLogger(__name__)

_HIDDEN_CHECK_S: Final = 30.0


class HiddenQueues:
    """Looks at known queues that are missing although their broker has the topic: it has fewer queues now.

    They are checked when they become hidden, and every half minute: writers with an old route use them for
    some time after that. If their broker serves them, the route is an old one, of a name server that brokers
    did not reach: only a broker's answer shows that a queue cannot be read.
    """

    def __init__(self) -> None:
        self._hidden: frozenset[MessageQueue] = frozenset()
        self._next_check_s = -math.inf

    def check(
        self,
        client: PlanningClient,
        known: Mapping[MessageQueue, int],
        ends: Ends,
        *,
        group: str,
        fail_on_data_loss: bool,
    ) -> Ends:
        """Report hidden queues that were not read to their ends.

        Returns the ends, with those of queues that only the route lacks.

        Raises
        ------
        DataLossError
            Such a queue exists, and ``fail_on_data_loss`` is set.
        """
        there = ends.seen
        places = {(queue.topic, queue.broker_name) for queue in there}
        missing = known.keys() - there.keys() - ends.failed.keys()
        hidden = frozenset(queue for queue in missing if (queue.topic, queue.broker_name) in places)
        now_s = client.clock.monotonic()
        if hidden == self._hidden and now_s < self._next_check_s:
            return ends
        try:
            found = client.max_offsets(sorted(hidden)) if hidden else {}
            served = client.served({q: known[q] for q, end in found.items() if end > known[q]}, group)
        except RocketMQError as error:
            if not is_outage(error):
                raise
            text = "hidden queues are looked at later, their broker does not answer: %s"
            client.warnings.warn(_LOG, text, error, about=type(error))
            return ends
        for queue, end in found.items():
            if queue in served:
                continue
            unread = decide_hidden(queue, known[queue], max_offset=end, fail_on_data_loss=fail_on_data_loss)
            if unread:
                _LOG.warning("%d messages of %s wait: its topic has fewer read queues now", unread, queue)
        self._hidden, self._next_check_s = hidden, -math.inf if served else now_s + _HIDDEN_CHECK_S
        return replace(ends, masters={**ends.masters, **{queue: found[queue] for queue in sorted(served)}})
