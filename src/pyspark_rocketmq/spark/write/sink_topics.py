"""The topics of a write, created on request, and the queue of each row."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, TypeVar
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
    OptionError,
    PermissionDeniedError,
    RocketMQError,
    TopicExistsError,
    TopicNotFoundError,
)
from pyspark_rocketmq.model import MessageQueue, Permission
from pyspark_rocketmq.options import SinkOptions
from pyspark_rocketmq.record.encode.outgoing_rows import OutgoingRows
from pyspark_rocketmq.remoting.codes import ResponseCode

__all__ = ["ANY_QUEUE", "RESTART_MS", "SinkTopics", "named_brokers", "require_topic"]

_LOG: Final = logging.getLogger(__name__)

ANY_QUEUE: Final = -1
"""The number of rows that may go to any queue."""

RESTART_MS: Final = 35_000
"""How long a name server that restarted may not know a broker that runs.

Each registers again within 30 s (``registerNameServerPeriod``, BrokerController).
"""

_LAST_LOOK_MS: Final = 2_000
"""What is left of an outage's time for the last look, which decides whether the topic is missing."""

T = TypeVar("T")

_LOOK_AGAIN: Final = RetryPolicy(max_ms=500)

_SETTLED_S: Final = 600.0
"""How long the result "no unknown broker returned while waiting for a missing topic" is valid."""


@dataclass(slots=True)
class _SeenBrokers:
    """The brokers that a process has seen, to decide whether one of them may be restarting.

    Without this, each row whose topic does not exist would delay its task by `RESTART_MS`.
    """

    names: set[str] = field(default_factory=set)
    settled_until_s: float = -math.inf

    def among(self, registered: Collection[str] | None) -> Collection[str]:
        """Return the registered brokers; where a proxy answers, which tells none, those that were seen."""
        return self.names if registered is None else registered

    def are_all_there(self, registered: Collection[str], now_s: float) -> bool:
        """Return whether no broker is known to be down, and no unknown broker is expected."""
        return now_s < self.settled_until_s and self.names.issubset(registered)

    def settle(self, registered: Collection[str], now_s: float) -> None:
        """Record that these are all brokers: the wait for a missing topic was long enough."""
        self.names, self.settled_until_s = set(registered), now_s + _SETTLED_S


_seen: Final[WeakKeyDictionary[Client, _SeenBrokers]] = WeakKeyDictionary()


def require_topic(options: SinkOptions) -> None:
    """Fail before any task runs if the topic does not exist; create it if ``createTopic`` is on.

    Raises
    ------
    TopicNotFoundError, PermissionDeniedError, BrokerNotFoundError, NameServerError
    """
    if options.topic is None:
        return
    with Client(options.client) as client:
        SinkTopics(client, options).queues(options.topic)


def named_brokers(rows: OutgoingRows) -> frozenset[str]:
    """Return the brokers that rows with a queue id name."""
    if rows.queue_id is None or rows.broker_name is None:
        return frozenset()
    names = pc.unique(rows.broker_name.filter(rows.queue_id.is_valid()))
    return frozenset(name.decode() for name in names.to_pylist() if name is not None)


class SinkTopics:
    """The topics of one task, or of the check of the topic before any task.

    A name server forgets the topics of a broker that is down, and all when it restarts: a topic without a
    route may not exist, or its brokers may be restarting or about to register. The check waits as a send
    would, for ``outageTimeout``, while no broker or no master of the topic is registered. With ``patient``,
    it waits for `RESTART_MS` while other brokers are registered, too, or only brokers at which the topic may
    not be written. After such a wait without result, topics that only rows name are not waited for while
    every broker that this process has seen is registered.

    Parameters
    ----------
    client : Client
    options : SinkOptions
    patient : bool
    """

    def __init__(self, client: Client, options: SinkOptions, *, patient: bool = False) -> None:
        self._client = client
        self._options = options
        self._outage_ms = options.outage_timeout_ms
        last_look_ms = min(self._outage_ms / 2, _LAST_LOOK_MS)
        self._restart_ms = min(self._outage_ms - last_look_ms, RESTART_MS) if patient else 0
        self._seen = _seen.setdefault(client, _SeenBrokers())

    def queues(self, topic: str, named_brokers: Collection[str] = ()) -> tuple[MessageQueue, ...] | None:
        """Return the queues to which rows of a topic may be sent, sorted; None if its rows are dead letters.

        Parameters
        ----------
        topic : str
        named_brokers : collection of str
            The brokers that rows name; waits for those that are down.

        Raises
        ------
        TopicNotFoundError
            The topic does not exist, and ``createTopic`` is off.
        PermissionDeniedError
            The topic is not writable.
        BrokerNotFoundError
            No broker, or no master of the topic, is registered.
        NameServerError
        """
        # Shorter than the outage, so that the last check shows which of the two it is.
        restart = self._client.deadline(self._restart_ms)
        return self._retry(lambda: self._look_up(topic, named_brokers, restart), topic)

    def await_route(self, topic: str) -> None:
        """Wait while a topic has no route: its brokers may be restarting. A send tells if it is missing.

        Raises
        ------
        BrokerNotFoundError, NameServerError
        """
        restart = self._client.deadline(self._restart_ms)

        def look_up() -> None:
            if self._client.find_route(topic) is None and not restart.expired:
                raise BrokerNotFoundError("no name server has a route to the topic", topic=topic)

        self._retry(look_up, topic)

    def _retry(self, ask: Callable[[], T], topic: str) -> T:
        def attempt() -> T:
            try:
                return ask()
            except RocketMQError as error:
                if error.retriable:
                    text = "the rows of topic %s wait: %s"
                    self._client.warnings.warn(_LOG, text, topic, error, about=(topic, type(error)))
                raise

        return retry(
            attempt,
            deadline=self._client.deadline(self._outage_ms),
            clock=self._client.clock,
            random=self._client.random,
            policy=_LOOK_AGAIN,
            on_stale_route=lambda: self._client.invalidate(topic),
        )

    def _look_up(
        self, topic: str, named_brokers: Collection[str], restart: Deadline
    ) -> tuple[MessageQueue, ...] | None:
        route = self._client.find_route(topic)
        if route is None:
            return self._without_route(topic, restart)
        self._seen.names.update(data.broker_name for data in route.queues)
        queues = route.write_queues()
        if queues:
            absent = {*named_brokers}.difference(queue.broker_name for queue in queues)
            if self._wait_for_brokers(topic, absent, restart):
                self._client.invalidate(topic)
                return self._client.write_queues(topic)
            return queues
        if any(Permission.WRITE in data.perm for data in route.queues):
            raise BrokerNotFoundError("none of the topic's brokers has a master now", topic=topic)
        if not self._all_are_there(restart):
            raise BrokerNotFoundError(
                "the topic may not be written at the brokers that are registered; others may be restarting",
                topic=topic,
            )
        raise PermissionDeniedError(
            "no queue of the topic may be written: its permission forbids it",
            code=ResponseCode.NO_PERMISSION,
            topic=topic,
        )

    def _all_are_there(self, restart: Deadline) -> bool:
        """Return whether no broker is expected to return that may have more of a topic."""
        if not self._restart_ms:
            return True
        registered = self._client.name_servers.fetch_registered_brokers(deadline=self._client.deadline())
        known = self._seen.among(registered)
        now_s = self._client.clock.monotonic()
        if restart.expired:
            self._seen.settle(known, now_s)
            return True
        return self._options.topic is None and self._seen.are_all_there(known, now_s)

    def _without_route(self, topic: str, restart: Deadline) -> tuple[MessageQueue, ...] | None:
        """Create the topic, or raise an error that is retried while its brokers may be restarting."""
        client = self._client
        registered = client.name_servers.fetch_registered_brokers(deadline=client.deadline())
        if registered is not None and not registered:
            raise client.routes.why_missing(topic, deadline=client.deadline(), registered=registered)
        if self._options.create_topic:
            if registered is None:
                raise OptionError(
                    "a proxy does not create topics: create this one at the name servers, "
                    "or set their address as nameServer",
                    option="createTopic",
                    topic=topic,
                )
            with contextlib.suppress(TopicExistsError):  # another writer was first: its topic stays as it is
                Admin(client).create_topic(topic, queues=self._options.topic_queues)
            return client.write_queues(topic)
        known = self._seen.among(registered)
        now_s = client.clock.monotonic()
        of_row = self._options.topic is None
        if not restart.expired and not (of_row and self._seen.are_all_there(known, now_s)):
            raise BrokerNotFoundError(
                "no name server has a route to the topic: it is missing, or its broker restarts", topic=topic
            )
        if self._restart_ms and restart.expired:
            self._seen.settle(known, now_s)
        if of_row and self._options.takes_dead_letters:
            return None
        error = client.routes.why_missing(topic, deadline=client.deadline(), registered=registered)
        if isinstance(error, TopicNotFoundError):
            joint = " Otherwise " if error.message.endswith("?") else "; "
            hint = "create it, or let the write do it with createTopic=true"
            raise TopicNotFoundError(f"{error.message}{joint}{hint}", **error.facts)
        raise error

    def _wait_for_brokers(self, topic: str, absent: set[str], restart: Deadline) -> bool:
        """Raise an error that is retried while brokers that rows name may be restarting.

        Returns whether one of them is registered: it may have come back after the route was looked up.
        """
        if not absent or not self._restart_ms:
            return False
        registered = self._client.name_servers.fetch_registered_brokers(deadline=self._client.deadline())
        known = self._seen.among(registered)
        now_s = self._client.clock.monotonic()
        away = absent.difference(known)
        if away and not self._seen.are_all_there(known, now_s):
            if not restart.expired:
                raise BrokerNotFoundError(
                    "a broker that rows name is not registered",
                    topic=topic,
                    broker_name=";".join(sorted(away)),
                )
            self._seen.settle(known, now_s)
        return away != absent

    def assign(
        self, rows: OutgoingRows, queues: tuple[MessageQueue, ...]
    ) -> tuple[npt.NDArray[np.int32], list[int]]:
        """Return for each row the index of its queue in ``queues``, and the rows whose queue does not exist.

        A queue id decides, else a sharding key as in the Java client, else the queue is ``ANY_QUEUE``.
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
            # A static topic's queues are those of the topic: the name of a former owner is also valid.
            name = broker.decode() if broker is not None and not queues[0].logical else only
            place = places.get((name or "", rows.queue_id[row].as_py()))
            if place is None:
                unknown.append(int(row))
            else:
                numbers[row] = place
        return numbers, unknown
