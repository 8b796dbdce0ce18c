"""Expired messages after a stream's positions: the limits of a batch are for messages that can be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark_rocketmq.model import MessageQueue, OffsetRange
from pyspark_rocketmq.offsets.planning_client import PlanningClient
from pyspark_rocketmq.planning.data_loss import PullVerdict, decide_loss

__all__ = ["find_expired"]

_LOG: Final = logging.getLogger(__name__)


def find_expired(
    client: PlanningClient, positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Return where queues continue whose next messages have expired, with ``failOnDataLoss=false``.

    Limited batches that counted these messages might never get to one that is left, because retention
    deletes more meanwhile.

    Parameters
    ----------
    client : PlanningClient
    positions, reach : Mapping
        The next offset of each queue, and how far it could be read.
    """
    unread = sorted(queue for queue, position in positions.items() if reach[queue] > position)
    begins: dict[MessageQueue, int] = {}
    for queue, first in (client.begins(unread) if unread else {}).items():
        if first > positions[queue]:
            left = OffsetRange(queue, positions[queue], reach[queue])
            found = decide_loss(left, PullVerdict.BELOW_MIN, first, fail_on_data_loss=False)
            client.warnings.warn(  # each time, while a batch waits for more messages
                _LOG,
                "%d messages of %s have expired: the limits of the batch count from %d",
                *(len(found.lost.offsets), queue, found.offset),
                about=(queue, found.offset),
            )
            begins[queue] = found.offset
    return begins
