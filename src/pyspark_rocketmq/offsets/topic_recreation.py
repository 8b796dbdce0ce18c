"""Detection of offsets that are used again in queues that have grown past the stream's position.

After a topic is deleted and re-created, or a broker loses its disk, offsets start from 0 again. Once the
queue has as many messages as before, offsets alone cannot show this. So the end of each micro-batch names a
*witness* per topic and broker: the last message of one of its queues, with its store time. A run of the query
that continues from there checks that the message is still at its offset, and so does every micro-batch before
it reads more of that topic and broker. A store time is only compared with the store time at the same offset,
so clocks do not matter. A message that has expired shows nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark_rocketmq.errors import AuthenticationError, PermissionDeniedError, RocketMQError
from pyspark_rocketmq.model import MessageQueue
from pyspark_rocketmq.offsets.offset_lookup import PlanningClient
from pyspark_rocketmq.offsets.stream_offset import Witness
from pyspark_rocketmq.planning.data_loss import decide_replaced

__all__ = ["Looks", "Place", "check_witnesses", "choose_witnesses", "find_places_ahead", "place"]

Place: TypeAlias = tuple[str, str]
"""A topic at a broker: created and deleted as a unit."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """The result of checking witnesses. A place without a witness to check is in neither set.

    Parameters
    ----------
    done : frozenset of Place
        Places whose witness is unchanged or has expired.
    failed : frozenset of Place
        Places without an answer. Keep their witnesses, and check again.
    """

    done: frozenset[Place] = frozenset()
    failed: frozenset[Place] = frozenset()


def place(queue: MessageQueue) -> Place:
    """Return the topic and broker that a queue's witness represents."""
    return (queue.topic, queue.broker_name)


def find_places_ahead(
    positions: Mapping[MessageQueue, int], reach: Mapping[MessageQueue, int]
) -> frozenset[Place]:
    """Return the places with more to read: their witnesses are checked first."""
    return frozenset(place(queue) for queue in reach if reach[queue] > positions[queue])


def check_witnesses(
    client: PlanningClient,
    witnesses: Mapping[MessageQueue, Witness],
    ends: Mapping[MessageQueue, int],
    *,
    group: str,
    fail_on_data_loss: bool,
) -> Looks:
    """Check that messages that were read are still at their offsets.

    Parameters
    ----------
    client : PlanningClient
    witnesses : Mapping
    ends : Mapping
        The max offsets of the queues whose masters answer.
    group : str
        The group that the pull requests name.
    fail_on_data_loss : bool

    Raises
    ------
    DataLossError
        OFFSET_WENT_BACK: an offset has another message now, and ``fail_on_data_loss`` is set.
    PermissionDeniedError, AuthenticationError
        A broker refuses the request, for example because a permission was revoked.
    """
    offsets = {
        queue: witness.offset
        for queue, witness in witnesses.items()
        if queue in ends
        and witness.offset < ends[queue]  # else the queue is shorter: `moved_back` reports it
    }
    found, failed = _stored_at(client, offsets, group)
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
    return Looks(done=frozenset(map(place, offsets)) - failed, failed=failed)


def choose_witnesses(
    client: PlanningClient,
    former: Mapping[MessageQueue, Witness],
    positions: Mapping[MessageQueue, int],
    until: Mapping[MessageQueue, int],
    *,
    group: str,
) -> dict[MessageQueue, Witness]:
    """Return the witnesses of a micro-batch's end. Places not read, or not accessible, keep their witness.

    Parameters
    ----------
    client : PlanningClient
    former : Mapping
        The witnesses of the batch's start.
    positions, until : Mapping
        Where the batch begins and ends.
    group : str
        The group that the pull requests name.

    Raises
    ------
    PermissionDeniedError, AuthenticationError
        A broker refuses the request.
    """
    longest: dict[Place, MessageQueue] = {}
    for queue in sorted(until):
        taken = until[queue] - positions[queue]
        best = longest.get(place(queue))
        if taken > 0 and (best is None or taken > until[best] - positions[best]):
            longest[place(queue)] = queue
    last = {queue: until[queue] - 1 for queue in longest.values()}
    found, _ = _stored_at(client, last, group)
    renewed = set(map(place, found))
    kept = {queue: each for queue, each in former.items() if place(queue) not in renewed}
    return kept | {queue: Witness(last[queue], stored_at_ms) for queue, stored_at_ms in found.items()}


def _stored_at(
    client: PlanningClient, offsets: Mapping[MessageQueue, int], group: str
) -> tuple[Mapping[MessageQueue, int], frozenset[Place]]:
    """Request store times. Also return the places that do not answer: the query continues without them."""
    found: Mapping[MessageQueue, int] = {}
    failed: Mapping[MessageQueue, RocketMQError] = {}
    try:
        if offsets:
            found, failed = client.stored_at(offsets, group)
    except RocketMQError as error:
        failed = dict.fromkeys(offsets, error)
    for each in failed.values():
        if isinstance(each, PermissionDeniedError | AuthenticationError):
            raise each  # reading fails for the same reason
        client.warnings.warn(_LOG, "the last messages cannot be looked at now: %s", each, about=type(each))
    return found, frozenset(map(place, failed))
