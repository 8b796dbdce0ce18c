"""How a stream notices offsets that are used again, though its queues have grown past its position.

A topic that was deleted and created anew counts from 0 again, a broker that lost its disk too. Once there
are as many messages as before, offsets alone cannot tell. So the end of each micro-batch names a *witness* a
topic and broker: the last message of one of its queues, and when it was stored. A run of the query that
continues from there looks whether that very message is still where it was, and so does every micro-batch
before more of that topic and broker is read. Store times are only compared with themselves, so no clock
matters; a message that has expired since says nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark_rocketmq.errors import RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.offsets.stream_offset import Witness
from pyspark_rocketmq.planning.data_loss import decide_replaced

__all__ = ["Looks", "Place", "check_witnesses", "new_witnesses", "place", "places_ahead"]

Place: TypeAlias = tuple[str, str]
"""A topic at a broker: created and deleted as one."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What became of a look at witnesses; where there was none to look at, neither has the place.

    Parameters
    ----------
    done : frozenset of Place
        Witnesses that are where they were, or have expired.
    failed : frozenset of Place
        There was no answer. Keep these witnesses, and look again.
    """

    done: frozenset[Place] = frozenset()
    failed: frozenset[Place] = frozenset()


def place(queue: MessageQueue) -> Place:
    """Return the topic and broker that a queue's witness stands for."""
    return (queue.topic, queue.broker_name)


def places_ahead(
    positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int]
) -> frozenset[Place]:
    """Return where there is more to read: there a witness is looked at first."""
    return frozenset(place(queue) for queue in reach if reach[queue] > positions[queue])


def check_witnesses(
    client: PlanningClient,
    witnesses: Mapping[MessageQueue, Witness],
    ends: Mapping[MessageQueue, int],
    *,
    group: str,
    fail_on_data_loss: bool,
) -> Looks:
    """Look whether messages that were read are still there.

    Parameters
    ----------
    client : PlanningClient
    witnesses : Mapping
    ends : Mapping
        The max offsets of the queues whose masters answer.
    group : str
        The group that messages are looked at with.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        OFFSET_WENT_BACK: another one is in the place of one, and ``fail_on_data_loss`` is set.
    """
    offsets = {
        queue: witness.offset
        for queue, witness in witnesses.items()
        if queue in ends and witness.offset < ends[queue]  # else the queue is shorter: `moved_back` tells
    }
    found = _stored_at(client, offsets, group)
    looked_at = frozenset(map(place, offsets))
    if found is None:
        return Looks(failed=looked_at)
    for queue, found_ms in found.items():
        witness = witnesses[queue]
        if found_ms != witness.stored_at_ms:
            decide_replaced(
                queue,
                witness.offset,
                stored_at_ms=witness.stored_at_ms,
                found_ms=found_ms,
                fail_on_data_loss=fail_on_data_loss,
            )
            _LOG.warning("another message is at offset %d of %s than was read", witness.offset, queue)
    return Looks(done=looked_at)


def new_witnesses(
    client: PlanningClient,
    former: Mapping[MessageQueue, Witness],
    positions: Mapping[MessageQueue, int],
    until: Mapping[MessageQueue, int],
    *,
    group: str,
) -> dict[MessageQueue, Witness]:
    """Return the witnesses of a micro-batch's end; what was not read on, or cannot be seen, keeps its former.

    Parameters
    ----------
    client : PlanningClient
    former : Mapping
        Those of the batch's start.
    positions, until : Mapping
        Where the batch begins and ends.
    group : str
        The group that messages are looked at with.
    """
    longest: dict[Place, MessageQueue] = {}
    for queue in sorted(until):
        taken = until[queue] - positions[queue]
        best = longest.get(place(queue))
        if taken > 0 and (best is None or taken > until[best] - positions[best]):
            longest[place(queue)] = queue
    last = {queue: until[queue] - 1 for queue in longest.values()}
    found = _stored_at(client, last, group) or {}
    renewed = set(map(place, found))
    kept = {queue: each for queue, each in former.items() if place(queue) not in renewed}
    return kept | {queue: Witness(last[queue], stored_at_ms) for queue, stored_at_ms in found.items()}


def _stored_at(
    client: PlanningClient, offsets: Mapping[MessageQueue, int], group: str
) -> dict[MessageQueue, int] | None:
    """Ask for store times; None if that fails now: the query goes on without an answer."""
    try:
        return client.stored_at(offsets, group) if offsets else {}
    except RocketMQError as error:
        _LOG.warning("the last messages cannot be looked at now: %s", error)
        return None
