"""Where a write's rows go: topics, made on request, and the queue of each row."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pyspark_rocketmq.client.admin import Admin
from pyspark_rocketmq.client.client import Client
from pyspark_rocketmq.client.clock import Deadline
from pyspark_rocketmq.client.retry import RetryPolicy, retry
from pyspark_rocketmq.client.send.queue_selection import queue_numbers
from pyspark_rocketmq.errors import (
    BrokerNotFoundError,
    PermissionDeniedError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.record.encode.outgoing_rows import OutgoingRows
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["ANY_QUEUE", "RESTART_MS", "SinkTopics", "named_brokers"]

ANY_QUEUE: Final = -1
"""The number of rows that may go to any queue."""

RESTART_MS: Final = 15_000
"""How long a broker that was restarted may take to be registered again: brokers try every ten seconds."""

_LOOK_AGAIN: Final = RetryPolicy(max_ms=500)

_SETTLED_S: Final = 600.0
"""How long it counts that no unknown broker came back while a missing topic was waited for."""


@dataclass(slots=True)
class _SeenBrokers:
    """The brokers that a process has seen: whether one of them may be restarting now.

    Without this, each row whose topic really is missing would hold its task for `RESTART_MS`.
    """

    names: set[str] = field(default_factory=set)
    settled_until_s: float = -math.inf

    def are_all_there(self, registered: Collection[str], now_s: float) -> bool:
        """Tell whether no broker is known to be away, and no unknown one is expected."""
        return now_s < self.settled_until_s and self.names.issubset(registered)

    def settle(self, registered: Collection[str], now_s: float) -> None:
        """Note that these are all brokers: a missing topic was waited for long enough."""
        self.names, self.settled_until_s = set(registered), now_s + _SETTLED_S


_seen: Final[WeakKeyDictionary[Client, _SeenBrokers]] = WeakKeyDictionary()


def named_brokers(rows: OutgoingRows) -> frozenset[str]:
    """Return the brokers that rows with a queue id name."""
    if rows.queue_id is None or rows.broker_name is None:
        return frozenset()
    names = pc.unique(rows.broker_name.filter(rows.queue_id.is_valid()))
    return frozenset(name.decode() for name in names.to_pylist() if name is not None)


class SinkTopics:
    """The topics of one task, or of the look at the topic before any task.

    A name server forgets the topics of a broker that is away: one that has no route may be missing, or its
    brokers may be restarting. A patient look waits: while no broker at all is there, or no master of the
    topic's, for ``outageTimeout``, as a send would; beside other brokers for `RESTART_MS`. A topic that only
    rows name is not waited for while every broker that this process has seen is registered, once such a wait
    found nothing.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    patient : bool
    """

    def __init__(self, client: Client, options: SinkOptions, *, patient: bool = False) -> None:
        self._client = client
        self._options = options
        self._outage_ms = options.outage_timeout_ms if patient else 0
        self._seen = _seen.setdefault(client, _SeenBrokers())

    def queues(self, topic: str, named_brokers: Collection[str] = ()) -> tuple[MessageQueue, ...] | None:
        """Return the queues that rows of a topic may go to, sorted; None if its rows are dead letters.

        Parameters
        ----------
        topic : str
        named_brokers : collection of str
            The brokers that rows name: one that is away is waited for.

        Raises
        ------
        TopicNotFoundError
            The topic does not exist and is not to be made.
        PermissionDeniedError
            It may not be written.
        BrokerNotFoundError
            No broker is there, or no master of the topic's.
        NameServerError
        """
        # Shorter than the outage, so that the last look tells which of the two it is.
        restart = self._client.deadline(min(self._outage_ms / 2, RESTART_MS))
        return retry(
            lambda: self._look_up(topic, named_brokers, restart),
            deadline=self._client.deadline(self._outage_ms),
            clock=self._client.clock,
            random=self._client.random,
            policy=_LOOK_AGAIN,
            on_stale_route=lambda: self._client.invalidate(topic),
        )

    def _look_up(
        self, topic: str, named_brokers: Collection[str], restart: Deadline
    ) -> tuple[MessageQueue, ...] | None:
        try:
            route = self._client.route(topic)
        except TopicNotFoundError as error:
            admin = Admin(self._client)
            registered = admin.cluster_info().brokers
            if not registered:
                raise BrokerNotFoundError(
                    "no broker is registered at the name servers", topic=topic
                ) from error
            if self._options.create_topic:
                admin.create_topic(topic, queues=self._options.topic_queues)
                return self._client.write_queues(topic)
            now_s = self._client.clock.monotonic()
            of_row = self._options.topic is None
            if not restart.expired and not (of_row and self._seen.are_all_there(registered, now_s)):
                raise BrokerNotFoundError(
                    "no name server has a route to the topic: it is missing, or its broker restarts",
                    topic=topic,
                ) from error
            if self._outage_ms and restart.expired:
                self._seen.settle(registered, now_s)
            if of_row and self._options.takes_dead_letters:
                return None
            raise TopicNotFoundError(
                "the topic does not exist: create it, or let the write do it with createTopic=true",
                topic=topic,
            ) from error
        self._seen.names.update(data.broker_name for data in route.queues)
        queues = route.write_queues()
        if queues:
            self._wait_for_brokers(topic, {*named_brokers}.difference(q.broker_name for q in queues), restart)
            return queues
        if any(Permission.WRITE in data.perm for data in route.queues):
            raise BrokerNotFoundError("no master of the topic's brokers is there", topic=topic)
        raise PermissionDeniedError(
            "no queue of the topic may be written: its permission forbids it",
            code=ResponseCode.NO_PERMISSION,
            topic=topic,
        )

    def _wait_for_brokers(self, topic: str, absent: set[str], restart: Deadline) -> None:
        """Raise what is tried again while brokers that rows name may be restarting."""
        if not absent or not self._outage_ms:
            return
        registered = Admin(self._client).cluster_info().brokers
        now_s = self._client.clock.monotonic()
        away = absent.difference(registered)
        if not away or self._seen.are_all_there(registered, now_s):
            return
        if restart.expired:
            self._seen.settle(registered, now_s)
        else:
            raise BrokerNotFoundError(
                "a broker that rows name is not registered", topic=topic, broker_name=";".join(sorted(away))
            )

    def assign(
        self, rows: OutgoingRows, queues: tuple[MessageQueue, ...]
    ) -> tuple[npt.NDArray[np.int32], list[int]]:
        """Return for each row the number of its queue in ``queues``, and the rows whose queue is not there.

        A queue id decides, else a sharding key as in the Java client, else it is ``ANY_QUEUE``.
        """
        numbers = np.full(len(rows), ANY_QUEUE, np.int32)
        if rows.sharding_key is not None:
            keyed = np.flatnonzero(pc.fill_null(pc.greater(pc.binary_length(rows.sharding_key), 0), False))
            numbers[keyed] = queue_numbers(rows.sharding_key.take(keyed), len(queues))
        if rows.queue_id is None:
            return numbers, []
        given = np.flatnonzero(rows.queue_id.is_valid())
        places = {(queue.broker_name, queue.queue_id): place for place, queue in enumerate(queues)}
        brokers = {queue.broker_name for queue in queues}
        only = next(iter(brokers)) if len(brokers) == 1 else None
        unknown: list[int] = []
        for row in given:
            broker = rows.broker_name[row].as_py() if rows.broker_name is not None else None
            # A static topic's queues are those of the topic: the name of a former owner is as good.
            name = broker.decode() if broker is not None and not queues[0].logical else only
            place = places.get((name or "", rows.queue_id[row].as_py()))
            if place is None:
                unknown.append(int(row))
            else:
                numbers[row] = place
        return numbers, unknown
